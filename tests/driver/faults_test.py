"""The file below a served volume fails: errors of the disk, no space in the middle of a snapshot's
clone or copy, a file system that is full. Each call fails with an error that can be repeated;
nothing that was acknowledged is lost, and no delta lacks a change."""

import errno
import os
import random
import subprocess
import sys
import time
import unittest

import driver_parts as parts
import grpc
from driver_parts import MIB, Code, make_volume
from nbd_client import FUA
from served_parts import BLOCK, Model, Served, ServedTest, blocks_of, read_blocks

SCALE = max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))
BLOCKS = 2 * MIB // BLOCK
POINTS = 5  # of each kind; times CBT_TEST_SCALE


class Mounted:
    """A file system for a test; skips the test where there can be none."""

    def __init__(self, test, kind, megabytes):
        if os.geteuid() != 0:
            raise unittest.SkipTest("not root")
        self.path = os.path.join(test.folder, "fs")
        os.mkdir(self.path)
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", self.path]
        else:
            image = os.path.join(test.folder, "image")
            with open(image, "wb") as file:
                file.truncate(megabytes * MIB)
            subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
            command = ["mount", "-o", "loop", image, self.path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest(done.stderr.strip())
        # After the driver and nbdkit have ended: clean-ups run in reverse order.
        test.addCleanup(subprocess.run, ["umount", "--lazy", self.path], check=True)


class FaultsTest(ServedTest):
    def setUp(self):
        if parts.SHIM is None:
            raise unittest.SkipTest("no preloaded library in this build")
        super().setUp()
        self.fired = os.path.join(self.folder, "fired")
        self.count = os.path.join(self.folder, "count")
        self.number = 0

    def environment(self, volume, kind, at, then):
        return {"LD_PRELOAD": parts.SHIM, "FAULT_KIND": kind, "FAULT_AT": str(at),
                "FAULT_THEN": str(int(then)), "FAULT_FIRED": self.fired, "FAULT_COUNT": self.count,
                "FAULT_BELOW": os.path.join(self.driver.state, "volumes", volume, "volume")}

    def repeat(self, served, operation):
        """Runs an operation until it is done: once more at once, as a client would, and then on a
        server that has been started anew, without the fault."""
        for _ in range(2):
            try:
                return operation()
            except (OSError, RuntimeError, grpc.RpcError) as error:
                if isinstance(error, OSError) and not isinstance(error, ConnectionError):
                    self.assertIn(error.errno, (errno.EIO, errno.ENOSPC))
                self.errors += 1
        served.stop()
        self.assertTrue(served.start(), self.logged())
        return operation()

    def write(self, served, model, rng, how):
        count = rng.choice((1, 1, 3, 40))
        at = rng.randrange(BLOCKS - count)
        model.version += 1
        version = 0 if how in ("zero", "trim") else model.version
        model.attempt(at, count, version)

        def operation():
            if how == "zero":
                served.nbd.zero(at * BLOCK, count * BLOCK)
            elif how == "trim":
                served.nbd.trim(at * BLOCK, count * BLOCK)
            else:
                served.nbd.write(at * BLOCK, Model.data(version, count),
                                 FUA if how == "fua" else 0)

        self.repeat(served, operation)
        model.done(at, count, version)

    def take(self, served, model, volume, name):
        snapshot = self.repeat(
            served, lambda: self.snapshot(self.driver.client, volume, f"{name}-{self.number}"))
        model.take(name, snapshot)

    def run_with(self, kind, at, then):
        """A life of a volume with one fault, or with all from one on; False if it was not
        reached."""
        self.number += 1
        self.errors = 0
        rng = random.Random(28)
        client = self.driver.client
        volume = make_volume(client, f"volume-{self.number}", BLOCKS * BLOCK)
        model = Model(BLOCKS)
        if os.path.exists(self.fired):
            os.unlink(self.fired)
        served = Served(self, self.driver, volume, self.environment(volume, kind, at, then))
        if not served.up:
            self.assertTrue(served.start(), self.logged())
        for step, hows in enumerate((("plain", "plain", "fua", "plain"),
                                     ("plain", "zero", "plain", "trim"),
                                     ("fua", "plain", "plain", "zero"))):
            for how in hows:
                self.write(served, model, rng, how)
            if step > 0:
                self.repeat(served, lambda: served.nbd.flush())  # of a server that may be another
            self.take(served, model, volume, str(step))
            if step == 1:
                snapshot = model.snapshots["0"][0]
                self.repeat(served, lambda one=snapshot: client.DeleteSnapshot(snapshot_id=one))
                del model.snapshots["0"]
        self.write(served, model, rng, "plain")
        served.stop()
        # The driver opens the volume itself.
        model.take("last", self.snapshot(client, volume, f"last-{self.number}"))
        self.check(self.driver, volume, model, exact=at == 0)
        for snapshot, _, _ in model.snapshots.values():
            client.DeleteSnapshot(snapshot_id=snapshot)
        client.DeleteVolume(volume_id=volume)
        self.assertFalse(os.path.exists(served.folder))
        return os.path.exists(self.fired)

    def sweep(self, *options):
        self.driver = self.start(*options)
        for kind in ("eio", "enospc"):
            self.assertFalse(self.run_with(kind, 0, False))
            with open(self.count, encoding="ascii") as file:
                calls = int(file.read())
            for then in (False, True):
                reached = errors = 0
                stride = max(1, calls // (POINTS * SCALE))
                for at in range(1 + stride // 2, calls + 1, stride):
                    with self.subTest(kind=kind, at=at, then=then):
                        reached += self.run_with(kind, at, then)
                        errors += self.errors
                print(f"{kind}{' from there on' if then else ''}: at {reached} of {calls} calls, "
                      f"{errors} errors seen by the client", flush=True)
                self.assertGreater(reached, POINTS // 2)
                if then:
                    self.assertGreater(errors, 0)

    def test_copied_snapshots(self):
        self.sweep()

    def test_cloned_snapshots(self):
        mounted = Mounted(self, "xfs", 400)
        self.folder_of_state = mounted.path
        self.sweep()


class FullDiskTest(ServedTest):
    """A tmpfs that is too small for the volume and its snapshots."""

    def test_the_disk_becomes_full(self):
        self.folder_of_state = Mounted(self, "tmpfs", 16).path
        driver = self.start()
        blocks = 12 * MIB // BLOCK
        volume = make_volume(driver.client, "a", blocks * BLOCK)
        model = Model(blocks)
        served = Served(self, driver, volume)
        self.assertTrue(served.up, self.logged())

        def write(at, count):
            model.version += 1
            model.attempt(at, count, model.version)
            served.nbd.write(at * BLOCK, Model.data(model.version, count))
            model.done(at, count, model.version)

        for at in range(0, 1024, 64):
            write(at, 64)
        model.take("first", self.snapshot(driver.client, volume, "first"))
        # 8 MiB are in use. Rewriting keeps them, new blocks take what is left.
        for at in range(0, 1024, 128):
            write(at, 16)
        with self.assertRaises(OSError) as full:
            for at in range(1024, blocks, 64):
                write(at, 64)
            self.snapshot(driver.client, volume, "second")
            self.fail("the disk was not full")
        self.assertEqual(full.exception.errno, errno.ENOSPC)
        # There is no room for a copy. What is there can be read and overwritten.
        with self.assertRaises((grpc.RpcError, RuntimeError)):
            self.snapshot(driver.client, volume, "second")
        write(0, 16)
        served.nbd.flush()
        self.check(driver, volume, model)
        # Room is made, by a deleted snapshot and trimmed blocks, and everything works again.
        base = model.snapshots["first"][0]
        begin = 1024
        model.attempt(begin, blocks - begin, 0)
        served.nbd.trim(begin * BLOCK, (blocks - begin) * BLOCK)
        model.done(begin, blocks - begin, 0)
        model.take("second", self.snapshot(driver.client, volume, "second"))
        write(5, 1)
        self.check(driver, volume, model)
        self.assertEqual(blocks_of(driver.client.delta(base, model.snapshots["second"][0])[0]),
                         model.snapshots["second"][2])
        driver.client.DeleteSnapshot(snapshot_id=base)
        del model.snapshots["first"]
        model.take("third", self.snapshot(driver.client, volume, "third"))
        self.check(driver, volume, model, exact=True)
        self.assertEqual(served.stop(), 0)

    def full_while_copied(self):
        """A driver, and a snapshot that was acknowledged and can't be completed."""
        self.folder_of_state = Mounted(self, "tmpfs", 16).path
        driver = self.start()
        volume = make_volume(driver.client, "a", 12 * MIB)
        served = Served(self, driver, volume)
        self.assertTrue(served.up, self.logged())
        for at in range(0, 12 * MIB // BLOCK, 64):
            served.nbd.write(at * BLOCK, Model.data(1, 64))
        self.assertEqual(served.stop(), 0)
        taken = driver.client.CreateSnapshot(source_volume_id=volume, name="frozen").snapshot
        latest = time.monotonic() + 60
        while True:
            try:
                self.assertFalse(driver.client.CreateSnapshot(
                    source_volume_id=volume, name="frozen").snapshot.ready_to_use)
            except grpc.RpcError as failed:
                self.assertEqual(failed.code(), Code.DATA_LOSS, failed.details())
                self.assertIn(taken.snapshot_id, failed.details())
                return driver, volume, taken
            self.assertLess(time.monotonic(), latest)
            time.sleep(0.02)

    def test_mb_an_acknowledged_snapshot_is_never_taken_again(self):
        driver, volume, taken = self.full_while_copied()
        for restarted in (False, True):
            if restarted:
                driver.stop()
                served = Served(self, driver, volume)
                served.nbd.trim(0, 8 * MIB)
                served.nbd.write(0, Model.data(2, 64))
                self.assertEqual(served.stop(), 0)
                driver = self.start()
            # Then there is room. What the application froze itself for is gone nevertheless.
            details = self.fails(Code.DATA_LOSS, driver.client.CreateSnapshot,
                                 source_volume_id=volume, name="frozen")
            self.assertRegex(details, taken.snapshot_id + r", taken at 20\d\d-.*delete it")
            for call in (driver.client.GetSnapshot, driver.client.ListSnapshots):
                self.fails(Code.DATA_LOSS, call, snapshot_id=taken.snapshot_id)
            self.fails(Code.DATA_LOSS, driver.client.allocated, taken.snapshot_id)
            self.assertEqual(len(driver.client.ListSnapshots().entries), 0)
        driver.client.DeleteSnapshot(snapshot_id=taken.snapshot_id)
        anew = self.snapshot(driver.client, volume, "frozen")
        self.assertNotEqual(anew, taken.snapshot_id)
        self.assertEqual(read_blocks(self.file_of(driver, volume, anew))[:64],
                         [Model.data(2, 1)] * 64)

    def test_mb_a_volume_that_is_deleted_meanwhile_is_no_snapshot_of_zeros(self):
        driver, volume, taken = self.full_while_copied()
        driver.client.DeleteVolume(volume_id=volume)
        self.fails(Code.DATA_LOSS, driver.client.CreateSnapshot, source_volume_id=volume,
                   name="frozen")
        self.fails(Code.NOT_FOUND, driver.client.CreateSnapshot, source_volume_id=volume,
                   name="another")
        driver.client.DeleteSnapshot(snapshot_id=taken.snapshot_id)
        self.assertEqual(os.listdir(os.path.join(driver.state, "volumes")), [])


if __name__ == "__main__":
    parts.main(sys.argv[5:])
