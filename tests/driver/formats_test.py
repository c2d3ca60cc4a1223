"""A file system is made only on a volume that cannot have been written to."""

import errno
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import time

import driver_parts as parts
import grpc
import node_test
from driver_parts import MIB, Code, block, from_snapshot, from_volume, make_snapshot, mount

DATABASE = b"no file system, but not empty either" * 1000
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h


def renew_loop_devices():
    """Makes those anew that can't discard: once it was forbidden, Linux 6.18 never allows it again."""
    with open("/dev/loop-control", "rb") as control:
        for queue in glob.glob("/sys/block/loop*/queue"):
            allowed, possible = (int(read_text(os.path.join(queue, name)))
                                 for name in ("discard_max_bytes", "discard_max_hw_bytes"))
            if allowed != 0 or possible == 0:
                continue
            number = int(queue.split("/")[3].removeprefix("loop"))
            try:
                fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
            except OSError as error:
                if error.errno != errno.EBUSY:  # in use by somebody else
                    raise
            else:
                fcntl.ioctl(control, LOOP_CTL_ADD, number)


def read_text(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class FormatsTest(node_test.AttachedCase):
    def setUp(self):
        super().setUp()
        renew_loop_devices()  # an interrupted test has left them
        self.programs = os.path.join(self.folder, "programs")
        os.mkdir(self.programs)
        self.driver.stop(signal.SIGKILL)
        self.driver = self.start(
            environment={"PATH": self.programs + ":" + os.environ["PATH"]})
        self.client = self.driver.client

    def play(self, program, script):
        path = os.path.join(self.programs, program)
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)

    def unplay(self, program):
        os.unlink(os.path.join(self.programs, program))

    def write_raw(self, volume, bytes_, at=0):
        self.stage(volume, block())
        self.publish(volume, block())
        device = os.open(self.target, os.O_RDWR)
        os.pwrite(device, bytes_, at)
        os.fsync(device)
        os.close(device)
        self.unpublish(volume)
        self.unstage(volume)

    def read_raw(self, volume, length, at=0):
        with open(os.path.join(self.driver.state, "volumes", volume, "volume", "data"), "rb") as file:
            file.seek(at)
            return file.read(length)

    def refused(self, volume, file_system="ext4"):
        text = self.fails(Code.FAILED_PRECONDITION, self.stage, volume, mount(file_system))
        self.unstage(volume)
        return text

    def put_file(self, volume, file_system="ext4"):
        self.stage(volume, mount(file_system))
        self.publish(volume, mount(file_system))
        with open(os.path.join(self.target, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        self.unpublish(volume)
        self.unstage(volume)

    def check_file(self, volume, file_system="ext4"):
        self.stage(volume, mount(file_system))
        self.publish(volume, mount(file_system))
        with open(os.path.join(self.target, "file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "kept")
        self.unpublish(volume)
        self.unstage(volume)

    def test_db_a_volume_that_blkid_cannot_read_keeps_its_files(self):
        volume = self.volume("a")
        self.put_file(volume)
        self.play("blkid", "exit 2\n")
        self.assertIn("can't read it", self.refused(volume))
        for status in (1, 4, 8, 127):
            self.play("blkid", f"echo broken; exit {status}\n")
            self.refused(volume)
        self.unplay("blkid")
        self.check_file(volume)

    def test_db_raw_data_of_a_block_volume_is_not_formatted(self):
        for file_system in ("ext4", "xfs"):
            volume = self.volume("raw-" + file_system)
            self.write_raw(volume, DATABASE, at=MIB)
            self.assertIn("blkid", self.refused(volume, file_system))
            self.assertEqual(self.read_raw(volume, len(DATABASE), at=MIB), DATABASE)

    def test_db_a_volume_that_was_handed_out_is_not_formatted_even_if_it_is_zero(self):
        volume = self.volume("a")
        self.write_raw(volume, bytes(MIB))
        self.refused(volume)
        self.assertEqual(self.read_raw(volume, MIB), bytes(MIB))

    def test_db_a_volume_that_was_written_behind_the_drivers_back_is_not_formatted(self):
        volume = self.volume("a")
        path = os.path.join(self.driver.state, "volumes", volume, "volume", "data")
        with open(path, "r+b") as file:
            file.seek(MIB)
            file.write(DATABASE)
        self.refused(volume)
        self.assertEqual(self.read_raw(volume, len(DATABASE), at=MIB), DATABASE)

    def test_db_a_volume_with_a_source_is_never_blank(self):
        source = self.volume("source")
        snapshot = make_snapshot(self.client, source, "s")
        self.refused(self.volume("restored", volume_content_source=from_snapshot(snapshot)))
        self.refused(self.volume("clone", volume_content_source=from_volume(source)))
        self.put_file(source)
        full = make_snapshot(self.client, source, "full")
        self.check_file(self.volume("again", volume_content_source=from_snapshot(full)))

    def test_db_a_volume_that_was_only_looked_at_is_blank(self):
        volume = self.volume("a")
        looked_at = block(parts.Mode.SINGLE_NODE_READER_ONLY)
        self.stage(volume, looked_at)
        self.unstage(volume)
        self.fails(Code.FAILED_PRECONDITION, self.stage, volume,
                   mount("ext4", parts.Mode.SINGLE_NODE_READER_ONLY))
        self.unstage(volume)
        self.put_file(volume)
        self.check_file(volume)

    def test_dc_a_partitioned_disk_is_not_formatted(self):
        volume = self.volume("a")
        table = bytearray(512)
        table[446:462] = bytes((0, 0, 2, 0, 0x83, 0, 0, 0)) + (2048).to_bytes(4, "little") + (
            100000).to_bytes(4, "little")
        table[510:] = b"\x55\xaa"
        self.write_raw(volume, bytes(table))
        self.assertIn("a partition table (dos)", self.refused(volume))
        self.assertEqual(self.read_raw(volume, 512), table)

    def test_dc_a_file_system_with_a_partition_table_over_it_is_not_mounted(self):
        volume = self.volume("a")
        self.put_file(volume)
        table = bytes((0, 0, 2, 0, 0x83, 0, 0, 0)) + (2048).to_bytes(4, "little") + (
            100000).to_bytes(4, "little")
        self.write_raw(volume, table + bytes(48) + b"\x55\xaa", at=446)
        self.assertIn("a partition table (dos)", self.refused(volume))

    def test_dc_another_file_system_is_named(self):
        volume = self.volume("a")
        self.put_file(volume, "ext3")
        self.assertIn("ext3", self.refused(volume))
        self.check_file(volume, "ext3")

    def test_dd_a_failed_mkfs_does_not_outlive_use_in_block_mode(self):
        volume = self.volume("a")
        self.play("mkfs.ext4", "echo no luck; exit 1\n")
        text = self.fails(Code.INTERNAL, self.stage, volume, mount())
        self.assertIn("no luck", text)
        self.unplay("mkfs.ext4")
        self.unstage(volume)
        # A user makes one, and fills it.
        self.stage(volume, block())
        self.publish(volume, block())
        subprocess.run(["mkfs.ext4", "-q", self.target], check=True)
        mounted = os.path.join(self.folder, "mounted")
        os.mkdir(mounted)
        subprocess.run(["mount", self.target, mounted], check=True)
        with open(os.path.join(mounted, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        subprocess.run(["umount", mounted], check=True)
        self.unpublish(volume)
        self.unstage(volume)
        self.check_file(volume)

    def test_dd_data_after_a_failed_mkfs_is_kept(self):
        volume = self.volume("a")
        self.play("mkfs.ext4", "exit 1\n")
        self.fails(Code.INTERNAL, self.stage, volume, mount())
        self.unplay("mkfs.ext4")
        self.unstage(volume)
        self.write_raw(volume, DATABASE)
        self.refused(volume)
        self.assertEqual(self.read_raw(volume, len(DATABASE)), DATABASE)

    def test_dd_data_after_a_half_made_file_system_is_kept(self):
        volume = self.volume("a")
        self.play("mkfs.ext4", "for device; do :; done\n"
                               'dd if=/dev/urandom of="$device" bs=4096 count=100 conv=fsync\n'
                               "exit 1\n")
        self.fails(Code.INTERNAL, self.stage, volume, mount())
        self.unplay("mkfs.ext4")
        self.unstage(volume)
        # Not by the driver, which knows of block use.
        data = os.path.join(self.driver.state, "volumes", volume, "volume", "data")
        with open(data, "r+b") as file:
            self.assertEqual(file.read(MIB).strip(b"\0"), b"")
            file.seek(0)
            file.write(DATABASE)
        self.refused(volume)
        with open(data, "rb") as file:
            self.assertEqual(file.read(len(DATABASE)), DATABASE)

    def fail_mkfs_for_good(self, volume):
        """What it has written can't be discarded."""
        self.addCleanup(renew_loop_devices)
        self.play("mkfs.ext4", "for device; do :; done\n"
                               'dd if=/dev/urandom of="$device" bs=4096 count=100 conv=fsync\n'
                               'echo 0 > /sys/block/${device#/dev/}/queue/discard_max_bytes\n'
                               "exit 1\n")
        self.fails(Code.INTERNAL, self.stage, volume, mount())
        self.unplay("mkfs.ext4")
        self.unstage(volume)
        data = os.path.join(self.driver.state, "volumes", volume, "volume", "data")
        with open(data, "rb") as file:
            self.assertNotEqual(file.read(MIB).strip(b"\0"), b"")
        return data

    def test_dd_data_after_a_mkfs_whose_traces_stay_is_kept(self):
        volume = self.volume("a")
        data = self.fail_mkfs_for_good(volume)
        with open(data, "r+b") as file:
            file.write(DATABASE)
        self.refused(volume)
        with open(data, "rb") as file:
            self.assertEqual(file.read(len(DATABASE)), DATABASE)

    def test_dd_traces_of_a_failed_mkfs_are_overwritten(self):
        for action in ("nothing", "grow", "restart"):
            volume = self.volume("a-" + action)
            self.fail_mkfs_for_good(volume)
            if action == "restart":
                self.driver.stop()
                self.driver = self.start()
                self.client = self.driver.client
            elif action == "grow":
                self.client.ControllerExpandVolume(volume_id=volume,
                                                   capacity_range={"required_bytes": 96 * MIB})
            self.put_file(volume)
            self.check_file(volume)

    def test_dd_a_half_made_file_system_of_the_drivers_own_is_made_again(self):
        volume = self.volume("a")
        # It is found as ext4, without being one.
        real = shutil.which("mkfs.ext4")
        self.play("mkfs.ext4", f'for device; do :; done\n{real} -q -F "$device"\n'
                               'dd if=/dev/zero of="$device" bs=4096 seek=1 count=200 conv=fsync\n'
                               "exit 1\n")
        for _ in range(2):
            self.fails(Code.INTERNAL, self.stage, volume, mount())
        self.unplay("mkfs.ext4")
        self.put_file(volume)
        self.check_file(volume)

    def test_dd_a_driver_that_is_killed_in_a_mkfs_makes_it_again(self):
        volume = self.volume("a")
        ended = os.path.join(self.folder, "ended")
        self.play("mkfs.ext4", 'kill -9 $PPID\nfor device; do :; done\n'
                               'dd if=/dev/urandom of="$device" bs=4096 count=100 conv=fsync\n'
                               f"touch {ended}\n")
        with self.assertRaises(grpc.RpcError):
            self.stage(volume, mount())
        self.driver.process.wait(60)
        # A real one has the device for itself, and lets no other begin.
        while not os.path.exists(ended):
            time.sleep(0.01)
        self.unplay("mkfs.ext4")
        self.driver = self.start()
        self.client = self.driver.client
        self.put_file(volume)
        self.check_file(volume)

    def test_dd_a_failed_mkfs_names_the_reason(self):
        if shutil.which("mkfs.xfs") is None:
            self.skipTest("no mkfs.xfs")
        volume = self.volume("a", 4 * MIB)
        text = self.fails(Code.INTERNAL, self.stage, volume, mount("xfs"))
        self.assertIn("too small", text)
        self.unstage(volume)
        self.put_file(volume)


if __name__ == "__main__":
    parts.main()
