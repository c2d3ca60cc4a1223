"""`cbtctl serve --provider` before a plugin that lies, fails, dies or is silent: no answer is shorter than the truth.

Usage: FILE CBT FOLDER_OF_MESSAGES
"""

import concurrent.futures
import os
import socket
import subprocess
import sys
import threading
import time
import unittest

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import grpc  # noqa: E402
import runner  # noqa: E402

import service  # noqa: E402
from provider_support import (BITMAP, BLOCK, EXTENTS, FILE, Answer, Code, Extents, ProviderTest, bits, end, head, piece)  # noqa: E402
from service import tuples_of  # noqa: E402

service.CBT = CBT


class Lies(ProviderTest):
    """None of them looks like a shorter answer."""

    def test_in_messages(self):
        self.serve()
        size = 100 * BLOCK
        extents = head(size, EXTENTS, granularity_bytes=BLOCK)
        bitmap = head(size, BITMAP, granularity_bytes=BLOCK)
        one = piece((0, BLOCK))
        last = piece((99 * BLOCK, BLOCK))
        internal = {
            "no head": [one, end(1)],
            "only an end": [end(0)],
            "an empty message": [Answer()],
            "no protobuf": [b"\xff\xff\xff"],
            "two heads": [extents, extents, end(0)],
            "two parts": [extents.SerializeToString() + end(0).SerializeToString(), end(0)],
            "a bitmap among extents": [extents, bits(b"\0"), end(1)],
            "extents among a bitmap": [bitmap, one, end(1)],
            "no content": [head(size, 0), end(0)],
            "content of a later version": [head(size, 4), end(0)],
            "a capacity out of range": [head(2**63, EXTENTS), end(0)],
            "a granularity out of range": [head(size, EXTENTS, granularity_bytes=2**63), end(0)],
            "blocks out of range": [head(size, EXTENTS, block_size_bytes=2**63), end(0)],
            "no blocks in a bitmap": [head(size, BITMAP), end(0)],
            "past the capacity": [extents, piece((99 * BLOCK, 2 * BLOCK)), end(1)],
            "at the capacity": [extents, piece((size, BLOCK)), end(1)],
            "past 2^64": [extents, piece((BLOCK, 2**64 - BLOCK)), end(1)],
            "empty extent": [extents, piece((BLOCK, 0)), end(1)],
            "no granule": [extents, piece((BLOCK, 512)), end(1)],
            "between granules": [extents, piece((512, BLOCK)), end(1)],
            "out of order": [extents, piece((2 * BLOCK, BLOCK), (0, BLOCK)), end(2)],
            "twice": [extents, one, one, end(2)],
            "overlap": [extents, piece((0, 2 * BLOCK), (BLOCK, BLOCK)), end(2)],
            "below what was covered": [extents, piece(covered=5 * BLOCK), one, end(1)],
            "covers less than it sends": [extents, piece((3 * BLOCK, BLOCK), covered=BLOCK), end(1)],
            "covers more than there is": [extents, piece(covered=size + 1), end(0)],
            "lengths without offsets": [extents, Answer(extents=Extents(lengths_bytes=[BLOCK])), end(0)],
            "half a number": [extents, b"\x1a\x05\x0a\x03\0\0\0", end(0)],
            "more after the last": [extents, last, one, end(2)],
            "more after the end": [extents, end(0), one],
            "two ends": [extents, end(0), end(0)],
            "too many bits": [bitmap, bits(bytes(14)), end(14)],
            "bits after the last": [bitmap, bits(bytes(12) + b"\x08"), bits(b"\0"), end(14)],
            "begins late": [head(size, EXTENTS, starts_anywhere=True, begins_at_bytes=BLOCK), end(0)],
            "begins within a byte": [head(size, BITMAP, granularity_bytes=BLOCK, begins_at_bytes=BLOCK), end(0)],
            "a version that is too long": [head(size, EXTENTS, version="v" * 5000), end(0)],
            "a file without a path": [head(0, FILE), end(0)],
            "data of nothing": [head(0, EXTENTS), one, end(1)],
        }
        loss = {
            "nothing": [],
            "no end": [extents, one],
            "no end after the last": [extents, last],
            "no end of a bitmap": [bitmap, bits(b"\xff" * 13)],
            "half a bitmap": [bitmap, bits(bytes(7)), end(7)],
            "no bits": [bitmap, end(0)],
            "fewer extents than it counts": [extents, one, end(2)],
            "fewer after the last": [extents, last, end(2)],
            "more than it counts": [extents, one, end(0)],
            "fewer bits than it counts": [bitmap, bits(bytes(13)), end(14)],
            "no end of nothing": [head(0, EXTENTS)],
        }
        for code, lies in ((Code.INTERNAL, internal), (Code.DATA_LOSS, loss)):
            for name, messages in lies.items():
                for style in ("extents", "blocks") if name in ("twice", "no end") else ("extents",):
                    with self.subTest(name, style=style):
                        self.answers(*messages)
                        text = self.fails(code)
                        self.assertTrue(text.startswith("provider: "), text)
                        self.fails(code, offset=3 * BLOCK if name not in (
                            "begins late", "a capacity out of range", "data of nothing", "no end of nothing") else 0)

    def test_of_another_answer_each_time(self):
        self.serve()
        turn = iter(range(1000))
        self.plugin.answer = lambda request, context: iter(
            [head(100 * BLOCK, EXTENTS, version=str(next(turn)), starts_anywhere=True), piece((0, 100 * BLOCK)), end(1)])
        self.fails(Code.ABORTED, offset=BLOCK)

    def test_errors_are_the_plugins(self):
        self.serve()
        for code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.UNIMPLEMENTED):
            for before in ([], [head(100 * BLOCK, EXTENTS), piece((0, BLOCK))]):
                def answer(_request, context, code=code, before=before):
                    yield from before
                    context.abort(code, "what the plugin says")
                self.plugin.answer = answer
                self.assertEqual(self.fails(code), "what the plugin says")
        # The client did not cancel.
        self.plugin.answer = lambda request, context: context.abort(Code.CANCELLED, "")
        self.fails(Code.UNAVAILABLE)
        self.plugin.answer = lambda request, context: context.abort(Code.NOT_FOUND, "key is s3cr3t-value")
        text = self.fails(Code.NOT_FOUND, secrets={"key": "s3cr3t-value"})
        self.assertNotIn("s3cr3t", text)

    def test_a_message_that_is_too_long(self):
        self.serve()
        self.answers(head(2**50, BITMAP, granularity_bytes=512), bits(bytes(5 << 20)), end(5 << 20))
        self.assertIn("4 MiB", self.fails(Code.RESOURCE_EXHAUSTED))

    def test_a_server_that_has_no_such_service(self):
        self.serve()
        self.plugin.stop()
        self.plugin.server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        self.plugin.server.add_insecure_port(f"unix://{self.plugin.place}")
        self.plugin.server.start()
        self.fails(Code.UNIMPLEMENTED)

    def test_no_grpc(self):
        self.serve()
        self.plugin.stop()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.folder}/other")
        os.rename(f"{self.folder}/other", self.plugin.place)
        listener.listen()

        def answer():
            try:
                while True:
                    peer = listener.accept()[0]
                    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    peer.close()
            except OSError:
                pass

        threading.Thread(target=answer, daemon=True).start()
        self.assertNotIn(self.folder, self.fails(Code.UNAVAILABLE))


class Life(ProviderTest):
    def test_it_may_come_later_and_go(self):
        self.plugin.stop()
        self.serve()
        text = self.fails(Code.UNAVAILABLE)
        self.assertNotIn(self.folder, text)
        self.answers(head(BLOCK, EXTENTS), piece((0, BLOCK)), end(1))
        for _ in range(2):
            self.plugin.start()
            until = time.monotonic() + 60
            while True:
                try:
                    self.assertEqual(tuples_of(self.client.allocated("target")), [(0, BLOCK)])
                    break
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), Code.UNAVAILABLE)
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.05)
            self.plugin.stop()
            self.fails(Code.UNAVAILABLE)

    def test_it_dies_midway(self):
        self.serve()
        sent, go = threading.Event(), threading.Event()

        def answer(_request, _context):
            yield head(2**40, EXTENTS)
            yield piece(*((n * 8192, 4096) for n in range(10000)))
            sent.set()
            go.wait(60)
            yield end(10000)

        self.plugin.answer = answer
        call = self.client.allocated("target")
        next(call)
        sent.wait(60)
        self.plugin.server.stop(0)
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        self.assertEqual(caught.exception.code(), Code.UNAVAILABLE)
        go.set()

    def test_silence_has_a_limit(self):
        self.serve("--provider-stall-time", "0.3")
        for before in ([], [head(100 * BLOCK, EXTENTS)], [head(100 * BLOCK, EXTENTS), piece((99 * BLOCK, BLOCK))],
                       [head(100 * BLOCK, EXTENTS), end(0)]):
            gone = threading.Event()

            def answer(_request, context, before=before, gone=gone):
                context.add_callback(gone.set)
                yield from before
                gone.wait(60)

            self.plugin.answer = answer
            self.assertIn("sent nothing for 300 ms", self.fails(Code.DEADLINE_EXCEEDED))
            self.assertTrue(gone.wait(30))

    def test_clients_may_go(self):
        self.serve()
        begun, gone = threading.Event(), threading.Event()

        def answer(_request, context):
            context.add_callback(gone.set)
            yield head(2**40, EXTENTS)
            begun.set()
            gone.wait(60)

        self.plugin.answer = answer
        call = self.client.allocated("target")
        self.assertTrue(begun.wait(30))
        call.cancel()
        self.assertTrue(gone.wait(30))
        # So does a deadline, which the plugin gets.
        left = []

        def late(_request, context):
            left.append(context.time_remaining())
            gone.clear()
            context.add_callback(gone.set)
            gone.wait(60)
            yield head(0, EXTENTS)

        self.plugin.answer = late
        self.fails(Code.DEADLINE_EXCEEDED, timeout=0.5)
        self.assertLess(left[0], 1)


class Options(unittest.TestCase):
    def test_that_do_not_fit(self):
        for options in (["--root", "/", "--provider", "unix:///x"], [], ["--root", "/", "--provider-files", "/"],
                        ["--provider", "localhost:1"], ["--provider", "unix:///x", "--provider-files", "/none"],
                        ["--provider", "unix:///x", "--allow-source", "/x"]):
            done = subprocess.run([CBT, "serve", "--listen", "unix:///tmp/none/x", *options], capture_output=True,
                                  text=True, check=False, timeout=30)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (options, done.stderr))
            self.assertRegex(done.stderr, r"\Acbtctl: [^\n]+\n\Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], testRunner=runner.Runner)
