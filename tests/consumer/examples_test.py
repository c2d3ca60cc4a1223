"""Builds the folders of examples/ against the installed library and runs them.

Run by ctest after `install` of consumer_test.py, with the system's Python: grpcio and protoc's
messages are the foreign client.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

A = None  # the arguments
BLOCK = 4096


def run(*command, status=0):
    command = [str(word) for word in command]
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != status:
        raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}, "
                             f"expected {status}\n{done.stdout}")
    return done.stdout


class Served:
    """A running plugin."""

    def __init__(self, binary, address):
        self.process = subprocess.Popen([str(binary), address], stderr=subprocess.PIPE, text=True,
                                        stdin=subprocess.DEVNULL)
        line = self.process.stderr.readline()
        if not line.startswith("serving on "):
            raise AssertionError(line + self.process.communicate()[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode


def ranges_of(*command):
    """The tuples that the command prints as csv."""
    text = run(*command, "--format", "csv")
    return [(int(at), int(size)) for at, size in re.findall(r"^(\d+),(\d+)$", text, re.MULTILINE)]


def blocks_of(ranges):
    return {block for at, size in ranges for block in range(at // BLOCK, -(-(at + size) // BLOCK))}


def differing(base, target):
    return {at // BLOCK for at in range(0, len(target), BLOCK)
            if base[at:at + BLOCK] != target[at:at + BLOCK]}


class Example(unittest.TestCase):
    def setUp(self):
        self.folder = A.scratch / "run"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        tree = A.scratch / "build"
        if not tree.exists():
            run(A.cmake, "-S", A.examples / A.example, "-B", tree, "-G", "Ninja",
                f"-DCMAKE_CXX_COMPILER={A.compiler}", "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", f"-DCMAKE_PREFIX_PATH={A.prefix}")
            run(A.cmake, "--build", tree)
        self.tree = tree
        # Short, because a socket's path has at most 107 characters.
        self.address = f"unix:///tmp/cbt-example-{os.getpid()}.sock"

    def tearDown(self):
        pathlib.Path(self.address[len("unix://"):]).unlink(missing_ok=True)

    def conform(self):
        summary = run(A.cbt, "conform", self.address, "--snapshot", "tuesday", "--base", "monday")
        self.assertIn(" 0 failed", summary)
        # An unknown snapshot must not look like one without changes.
        for base, target in (("monday", "friday"), ("friday", "tuesday")):
            answer = run(A.cbt, "list", self.address, "--snapshot", target, "--base", base, status=2)
            self.assertIn("no such snapshot", answer)

    def delta(self):
        return ranges_of(A.cbt, "list", self.address, "--snapshot", "tuesday", "--base", "monday",
                         "--prove")


class Plugin(Example):
    def test_it_keeps_the_contract(self):
        plugin = Served(self.tree / "plugin", self.address)
        self.conform()
        self.assertEqual(self.delta(), [(8192, 4096), (409600, 4096)])
        self.assertEqual(plugin.stop(), 0)

    def test_it_prints_its_error(self):
        answer = run(self.tree / "plugin", "unix:///nowhere/at/all.sock", status=1)
        self.assertIn("nowhere", answer)


class EmbeddedPlugin(Example):
    def setUp(self):
        super().setUp()
        run(A.protoc, f"--proto_path={A.examples / A.example}", f"--python_out={self.folder}",
            "csi.proto")
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))

    def test_it_keeps_the_contract(self):
        plugin = Served(self.tree / "plugin", self.address)
        self.conform()
        self.assertEqual(self.delta(),
                         [(0, 8192), (40 * BLOCK, BLOCK), (44 * BLOCK, BLOCK), (63 * BLOCK, BLOCK)])
        self.assertEqual(plugin.stop(), 0)

    def test_a_foreign_client_finds_all_services_on_one_socket(self):
        import csi_pb2  # pylint: disable=import-error,import-outside-toplevel
        import grpc  # pylint: disable=import-error,import-outside-toplevel
        plugin = Served(self.tree / "plugin", self.address)

        def ask(service, method, request, response, stream=False):
            kind = channel.unary_stream if stream else channel.unary_unary
            call = kind(f"/csi.v1.{service}/{method}",
                        request_serializer=lambda message: message.SerializeToString(),
                        response_deserializer=response.FromString)
            return call(request, timeout=30)

        with grpc.insecure_channel(self.address) as channel:
            info = ask("Identity", "GetPluginInfo", csi_pb2.GetPluginInfoRequest(),
                       csi_pb2.GetPluginInfoResponse)
            self.assertEqual(info.name, "embedded.example.com")
            offers = ask("Identity", "GetPluginCapabilities",
                         csi_pb2.GetPluginCapabilitiesRequest(),
                         csi_pb2.GetPluginCapabilitiesResponse)
            self.assertIn(csi_pb2.PluginCapability.Service.SNAPSHOT_METADATA_SERVICE,
                          [each.service.type for each in offers.capabilities])
            listed = ask("Controller", "ListSnapshots", csi_pb2.ListSnapshotsRequest(),
                         csi_pb2.ListSnapshotsResponse)
            names = [each.snapshot.snapshot_id for each in listed.entries]
            self.assertEqual(names, ["monday", "tuesday"])
            node = ask("Node", "NodeGetInfo", csi_pb2.NodeGetInfoRequest(),
                       csi_pb2.NodeGetInfoResponse)
            self.assertEqual(node.node_id, "node-1")
            messages = list(ask("SnapshotMetadata", "GetMetadataDelta",
                                csi_pb2.GetMetadataDeltaRequest(
                                    base_snapshot_id=names[0], target_snapshot_id=names[1]),
                                csi_pb2.GetMetadataDeltaResponse, stream=True))
            self.assertEqual([(each.byte_offset, each.size_bytes)
                              for message in messages for each in message.block_metadata],
                             [(0, 8192), (40 * BLOCK, BLOCK), (44 * BLOCK, BLOCK),
                              (63 * BLOCK, BLOCK)])
            self.assertEqual(messages[0].volume_capacity_bytes, 64 * BLOCK)
            with self.assertRaises(grpc.RpcError) as caught:
                list(ask("SnapshotMetadata", "GetMetadataAllocated",
                         csi_pb2.GetMetadataAllocatedRequest(snapshot_id="friday"),
                         csi_pb2.GetMetadataAllocatedResponse, stream=True))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(plugin.stop(), 0)


class BackupClient(Example):
    def test_a_killed_backup_is_continued(self):
        volume = self.folder / "vol"
        volume.mkdir()
        size = 64 << 20
        base = bytes(size)
        target = bytearray(base)
        target[::2 * BLOCK] = b"x" * len(target[::2 * BLOCK])
        (volume / "monday.img").write_bytes(base)
        (volume / "tuesday.img").write_bytes(target)
        backup = self.folder / "backup"
        ready, ready_in_child = os.pipe()
        server = subprocess.Popen(
            [A.cbt, "serve", "--root", str(self.folder), "--listen", self.address, "--ready-fd",
             str(ready_in_child)], pass_fds=[ready_in_child], stderr=subprocess.DEVNULL)
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            pipe.readline()
        command = [str(word) for word in (self.tree / "client", self.address, "vol/monday",
                                          "vol/tuesday", volume / "tuesday.img", backup)]
        for _ in range(50):
            backup.write_bytes(base)
            first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self.assertEqual(first.stdout.readline(), "starting at 0\n")
            self.assertTrue(first.stdout.readline().startswith("covered "))
            first.kill()
            first.communicate()
            if first.returncode == -signal.SIGKILL:
                break
            # It finished before the signal: try again.
            self.assertEqual(first.returncode, 0)
        self.assertEqual(first.returncode, -signal.SIGKILL)
        checkpoint = pathlib.Path(f"{backup}.checkpoint")
        self.assertGreater(int(checkpoint.read_text().split(" ")[0]), 0)
        second = run(*command)
        self.assertFalse(second.startswith("starting at 0\n"), second)
        self.assertTrue(second.endswith("complete\n"), second)
        self.assertEqual(backup.read_bytes(), target)
        self.assertFalse(checkpoint.exists())
        # A checkpoint of other data ends the backup, and so does a damaged one.
        for text, why in (("4096 other\nvol/monday\nvol/tuesday\n", "ABORTED"),
                          ("4096 v\nvol/sunday\nvol/tuesday\n", "of other snapshots"),
                          ("4096 v\nvol/monday\nvol/monday\n", "of other snapshots"),
                          ("4096 v\nvol/monday\nvol/tuesday", "not a checkpoint"),
                          ("4096", "not a checkpoint")):
            checkpoint.write_text(text)
            self.assertIn(why, run(*command, status=1))
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


class WriteTracking(Example):
    def run_and_check(self, crashes):
        for _ in range(crashes):
            run(self.tree / "tracking", self.folder, "crash", status=-signal.SIGKILL)
        run(self.tree / "tracking", self.folder)
        known = blocks_of(ranges_of(A.cbt, "delta", self.folder / "tuesday.cbm"))
        changed = differing((self.folder / "monday").read_bytes(),
                            (self.folder / "tuesday").read_bytes())
        self.assertGreater(len(changed), 100)
        self.assertLessEqual(changed, known)
        return changed, known

    def test_without_a_crash_the_map_is_exact(self):
        changed, known = self.run_and_check(0)
        self.assertEqual(changed, known)

    def test_after_crashes_it_has_whole_regions(self):
        changed, known = self.run_and_check(2)
        self.assertLess(len(changed), len(known))
        # A run after a clean exit adds nothing, and the snapshot exists already.
        run(self.tree / "tracking", self.folder)


class BitmapMaps(Example):
    def test_the_union_has_what_either_has(self):
        monday, tuesday, out = (self.folder / name for name in ("m", "t", "union.cbm"))
        bits = bytearray((1 << 30) // BLOCK // 8)
        bits[0] = 0x05
        monday.write_bytes(bits)
        bits[0] = 0x80
        bits[-1] = 0x80
        tuesday.write_bytes(bits)
        run(self.tree / "maps", monday, tuesday, out)
        self.assertEqual(blocks_of(ranges_of(A.cbt, "delta", out)), {0, 2, 7, (1 << 18) - 1})
        self.assertIn("wednesday", run(A.cbt, "map", "info", out))

    def test_a_short_bitmap_is_an_error(self):
        short, missing, out = (self.folder / name for name in ("s", "none", "union.cbm"))
        short.write_bytes(bytes(100))
        self.assertIn("INVALID_ARGUMENT", run(self.tree / "maps", short, short, out, status=1))
        self.assertIn("NOT_FOUND", run(self.tree / "maps", missing, short, out, status=1))
        self.assertFalse(out.exists())


class Kube(Example):
    def test_it_says_what_it_could_not_find(self):
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        done = subprocess.run([self.tree / "snapshots"], env=environment, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(str(self.folder / ".kube/config"), done.stderr)

    def test_a_server_that_is_not_there_is_an_error(self):
        config = self.folder / "config"
        config.write_text("""{clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
            contexts: [{name: x, context: {cluster: c}}], current-context: x}""")
        environment = {"KUBECONFIG": str(config), "PATH": os.environ["PATH"]}
        done = subprocess.run([self.tree / "snapshots", "ns"], env=environment, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "UNAVAILABLE|DEADLINE_EXCEEDED")


class Snippets(Example):
    def test_they_compile(self):
        self.assertTrue(self.tree.exists())


TESTS = {"snippets": Snippets, "plugin": Plugin, "embedded-plugin": EmbeddedPlugin, "backup-client": BackupClient,
         "write-tracking": WriteTracking, "bitmap-maps": BitmapMaps, "kube": Kube}


def main():
    global A
    parser = argparse.ArgumentParser()
    parser.add_argument("example", choices=TESTS)
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    for name in ("cmake", "compiler", "cbt", "protoc"):
        parser.add_argument(f"--{name}", required=True)
    A = parser.parse_args()
    shutil.rmtree(A.scratch, ignore_errors=True)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(TESTS[A.example])
    if not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful():
        sys.exit(1)


main()
