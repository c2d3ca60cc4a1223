"""A volume of a running `cbt-driver driver` that the test serves by a nbdkit of its own, where the driver
looks for one, and a model of what must be in it. Not a test."""

import contextlib
import glob
import json
import os
import shutil
import socket
import subprocess
import time
import unittest

import driver_parts as parts
import grpc
from nbd_client import NbdClient

BLOCK = 4096
TRIES = 5
READY_SECONDS = 20


class Served:
    """nbdkit, and a connection to it."""

    def __init__(self, test, driver, volume, environment=None):
        self.folder = os.path.join(driver.state, "volumes", volume)
        self.data = os.path.join(self.folder, "volume")
        self.nbd_path = os.path.join(self.folder, "nbd.sock")
        self.control_path = os.path.join(self.folder, "control.sock")
        self.log = test.log
        self.process = self.nbd = None
        self.up = self.start(environment)
        test.addCleanup(self.kill)

    def start(self, environment=None):
        """False if it ends at once."""
        for path in (self.nbd_path, self.control_path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["nbdkit", "--foreground", "--threads", "4", "--unix", self.nbd_path, parts.PLUGIN,
                 f"directory={self.data}", f"control={self.control_path}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, **(environment or {})))
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.control({"request": "list"})
                self.nbd = self.connect()
                return True
            time.sleep(0.01)
        return False

    def connect(self):
        return NbdClient(self.nbd_path)

    def control(self, request):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(self.control_path)
            client.sendall(json.dumps(request).encode() + b"\n")
            with client.makefile("rb") as answer:
                return json.loads(answer.readline())

    def stop(self):
        """Ends it in order."""
        if self.nbd is not None:
            self.nbd.close()
            self.nbd = None
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        if self.nbd is not None:
            self.nbd.close()
            self.nbd = None


class Model:
    """What each block may hold: the last acknowledged write, and later ones that failed. A write is
    a number, repeated through the block; zeros are 0."""

    def __init__(self, blocks):
        self.allowed = [{0} for _ in range(blocks)]
        self.written = set()  # blocks, since the last snapshot, by any attempt
        self.snapshots = {}
        self.version = 0

    @staticmethod
    def data(version, count):
        return version.to_bytes(8, "little") * (BLOCK // 8) * count

    def attempt(self, at, count, version):
        for block in range(at, at + count):
            self.allowed[block].add(version)
        self.written.update(range(at, at + count))

    def done(self, at, count, version):
        for block in range(at, at + count):
            self.allowed[block] = {version}

    def grow(self, blocks):
        self.allowed += [{0} for _ in range(blocks - len(self.allowed))]

    def take(self, name, snapshot):
        self.snapshots[name] = (snapshot, [set(one) for one in self.allowed], self.written)
        self.written = set()


def blocks_of(tuples):
    return {block for at, length in tuples for block in range(at // BLOCK, -(-(at + length) // BLOCK))}


def read_blocks(path):
    with open(path, "rb") as file:
        data = file.read()
    return [data[at:at + BLOCK] for at in range(0, len(data), BLOCK)]


def differing(base, target):
    """Blocks whose bytes differ; the shorter one is followed by zeros."""
    zeros = bytes(BLOCK)
    return {i for i, block in enumerate(target)
            if block != (base[i] if i < len(base) else zeros)}


class ServedTest(parts.DriverTest):
    def setUp(self):
        if shutil.which("nbdkit") is None:
            raise unittest.SkipTest("no nbdkit")
        super().setUp()

    def snapshot(self, client, volume, name):
        """A ready snapshot, or the error that remains after some repetitions."""
        latest = time.monotonic() + READY_SECONDS
        failures = 0
        while True:
            try:
                made = client.CreateSnapshot(source_volume_id=volume, name=name).snapshot
            except grpc.RpcError as failed:
                self.assertIn(failed.code(), (
                    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED,
                    grpc.StatusCode.ABORTED, grpc.StatusCode.DATA_LOSS), failed.details())
                parts.delete_lost(client, failed)  # the next one is another
                failures += 1
                if failures == TRIES:
                    raise
            else:
                if made.ready_to_use:
                    return made.snapshot_id
                if time.monotonic() > latest:
                    raise RuntimeError("the snapshot does not become ready")
            time.sleep(0.02)

    def file_of(self, driver, volume, snapshot):
        """Its name has a number if an earlier attempt at it was given up."""
        pattern = os.path.join(driver.state, "volumes", volume, "volume", "snapshots", snapshot)
        found = glob.glob(pattern) + glob.glob(pattern + "#*")
        self.assertEqual(len(found), 1, snapshot)
        return found[0]

    def check(self, driver, volume, model, exact=False):
        """Each snapshot holds what it must, and each delta covers what differs. `exact`: a delta is
        what was written."""
        known = list(model.snapshots.values())
        images = []
        for snapshot, allowed, _ in known:
            image = read_blocks(self.file_of(driver, volume, snapshot))
            self.assertEqual(len(image), len(allowed))
            for at, block in enumerate(image):
                version = int.from_bytes(block[:8], "little")
                self.assertEqual(block, Model.data(version, 1), f"block {at} is torn")
                self.assertIn(version, allowed[at], f"block {at}")
            images.append(image)
        for i in range(len(known)):
            for j in range(i + 1, len(known)):
                found, capacity = driver.client.delta(known[i][0], known[j][0])
                self.assertEqual(capacity, len(images[j]) * BLOCK)
                reported = blocks_of(found)
                missing = differing(images[i], images[j]) - reported
                self.assertFalse(missing, f"not in the delta of {i} and {j}")
                if exact:
                    written = set().union(*(one[2] for one in known[i + 1:j + 1]))
                    self.assertEqual(reported, written)
