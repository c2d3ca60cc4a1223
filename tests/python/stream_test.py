"""The service behind grpcio, judged by the command's own checker, and the client against it."""

import argparse
import concurrent.futures
import gc
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
import runner

import cbt
import cbt.grpc

A = argparse.Namespace(cbt=None)
BLOCK, BLOCKS = 4096, 200_000
ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"


def bits_of(seed):
    return random.Random(seed).randbytes(BLOCKS // 8)


class Plugin:
    """Snapshots as bitmaps."""

    # A capacity that is no multiple of the block.
    geometry = (BLOCKS * BLOCK - 512, BLOCK)

    def __init__(self, block_size=0):
        self.block_size = block_size
        self.snapshots = {"monday": bits_of(1), "tuesday": bits_of(2)}
        self.requests = []

    def bits(self, name):
        if name not in self.snapshots:
            raise cbt.NotFoundError(f"no snapshot {name}")
        return self.snapshots[name]

    def allocated(self, target, request):
        self.requests.append((request, request.secret("key"), request.secret("none"), request.cancelled))
        return cbt.Answer(cbt.Cursor.from_bitmap(self.bits(target), *self.geometry), self.block_size, f"version of {target}")

    def delta(self, base, target, _request):
        cursor = cbt.Cursor.from_bitmaps(self.bits(base), self.bits(target), "xor", *self.geometry)
        return cbt.Answer(cursor, self.block_size) if self.block_size else cursor


class Served:
    """A server of grpcio with the service, and a channel to it."""

    def __init__(self, plugin):
        self.folder = tempfile.TemporaryDirectory()
        self.address = f"unix://{self.folder.name}/csi.sock"
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        cbt.grpc.add_service(self.server, cbt.Service(plugin, plugin_name="from-python.example.com"))
        self.server.add_insecure_port(self.address)
        self.server.start()
        self.channel = grpc.insecure_channel(self.address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.server.stop(None).wait()
        self.folder.cleanup()


def expected_of(cursor, block_size=0):
    return list((cursor.to_blocks(block_size) if block_size else cursor).read_all())


class Serving(unittest.TestCase):
    def test_conform(self):
        # tests/c/conform_test.py judges blocks too.
        with Served(Plugin()) as served:
            done = subprocess.run([A.cbt, "conform", served.address, "--snapshot", "tuesday", "--base", "monday", "-v"],
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_lists(self):
        for block_size in (0, BLOCK):
            plugin = Plugin(block_size)
            with Served(plugin) as served:
                for most in (0, 1000):
                    stream = cbt.grpc.read_delta(served.channel, "monday", "tuesday", max_results=most, require_proof=True)
                    found = [extent for tuples in stream for extent in tuples]
                    expected = expected_of(cbt.Cursor.from_bitmaps(bits_of(1), bits_of(2), "xor", *plugin.geometry), block_size)
                    self.assertTrue(found == expected)
                    self.assertEqual(stream.proof, cbt.Proof.HOLDS)
                    with self.assertRaises(StopIteration):
                        next(stream)
                stream = cbt.grpc.read_allocated(served.channel, "monday", secrets={"key": "of 7 \u00e4"})
                tuples = next(stream)
                self.assertEqual(tuples.capacity, plugin.geometry[0])
                self.assertEqual(tuples.type, cbt.BlockMetadataType.FIXED_LENGTH if block_size
                                 else cbt.BlockMetadataType.VARIABLE_LENGTH)
                self.assertRegex(stream.source_version, "^[0-9a-f]{32}$")
                self.assertEqual(stream.resume_offset, int(tuples.offsets[-1] + tuples.lengths[-1]))
                rest = cbt.grpc.read_allocated(served.channel, "monday", starting_offset=stream.resume_offset)
                self.assertEqual(rest.source_version, stream.source_version)
                other = cbt.grpc.read_allocated(served.channel, "tuesday")
                self.assertNotEqual(other.source_version, stream.source_version)
                other.cancel()
                found = [*tuples, *(extent for tuples in rest for extent in tuples)]
                self.assertTrue(found == expected_of(cbt.Cursor.from_bitmap(bits_of(1), *plugin.geometry), block_size))
                stream.cancel()
                with self.assertRaises(cbt.Error):
                    for _ in stream:
                        pass
                request, key, none, cancelled = plugin.requests[0]
                self.assertEqual((key, none, cancelled), ("of 7 \u00e4", None, False))
                with self.assertRaisesRegex(ValueError, "method only"):
                    request.secret("key")

    def test_errors(self):
        class Broken(Plugin):
            def delta(self, base, target, _request):
                if base == "type":
                    return 7
                if base == "closed":
                    cursor = cbt.Cursor.from_bitmap(bits_of(1), *self.geometry)
                    cursor.close()
                    return cursor
                raise RuntimeError("a secret")

        with Served(Broken()) as served:
            for base, kind in (("type", cbt.InternalError), ("closed", cbt.InternalError), ("x", cbt.InternalError)):
                with self.assertLogs("cbt") if base != "type" else self.subTest(base), self.assertRaises(kind) as caught:
                    list(cbt.grpc.read_delta(served.channel, base, "tuesday"))
                self.assertNotIn("secret", str(caught.exception))
            stream = cbt.grpc.read_allocated(served.channel, "none")
            for _ in range(2):
                with self.assertRaisesRegex(cbt.NotFoundError, "no snapshot none"):
                    next(stream)
            with self.assertRaises(cbt.InvalidArgumentError):
                list(cbt.grpc.read_allocated(served.channel, ""))
            with self.assertRaises(cbt.OutOfRangeError):
                list(cbt.grpc.read_allocated(served.channel, "monday", starting_offset=1 << 62))
            for options in ({"starting_offset": -1}, {"starting_offset": 1 << 63}, {"max_results": -1}):
                with self.assertRaises(ValueError):
                    cbt.grpc.read_allocated(served.channel, "monday", **options)

    def test_a_failure_after_tuples(self):
        class Failing(Plugin):
            def allocated(self, target, request):
                class Source:
                    def seek(self, offset):
                        self.place = offset

                    def next(self, room):
                        if self.place > 1 << 30:
                            raise cbt.DataLossError("the disk is bad")
                        self.place += BLOCK * 100
                        return [self.place - BLOCK * 100], [BLOCK], self.place

                return cbt.Cursor.from_source(Source(), 1 << 40, BLOCK)

        with Served(Failing()) as served:
            stream, found = cbt.grpc.read_allocated(served.channel, "monday"), 0
            with self.assertRaisesRegex(cbt.DataLossError, "the disk is bad"):
                for tuples in stream:
                    found += len(tuples)
            self.assertGreater(found, 1000)
            self.assertIsNone(stream.proof)

    def test_a_client_that_goes_away_stops_the_engine(self):
        stopped = threading.Event()

        class Endless(Plugin):
            def allocated(self, target, request):
                class Source:
                    place = 0

                    def seek(self, offset):
                        self.place = offset

                    def next(self, room):
                        time.sleep(0.001)
                        self.place += BLOCK
                        return [], [], self.place

                    def __del__(self):
                        stopped.set()

                return cbt.Cursor.from_source(Source(), 1 << 60, BLOCK)

        with Served(Endless()) as served:
            stream = cbt.grpc.read_allocated(served.channel, "monday", timeout=0.3)
            with self.assertRaises(cbt.DeadlineExceededError):
                list(stream)
            self.assertTrue(stopped.wait(30))
            stopped.clear()
            stream = cbt.grpc.read_allocated(served.channel, "monday")
            threading.Timer(0.2, stream.cancel).start()
            with self.assertRaises(cbt.CancelledError):
                list(stream)
            self.assertTrue(stopped.wait(30))


class Machine(unittest.TestCase):
    def test_without_a_library(self):
        service = cbt.Service(Plugin())
        self.assertEqual(service.methods, [ALLOCATED, ALLOCATED.replace("Allocated", "Delta")])
        stream = service.open(ALLOCATED, b"\x0a\x06monday")
        del service
        gc.collect()
        with self.assertRaises(cbt.FailedPreconditionError):
            _ = stream.initial_metadata
        checker = cbt.Checker(require_proof=True)
        kept = [checker.message(message) for message in stream]
        self.assertIn("cbt-source-version", dict(stream.initial_metadata))
        self.assertEqual(checker.finish(stream.trailing_metadata), cbt.Proof.HOLDS)
        found = [extent for tuples in kept for extent in tuples]
        self.assertTrue(found == expected_of(cbt.Cursor.from_bitmap(bits_of(1), *Plugin.geometry)))
        self.assertEqual((checker.tuples, checker.reported_bytes), (len(found), sum(length for _, length in found)))
        with self.assertRaises(cbt.FailedPreconditionError):
            checker.message(b"")
        stream.close()
        for call in (stream.__next__, lambda: stream.trailing_metadata):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()
        stream.cancel()

    def test_slices(self):
        class Slow(Plugin):
            def allocated(self, target, request):
                return cbt.Cursor.from_memory(bytes(64 << 20), 512)

        stream, turns = cbt.Service(Slow()).open(ALLOCATED, b"\x0a\x01a", slice_us=100), 0
        with self.assertRaises(StopIteration):
            while True:
                turns += stream.next_message() is None
        self.assertGreater(turns, 0)

    def test_deadlines(self):
        service = cbt.Service(Plugin())
        for deadline in (None, 1e10, 1e300, float("inf"), time.time() + 60):
            self.assertGreater(len(list(service.open(ALLOCATED, b"\x0a\x06monday", deadline=deadline))), 1)
        with self.assertRaises(ValueError):
            service.open(ALLOCATED, b"\x0a\x06monday", deadline=float("nan"))

    def test_what_is_refused(self):
        service = cbt.Service(Plugin())
        with self.assertRaises(cbt.UnimplementedError):
            service.open("/csi.v1.SnapshotMetadata/None", b"")
        with self.assertRaises(cbt.InvalidArgumentError):
            service.open(ALLOCATED, b"")
        with self.assertRaises(cbt.InvalidArgumentError):
            service.open(ALLOCATED, b"\xff\xff")
        with self.assertRaises(TypeError):
            service.open(ALLOCATED, "text")
        with self.assertRaises(cbt.InvalidArgumentError):
            cbt.Service(Plugin(), message_bytes=1)
        stream = service.open(ALLOCATED, b"\x0a\x06monday")
        stream.cancel()
        for _ in range(2):
            with self.assertRaises(cbt.CancelledError):
                next(stream)

    def test_the_checker_finds_what_is_broken(self):
        stream = cbt.Service(Plugin()).open(ALLOCATED, b"\x0a\x06monday")
        messages = list(stream)
        self.assertGreater(len(messages), 1)
        for broken in (messages[:-1], messages[1:], messages[::-1], [messages[0], messages[0]], [messages[0] + b"\xff"], []):
            checker = cbt.Checker(require_proof=True)
            with self.assertRaises(cbt.DataLossError):
                for message in broken:
                    checker.message(message)
                checker.finish(stream.trailing_metadata)
        checker = cbt.Checker(require_proof=True)
        for message in messages:
            checker.message(message)
        with self.assertRaises(cbt.DataLossError):
            checker.finish()

    def test_an_interrupt_in_a_provider(self):
        class Interrupted(Plugin):
            def allocated(self, target, request):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            next(cbt.Service(Interrupted()).open(ALLOCATED, b"\x0a\x06monday"))


if __name__ == "__main__":
    A.cbt = pathlib.Path(sys.argv.pop(1))
    unittest.main(testRunner=runner.Runner)
