"""A device is a volume's only if what is behind it proves so: with the kernel's NBD client, which is
played, and with loop devices."""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import driver_parts as parts
import grpc
import node_test
import played_nbd
from driver_parts import MIB, Code, block, make_snapshot, make_volume, mount

BLOCK = 4096
MISSING = node_test.lacks() or played_nbd.lacks()
PLAYER = None


def setUpModule():
    global PLAYER  # pylint: disable=global-statement
    if not MISSING:
        PLAYER = played_nbd.Player(tempfile.mkdtemp(prefix="cbt-nbd-"))


def tearDownModule():
    if PLAYER is not None:
        PLAYER.release()
        shutil.rmtree(PLAYER.folder, ignore_errors=True)


def put(path, at, byte, sync=True):
    device = os.open(path, os.O_RDWR)
    try:
        os.pwrite(device, bytes([byte]) * BLOCK, at * BLOCK)
        if sync:
            os.fsync(device)
    finally:
        os.close(device)


def end(pid):
    """Kills a process and waits until it has closed its files."""
    os.kill(pid, signal.SIGKILL)
    late = time.monotonic() + 30
    while node_test.is_running(pid):
        if time.monotonic() > late:
            raise AssertionError(f"process {pid} does not end")
        time.sleep(0.01)


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return any(line.split()[4] == path for line in file)


class DevicesTest(parts.DriverTest):
    """Without tests of its own."""

    DEVICE = "nbd"

    def setUp(self):
        if MISSING:
            raise unittest.SkipTest(MISSING)
        super().setUp()
        PLAYER.mode()
        self.driver = self.start("--device", self.DEVICE)
        self.client = self.driver.client
        self.volumes = {}
        self.addCleanup(self.release)

    def release(self):
        if self.driver.process.poll() is not None:
            self.driver = self.start("--device", self.DEVICE)
        for name, volume in self.volumes.items():
            with contextlib.suppress(grpc.RpcError):
                self.driver.client.NodeUnpublishVolume(volume_id=volume, target_path=self.target(name))
                self.driver.client.NodeUnstageVolume(volume_id=volume,
                                                     staging_target_path=self.staging(name))
        PLAYER.release()

    def staging(self, name):
        return os.path.join(self.folder, "staging-" + name)

    def target(self, name):
        return os.path.join(self.folder, "target-" + name)

    def state(self, name, *more):
        return os.path.join(self.driver.state, "volumes", self.volumes[name], *more)

    def volume(self, name):
        os.makedirs(self.staging(name), exist_ok=True)
        self.volumes[name] = make_volume(self.client, name, 64 * MIB)
        return self.volumes[name]

    def stage(self, name, capability=None):
        self.client.NodeStageVolume(volume_id=self.volumes[name],
                                    staging_target_path=self.staging(name),
                                    volume_capability=capability or block())

    def unstage(self, name):
        self.client.NodeUnstageVolume(volume_id=self.volumes[name],
                                      staging_target_path=self.staging(name))

    def publish(self, name, capability=None):
        self.client.NodePublishVolume(
            volume_id=self.volumes[name], staging_target_path=self.staging(name),
            target_path=self.target(name), volume_capability=capability or block())

    def unpublish(self, name):
        self.client.NodeUnpublishVolume(volume_id=self.volumes[name],
                                        target_path=self.target(name))

    def stored(self, name):
        """The first bytes of a volume's blocks, as its own file has them."""
        with open(self.state(name, "volume", "data"), "rb") as file:
            data = file.read(64 * BLOCK)
        return {at: data[at * BLOCK] for at in range(64) if data[at * BLOCK]}

    def server(self, name):
        with open(self.state(name, "nbdkit.pid"), encoding="ascii") as file:
            return int(file.read())

    def socket(self, name):
        return self.state(name, "nbd.sock")

    def restart_node(self):
        """Nothing survives but what is on disk."""
        self.driver.stop(signal.SIGKILL)
        for name in self.volumes:
            for path in (self.target(name), self.staging(name)):
                while is_mounted(path):
                    subprocess.run(["umount", "--lazy", path], check=True)
            if os.path.exists(self.state(name, "nbdkit.pid")):
                end(self.server(name))
        PLAYER.release()
        self.driver = self.start("--device", self.DEVICE)
        self.client = self.driver.client


class TwoAtOnce(DevicesTest):
    """Without tests of its own."""

    def two_at_once(self):
        for name in "ab":
            self.volume(name)

        def stage(name):
            for _ in range(20):
                with contextlib.suppress(grpc.RpcError):
                    self.stage(name)
                    return
            self.stage(name)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(stage, "ab"))
        for number, name in enumerate("ab", 1):
            self.publish(name)
            put(self.target(name), number, number)
        self.assertEqual(self.stored("a"), {1: 1})
        self.assertEqual(self.stored("b"), {2: 2})

    def detach_two(self):
        for name in "ab":
            self.unpublish(name)
            self.unstage(name)


class NbdTest(TwoAtOnce):
    def two_on_nbd(self, **mode):
        PLAYER.mode(delay=0.5, **mode)
        self.two_at_once()
        self.assertEqual(sorted(PLAYER.connected().values()),
                         sorted(self.socket(name) for name in "ab"))
        self.detach_two()
        self.assertEqual(PLAYER.connected(), {})

    def test_da_two_volumes_staged_at_once_get_two_devices(self):
        self.two_on_nbd()

    def test_da_two_volumes_staged_at_once_without_identifiers(self):
        self.two_on_nbd(identifiers=False)

    def test_da_after_a_restart_of_the_node_a_recorded_device_is_another_volumes(self):
        self.volume("a")
        self.volume("b")
        self.stage("a")
        self.publish("a")
        put(self.target("a"), 1, 1)
        self.restart_node()
        self.stage("b")
        self.publish("b")
        self.assertEqual(PLAYER.connected(), {"/dev/nbd0": self.socket("b")})
        # Nothing that asks for a's device gets b's.
        self.fails(Code.FAILED_PRECONDITION, self.publish, "a")
        self.fails(Code.NOT_FOUND, self.client.NodeExpandVolume, volume_id=self.volumes["a"],
                   volume_path=self.target("a"))
        make_snapshot(self.client, self.volumes["a"], "s")
        self.stage("a")
        self.publish("a")
        self.assertEqual(PLAYER.connected(),
                         {"/dev/nbd0": self.socket("b"), "/dev/nbd1": self.socket("a")})
        put(self.target("a"), 3, 3)
        put(self.target("b"), 4, 4)
        self.assertEqual(self.stored("a"), {1: 1, 3: 3})
        self.assertEqual(self.stored("b"), {4: 4})

    def test_da_unstaging_leaves_a_device_that_became_another_volumes(self):
        self.volume("a")
        self.volume("b")
        self.stage("a")
        self.restart_node()
        self.stage("b")
        self.publish("b")
        self.unstage("a")
        self.assertEqual(PLAYER.connected(), {"/dev/nbd0": self.socket("b")})
        put(self.target("b"), 4, 4)
        self.assertEqual(self.stored("b"), {4: 4})

    def test_da_no_file_system_is_made_on_another_volumes_device(self):
        self.volume("a")
        self.volume("b")
        self.stage("a", mount())
        self.restart_node()
        self.stage("b")
        self.publish("b")
        put(self.target("b"), 4, 4)
        self.stage("a", mount())
        put(self.target("b"), 5, 5)
        self.assertEqual(self.stored("b"), {4: 4, 5: 5})

    def test_da_a_device_that_another_program_is_faster_to_connect_is_left_alone(self):
        PLAYER.mode(taken=["/dev/nbd0", "/dev/nbd1"])
        self.volume("a")
        self.stage("a")
        self.stage("a")
        self.publish("a")
        put(self.target("a"), 1, 1)
        self.assertEqual(self.stored("a"), {1: 1})
        self.assertEqual(PLAYER.connected()["/dev/nbd2"], self.socket("a"))
        self.unpublish("a")
        self.unstage("a")
        self.assertEqual(set(PLAYER.connected()), {"/dev/nbd0", "/dev/nbd1"})

    def test_da_where_no_connection_can_be_proved_the_volume_gets_a_loop_device(self):
        PLAYER.mode(keeps=False)
        self.volume("a")
        self.stage("a")
        self.assertEqual(PLAYER.connected(), {})
        self.publish("a")
        put(self.target("a"), 1, 1)
        self.assertEqual(self.stored("a"), {1: 1})
        self.stage("a")
        self.unpublish("a")
        self.unstage("a")
        self.assertFalse(os.path.exists(self.state("a", "fuse")))

    def test_na_where_no_connection_can_be_proved_the_volume_outlives_its_server(self):
        PLAYER.mode(keeps=False)
        self.volume("a")
        self.stage("a")
        self.publish("a")
        for byte in (1, 2, 3):
            put(self.target("a"), byte, byte)
            end(self.server("a"))
            done = threading.Event()

            def write(byte=byte, done=done):
                put(self.target("a"), 10 + byte, byte)
                done.set()

            threading.Thread(target=write, daemon=True).start()
            if not done.wait(30):
                subprocess.run(["umount", "--force", self.state("a", "fuse")], check=False)
                self.fail("the server is not started again")
        self.stage("a")
        self.unpublish("a")
        self.unstage("a")
        self.assertEqual(self.stored("a"), {1: 1, 2: 2, 3: 3, 11: 1, 12: 2, 13: 3})

    def test_da_a_snapshot_is_refused_while_what_holds_its_writes_back_is_not_proved(self):
        volume = self.volume("a")
        self.stage("a")
        self.publish("a")
        first = make_snapshot(self.client, volume, "first")
        put(self.target("a"), 1, 1, sync=False)
        backend = os.path.join(played_nbd.BLOCK, "nbd0/backend")
        held = played_nbd.read(backend)
        played_nbd.write(backend, "another\n")
        self.fails(Code.UNAVAILABLE, make_snapshot, self.client, volume, "second")
        played_nbd.write(backend, held + "\n")
        second = make_snapshot(self.client, volume, "second")
        self.assertEqual(self.client.delta(first, second)[0], [(BLOCK, BLOCK)])

    def test_da_a_snapshot_flushes_a_file_system_that_is_mounted_elsewhere_only(self):
        volume = self.volume("a")
        self.stage("a", mount())
        self.publish("a", mount())
        first = make_snapshot(self.client, volume, "first")
        with open(os.path.join(self.target("a"), "file"), "wb") as file:
            file.write(b"\1" * MIB)
        subprocess.run(["umount", self.staging("a")], check=True)
        second = make_snapshot(self.client, volume, "second")
        self.assertGreater(sum(length for _, length in self.client.delta(first, second)[0]), MIB - 1)
        # Nothing is mounted to be seen: what is below would be the node's own disk.
        self.unpublish("a")
        self.fails(Code.FAILED_PRECONDITION, self.publish, "a", mount())

    def test_da_a_volume_on_two_devices_is_not_used(self):
        volume = self.volume("a")
        self.stage("a")
        subprocess.run(["nbd-client", "-unix", self.socket("a"), "/dev/nbd2", "-i", self.socket("a")],
                       check=True)
        text = self.fails(Code.FAILED_PRECONDITION, self.publish, "a")
        self.assertIn("/dev/nbd0 and /dev/nbd2", text)
        make_snapshot(self.client, volume, "s")
        self.unstage("a")
        self.assertEqual(PLAYER.connected(), {})

    def test_da_a_mount_of_something_else_is_no_published_volume(self):
        for name, capability in (("a", block()), ("b", mount())):
            self.volume(name)
            os.makedirs(self.target(name), exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", self.target(name)], check=True)
            self.stage(name, capability)
            self.assertIn(self.target(name),
                          self.fails(Code.FAILED_PRECONDITION, self.publish, name, capability))
            subprocess.run(["umount", self.target(name)], check=True)
            os.rmdir(self.target(name))
            self.publish(name, capability)
            self.unpublish(name)
            self.unstage(name)
        subprocess.run(["mount", "-t", "tmpfs", "none", self.staging("b")], check=True)
        self.fails(Code.FAILED_PRECONDITION, self.stage, "b", mount())
        subprocess.run(["umount", self.staging("b")], check=True)
        self.stage("b", mount())

    def test_da_a_dead_device_is_not_replaced_while_a_target_shows_it(self):
        self.volume("a")
        self.stage("a")
        self.publish("a")
        end(self.server("a"))
        self.assertIn(self.target("a"), self.fails(Code.FAILED_PRECONDITION, self.stage, "a"))
        self.unpublish("a")
        self.stage("a")
        self.publish("a")
        put(self.target("a"), 1, 1)

    def test_da_only_the_volumes_own_nbdkit_is_ended(self):
        self.volume("a")
        self.stage("a")
        end(self.server("a"))
        with subprocess.Popen(["python3", "-c", "import time; time.sleep(1000)",
                               self.socket("a")]) as other:
            with open(self.state("a", "nbdkit.pid"), "w", encoding="ascii") as file:
                file.write(str(other.pid))
            self.unstage("a")
            self.assertIsNone(other.poll())
            other.kill()


class LoopTest(TwoAtOnce):
    DEVICE = "loop"

    def loop(self, name):
        """The number of the loop device that is published."""
        return os.minor(os.stat(self.target(name)).st_rdev)

    def loops(self):
        """All that are above files of this test."""
        listed = subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
                                check=True, stdout=subprocess.PIPE, text=True).stdout
        return [line.split()[0] for line in listed.splitlines() if self.folder in line]

    def test_da_two_volumes_staged_at_once_get_two_loop_devices(self):
        for _ in range(5):
            self.two_at_once()
            self.assertNotEqual(self.loop("a"), self.loop("b"))
            self.detach_two()
            for name in "ab":
                self.client.DeleteVolume(volume_id=self.volumes.pop(name))
        self.assertEqual(self.loops(), [])

    def test_da_a_loop_device_that_ends_with_its_last_user_is_not_handed_out(self):
        for name in "abc":
            self.volume(name)
        self.stage("a")
        loop = self.loops()[0]
        user = os.open(loop, os.O_RDWR)
        # As a NodeUnstageVolume whose driver was killed while it waited for the user.
        subprocess.run(["losetup", "--detach", loop], check=True)
        attribute = f"{played_nbd.BLOCK}/{loop[5:]}/loop/autoclear"
        self.assertEqual(played_nbd.read(attribute), "1")
        # Neither of the calls that hand it out trusts that the user stays.
        for hand_out in (self.stage, self.publish):
            hand_out("a")
            self.assertEqual(played_nbd.read(attribute), "0")
            if hand_out == self.stage:  # pylint: disable=comparison-with-callable
                subprocess.run(["losetup", "--detach", loop], check=True)
        os.close(user)
        for name in "bc":
            self.stage(name)
            self.publish(name)
            put(self.target(name), 5, 5)
        put(self.target("a"), 1, 1)
        self.assertEqual(self.stored("a"), {1: 1})
        for name in "bc":
            self.assertEqual(self.stored(name), {5: 5})

    def test_da_a_volume_that_is_still_open_stays_attached(self):
        self.volume("a")
        self.stage("a")
        loop = self.loops()[0]
        with open(loop, "rb"):
            self.fails(Code.FAILED_PRECONDITION, self.unstage, "a")
            self.assertEqual(played_nbd.read(f"{played_nbd.BLOCK}/{loop[5:]}/loop/autoclear"), "0")
        self.assertEqual(self.loops(), [loop])
        self.unstage("a")
        self.assertEqual(self.loops(), [])

    def test_da_a_loop_device_of_a_file_with_the_same_path_is_not_used(self):
        self.volume("a")
        # In a mount namespace of another process, the path leads to another file.
        fuse = self.state("a", "fuse")
        os.mkdir(fuse)
        script = (f"mount -t tmpfs none {fuse} && truncate -s 64M {fuse}/disk && "
                  f"losetup --find --show {fuse}/disk && sleep 1000")
        with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE,
                              text=True, start_new_session=True) as other:
            loop = other.stdout.readline().strip()
            try:
                self.assertEqual(played_nbd.read(f"{played_nbd.BLOCK}/{loop[5:]}/loop/backing_file"),
                                 f"{fuse}/disk")
                self.stage("a")
                self.publish("a")
                put(self.target("a"), 1, 1)
                self.assertEqual(self.stored("a"), {1: 1})
                self.unpublish("a")
                self.unstage("a")
                self.assertEqual(played_nbd.read(f"{played_nbd.BLOCK}/{loop[5:]}/size"),
                                 str(64 * MIB // 512))
            finally:
                os.killpg(other.pid, signal.SIGKILL)
                subprocess.run(["losetup", "--detach", loop], check=True)


if __name__ == "__main__":
    parts.main()
