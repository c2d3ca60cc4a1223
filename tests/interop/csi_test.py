"""Every rule of the csi.v1 contract, seen from a foreign client.

Usage: csi_test.py CBT FOLDER_OF_CSI_PB2
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import csi_pb2  # noqa: E402
import grpc  # noqa: E402
import runner  # noqa: E402

import service  # noqa: E402
from service import Client, Server, changed_blocks, extents_of, tuples_of  # noqa: E402

service.CBT = CBT
Code = grpc.StatusCode
BLOCK = 4096
INT32_MAX, INT64_MAX, INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def write_volumes(root):
    """Image pairs named after their properties; {volume: (base, target)}."""
    rng = random.Random(7)
    volumes = {}

    def add(name, base, target):
        write(f"{root}/{name}/base.img", base)
        write(f"{root}/{name}/target.img", target)
        volumes[name] = (base, target)

    def changed(data, count):
        data = bytearray(data)
        for _ in range(count):
            data[rng.randrange(len(data))] ^= 1 + rng.randrange(255)
        return bytes(data)

    plain = rng.randbytes(64 * BLOCK)
    add("plain", plain, changed(plain, 30))
    odd = rng.randbytes(40 * BLOCK + 123)
    add("odd", odd, changed(odd[:-1], 10) + bytes([odd[-1] ^ 1]))
    add("grown", plain[:20 * BLOCK + 7], changed(plain, 5))
    add("shrunk", plain, changed(plain[:20 * BLOCK + 7], 5))
    add("same", plain, plain)
    add("full", bytes(32 * BLOCK + 1), b"\xff" * (32 * BLOCK + 1))
    add("none", b"", b"")
    add("tiny", b"a", b"b")
    return volumes


def dense_pair(root, size):
    """A pair in which every second block of 512 bytes differs."""
    write(f"{root}/dense/base.img", b"")
    os.truncate(f"{root}/dense/base.img", size)
    write(f"{root}/dense/target.img", (b"x" * 512 + bytes(512)) * (size // 1024))


class Csi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="cbt-interop-")
        cls.root = os.path.join(cls.folder.name, "root")
        cls.volumes = write_volumes(cls.root)
        dense_pair(cls.root, 32 << 20)
        write(f"{cls.root}/plain/later.partial", b"")
        cls.extents = Server(cls.root, "unix://" + cls.folder.name + "/extents")
        cls.blocks = Server(cls.root, "127.0.0.1:0", "--style", "blocks")
        cls.fine = Server(cls.root, "unix://" + cls.folder.name + "/fine", "--block-size", 512)
        cls.clients = {"extents": Client(cls.extents.address), "blocks": Client(cls.blocks.address)}

    @classmethod
    def tearDownClass(cls):
        for client in cls.clients.values():
            client.close()
        codes = [server.stop() for server in (cls.extents, cls.blocks, cls.fine)]
        cls.folder.cleanup()
        assert codes == [0, 0, 0], codes

    def fails(self, stream, code):
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception

    def expected(self, style, blocks, capacity):
        if style == "blocks":
            return [(at, BLOCK) for at in blocks]
        return extents_of(blocks, BLOCK, capacity)

    def check_rules(self, style, messages, capacity, offset=0, max_results=0):
        """Checks rules 1 to 4 and the tuples."""
        self.assertTrue(messages, "a stream without any message")
        kind = csi_pb2.FIXED_LENGTH if style == "blocks" else csi_pb2.VARIABLE_LENGTH
        for message in messages:
            self.assertEqual(message.block_metadata_type, kind)
            self.assertEqual(message.volume_capacity_bytes, capacity)
            self.assertLess(message.ByteSize(), 1 << 20)
            if max_results:
                self.assertLessEqual(len(message.block_metadata), max_results)
            if len(messages) > 1:
                self.assertGreater(len(message.block_metadata), 0)
        tuples = tuples_of(messages)
        end = 0
        for at, size in tuples:
            self.assertGreater(size, 0)
            self.assertGreaterEqual(at, end)
            self.assertLess(at, capacity)
            end = at + size
            if style == "blocks":
                self.assertEqual(size, BLOCK)
            else:
                self.assertLessEqual(end, capacity)
        if tuples:
            self.assertGreater(sum(tuples[0]), offset)
        return tuples

    def test_deltas_are_exact(self):
        for name, (base, target) in self.volumes.items():
            blocks = changed_blocks(base, target, BLOCK)
            for style, client in self.clients.items():
                for max_results in (0, 1, 2, 7, INT32_MAX):
                    with self.subTest(volume=name, style=style, max_results=max_results):
                        messages = list(client.delta(f"{name}/base", f"{name}/target",
                                                     max_results=max_results))
                        tuples = self.check_rules(style, messages, len(target),
                                                  max_results=max_results)
                        self.assertEqual(tuples, self.expected(style, blocks, len(target)))

    def test_every_starting_offset(self):
        for name in ("odd", "grown", "full"):
            base, target = self.volumes[name]
            capacity = len(target)
            blocks = changed_blocks(base, target, BLOCK)
            offsets = {0, 1, capacity - 1, capacity}
            for at in blocks:
                offsets |= {at - 1, at, at + 1, at + BLOCK - 1, at + BLOCK}
            for style, client in self.clients.items():
                for offset in sorted(o for o in offsets if 0 <= o <= capacity):
                    with self.subTest(volume=name, style=style, offset=offset):
                        messages = list(client.delta(f"{name}/base", f"{name}/target", offset))
                        tuples = self.check_rules(style, messages, capacity, offset)
                        rest = [at for at in blocks if at + BLOCK > offset and offset < capacity]
                        self.assertEqual(tuples, self.expected(style, rest, capacity))

    def test_resume_at_every_cut_point(self):
        base, target = self.volumes["odd"]
        for style, client in self.clients.items():
            full = self.expected(style, changed_blocks(base, target, BLOCK), len(target))
            for i, (at, size) in enumerate(full):
                offset = min(at + size, len(target))
                messages = list(client.delta("odd/base", "odd/target", offset, max_results=3))
                tuples = self.check_rules(style, messages, len(target), offset, 3)
                self.assertEqual(full[:i + 1] + tuples, full)

    def test_allocated_covers_all_data(self):
        for name, (_, target) in self.volumes.items():
            data = [at for at in range(0, len(target), BLOCK) if any(target[at:at + BLOCK])]
            for style, client in self.clients.items():
                with self.subTest(volume=name, style=style):
                    messages = list(client.allocated(f"{name}/target"))
                    tuples = self.check_rules(style, messages, len(target))
                    reported = set()
                    for at, size in tuples:
                        reported |= set(range(at, at + size, BLOCK))
                    self.assertLessEqual(set(data), reported)

    def test_streams_without_tuples_have_one_message(self):
        for style, client in self.clients.items():
            for stream, capacity in (
                    (client.delta("same/base", "same/target"), 64 * BLOCK),
                    (client.delta("none/base", "none/target"), 0),
                    (client.allocated("none/target"), 0),
                    (client.allocated("plain/target", 64 * BLOCK), 64 * BLOCK)):
                messages = list(stream)
                self.assertEqual(len(messages), 1)
                self.assertEqual(self.check_rules(style, messages, capacity), [])

    def test_invalid_arguments(self):
        client = self.clients["extents"]
        for stream in (client.allocated(""), client.delta("", "plain/target"),
                       client.delta("plain/base", ""),
                       client.allocated("plain/target", max_results=-1),
                       client.allocated("plain/target", max_results=-2**31),
                       client.delta("plain/base", "odd/target"),
                       client.allocated("../plain/target"), client.allocated("/etc/passwd")):
            self.fails(stream, Code.INVALID_ARGUMENT)
        for request in (b"\x0a", b"\x0a\x05s", b"\x0a\x01\xff", b"\x07\x07", os.urandom(3) + b"\xff"):
            self.fails(client.raw(ALLOCATED, request), Code.INVALID_ARGUMENT)

    def test_offsets_out_of_range(self):
        for client in self.clients.values():
            for offset in (-1, INT64_MIN, 64 * BLOCK + 1, INT64_MAX):
                self.fails(client.allocated("plain/target", offset), Code.OUT_OF_RANGE)
                self.fails(client.delta("plain/base", "plain/target", offset), Code.OUT_OF_RANGE)

    def test_unknown_and_unready_snapshots(self):
        client = self.clients["extents"]
        self.fails(client.allocated("plain/nothing"), Code.NOT_FOUND)
        self.fails(client.delta("plain/nothing", "plain/target"), Code.NOT_FOUND)
        self.fails(client.allocated("plain/later"), Code.UNAVAILABLE)

    def test_unknown_fields_are_skipped(self):
        request = csi_pb2.GetMetadataAllocatedRequest(snapshot_id="tiny/target").SerializeToString()
        messages = list(self.clients["extents"].raw(ALLOCATED, request + b"\x78\x01\x82\x01\x02hi"))
        decoded = [csi_pb2.GetMetadataAllocatedResponse.FromString(m) for m in messages]
        self.assertEqual(tuples_of(decoded), [(0, 1)])
        # We send exactly libprotobuf's encoding.
        self.assertEqual(messages, [m.SerializeToString() for m in decoded])

    def test_other_services_are_unimplemented(self):
        self.fails(self.clients["extents"].raw("/csi.v1.Controller/CreateSnapshot", b""),
                   Code.UNIMPLEMENTED)
        self.fails(self.clients["extents"].raw("/csi.v1.SnapshotMetadata/Other", b""),
                   Code.UNIMPLEMENTED)

    def test_secrets_are_taken_and_never_told(self):
        client = self.clients["extents"]
        self.assertTrue(list(client.allocated("tiny/target", secrets={"user": "canary"})))
        error = self.fails(client.allocated("nothing", secrets={"user": "canary"}), Code.NOT_FOUND)
        self.assertNotIn("canary", error.details())
        self.assertNotIn("canary", repr(error.trailing_metadata()))

    def test_identity_and_health(self):
        for client in self.clients.values():
            info = client.unary("/csi.v1.Identity/GetPluginInfo", csi_pb2.GetPluginInfoRequest(),
                                csi_pb2.GetPluginInfoResponse)
            self.assertRegex(info.name, r"^[a-z0-9][a-z0-9.-]{0,61}[a-z0-9]$")
            self.assertTrue(info.vendor_version)
            answer = client.unary("/csi.v1.Identity/GetPluginCapabilities",
                                  csi_pb2.GetPluginCapabilitiesRequest(),
                                  csi_pb2.GetPluginCapabilitiesResponse)
            self.assertIn(csi_pb2.PluginCapability.Service.SNAPSHOT_METADATA_SERVICE,
                          [c.service.type for c in answer.capabilities])
            probe = client.unary("/csi.v1.Identity/Probe", csi_pb2.ProbeRequest(),
                                 csi_pb2.ProbeResponse)
            self.assertTrue(probe.HasField("ready") and probe.ready.value)
            health = client.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
            self.assertEqual(health, b"\x08\x01")

    def test_many_tuples_with_the_default_message_limit(self):
        client = Client(self.fine.address)
        self.addCleanup(client.close)
        for max_results in (0, INT32_MAX, 1000):
            messages = list(client.delta("dense/base", "dense/target", max_results=max_results))
            self.assertEqual(tuples_of(messages), [(at, 512) for at in range(0, 32 << 20, 1024)])
            self.assertLess(max(m.ByteSize() for m in messages), 1 << 20)

    def test_cancellation_and_deadline_never_look_complete(self):
        client = Client(self.fine.address)
        self.addCleanup(client.close)
        stream = client.delta("dense/base", "dense/target", max_results=1)
        next(stream)
        stream.cancel()
        self.fails(stream, Code.CANCELLED)
        stream = client.delta("dense/base", "dense/target", max_results=1, timeout=0.05)
        self.fails(stream, Code.DEADLINE_EXCEEDED)
        self.assertTrue(list(client.allocated("tiny/target")))

    def test_streams_at_once(self):
        client = Client(self.fine.address)
        self.addCleanup(client.close)
        streams = [client.delta("dense/base", "dense/target", max_results=500) for _ in range(12)]
        answers = [tuples_of(stream) for stream in streams]
        self.assertTrue(all(answer == answers[0] for answer in answers))
        self.assertEqual(len(answers[0]), 32768)

    def test_drain_ends_streams_with_unavailable_and_they_resume_elsewhere(self):
        listen = "unix://" + self.folder.name + "/drained"
        server = Server(self.root, listen, "--block-size", 512, "--grace", "0.1")
        client = Client(server.address)
        received = []
        stream = client.delta("dense/base", "dense/target", max_results=100)
        with self.assertRaises(grpc.RpcError) as caught:
            for message in stream:
                received += tuples_of([message])
                if len(received) == 300:
                    # Flow control blocks the server while the client does not read, so the grace
                    # period ends with most of the stream unsent. The server waits one more second
                    # for this reader.
                    server.process.send_signal(signal.SIGTERM)
                    time.sleep(0.4)
        self.assertEqual(caught.exception.code(), Code.UNAVAILABLE)
        # It exits by itself: a second signal would skip the drain.
        self.assertEqual(server.process.wait(timeout=30), 0)
        client.close()
        self.assertFalse(os.path.exists(listen[len("unix://"):]))

        server = Server(self.root, listen, "--block-size", 512)
        client = Client(server.address)
        received += tuples_of(client.delta("dense/base", "dense/target", sum(received[-1])))
        self.assertEqual(received, [(at, 512) for at in range(0, 32 << 20, 1024)])
        client.close()
        self.assertEqual(server.stop(), 0)

    def test_list_survives_a_killed_server(self):
        listen = "unix://" + self.folder.name + "/killed"
        server = Server(self.root, listen, "--block-size", 512)
        listing = subprocess.Popen(
            [CBT, "list", listen, "--snapshot", "dense/target", "--base", "dense/base",
             "--max-results", "1", "--format", "csv"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Its pipe is not read meanwhile, so it cannot reach the end.
        time.sleep(0.3)
        server.stop(signal.SIGKILL)
        self.assertIsNone(listing.poll())
        server = Server(self.root, listen, "--block-size", 512)
        out, err = listing.communicate(timeout=60)
        self.assertEqual(listing.returncode, 0, err)
        self.assertEqual(out.decode().splitlines()[5:-1],  # behind the head
                         [f"{at},512" for at in range(0, 32 << 20, 1024)])
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2, testRunner=runner.Runner)
