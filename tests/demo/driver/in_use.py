"""Volumes in use: a file system that `cbt-driver driver` mounts, or, where a machine has no devices for
it, the bare blocks over NBD. Both are written to in the background, and know what must be in a
snapshot: what was complete before it was taken, and did not change until it was there."""

import hashlib
import os
import random
import shutil
import subprocess
import threading
import time

BLOCK = 4096


class Driver:
    """`cbt-driver driver`, once it is started. `make_client` makes a CSI client from an address."""

    def __init__(self, cbt, plugin, folder, make_client):
        self.command = [os.path.join(os.path.dirname(cbt), "cbt-driver"), "driver", "--endpoint", f"unix://{folder}/csi.sock", "--state-dir",
                        f"{folder}/state", "--node-id", "demo", "--nbdkit-plugin", plugin]
        self.address = f"unix://{folder}/csi.sock"
        self.volumes = f"{folder}/state/volumes"
        self.log = f"{folder}/driver.log"
        self.make_client = make_client
        self.process = self.client = None

    def start(self):
        ready, ready_in_child = os.pipe()
        with open(self.log, "ab") as log:
            # A session of its own: a signal of the terminal goes to the demo alone, which ends the
            # driver in order.
            self.process = subprocess.Popen(
                [*self.command, "--ready-fd", str(ready_in_child)], stdin=subprocess.DEVNULL,
                stderr=log, pass_fds=[ready_in_child], start_new_session=True)
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            if not pipe.readline():
                with open(self.log, encoding="utf-8") as log:
                    raise RuntimeError("the driver did not start: " + log.read())
        self.client = self.make_client(self.address)

    def kill(self):
        """Also if it was never started."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
        if self.client is not None:
            self.client.close()

    def end(self):
        self.client.close()
        self.process.terminate()
        return self.process.wait(60)

    def bytes_read(self):
        """What the driver has read so far with read() and its like: files, pipes and sockets."""
        with open(f"/proc/{self.process.pid}/io", encoding="ascii") as counters:
            return int(counters.readline().removeprefix("rchar: "))

    def snapshot_file(self, volume, snapshot):
        return f"{self.volumes}/{volume}/volume/snapshots/{snapshot}"


def missing_devices():
    """What this machine lacks to mount a volume."""
    if os.geteuid() != 0:
        return ["root's rights"]
    needed = [path for path in ("/dev/fuse", "/dev/loop-control") if not os.path.exists(path)]
    programs = ("losetup", "mkfs.ext4", "resize2fs", "blkid", "mount")
    return needed + [name for name in programs if shutil.which(name) is None]


class InUse(threading.Thread):
    """Writes until it is stopped. `kept`: what a reader must find, by a name of its place."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.kept = {}
        self.steps = 0
        self.stopping = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
                self.steps += 1
                time.sleep(0.005)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def finish(self):
        self.stopping.set()
        if self.is_alive():
            self.join()
        if self.error is not None:
            raise self.error

    def step(self):
        raise NotImplementedError

    def wait_for(self, steps):
        """Until so many more steps are done."""
        wanted = self.steps + steps
        while self.steps < wanted:
            if self.error is not None:
                raise self.error
            time.sleep(0.005)

    def while_kept(self, action):
        """The action's result, and what was kept all the time that it took."""
        before = dict(self.kept)
        result = action()
        after = dict(self.kept)
        return result, {name: value for name, value in before.items() if after.get(name) == value}


class MountedVolume(InUse):
    """A volume that the driver mounts with an ext4 file system. Files come and go, and a table is
    written in place."""

    table_blocks = 2048

    def __init__(self, driver, messages, volume, folder, seed):
        super().__init__(seed)
        self.driver, self.messages, self.volume = driver, messages, volume
        self.staging, self.target = folder + "/staging", folder + "/mounted"
        self.path = self.target
        self.names = iter(range(1 << 30))

    def capability(self):
        return self.messages.VolumeCapability(
            mount=self.messages.VolumeCapability.MountVolume(fs_type="ext4"),
            access_mode=self.messages.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"))

    def attach(self):
        client = self.driver.client
        client.NodeStageVolume(volume_id=self.volume, staging_target_path=self.staging,
                               volume_capability=self.capability())
        client.NodePublishVolume(volume_id=self.volume, staging_target_path=self.staging,
                                 target_path=self.target, volume_capability=self.capability())

    def detach(self):
        client = self.driver.client
        client.NodeUnpublishVolume(volume_id=self.volume, target_path=self.target)
        client.NodeUnstageVolume(volume_id=self.volume, staging_target_path=self.staging)

    def described(self):
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            device = next(line.split()[0] for line in mounts if f" {self.target} " in line)
        return f"ext4 on {device}, on the volume host's file, on nbdkit, which marks each write"

    def put(self, name, data, offset=None):
        flags = os.O_WRONLY | os.O_CREAT
        file = os.open(os.path.join(self.path, name), flags, 0o600)
        try:
            os.pwrite(file, data, offset or 0)
            os.fsync(file)
        finally:
            os.close(file)

    def fill(self):
        """The files and the table that are there before the first backup."""
        self.put("table", self.random.randbytes(self.table_blocks * BLOCK))
        for _ in range(24):
            self.put_file(1 << 20)

    def put_file(self, size):
        name = f"file-{next(self.names)}"
        data = self.random.randbytes(size)
        self.put(name, data)
        self.kept[name] = hashlib.sha256(data).hexdigest()

    def step(self):
        choice = self.random.random()
        if choice < 0.6:
            at = self.random.randrange(self.table_blocks)
            data = self.random.randbytes(BLOCK)
            self.kept.pop(("table", at), None)
            self.put("table", data, at * BLOCK)
            self.kept["table", at] = hashlib.sha256(data).hexdigest()
        elif choice < 0.8:
            self.put_file(self.random.randrange(1, 128 << 10))
        else:
            files = [name for name in self.kept if isinstance(name, str)]
            if len(files) > 24:
                name = self.random.choice(files)
                del self.kept[name]
                os.unlink(os.path.join(self.path, name))

    def check(self, kept):
        """Compares what is mounted with what was kept."""
        for name, digest in kept.items():
            if isinstance(name, tuple):
                with open(os.path.join(self.path, "table"), "rb") as table:
                    table.seek(name[1] * BLOCK)
                    data = table.read(BLOCK)
            else:
                with open(os.path.join(self.path, name), "rb") as file:
                    data = file.read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise AssertionError(f"{name} is not what was written")


class ServedVolume(InUse):
    """The bare blocks of a volume, which nbdkit serves where the driver looks for it, and qemu-io
    writes to."""

    blocks = 16384

    def __init__(self, driver, plugin, volume, seed):
        super().__init__(seed)
        self.plugin = plugin
        self.folder = f"{driver.volumes}/{volume}"
        self.url = f"nbd+unix:///?socket={self.folder}/nbd.sock"
        self.server = self.writer = None

    def attach(self):
        control = f"{self.folder}/control.sock"
        self.server = subprocess.Popen(
            ["nbdkit", "--foreground", "--unix", f"{self.folder}/nbd.sock", self.plugin,
             f"directory={self.folder}/volume", f"control={control}"], stdin=subprocess.DEVNULL,
            start_new_session=True)
        for path in (control, f"{self.folder}/nbd.sock"):
            while not os.path.exists(path):
                if self.server.poll() is not None:
                    raise RuntimeError("nbdkit did not start")
                time.sleep(0.01)
        self.writer = subprocess.Popen(
            ["qemu-io", "--format", "raw", "--cache", "none", self.url], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)

    def detach(self):
        for process in (self.writer, self.server):
            if process is None:
                continue
            if process is self.writer:
                process.stdin.close()
            process.terminate()
            process.wait(60)
        self.writer = self.server = None

    @staticmethod
    def described():
        return "bare blocks over NBD: nbdkit with the plugin, which marks each write"

    def command(self, line, answers):
        """One command of qemu-io."""
        self.writer.stdin.write(line + "\n")
        self.writer.stdin.flush()
        while line := self.writer.stdout.readline():
            if line.removeprefix("qemu-io> ").startswith(answers):
                return
            if "failed" in line:
                raise RuntimeError("qemu-io: " + line)
        raise RuntimeError("qemu-io has ended")

    def write(self, at, count):
        pattern = self.random.randrange(1, 256)
        for block in range(at, at + count):
            self.kept.pop(block, None)
        self.command(f"write -P {pattern} {at * BLOCK} {count * BLOCK}", "wrote")
        for block in range(at, at + count):
            self.kept[block] = pattern

    def fill(self):
        for at in range(0, self.blocks // 2, 256):
            self.write(at, 256)

    def step(self):
        count = self.random.choice((1, 1, 1, 8, 64))
        self.write(self.random.randrange(self.blocks - count), count)

    @staticmethod
    def check(kept, image):
        """Compares a disk's image with what was kept."""
        with open(image, "rb") as disk:
            for block, pattern in kept.items():
                disk.seek(block * BLOCK)
                if disk.read(BLOCK) != bytes([pattern]) * BLOCK:
                    raise AssertionError(f"block {block} is not what was written")
