"""Runs `cbt-driver driver` and calls it with grpcio and protoc's messages. Not a test.

<test>.py CBT FOLDER_OF_MESSAGES NBDKIT_PLUGIN [FAULT_SHIM]
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

CBT, MESSAGES, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:4])
DRIVER = os.path.join(os.path.dirname(CBT), "cbt-driver")
SHIM = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[4] else None
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import csi_client  # noqa: E402
import csi_groups_pb2 as csi  # noqa: E402  # csi_pb2 is in it
import grpc  # noqa: E402
import runner  # noqa: E402

Code = grpc.StatusCode
MIB = 1 << 20
NAME = "cbt.csi.example.com"
Mode = csi.VolumeCapability.AccessMode


def mount(file_system="", mode=Mode.SINGLE_NODE_WRITER):
    return csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type=file_system),
                                access_mode=Mode(mode=mode))


def block(mode=Mode.SINGLE_NODE_WRITER):
    return csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(),
                                access_mode=Mode(mode=mode))


def size(required, limit=0):
    return csi.CapacityRange(required_bytes=required, limit_bytes=limit)


def from_snapshot(snapshot):
    return csi.VolumeContentSource(
        snapshot=csi.VolumeContentSource.SnapshotSource(snapshot_id=snapshot))


def from_volume(volume):
    return csi.VolumeContentSource(
        volume=csi.VolumeContentSource.VolumeSource(volume_id=volume))


class Driver:
    """A running driver. `environment`: more of it, such as a preloaded library's; `plugin`: of
    nbdkit; `node`: its id."""

    def __init__(self, folder, *options, environment=None, log=None, plugin=PLUGIN, node="node-1"):
        self.state = os.path.join(folder, "state")
        self.address = "unix://" + os.path.join(folder, "csi.sock")
        ready, ready_in_child = os.pipe()
        with open(log or os.devnull, "ab") as errors:
            self.process = subprocess.Popen(
                [DRIVER, "driver", "--endpoint", self.address, "--state-dir", self.state,
                 "--node-id", node, "--nbdkit-plugin", plugin, "--ready-fd",
                 str(ready_in_child), *map(str, options)],
                pass_fds=[ready_in_child], stdin=subprocess.DEVNULL, stderr=errors,
                env=dict(os.environ, **(environment or {})))
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            self.up = bool(pipe.readline())
        self.client = csi_client.Client(csi, self.address)

    def stop(self, how=signal.SIGTERM):
        """Ends the driver and returns its exit status."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


class DriverTest(unittest.TestCase):
    """A private folder, in which a test starts drivers."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cbt-driver-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder_of_state = self.folder
        self.log = os.path.join(self.folder, "log")

    def start(self, *options, **more):
        driver = Driver(self.folder_of_state, *options, log=self.log, **more)
        self.addCleanup(lambda: driver.stop(signal.SIGKILL))
        if not driver.up and not more.get("environment"):
            self.fail("the driver did not start: " + self.logged())
        return driver

    def logged(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def fails(self, code, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **fields)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()


def make_volume(client, name, bytes_=4 * MIB, **more):
    more.setdefault("volume_capabilities", [mount()])
    return client.CreateVolume(name=name, capacity_range=size(bytes_), **more).volume.volume_id


def delete_lost(client, error):
    """Does what the error says of an acknowledged snapshot that is lost; False for other errors."""
    lost = re.search(r"snapshot (snap-\w+).* is lost", error.details())
    if error.code() != Code.DATA_LOSS or lost is None:
        return False
    client.DeleteSnapshot(snapshot_id=lost[1])
    return True


def make_snapshot(client, volume, name):
    """A snapshot that is ready, as a client of CSI gets it: by calling again."""
    while True:
        made = client.CreateSnapshot(source_volume_id=volume, name=name).snapshot
        if made.ready_to_use:
            return made.snapshot_id


def main(names=()):
    """`names`: of classes or tests; none: all of the file's."""
    unittest.main(module="__main__", argv=[sys.argv[0], *names], testRunner=runner.Runner)
