"""The service and the client of grpc.aio, judged as those of threads."""

import argparse
import asyncio
import pathlib
import random
import tempfile
import threading
import unittest

import grpc
import runner

import cbt
import cbt.aio

A = argparse.Namespace(cbt=None)
BLOCK, BLOCKS = 4096, 4_000


class Plugin:
    geometry = (BLOCKS * BLOCK - 512, BLOCK)

    def __init__(self):
        self.snapshots = {name: random.Random(seed).randbytes(BLOCKS // 8) for seed, name in enumerate(("monday", "tuesday"))}
        self.threads = set()
        self.waits = threading.Event()
        self.cancelled = threading.Event()

    def bits(self, name):
        self.threads.add(threading.current_thread())
        if name not in self.snapshots:
            raise cbt.NotFoundError(f"no snapshot {name}")
        return self.snapshots[name]

    def allocated(self, target, request):
        if target == "waits":
            self.waits.set()
            while not request.cancelled:
                self.cancelled.wait(0.01)
            self.cancelled.set()
            raise cbt.CancelledError("the client has gone")
        return cbt.Cursor.from_bitmap(self.bits(target), *self.geometry)

    def delta(self, base, target, _request):
        return cbt.Cursor.from_bitmaps(self.bits(base), self.bits(target), "xor", *self.geometry)


class Aio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.plugin, self.address = Plugin(), f"unix://{folder.name}/csi.sock"
        self.server = grpc.aio.server()
        cbt.aio.add_service(self.server, cbt.Service(self.plugin, plugin_name="aio.example.com"))
        self.server.add_insecure_port(self.address)
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(self.address)

    async def asyncTearDown(self):
        await self.channel.close()
        await self.server.stop(None)

    async def test_conform(self):
        asyncio.get_running_loop().set_debug(False)
        process = await asyncio.create_subprocess_exec(
            A.cbt, "conform", self.address, "--snapshot", "tuesday", "--base", "monday", "--timeout", "20",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        self.assertEqual(process.returncode, 0, said.decode())
        self.assertRegex(said.decode(), r"\d\d passed")

    async def test_a_call_without_a_request(self):
        """Of Identity too, which `conform` doesn't try."""
        async def none():
            return
            yield

        for method, kind in (("csi.v1.SnapshotMetadata/GetMetadataAllocated", self.channel.stream_stream),
                             ("csi.v1.Identity/GetPluginInfo", self.channel.stream_unary)):
            call = kind(f"/{method}")(none(), timeout=20)
            self.assertEqual(await call.code(), grpc.StatusCode.INVALID_ARGUMENT, method)
            self.assertIn("before its request", await call.details())

    async def test_lists_beside_one_another(self):
        expected = list(self.plugin.delta("monday", "tuesday", None).read_all())

        async def read():
            stream = cbt.aio.read_delta(self.channel, "monday", "tuesday", max_results=100, require_proof=True)
            found = [extent async for tuples in stream for extent in tuples]
            self.assertTrue(found == expected)
            self.assertEqual(stream.proof, cbt.Proof.HOLDS)
            self.assertRegex(await stream.source_version(), "^[0-9a-f]{32}$")
            with self.assertRaises(StopAsyncIteration):
                await anext(stream)

        self.plugin.threads.clear()
        await asyncio.gather(*(read() for _ in range(5)))
        # The loop's thread makes no message.
        self.assertNotIn(threading.main_thread(), self.plugin.threads)

    async def test_resumes(self):
        stream = cbt.aio.read_allocated(self.channel, "monday", max_results=100)
        first = await anext(stream)
        stream.cancel()
        rest = cbt.aio.read_allocated(self.channel, "monday", starting_offset=stream.resume_offset)
        found = [*first, *[extent async for tuples in rest for extent in tuples]]
        self.assertTrue(found == list(self.plugin.allocated("monday", None).read_all()))

    async def test_errors(self):
        stream = cbt.aio.read_delta(self.channel, "monday", "friday")
        for _ in range(2):
            with self.assertRaisesRegex(cbt.NotFoundError, "no snapshot friday"):
                await anext(stream)
        with self.assertRaises(cbt.DeadlineExceededError):
            await anext(cbt.aio.read_allocated(self.channel, "waits", timeout=0.3))
        with self.assertRaises(ValueError):
            cbt.aio.read_allocated(self.channel, "monday", starting_offset=-1)

    async def test_a_client_that_goes_stops_the_provider(self):
        async with cbt.aio.read_allocated(self.channel, "waits") as stream:
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(self.plugin.waits.wait, 30)
        self.assertTrue(await asyncio.to_thread(self.plugin.cancelled.wait, 30))
        with self.assertRaises((cbt.CancelledError, asyncio.CancelledError)):
            await waiting


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cbt", type=pathlib.Path, required=True)
    A, rest = parser.parse_known_args()
    unittest.main(argv=[__file__, *rest], testRunner=runner.Runner)
