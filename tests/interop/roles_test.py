"""Python's grpcio in the other roles: as the plugin that our client, relay and checker call; as a
client of the contracts beside CSI's, through generated messages; reflection.

Usage: roles_test.py CBT FOLDER_OF_MESSAGES
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent import futures

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import csi_pb2  # noqa: E402
import first_revision_pb2  # noqa: E402
import grpc  # noqa: E402
import runner  # noqa: E402
import list_snapshot_deltas_pb2  # noqa: E402
import snapshotmetadata_pb2  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402

BLOCK = 4096
CAPACITY = 1000 * BLOCK + 17
TRUTH = [(i * 7 * BLOCK, (1 + i % 3) * BLOCK) for i in range(140)] + [(CAPACITY - 17, 17)]


def run(*arguments):
    return subprocess.run([CBT, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120, check=False)


def without_names(answer):
    """The csv of an answer without what its head says about its source."""
    return re.sub(r"(?m)^(?:base|snapshot|source_version),.*\n", "", answer.decode())


class Plugin(grpc.GenericRpcHandler):
    """A plugin as a storage vendor would write it in Python, with what generated stubs provide."""

    def service(self, details):
        service, name = details.method.rsplit("/", 1)
        # None: the method is UNIMPLEMENTED.
        if service not in ("/csi.v1.Identity", "/csi.v1.SnapshotMetadata"):
            return None
        if details.method.startswith("/csi.v1.Identity/"):
            answers = {
                "GetPluginInfo": csi_pb2.GetPluginInfoResponse(name="python.example.com"),
                "Probe": csi_pb2.ProbeResponse(),
                "GetPluginCapabilities": csi_pb2.GetPluginCapabilitiesResponse(),
            }
            answers["GetPluginCapabilities"].capabilities.add().service.type = 4
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: answers[name],
                response_serializer=lambda message: message.SerializeToString())
        request = getattr(csi_pb2, name + "Request", None)
        if request is None:
            return None
        return grpc.unary_stream_rpc_method_handler(
            self.stream, request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString())

    def stream(self, request, context):
        delta = isinstance(request, csi_pb2.GetMetadataDeltaRequest)
        target = request.target_snapshot_id if delta else request.snapshot_id
        if not target or (delta and not request.base_snapshot_id) or request.max_results < 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        if target != "ns/b" or (delta and request.base_snapshot_id not in ("ns/a", "ns/b")):
            context.abort(grpc.StatusCode.NOT_FOUND, "no")
        if not 0 <= request.starting_offset <= CAPACITY:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, "no")
        truth = [] if delta and request.base_snapshot_id == target else TRUTH
        rest = [t for t in truth if sum(t) > request.starting_offset]
        most = request.max_results or 50
        for at in range(0, max(len(rest), 1), most):
            message = csi_pb2.GetMetadataAllocatedResponse(
                block_metadata_type=csi_pb2.VARIABLE_LENGTH, volume_capacity_bytes=CAPACITY)
            for offset, size in rest[at:at + most]:
                message.block_metadata.add(byte_offset=offset, size_bytes=size)
            yield message


class RolesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cbt-roles-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.tokens = self.file("tokens", "python-token-0123456789 python ns\n")
        self.sessions = self.file("sessions", "session-token-0123456789-0123456789 ns a,b -\n")
        self.token = self.file("token", "python-token-0123456789\n")

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def python_plugin(self):
        server = grpc.server(futures.ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers((Plugin(),))
        server.add_insecure_port(f"unix:{self.path('plugin')}")
        server.start()
        self.addCleanup(server.stop, None)
        return f"unix://{self.path('plugin')}"

    def start(self, *command):
        ready, ready_in_child = os.pipe()
        process = subprocess.Popen([CBT, *command, "--ready-fd", str(ready_in_child)],
                                   pass_fds=[ready_in_child], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        os.close(ready_in_child)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        with os.fdopen(ready) as pipe:
            address = pipe.readline().strip()
        self.assertTrue(address)
        return address

    def relay(self, plugin):
        return self.start("relay", "--plugin", plugin, "--listen", f"unix://{self.path('relay')}",
                          "--api", "csi,kubernetes,session,paged", "--tokens", self.tokens,
                          "--sessions", self.sessions)

    def test_our_client_relay_and_checker_against_a_python_plugin(self):
        plugin = self.python_plugin()
        expected = f"byte_offset,size_bytes\ncapacity,{CAPACITY}\n" + "".join(f"{o},{s}\n" for o, s in TRUTH)
        expected += f"complete,{len(TRUTH)}\n"
        for options in [[], ["--base", "ns/a"], ["--max-results", "3"]]:
            listed = run("list", plugin, "--snapshot", "ns/b", "--format", "csv", *options)
            self.assertEqual((listed.returncode, without_names(listed.stdout)), (0, expected), listed)
        conform = run("conform", plugin, "--snapshot", "ns/b", "--base", "ns/a")
        self.assertEqual(conform.returncode, 0, conform.stdout.decode())
        relay = self.relay(plugin)
        through = ["list", relay, "--api", "kubernetes", "--token-file", self.token, "--namespace",
                   "ns", "--snapshot", "b", "--base", "ns/a", "--format", "csv"]
        listed = run(*through)
        self.assertEqual((listed.returncode, without_names(listed.stdout)), (0, expected), listed)
        # The plugin sends no proof, and the relay's does not cover the plugin.
        listed = run(*through, "--prove")
        self.assertEqual(listed.returncode, 2, listed)
        self.assertIn(b"does not reach the source", listed.stderr)
        self.assertIn(b"\nerror,", listed.stdout)

    def test_a_python_client_of_every_contract_through_the_relay(self):
        relay = self.relay(self.python_plugin())
        channel = grpc.insecure_channel(relay)
        self.addCleanup(channel.close)

        def stream(method, request, response):
            call = channel.unary_stream(
                method, request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString)
            return list(call(request, timeout=60))

        def tuples(messages):
            return [(t.byte_offset, t.size_bytes) for m in messages for t in m.block_metadata]

        kubernetes = snapshotmetadata_pb2
        messages = stream("/snapshotmetadata.SnapshotMetadata/GetMetadataDelta",
                          kubernetes.GetMetadataDeltaRequest(
                              security_token="python-token-0123456789", namespace="ns",
                              base_snapshot_id="ns/a", target_snapshot_name="b", max_results=9),
                          kubernetes.GetMetadataDeltaResponse)
        self.assertEqual(tuples(messages), TRUTH)
        self.assertTrue(all(len(m.block_metadata) <= 9 for m in messages))
        self.assertTrue(all(m.block_metadata_type == kubernetes.VARIABLE_LENGTH for m in messages))

        first = first_revision_pb2
        messages = stream("/SnapshotMetadata/GetDelta",
                          first.GetDeltaRequest(
                              session_token="session-token-0123456789-0123456789", volume_id="v",
                              base_snapshot="a", target_snapshot="b", starting_byte_offset=BLOCK),
                          first.GetDeltaResponse)
        self.assertEqual(tuples(messages), [t for t in TRUTH if sum(t) > BLOCK])
        self.assertTrue(all(m.block_metadata_type == first.VARIABLE_LENGTH and
                            m.volume_size_bytes == CAPACITY for m in messages))

        paged = list_snapshot_deltas_pb2
        call = channel.unary_unary(
            "/csi.v1.Controller/ListSnapshotDeltas",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=paged.ListSnapshotDeltasResponse.FromString)
        got, token = [], ""
        while True:
            page = call(paged.ListSnapshotDeltasRequest(
                from_snapshot_id="ns/a", to_snapshot_id="ns/b", max_entries=20,
                starting_token=token), timeout=60)
            got += [(b.offset, b.block_size_bytes) for b in page.changed_blocks]
            token = page.next_token
            if not token:
                break
        self.assertEqual(got, TRUTH)
        with self.assertRaises(grpc.RpcError) as caught:
            call(paged.ListSnapshotDeltasRequest(to_snapshot_id="ns/b", starting_token="x"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.ABORTED)

    def test_trailers_prove_the_stream(self):
        """Follows the text of docs/reference/completeness.md, without any code of the project."""
        relay = self.relay(self.python_plugin())
        channel = grpc.insecure_channel(relay)
        self.addCleanup(channel.close)
        call = channel.unary_stream(
            "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=csi_pb2.GetMetadataAllocatedResponse.FromString)(
                csi_pb2.GetMetadataAllocatedRequest(snapshot_id="ns/b"), timeout=60)
        count = sum(len(message.block_metadata) for message in call)
        trailers = dict(call.trailing_metadata())
        self.assertEqual(int(trailers["cbt-tuple-count"]), count)
        self.assertEqual(int(trailers["cbt-reported-bytes"]), sum(size for _, size in TRUTH))
        self.assertEqual(trailers["cbt-starting-offset"], "0")
        self.assertRegex(trailers["cbt-digest"], r"\Axxh3-64:[0-9a-f]{16}\Z")
        self.assertEqual(trailers["cbt-volume-capacity-bytes"], str(CAPACITY))
        self.assertEqual(trailers["cbt-block-metadata-type"], "VARIABLE_LENGTH")

    def test_reflection(self):
        relay = self.relay(self.python_plugin())
        channel = grpc.insecure_channel(relay)
        self.addCleanup(channel.close)

        def fields(data):
            """(number, bytes or int) of a message's fields, without its description."""
            at = 0

            def varint():
                nonlocal at
                value = shift = 0
                while True:
                    value |= (data[at] & 127) << shift
                    at, shift = at + 1, shift + 7
                    if data[at - 1] < 128:
                        return value
            while at < len(data):
                tag = varint()
                value = varint()
                if tag & 7 == 2:
                    value, at = data[at:at + value], at + value
                yield tag >> 3, value

        for version in ["v1", "v1alpha"]:
            ask = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=lambda m: m, response_deserializer=lambda m: m)
            symbol = b"snapshotmetadata.SnapshotMetadata.GetMetadataDelta"
            requests = [b"\x3a\x00", b"\x22" + bytes([len(symbol)]) + symbol,
                        b"\x1a\x09csi.proto", b"\x22\x04none"]
            listed, by_symbol, by_name, missing = (
                dict(fields(answer)) for answer in ask(iter(requests), timeout=30))
            names = {dict(fields(service))[1].decode() for _, service in fields(listed[6])}
            self.assertLessEqual({"csi.v1.SnapshotMetadata", "snapshotmetadata.SnapshotMetadata",
                                  "SnapshotMetadata", "csi.v1.Controller",
                                  "grpc.health.v1.Health"}, names)
            for answer, name in [(by_symbol, "snapshotmetadata.proto"), (by_name, "csi.proto")]:
                files = [descriptor_pb2.FileDescriptorProto.FromString(file)
                         for _, file in fields(answer[4])]
                self.assertEqual(files[0].name, name)
            self.assertEqual(dict(fields(missing[7]))[1], grpc.StatusCode.NOT_FOUND.value[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], testRunner=runner.Runner)
