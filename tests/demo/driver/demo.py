#!/usr/bin/env python3
"""A volume of `cbt-driver driver` is backed up while it is in use, and restored. Usage:

    demo.py CBT NBDKIT_PLUGIN [--without-devices]

Needs root, /dev/fuse and loop devices for a file system on the volume. Where one of them is
missing, or with --without-devices, blocks are written over NBD instead. Works in a temporary
folder, and removes it and everything that it attached. Fails when any of its comparisons does.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "..", "support")]
sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import csi_client  # noqa: E402
import grpc  # noqa: E402

import backup  # noqa: E402
import in_use  # noqa: E402

MIB = 1 << 20
CAPACITY = 128 * MIB
INCREMENTS = 10
KILLED_AT = 6
# More than a delta's bookkeeping, less than the data of any.
MOST_READ = 256 << 10

bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


def heading(text):
    print(f"\n{bold}{text}{plain}", flush=True)


def say(text):
    print("  " + text, flush=True)


def mib(count):
    return f"{count / MIB:.1f} MiB"


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}")
    return done.stdout.strip()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Demo:
    def __init__(self, arguments, folder, messages):
        self.cbt, self.plugin, self.folder = arguments.cbt, arguments.plugin, folder
        self.messages = messages
        self.missing = in_use.missing_devices()
        self.devices = not self.missing and not arguments.without_devices
        self.driver = in_use.Driver(self.cbt, self.plugin, folder,
                                    lambda address: csi_client.Client(messages, address))
        self.uses = []
        self.killed = ""

    def create(self, name):
        capability = self.messages.VolumeCapability(
            block=self.messages.VolumeCapability.BlockVolume(),
            access_mode=self.messages.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"))
        made = self.driver.client.CreateVolume(
            name=name, capacity_range=self.messages.CapacityRange(required_bytes=CAPACITY),
            volume_capabilities=[capability])
        return made.volume.volume_id

    def use(self, volume, name, seed):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        if self.devices:
            used = in_use.MountedVolume(self.driver, self.messages, volume, folder, seed)
        else:
            used = in_use.ServedVolume(self.driver, self.plugin, volume, seed)
        self.uses.append(used)
        used.attach()
        return used

    # [snapshot]
    def snapshot(self, volume, name):
        """Takes a snapshot. It may have to be copied first: then the same call is repeated."""
        while True:
            made = self.driver.client.CreateSnapshot(source_volume_id=volume, name=name).snapshot
            if made.ready_to_use:
                return made.snapshot_id
            time.sleep(0.05)
    # [/snapshot]

    def snapshot_while_killed(self, volume, name):
        """The same, but the driver dies in the middle of the call."""
        failed = threading.Event()

        def call():
            try:
                self.driver.client.CreateSnapshot(source_volume_id=volume, name=name)
            except grpc.RpcError:
                failed.set()

        caller = threading.Thread(target=call)
        caller.start()
        time.sleep(0.002)
        self.driver.kill()
        caller.join()
        self.driver.start()
        self.killed = "in the middle of" if failed.is_set() else "right after"
        while True:
            try:
                return self.snapshot(volume, name)
            except grpc.RpcError as error:
                # The new driver is at the volume itself; a client of CSI calls again.
                if error.code() != grpc.StatusCode.ABORTED:
                    raise
                time.sleep(0.05)

    def longest_hold(self, volume):
        """For how long a snapshot has held writes at most, in milliseconds."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(f"{self.driver.volumes}/{volume}/control.sock")
            control.sendall(b'{"request":"status"}\n')
            with control.makefile("rb") as answer:
                return json.loads(answer.readline())["volume"]["longest_hold_ns"] / 1e6

    def show(self):
        begin = time.monotonic()
        self.driver.start()
        print(f"{bold}libcbt: a volume is backed up while it is in use, and restored{plain}")
        heading("1. A CSI driver, and a volume of it in use")
        if not self.devices:
            why = f"without {', '.join(self.missing)}" if self.missing else "as was asked for"
            say(f"{why}: no file system is mounted here; blocks are written over NBD instead")
        volume = self.create("in-use")
        step = time.monotonic()
        used = self.use(volume, "use", seed=28)
        say(f"{mib(CAPACITY)}: {used.described()}   ({time.monotonic() - step:.2f} s)")
        used.fill()
        used.start()

        heading("2. A full backup, while writes go on")
        used.wait_for(10)
        base = self.snapshot(volume, "0")
        found = backup.ranges(self.cbt, self.driver.address, base)
        backups = [os.path.join(self.folder, "full")]
        saved = [backup.save(self.driver.snapshot_file(volume, base), found, backups[0])]
        say(f"allocated: {len(found)} ranges, {mib(saved[0])} of {mib(CAPACITY)} are saved")

        heading("3. Ten incremental ones. What changed comes from the marks: no data is read for it")
        say("    writes   changed            read by the driver   by the backup")
        kept = {}
        for number in range(1, INCREMENTS + 1):
            base, kept = self.increment(number, volume, base, used, backups, saved, kept)
        used.finish()
        say(f"a snapshot has held writes for {self.longest_hold(volume):.2f} ms at most")
        say("each delta was compared with the data: no change is missing")

        heading("4. The restore")
        restored = os.path.join(self.folder, "restored.img")
        backup.restore(backups, CAPACITY, restored)
        image = self.driver.snapshot_file(volume, base)
        say(f"snapshot 10  {digest(image)}")
        say(f"restored     {digest(restored)}")
        run("cmp", image, restored)
        self.into_new_volume(restored, kept)

        heading("5. What the backups have read")
        for name, count in (("eleven times every byte", 11 * CAPACITY),
                            ("eleven full ones, allocated only", 11 * saved[0]),
                            ("one full, ten incremental", sum(saved))):
            say(f"{name:<33} {mib(count):>11}  {100 * count / (11 * CAPACITY):5.1f} %")
        self.leave()
        heading(f"All comparisons hold; the whole took {time.monotonic() - begin:.1f} s.")

    def increment(self, number, volume, base, used, backups, saved, kept):
        del kept  # only what the newest snapshot must hold counts
        before = used.steps
        used.wait_for(15)
        if number == KILLED_AT:
            steps = used.steps
            take = self.snapshot_while_killed
        else:
            take = self.snapshot
        target, kept = used.while_kept(lambda: take(volume, str(number)))
        if number == KILLED_AT:
            say(f"    the driver was killed (SIGKILL) {self.killed} CreateSnapshot, and started again;"
                f"\n      meanwhile the volume took {used.steps - steps} writes, and the "
                "repeated call made the snapshot")
        writes = used.steps - before
        read = self.driver.bytes_read()
        found = backup.ranges(self.cbt, self.driver.address, target, base)
        read = self.driver.bytes_read() - read
        if read > MOST_READ:
            raise AssertionError(f"for a delta the driver has read {read} bytes")
        image = self.driver.snapshot_file(volume, target)
        backups.append(os.path.join(self.folder, f"increment-{number}"))
        saved.append(backup.save(image, found, backups[-1]))
        say(f"{number:>2}  {writes:>6}   {len(found):>4} ranges {mib(saved[-1]):>9}   "
            f"{read / 1024:>10.1f} KiB   {mib(saved[-1]):>14}")
        # Not part of a backup: is the delta right? This does read both snapshots.
        run(self.cbt, "verify", self.driver.snapshot_file(volume, base), image, "--quiet",
            "--service", self.driver.address, "--base", base, "--snapshot", target)
        # The next delta begins here; the snapshot before is not needed any more.
        self.driver.client.DeleteSnapshot(snapshot_id=base)
        return target, kept

    def into_new_volume(self, image, kept):
        """Writes the restored disk onto a new volume, and looks at what is on it."""
        volume = self.create("restored")
        if not self.devices:
            used = self.use(volume, "again", seed=29)
            run("nbdcopy", image, used.url)
            copy = os.path.join(self.folder, "again.img")
            run("nbdcopy", used.url, copy)
            run("cmp", image, copy)
            used.check(kept, copy)
            say(f"on a new volume: {len(kept)} blocks hold what was written before the snapshot")
            return
        self.put_on_device(volume, image)
        used = self.use(volume, "again", seed=29)
        used.check(kept)
        say(f"on a new volume, mounted: {len(kept)} files and pages of the table hold what was "
            "written before the snapshot")

    def put_on_device(self, volume, image):
        client = self.driver.client
        staging, target = self.folder + "/device-staging", self.folder + "/device"
        capability = self.messages.VolumeCapability(
            block=self.messages.VolumeCapability.BlockVolume(),
            access_mode=self.messages.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"))
        client.NodeStageVolume(volume_id=volume, staging_target_path=staging,
                               volume_capability=capability)
        client.NodePublishVolume(volume_id=volume, staging_target_path=staging,
                                 target_path=target, volume_capability=capability)
        run("dd", f"if={image}", f"of={target}", "bs=1M", "conv=sparse,notrunc,fsync",
            "status=none")
        client.NodeUnpublishVolume(volume_id=volume, target_path=target)
        client.NodeUnstageVolume(volume_id=volume, staging_target_path=staging)

    def leave(self):
        """Ends what was begun, in order."""
        for used in self.uses:
            used.finish()
            used.detach()
        self.uses = []
        if self.driver.end() != 0:
            raise AssertionError("the driver did not end in order")

    def force(self):
        """Ends what is left after an error or a signal, whatever state it is in."""
        for used in self.uses:
            used.stopping.set()
            if isinstance(used, in_use.ServedVolume):
                used.detach()
        self.driver.kill()
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            points = [line.split()[1] for line in mounts]
        for point in reversed(points):
            if point.startswith(self.folder + "/"):
                subprocess.run(["umount", "--lazy", point], check=False)
        for device in os.listdir("/sys/block"):
            backing = f"/sys/block/{device}/loop/backing_file"
            with contextlib.suppress(OSError), open(backing, encoding="utf-8") as file:
                if file.read().startswith(self.folder + "/"):
                    subprocess.run(["losetup", "--detach", f"/dev/{device}"], check=False)
        # The volume host, which would start servers again, and then these: the driver leaves them
        # running.
        for role in ("volume-host", "nbdkit"):
            for process in self.processes_of(role):
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)

    def processes_of(self, role):
        """Processes of the demo's folder, by their command lines."""
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            program, words = "", []
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as command:
                program, *words = command.read().decode(errors="replace").split("\0")
            if role in (os.path.basename(program), *words[:1]) and any(
                    self.folder + "/" in word for word in words):
                found.append(int(process))
        return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("cbt", type=os.path.abspath)
    parser.add_argument("plugin", type=os.path.abspath)
    parser.add_argument("--without-devices", action="store_true")
    arguments = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program in ("nbdkit", "protoc", "qemu-io", "nbdcopy"):
        if shutil.which(program) is None:
            sys.exit(f"demo: {program} is missing: run `make deps DEPS=demo-driver`")
    # Signals end the demo like an error does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="cbt-demo-") as folder:
        demo = Demo(arguments, folder, csi_client.generate(folder))
        try:
            demo.show()
        except grpc.RpcError as error:
            sys.exit(f"demo: {error.code().name}: {error.details()}")
        except (AssertionError, OSError, RuntimeError, ValueError) as error:
            sys.exit(f"demo: {error}")
        finally:
            demo.force()


if __name__ == "__main__":
    main()
