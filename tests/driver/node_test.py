"""The Node service of `cbt-driver driver`: devices and mounts, and what snapshots of them know."""

import contextlib
import os
import random
import shutil
import signal
import stat
import subprocess
import unittest

import driver_parts as parts
from driver_parts import (MIB, Code, Mode, block, from_snapshot, make_snapshot, make_volume, mount, size)

BLOCK = 4096


def lacks():
    """What this machine lacks to attach a volume; empty: nothing."""
    if os.geteuid() != 0:
        return "not root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return "no " + device
    for program in ("nbdkit", "losetup", "mkfs.ext4", "blkid"):
        if shutil.which(program) is None:
            return "no " + program
    return "" if os.path.exists(parts.PLUGIN) else "no plugin of nbdkit"


def has_capability(number):
    with open("/proc/self/status", encoding="ascii") as file:
        held, = (line.split()[1] for line in file if line.startswith("CapEff:"))
    return bool(int(held, 16) >> number & 1)


def extents_of(blocks):
    found = []
    for at in sorted(blocks):
        if found and sum(found[-1]) == at * BLOCK:
            found[-1] = (found[-1][0], found[-1][1] + BLOCK)
        else:
            found.append((at * BLOCK, BLOCK))
    return found


def is_running(pid):
    """False once the process has closed its files, whether or not anyone has waited for it."""
    try:
        # The first of its threads is a zombie before the others have ended.
        if len(os.listdir(f"/proc/{pid}/task")) > 1:
            return True
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class ArgumentsTest(parts.DriverTest):
    """What is refused before anything is attached."""

    def setUp(self):
        super().setUp()
        self.client = self.start().client

    def test_missing_fields(self):
        volume = make_volume(self.client, "a")
        good = {"volume_id": volume, "staging_target_path": "/s", "target_path": "/t",
                "volume_capability": mount(), "volume_path": "/t"}
        needs = {"NodeStageVolume": ("volume_id", "staging_target_path", "volume_capability"),
                 "NodeUnstageVolume": ("volume_id", "staging_target_path"),
                 "NodePublishVolume": ("volume_id", "target_path", "volume_capability"),
                 "NodeUnpublishVolume": ("volume_id", "target_path"),
                 "NodeGetVolumeStats": ("volume_id", "volume_path"),
                 "NodeExpandVolume": ("volume_id", "volume_path")}
        for method, fields in needs.items():
            for missing in fields:
                with self.subTest(method=method, missing=missing):
                    self.fails(Code.INVALID_ARGUMENT, getattr(self.client, method),
                               **{field: good[field] for field in fields if field != missing})

    def test_unknown_volumes_and_paths(self):
        volume = make_volume(self.client, "a")
        for method, path in (("NodeStageVolume", "staging_target_path"),
                             ("NodePublishVolume", "target_path"),
                             ("NodeGetVolumeStats", "volume_path"),
                             ("NodeExpandVolume", "volume_path")):
            more = {} if path == "volume_path" else {"volume_capability": mount()}
            call = getattr(self.client, method)
            self.fails(Code.NOT_FOUND, call, volume_id="unknown", **{path: "/t"}, **more)
            self.fails(Code.NOT_FOUND if path == "volume_path" else Code.INVALID_ARGUMENT, call,
                       volume_id=volume, **{path: "relative"}, **more)
        self.fails(Code.NOT_FOUND, self.client.NodeGetVolumeStats, volume_id=volume,
                   volume_path="/not/there")
        self.fails(Code.FAILED_PRECONDITION, self.client.NodePublishVolume, volume_id=volume,
                   target_path="/t", volume_capability=mount())
        # Cleaning up what never was is done.
        for one in ("unknown", volume):
            self.client.NodeUnpublishVolume(volume_id=one, target_path="/t")
            self.client.NodeUnstageVolume(volume_id=one, staging_target_path="/s")

    def test_without_any_way_to_attach_the_error_names_what_is_missing(self):
        empty = os.path.join(self.folder, "bin")
        os.mkdir(empty)
        os.symlink(shutil.which("setsid"), os.path.join(empty, "setsid"))
        os.mkdir(os.path.join(self.folder, "other"))
        driver = parts.Driver(os.path.join(self.folder, "other"), log=self.log,
                              environment={"PATH": empty})
        self.addCleanup(lambda: driver.stop(signal.SIGKILL))
        volume = make_volume(driver.client, "a")
        text = self.fails(Code.FAILED_PRECONDITION, driver.client.NodeStageVolume,
                          volume_id=volume, staging_target_path=self.folder + "/s",
                          volume_capability=block())
        self.assertIn("nbdkit", text)
        self.assertIn("losetup", text)
        driver.client.DeleteVolume(volume_id=volume)


class AttachedCase(parts.DriverTest):
    """Volumes that are attached to this machine. Without tests of its own."""

    def setUp(self):
        missing = lacks()
        if missing:
            raise unittest.SkipTest(missing)
        super().setUp()
        self.driver = self.start()
        self.client = self.driver.client
        self.staging = os.path.join(self.folder, "staging")
        self.target = os.path.join(self.folder, "target")
        os.mkdir(self.staging)
        self.attached = []
        self.addCleanup(self.release)

    def start(self, *options, **more):
        driver = super().start(*options, **more)
        # A driver that has just started holds each attached volume while it asks the host.
        driver.client.patient = True
        return driver

    def release(self):
        """Whatever a failing test has left attached."""
        with contextlib.suppress(Exception):
            self.driver.client.Probe()
        if self.driver.process.poll() is not None:
            self.driver = self.start()
        for volume in self.attached:
            for target in (self.target, self.target + "2"):
                self.driver.client.NodeUnpublishVolume(volume_id=volume, target_path=target)
            self.driver.client.NodeUnstageVolume(volume_id=volume,
                                                 staging_target_path=self.staging)

    def volume(self, name, bytes_=64 * MIB, **more):
        volume = make_volume(self.client, name, bytes_, **more)
        self.attached.append(volume)
        return volume

    def stage(self, volume, capability):
        self.client.NodeStageVolume(volume_id=volume, staging_target_path=self.staging,
                                    volume_capability=capability)

    def publish(self, volume, capability, target=None, readonly=False):
        self.client.NodePublishVolume(
            volume_id=volume, staging_target_path=self.staging, target_path=target or self.target,
            volume_capability=capability, readonly=readonly)

    def unpublish(self, volume, target=None):
        self.client.NodeUnpublishVolume(volume_id=volume, target_path=target or self.target)

    def unstage(self, volume):
        self.client.NodeUnstageVolume(volume_id=volume, staging_target_path=self.staging)

    def write(self, blocks, byte):
        device = os.open(self.target, os.O_RDWR)
        try:
            for at in blocks:
                os.pwrite(device, bytes([byte]) * BLOCK, at * BLOCK)
            os.fsync(device)
        finally:
            os.close(device)


class AttachedTest(AttachedCase):
    def test_deltas_of_a_block_volume_are_what_was_written(self):
        volume = self.volume("a")
        for _ in range(3):
            self.stage(volume, block())
        for _ in range(3):
            self.publish(volume, block())
        self.assertTrue(stat.S_ISBLK(os.stat(self.target).st_mode))
        rng = random.Random(28)
        empty = make_snapshot(self.client, volume, "empty")
        written, snapshots = [], []
        for number in range(3):
            written.append(set(rng.sample(range(64 * MIB // BLOCK), 50)))
            self.write(written[-1], number + 1)
            snapshots.append(make_snapshot(self.client, volume, f"s{number}"))
        self.assertEqual(self.client.delta(empty, snapshots[0]),
                         (extents_of(written[0]), 64 * MIB))
        for first in range(3):
            for second in range(first, 3):
                changed = set().union(*written[first + 1:second + 1])
                self.assertEqual(self.client.delta(snapshots[first], snapshots[second])[0],
                                 extents_of(changed))
        self.assertEqual(self.client.allocated(snapshots[2])[0], extents_of(set().union(*written)))
        stats = self.client.NodeGetVolumeStats(volume_id=volume, volume_path=self.target)
        self.assertEqual(stats.usage[0].total, 64 * MIB)
        # While it is attached it does not go.
        self.fails(Code.FAILED_PRECONDITION, self.client.DeleteVolume, volume_id=volume)
        self.fails(Code.FAILED_PRECONDITION, self.client.NodeUnstageVolume, volume_id=volume,
                   staging_target_path=self.staging)
        self.unpublish(volume)
        self.assertFalse(os.path.exists(self.target))
        self.unstage(volume)
        self.unstage(volume)
        self.assertEqual(os.listdir(self.staging), [])
        # The restored volume has the bytes.
        restored = self.volume("restored", volume_content_source=from_snapshot(snapshots[1]))
        self.stage(restored, block())
        self.publish(restored, block(), readonly=True)
        with open(self.target, "rb") as device:
            data = device.read()
        for at in range(64 * MIB // BLOCK):
            byte = 2 if at in written[1] else 1 if at in written[0] else 0
            self.assertEqual(data[at * BLOCK], byte)

    def test_a_file_system_is_made_once_and_grows(self):
        volume = self.volume("a")
        for _ in range(3):
            self.stage(volume, mount("ext4"))
        for _ in range(3):
            self.publish(volume, mount("ext4"))
        with open(os.path.join(self.target, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        # What the kernel holds back is in the snapshot.
        snapshot = make_snapshot(self.client, volume, "s")
        usage = self.client.NodeGetVolumeStats(volume_id=volume, volume_path=self.target).usage
        self.assertEqual(len(usage), 2)
        self.assertGreater(usage[0].available, 0)
        before = usage[0].total
        self.fails(Code.ALREADY_EXISTS, self.publish, volume, mount("ext4"), readonly=True)
        self.fails(Code.ALREADY_EXISTS, self.stage, volume, mount("xfs"))
        self.fails(Code.INVALID_ARGUMENT, self.publish, volume, block())
        self.client.NodeExpandVolume(volume_id=volume, volume_path=self.target)
        self.unpublish(volume)
        self.unstage(volume)
        self.client.ControllerExpandVolume(volume_id=volume, capacity_range=size(128 * MIB))
        self.stage(volume, mount())
        self.publish(volume, mount(), readonly=True)
        with open(os.path.join(self.target, "file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "kept")
        with self.assertRaises(OSError):
            open(os.path.join(self.target, "new"), "w", encoding="ascii")
        usage = self.client.NodeGetVolumeStats(volume_id=volume, volume_path=self.target).usage
        self.assertGreater(usage[0].total, before * 1.5)
        self.unpublish(volume)
        self.unstage(volume)
        restored = self.volume("restored", volume_content_source=from_snapshot(snapshot))
        self.stage(restored, mount())
        self.publish(restored, mount())
        with open(os.path.join(self.target, "file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "kept")

    def grow(self, volume, capability, capacity):
        for _ in range(2):
            answer = self.client.ControllerExpandVolume(
                volume_id=volume, capacity_range=size(capacity), volume_capability=capability)
            self.assertEqual(answer.capacity_bytes, capacity)
            self.assertEqual(answer.node_expansion_required, not capability.HasField("block"))
            if capability.HasField("block"):
                with open(self.target, "rb") as device:
                    self.assertEqual(device.seek(0, os.SEEK_END), capacity)
            self.assertEqual(self.client.NodeExpandVolume(
                volume_id=volume, volume_path=self.target, volume_capability=capability).capacity_bytes, capacity)

    def test_a_device_grows_while_it_is_used(self):
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())
        first = make_snapshot(self.client, volume, "first")
        device = os.open(self.target, os.O_RDWR)
        try:
            os.pwrite(device, bytes([1]) * BLOCK, 0)
            for capacity in (96 * MIB, 128 * MIB):
                self.grow(volume, block(), capacity)
                self.assertEqual(os.lseek(device, 0, os.SEEK_END), capacity)
                # What is new reads as zeros and can be written, to its last byte.
                self.assertEqual(os.pread(device, BLOCK, capacity - BLOCK), bytes(BLOCK))
                os.pwrite(device, bytes([2]) * BLOCK, capacity - BLOCK)
                os.fsync(device)
        finally:
            os.close(device)
        stats = self.client.NodeGetVolumeStats(volume_id=volume, volume_path=self.target)
        self.assertEqual(stats.usage[0].total, 128 * MIB)
        second = make_snapshot(self.client, volume, "second")
        self.assertEqual(self.client.delta(first, second),
                         (extents_of([0, 96 * MIB // BLOCK - 1, 128 * MIB // BLOCK - 1]), 128 * MIB))
        self.unpublish(volume)
        self.unstage(volume)

    def test_a_mounted_file_system_grows(self):
        for kind in ("ext4", "xfs"):
            if shutil.which("mkfs." + kind) is None:
                continue
            volume = self.volume(kind, 320 * MIB)
            self.stage(volume, mount(kind))
            self.publish(volume, mount(kind))
            before = os.statvfs(self.target)
            with open(os.path.join(self.target, "file"), "wb") as file:
                file.write(b"kept")
                if kind == "xfs" or has_capability(24):  # CAP_SYS_RESOURCE
                    self.grow(volume, mount(kind), 512 * MIB)
                    after = os.statvfs(self.target)
                    self.assertGreater(after.f_blocks, before.f_blocks * 1.4)
                else:
                    self.client.ControllerExpandVolume(volume_id=volume, capacity_range=size(512 * MIB))
                    text = self.fails(Code.FAILED_PRECONDITION, self.client.NodeExpandVolume,
                                      volume_id=volume, volume_path=self.target)
                    self.assertIn("when the volume is staged again", text)
                file.write(b"1" * (MIB * 200))
            self.unpublish(volume)
            self.unstage(volume)
            self.stage(volume, mount(kind))
            self.publish(volume, mount(kind))
            with open(os.path.join(self.target, "file"), "rb") as file:
                self.assertEqual(file.read(5), b"kept1")
            self.assertGreater(os.statvfs(self.target).f_blocks, before.f_blocks * 1.4)
            self.unpublish(volume)
            self.unstage(volume)

    def test_a_snapshot_is_read_without_a_copy(self):
        volume = self.volume("a", 64 * MIB)
        self.stage(volume, block())
        self.publish(volume, block())
        with open(self.target, "r+b", buffering=0) as device:
            device.write(bytes([7]) * MIB)
            os.fsync(device)
        snapshot = make_snapshot(self.client, volume, "s")
        self.unpublish(volume)
        self.unstage(volume)
        many = block(Mode.MULTI_NODE_READER_ONLY)
        before = self.client.GetCapacity().available_capacity
        views = [self.client.CreateVolume(name=name, volume_capabilities=[mode],
                                          volume_content_source=from_snapshot(snapshot)).volume
                 for name, mode in (("one", many), ("two", block(Mode.SINGLE_NODE_READER_ONLY)), ("one", many))]
        self.assertEqual(views[0], views[2])
        self.assertNotEqual(views[0].volume_id, views[1].volume_id)
        self.assertEqual(views[0].capacity_bytes, 64 * MIB)
        self.assertLess(before - self.client.GetCapacity().available_capacity, MIB)
        one, two = (view.volume_id for view in views[:2])
        self.attached += [one, two]
        # It can't be written to, grow, or be the source of others.
        self.fails(Code.ALREADY_EXISTS, self.client.CreateVolume, name="one", volume_capabilities=[block()],
                   volume_content_source=from_snapshot(snapshot))
        self.fails(Code.OUT_OF_RANGE, self.client.CreateVolume, name="larger", volume_capabilities=[many],
                   volume_content_source=from_snapshot(snapshot), capacity_range=size(65 * MIB))
        for capability in (many, mount(mode=Mode.MULTI_NODE_READER_ONLY)):
            self.fails(Code.INVALID_ARGUMENT, self.client.CreateVolume, name="blank", volume_capabilities=[capability])
        self.fails(Code.FAILED_PRECONDITION, self.client.ControllerExpandVolume, volume_id=one,
                   capacity_range=size(128 * MIB))
        self.fails(Code.FAILED_PRECONDITION, make_snapshot, self.client, one, "of view")
        self.fails(Code.FAILED_PRECONDITION, self.client.CreateVolume, name="clone", volume_capabilities=[block()],
                   volume_content_source=parts.from_volume(one))
        self.fails(Code.FAILED_PRECONDITION, self.stage, one, block())
        self.assertFalse(self.client.ValidateVolumeCapabilities(
            volume_id=one, volume_capabilities=[block()]).HasField("confirmed"))
        # The snapshot and its volume go; the data stays until the last reader has gone.
        self.client.DeleteSnapshot(snapshot_id=snapshot)
        self.client.DeleteVolume(volume_id=volume)
        targets = {view: self.target + view for view in (one, two)}
        for view, target in targets.items():
            staging = self.staging + view
            for _ in range(2):
                self.client.NodeStageVolume(volume_id=view, staging_target_path=staging, volume_capability=many)
                self.client.NodePublishVolume(volume_id=view, staging_target_path=staging, target_path=target,
                                              volume_capability=many)
        for target in targets.values():
            with open(target, "rb") as device:
                self.assertEqual(device.read(MIB), bytes([7]) * MIB)
                self.assertEqual(device.read(MIB), bytes(MIB))
            with self.assertRaises(OSError), open(target, "r+b", buffering=0) as device:
                device.write(b"x" * 4096)
        self.assertEqual(self.client.NodeGetVolumeStats(volume_id=one, volume_path=targets[one]).usage[0].total, 64 * MIB)
        self.driver.stop()
        self.driver = self.start()
        self.client = self.driver.client
        for view, target in targets.items():
            self.fails(Code.FAILED_PRECONDITION, self.client.DeleteVolume, volume_id=view)
            self.client.NodeUnpublishVolume(volume_id=view, target_path=target)
            self.client.NodeUnstageVolume(volume_id=view, staging_target_path=self.staging + view)
            self.client.DeleteVolume(volume_id=view)
        self.assertEqual(os.listdir(os.path.join(self.driver.state, "volumes")), [])

    def test_a_file_system_of_a_snapshot_has_many_readers(self):
        volume = self.volume("a", 320 * MIB)
        many = mount("ext4", Mode.MULTI_NODE_READER_ONLY)
        self.stage(volume, mount("ext4"))
        self.publish(volume, mount("ext4"))
        with open(os.path.join(self.target, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        # The file system is in use: its journal has to be replayed.
        snapshot = make_snapshot(self.client, volume, "s")
        self.unpublish(volume)
        self.unstage(volume)
        for source in ({}, {"volume_content_source": parts.from_volume(volume)}):
            self.fails(Code.INVALID_ARGUMENT, self.client.CreateVolume, name="many",
                       volume_capabilities=[many], **source)
        read = self.client.CreateVolume(name="many", volume_capabilities=[many],
                                        volume_content_source=from_snapshot(snapshot)).volume.volume_id
        self.attached.append(read)
        self.assertTrue(self.client.ValidateVolumeCapabilities(
            volume_id=read, volume_capabilities=[many]).HasField("confirmed"))
        self.client.DeleteSnapshot(snapshot_id=snapshot)
        targets = [self.target + str(i) for i in range(2)]
        self.client.NodeStageVolume(volume_id=read, staging_target_path=self.staging,
                                    volume_capability=many)
        for target in targets:
            self.client.NodePublishVolume(volume_id=read, staging_target_path=self.staging,
                                          target_path=target, volume_capability=many)
            with open(os.path.join(target, "file"), encoding="ascii") as file:
                self.assertEqual(file.read(), "kept")
            with self.assertRaises(OSError):
                open(os.path.join(target, "new"), "w", encoding="ascii")
        for target in targets:
            self.client.NodeUnpublishVolume(volume_id=read, target_path=target)
        self.client.NodeUnstageVolume(volume_id=read, staging_target_path=self.staging)

    def test_targets(self):
        volume = self.volume("a")
        single = block(Mode.SINGLE_NODE_SINGLE_WRITER)
        self.stage(volume, single)
        self.publish(volume, single)
        self.publish(volume, single)
        second = self.target + "2"
        self.fails(Code.FAILED_PRECONDITION, self.publish, volume, single, second)
        self.publish(volume, block(Mode.SINGLE_NODE_MULTI_WRITER), second)
        self.fails(Code.FAILED_PRECONDITION, self.client.NodeStageVolume, volume_id=volume,
                   staging_target_path=self.staging + "2", volume_capability=single)
        self.unpublish(volume, second)
        self.unpublish(volume)
        self.unstage(volume)

    def total(self, volume, path):
        usage = self.client.NodeGetVolumeStats(volume_id=volume, volume_path=path).usage
        return usage[0].total

    def test_nc_every_path_of_a_kubelet_to_a_device_is_answered(self):
        volume, other = self.volume("a"), self.volume("b")
        self.stage(volume, block())
        self.publish(volume, block())
        # volumeDevices/publish/PV/POD is bound again to volumeDevices/PV/dev/POD, and
        # pods/POD/volumeDevices/PLUGIN/PV is a link to it.
        bound, link = os.path.join(self.folder, "dev"), os.path.join(self.folder, "link")
        with open(bound, "w", encoding="ascii"):
            pass
        subprocess.run(["mount", "--bind", self.target, bound], check=True)
        self.addCleanup(subprocess.run, ["umount", "--quiet", bound], check=False)
        os.symlink(bound, link)
        for path in (self.staging, self.target, bound, link):
            self.assertEqual(self.total(volume, path), 64 * MIB)
        for path in (self.folder, "/dev/null", "/dev/loop-control", self.target + "/x", "link"):
            self.fails(Code.NOT_FOUND, self.total, volume, path)
        for path in (self.staging, bound):
            self.fails(Code.NOT_FOUND, self.total, other, path)
        subprocess.run(["umount", bound], check=True)
        self.fails(Code.NOT_FOUND, self.total, volume, bound)

    def test_nc_every_path_of_a_kubelet_into_a_file_system_is_answered(self):
        volume = self.volume("a")
        self.stage(volume, mount())
        self.publish(volume, mount())
        os.mkdir(os.path.join(self.target, "directory"))
        subpath = os.path.join(self.folder, "subpath")
        os.mkdir(subpath)
        subprocess.run(["mount", "--bind", os.path.join(self.target, "directory"), subpath],
                       check=True)
        self.addCleanup(subprocess.run, ["umount", "--quiet", subpath], check=False)
        for path in (self.staging, self.target, subpath, os.path.join(self.target, "directory")):
            self.assertLess(self.total(volume, path), 64 * MIB)
        subprocess.run(["umount", subpath], check=True)
        for path in (self.folder, subpath, "/"):
            self.fails(Code.NOT_FOUND, self.total, volume, path)
        # Not the node's own disk, which is below it.
        subprocess.run(["umount", self.target], check=True)
        self.fails(Code.NOT_FOUND, self.total, volume, self.target)

    def test_a_killed_driver_finds_its_volumes_attached(self):
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())
        first = make_snapshot(self.client, volume, "first")
        self.driver.stop(signal.SIGKILL)
        self.write({3, 4, 9}, 7)  # nbdkit serves on
        self.driver = self.start()
        self.client = self.driver.client
        self.stage(volume, block())
        self.publish(volume, block())
        second = make_snapshot(self.client, volume, "second")
        self.assertEqual(self.client.delta(first, second)[0], extents_of({3, 4, 9}))
        self.unpublish(volume)
        self.unstage(volume)


if __name__ == "__main__":
    parts.main()
