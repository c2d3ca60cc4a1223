"""What the reference driver of CSI (hostpath) does, behind the client, the relay and the sidecar: it sends a
message only for blocks, so that an empty answer is OK without any message, at every offset.

CBT_PEER_SIDECAR, the Go sidecar, is asked the same if it is set.

Usage: reference_driver_test.py CBT FOLDER_OF_MESSAGES
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import csi_pb2  # noqa: E402
import grpc  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402
import snapshotmetadata_pb2  # noqa: E402
from parts import CODES  # noqa: E402

BLOCK = 4096
BLOCKS = 64
CAPACITY = BLOCKS * BLOCK


class ReferenceDriver(parts.Plugin):
    """`images`: the blocks of each snapshot that hold something, by its handle, with what they hold."""

    def __init__(self, address, images, most=256):
        self.images = images
        self.most = most
        self.cut_after = None  # messages; then the stream breaks
        super().__init__(address)

    def stream(self, request, context):
        delta = isinstance(request, csi_pb2.GetMetadataDeltaRequest)
        target = self.images.get(request.target_snapshot_id if delta else request.snapshot_id)
        base = self.images.get(request.base_snapshot_id) if delta else {}
        if target is None or base is None:
            context.abort(CODES.NOT_FOUND, "cannot find the snapshot")
        changed = [block for block in range(BLOCKS)
                   if target.get(block) != base.get(block) and block * BLOCK >= request.starting_offset]
        most = request.max_results or self.most
        for sent, at in enumerate(range(0, len(changed), most)):
            if sent == self.cut_after:
                context.abort(CODES.UNAVAILABLE, "cut")
            message = csi_pb2.GetMetadataAllocatedResponse(
                block_metadata_type=csi_pb2.FIXED_LENGTH, volume_capacity_bytes=CAPACITY)
            for block in changed[at:at + most]:
                message.block_metadata.add(byte_offset=block * BLOCK, size_bytes=BLOCK)
            yield message
        if self.cut_after is not None and changed:
            context.abort(CODES.UNAVAILABLE, "cut")


def run(*arguments):
    return subprocess.run([CBT, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120, check=False)


class Case(unittest.TestCase):
    IMAGES = {"handle-blank": {}, "handle-monday": {0: "a", 7: "b"}, "handle-tuesday": {0: "a", 7: "b"},
              "handle-wednesday": {0: "a", 7: "c", BLOCKS - 1: "d"}}

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-reference-"))
        cls.plugin = ReferenceDriver(f"unix:{cls.folder}/csi.sock", cls.IMAGES)
        cls.addClassCleanup(cls.plugin.stop)
        cls.address = f"unix://{cls.folder}/csi.sock"

    def setUp(self):
        self.plugin.cut_after = None

    def ok(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result)
        return result

    def image(self, name):
        path = os.path.join(self.folder, name + ".img")
        with open(path, "wb") as file:
            file.truncate(CAPACITY)
            for block, letter in self.IMAGES["handle-" + name].items():
                file.seek(block * BLOCK)
                file.write(letter.encode() * BLOCK)
        return path


EMPTY = (("--snapshot", "handle-blank"),
         ("--base", "handle-monday", "--snapshot", "handle-tuesday"))


class ClientTest(Case):
    def check(self, address):
        for pair in EMPTY:
            result = self.ok("list", address, *pair, "--format", "ndjson")
            head, end = map(json.loads, result.stdout.splitlines())
            # The capacity is unknown, and is not invented.
            self.assertEqual((head["block_metadata_type"], head["volume_capacity_bytes"]),
                             ("VARIABLE_LENGTH", None))
            self.assertEqual((end["complete"], end["tuples"]), (True, 0))
            self.assertIn(b"does not say how large the volume is", result.stderr)
            for form in ("json", "csv", "table"):
                self.ok("list", address, *pair, "--format", form)
            self.ok("list", address, *pair, "--object")
            known = self.ok("list", address, *pair, "--capacity", CAPACITY, "--format", "ndjson")
            self.assertEqual(json.loads(known.stdout.splitlines()[0])["volume_capacity_bytes"], CAPACITY)
            self.assertEqual(known.stderr, b"")
            # Strictness.
            for option, code, words in (("--require-message", 3, b"without a message"),
                                        ("--prove", 2, b"proof")):
                strict = run("list", address, *pair, option)
                self.assertEqual(strict.returncode, code, strict)
                self.assertIn(words, strict.stderr)
                self.assertNotIn(b"complete", strict.stdout)

    def test_fa_list_of_the_driver(self):
        self.check(self.address)

    def test_fa_a_map_needs_the_capacity(self):
        path = os.path.join(self.folder, "m.cbm")
        for pair in EMPTY:
            result = run("list", self.address, *pair, "--output", path)
            self.assertEqual(result.returncode, 3, result)
            self.assertIn(b"state the volume's capacity", result.stderr)
            self.assertFalse(os.path.exists(path))
            self.ok("list", self.address, *pair, "--output", path, "--capacity", CAPACITY)
            self.assertIn(str(CAPACITY).encode(), self.ok("map", "info", path, "--json").stdout)
            os.remove(path)

    def test_fa_what_has_no_capacity_is_read_back_with_one_only(self):
        path = os.path.join(self.folder, "answer.ndjson")
        for form in ("ndjson", "json"):
            with open(path, "wb") as file:
                file.write(self.ok("list", self.address, *EMPTY[1], "--format", form).stdout)
            refused = run("delta", path, "--from", form)
            self.assertEqual(refused.returncode, 2, refused)
            self.assertIn(b"--capacity", refused.stderr)
            head = self.ok("delta", path, "--from", form, "--capacity", CAPACITY, "--format", "ndjson")
            self.assertEqual(json.loads(head.stdout.splitlines()[0])["volume_capacity_bytes"], CAPACITY)

    def test_fa_verify_looks_at_the_data(self):
        blank, monday, tuesday = map(self.image, ("blank", "monday", "tuesday"))
        self.ok("verify", blank, "--service", self.address, "--snapshot", "handle-blank")
        self.ok("verify", monday, tuesday, "--service", self.address, "--base", "handle-monday",
                "--snapshot", "handle-tuesday")
        # A driver that leaves everything out looks the same, and is found.
        result = run("verify", monday, "--service", self.address, "--snapshot", "handle-blank")
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(b"not reported: byte_offset 0", result.stdout)

    def test_fa_a_resumption_after_the_last_block_finishes(self):
        self.plugin.cut_after = 1
        for pair, tuples in ((("--snapshot", "handle-wednesday"), 3),
                             (("--base", "handle-tuesday", "--snapshot", "handle-wednesday"), 2)):
            for most in (1, 2, 3):
                result = self.ok("list", self.address, *pair, "--format", "ndjson", "--max-results",
                                 most, "--retry-for", 60)
                self.assertEqual(json.loads(result.stdout.splitlines()[-1])["tuples"], tuples)
                self.assertIn(b"resuming at", result.stderr)

    def test_fa_through_a_relay(self):
        ready, child = os.pipe()
        relay = subprocess.Popen([CBT, "relay", "--plugin", self.address, "--api", "csi", "--listen",
                                  f"unix://{self.folder}/relay.sock", "--ready-fd", str(child)],
                                 pass_fds=[child], stdin=subprocess.DEVNULL)
        os.close(child)
        try:
            with os.fdopen(ready) as pipe:
                address = pipe.readline().strip()
            self.check(address)
            self.plugin.cut_after = 1
            result = self.ok("list", address, "--snapshot", "handle-wednesday", "--max-results", 1,
                             "--retry-for", 60, "--format", "ndjson")
            self.assertEqual(json.loads(result.stdout.splitlines()[-1])["tuples"], 3)
        finally:
            relay.terminate()
            relay.wait(30)


class SidecarTest(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.api = parts.FakeApi()
        cls.addClassCleanup(cls.api.stop)
        cls.api.put(parts.service(), parts.snapshot_class())
        for name in ("blank", "monday", "tuesday", "wednesday"):
            content = parts.content(name)
            # What the driver has said of the snapshot's size; drivers need not.
            if name != "monday":
                content["status"]["restoreSize"] = 0 if name == "wednesday" else CAPACITY
            cls.api.put(parts.snapshot(name), content)
        cls.token = os.path.join(cls.folder, "token")
        with open(cls.token, "w", encoding="ascii") as file:
            file.write("good-user")

    def start(self, *flags, program=None):
        sidecar = parts.Sidecar(CBT, self.folder, self.api.kubeconfig(self.folder), *flags,
                                program=program)
        self.addCleanup(sidecar.stop)
        channel = sidecar.channel()
        self.addCleanup(channel.close)
        return sidecar, channel

    def messages(self, channel, snapshot, base=None, offset=0):
        fields = {"security_token": "good-user", "namespace": "ns", "starting_offset": offset}
        request = (snapshotmetadata_pb2.GetMetadataAllocatedRequest(snapshot_name=snapshot, **fields)
                   if base is None else snapshotmetadata_pb2.GetMetadataDeltaRequest(
                       target_snapshot_name=snapshot, base_snapshot_id=base, **fields))
        try:
            return list(parts.method_of(channel, base is not None)(request, timeout=60))
        except grpc.RpcError as error:
            return error.code()

    def list(self, sidecar, snapshot, *options):
        return run("list", f"localhost:{sidecar.port}", "--api", "kubernetes", "--namespace", "ns",
                   "--snapshot", snapshot, "--token-file", self.token, "--tls-ca",
                   f"{self.folder}/ca.crt", "--format", "ndjson", "--retry-for", 60, *options)

    def check_end(self, sidecar, channel):
        """Whatever the sidecar sends for them, these answers are empty and complete."""
        for snapshot, base, offset in (("blank", None, 0), ("tuesday", "handle-monday", 0),
                                       ("monday", "handle-tuesday", 0), ("monday", None, 8 * BLOCK),
                                       ("wednesday", "handle-monday", CAPACITY)):
            got = self.messages(channel, snapshot, base, offset)
            self.assertIsInstance(got, list, f"{snapshot} {base} {offset}: {got}")
            self.assertFalse([t for message in got for t in message.block_metadata])
            listed = self.list(sidecar, snapshot, "--starting-offset", offset,
                               *(["--base", base] if base else []))
            self.assertEqual(listed.returncode, 0, listed)
            self.assertEqual(json.loads(listed.stdout.splitlines()[-1])["tuples"], 0)

    def test_fa_empty_answers(self):
        sidecar, channel = self.start()
        self.check_end(sidecar, channel)
        for snapshot, base in (("blank", None), ("tuesday", "handle-monday")):
            [message] = self.messages(channel, snapshot, base)
            self.assertEqual(message.volume_capacity_bytes, CAPACITY)
            self.assertEqual(message.block_metadata_type, snapshotmetadata_pb2.VARIABLE_LENGTH)
        # The size is unknown; and at an offset the client knows it.
        self.assertEqual(self.messages(channel, "monday", "handle-tuesday"), [])
        self.assertEqual(self.messages(channel, "blank", offset=BLOCK), [])
        self.assertEqual(len(self.messages(channel, "wednesday")), 1)

    def test_fa_strictness(self):
        _, channel = self.start("--require-message")
        for snapshot, base, offset in (("blank", None, 0), ("tuesday", "handle-monday", 0),
                                       ("monday", None, 8 * BLOCK)):
            self.assertEqual(self.messages(channel, snapshot, base, offset), CODES.INTERNAL)
        self.assertEqual(len(self.messages(channel, "wednesday")), 1)

    def test_fa_a_resumption_through_the_sidecar(self):
        sidecar, _ = self.start()
        self.plugin.cut_after = 1
        for most in (1, 2, 3):
            result = self.list(sidecar, "wednesday", "--max-results", most)
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(json.loads(result.stdout.splitlines()[-1])["tuples"], 3)

    @unittest.skipUnless(os.environ.get("CBT_PEER_SIDECAR"), "CBT_PEER_SIDECAR is not set")
    def test_fa_the_go_sidecar_gives_the_same(self):
        port, http = parts.free_port(), parts.free_port()
        with open(f"{self.folder}/go.log", "wb") as log:
            process = subprocess.Popen(
                [os.environ["CBT_PEER_SIDECAR"], f"--csi-address={self.folder}/csi.sock",
                 f"--port={port}", f"--tls-cert={self.folder}/tls.crt",
                 f"--tls-key={self.folder}/tls.key", f"--http-endpoint=127.0.0.1:{http}",
                 "--kubeconfig", self.api.kubeconfig(self.folder), "-v=5"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.terminate)
        peer = parts.Sidecar.__new__(parts.Sidecar)
        peer.port, peer.http, peer.folder = port, http, self.folder
        self.assertTrue(parts.wait_until(lambda: peer.health() == 200),
                        parts.read(f"{self.folder}/go.log").decode())
        channel = peer.channel()
        self.addCleanup(channel.close)
        self.check_end(peer, channel)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
