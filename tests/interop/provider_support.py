"""A plugin of cbt.provider.v1 that does what a test says, and `cbtctl serve --provider` before it."""

import concurrent.futures
import os
import signal
import subprocess
import tempfile
import unittest

import grpc
import provider_pb2
import service
from service import Client

Code = grpc.StatusCode
Answer, Head, Extents, End, File = (provider_pb2.Answer, provider_pb2.Head, provider_pb2.Extents,
                                    provider_pb2.End, provider_pb2.File)
BITMAP, EXTENTS, FILE = provider_pb2.BITMAP, provider_pb2.EXTENTS, provider_pb2.FILE
BLOCK = 4096


def head(capacity, content, **more):
    return Answer(head=Head(capacity_bytes=capacity, content=content, **more))


def piece(*tuples, covered=0):
    return Answer(extents=Extents(offsets_bytes=[at for at, _ in tuples],
                                  lengths_bytes=[size for _, size in tuples], covered_bytes=covered))


def bits(data):
    return Answer(bitmap=data)


def end(count):
    return Answer(end=End(count=count))


class Plugin:
    """Serves `answer(request, context)`, an iterator of messages, or of bytes."""

    def __init__(self, place):
        self.place = place
        self.answer = None
        self.requests = []
        self.server = None
        self.start()

    def open(self, request, context):
        self.requests.append(request)
        for message in self.answer(request, context):
            yield message if isinstance(message, bytes) else message.SerializeToString()

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "cbt.provider.v1.SnapshotProvider", {"Open": grpc.unary_stream_rpc_method_handler(
                self.open, request_deserializer=provider_pb2.OpenRequest.FromString,
                response_serializer=lambda message: message)}),))
        self.server.add_insecure_port(f"unix://{self.place}")
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()


class Serve(service.Server):
    def __init__(self, plugin, listen, *options):  # pylint: disable=super-init-not-called
        ready, ready_in_child = os.pipe()
        self.process = subprocess.Popen(
            [service.CBT, "serve", "--provider", plugin, "--listen", listen, "--ready-fd", str(ready_in_child),
             *map(str, options)], pass_fds=[ready_in_child], stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            self.address = pipe.readline().strip()
        if not self.address:
            raise RuntimeError(self.process.communicate()[1].decode())


class ProviderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cbt-provider-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.plugin = Plugin(f"{self.folder}/plugin")
        self.addCleanup(self.plugin.stop)
        self.server, self.client = None, None

    def serve(self, *options):
        if self.server is not None:
            self.client.close()
            self.server.stop()
        self.server = Serve(f"unix://{self.folder}/plugin", f"unix://{self.folder}/csi", *options)
        self.addCleanup(self.server.stop, signal.SIGKILL)
        self.client = Client(self.server.address)
        self.addCleanup(self.client.close)
        return self.client

    def answers(self, *messages):
        self.plugin.answer = lambda request, context: iter(messages)

    def conforms(self, *snapshots):
        done = subprocess.run([service.CBT, "conform", self.server.address, *snapshots], text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def fails(self, code, *, allocated=True, **options):
        """The text of the error in which every stream ends."""
        call = (self.client.allocated("target", **options) if allocated
                else self.client.delta("base", "target", **options))
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()
