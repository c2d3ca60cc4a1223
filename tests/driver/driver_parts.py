"""Runs `cbt driver` and calls it with grpcio and protoc's messages. Not a test.

<test>.py CBT FOLDER_OF_MESSAGES NBDKIT_PLUGIN [FAULT_SHIM]
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

CBT, MESSAGES, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:4])
SHIM = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[4] else None
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import csi_pb2 as csi  # noqa: E402
import grpc  # noqa: E402
import runner  # noqa: E402

Code = grpc.StatusCode
MIB = 1 << 20
NAME = "cbt.csi.example.com"
Mode = csi.VolumeCapability.AccessMode


class Client:
    """Calls by name: client.CreateVolume(name=...) with the fields of CreateVolumeRequest."""

    SERVICES = {"GetPluginInfo": "Identity", "GetPluginCapabilities": "Identity",
                "Probe": "Identity"}

    def __init__(self, address):
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1),
                              ("grpc.enable_http_proxy", 0)])

    def close(self):
        self.channel.close()

    def __getattr__(self, name):
        service = self.SERVICES.get(name, "Node" if name.startswith("Node") else "Controller")
        call = self.channel.unary_unary(
            f"/csi.v1.{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(csi, name + "Response").FromString)
        request = getattr(csi, name + "Request")
        return lambda **fields: call(request(**fields), timeout=120)

    def tuples(self, method, **fields):
        """The tuples of a stream, and the capacity that it reports."""
        call = self.channel.unary_stream(
            f"/csi.v1.SnapshotMetadata/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(csi, method + "Response").FromString)
        found, capacity = [], None
        for message in call(getattr(csi, method + "Request")(**fields), timeout=120):
            capacity = message.volume_capacity_bytes
            found += [(one.byte_offset, one.size_bytes) for one in message.block_metadata]
        return found, capacity

    def delta(self, base, target):
        return self.tuples("GetMetadataDelta", base_snapshot_id=base, target_snapshot_id=target)

    def allocated(self, snapshot):
        return self.tuples("GetMetadataAllocated", snapshot_id=snapshot)


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
    """A running driver. `environment`: more of it, such as a preloaded library's."""

    def __init__(self, folder, *options, environment=None, log=None):
        self.state = os.path.join(folder, "state")
        self.address = "unix://" + os.path.join(folder, "csi.sock")
        ready, ready_in_child = os.pipe()
        with open(log or os.devnull, "ab") as errors:
            self.process = subprocess.Popen(
                [CBT, "driver", "--endpoint", self.address, "--state-dir", self.state,
                 "--node-id", "node-1", "--nbdkit-plugin", PLUGIN, "--ready-fd",
                 str(ready_in_child), *map(str, options)],
                pass_fds=[ready_in_child], stdin=subprocess.DEVNULL, stderr=errors,
                env=dict(os.environ, **(environment or {})))
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            self.up = bool(pipe.readline())
        self.client = Client(self.address)

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
        self.log = os.path.join(self.folder, "log")

    def start(self, *options, **more):
        driver = Driver(self.folder, *options, log=self.log, **more)
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


def make_snapshot(client, volume, name):
    """A snapshot that is ready, as a client of CSI gets it: by calling again."""
    while True:
        made = client.CreateSnapshot(source_volume_id=volume, name=name).snapshot
        if made.ready_to_use:
            return made.snapshot_id


def main():
    unittest.main(module="__main__", argv=sys.argv[:1], testRunner=runner.Runner)
