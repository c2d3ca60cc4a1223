"""The example of bindings/go as a plugin: `cbtctl conform` judges it, both clients read it, and sidecars that
are not ours stand before it.

CBT_PEER_SIDECAR and CBT_PEER_LISTER name the programs of external-snapshot-metadata, built by hand; what needs
them is skipped without them.

Usage: plugin_test.py FOLDER_OF_PROGRAMS CBT FOLDER_OF_MESSAGES
"""

import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAMS, CBT, MESSAGES = sys.argv[1:4]
TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [MESSAGES, str(TESTS / "sidecar")]
sys.path.append(str(TESTS / "support"))

# pylint: disable=wrong-import-position
import parts  # noqa: E402
import runner  # noqa: E402

BLOCK = 4096
BLOCKS = 2048
CAPACITY = BLOCKS * BLOCK - 512
MONDAY = {1: b"a", 7: b"b", 300: b"c"}
TUESDAY = {1: b"a", 7: b"x", 8: b"y", 300: b"c", BLOCKS - 1: b"z"}
CHANGED = [(7 * BLOCK, 2 * BLOCK), ((BLOCKS - 1) * BLOCK, BLOCK - 512)]
PEERS = {"CBT_PEER_SIDECAR": os.environ.get("CBT_PEER_SIDECAR"), "CBT_PEER_LISTER": os.environ.get("CBT_PEER_LISTER")}


def run(*command):
    return subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-go-"))
        os.mkdir(f"{self.folder}/vol")
        for name, blocks in (("monday", MONDAY), ("tuesday", TUESDAY)):
            with open(f"{self.folder}/vol/{name}.img", "wb") as file:
                file.truncate(CAPACITY)
                for block, text in blocks.items():
                    file.seek(block * BLOCK)
                    file.write(text)
        self.address = f"unix://{self.folder}/csi.sock"
        self.plugin = None
        self.addCleanup(self.stop)

    def stop(self):
        if self.plugin is None:
            return None
        self.plugin.send_signal(signal.SIGTERM)
        code = self.plugin.wait(30)
        self.plugin = None
        return code

    def start(self, *options):
        self.stop()
        self.plugin = subprocess.Popen([f"{PROGRAMS}/plugin", "-root", self.folder, "-listen", f"{self.folder}/csi.sock", *options])
        self.assertTrue(parts.wait_until(lambda: run(CBT, "list", self.address, "--snapshot", "vol/monday").returncode == 0))


class PluginTest(Case):
    def test_conform_judges_it(self):
        for options in ((), ("-blocks", "4096"), ("-blocks", "65536")):
            self.start(*options)
            done = run(CBT, "conform", self.address, "--snapshot", "vol/tuesday", "--base", "vol/monday")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(" 0 failed", done.stdout)
        self.assertEqual(self.stop(), 0)

    def test_both_clients_read_it(self):
        self.start()
        listed = run(CBT, "list", self.address, "--snapshot", "vol/tuesday", "--base", "vol/monday", "--format", "ndjson", "--prove")
        self.assertEqual(listed.returncode, 0, listed.stdout)
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        ours = [(row["byte_offset"], row["size_bytes"]) for row in rows if "byte_offset" in row]
        self.assertEqual(ours, CHANGED)
        done = run(f"{PROGRAMS}/list", self.address, "vol/monday", "vol/tuesday")
        *lines, end = done.stdout.splitlines()
        self.assertEqual([tuple(map(int, line.split())) for line in lines], CHANGED)
        self.assertEqual(end, f"complete: {sum(length for _, length in CHANGED)} bytes, proven")

    def test_the_client_reads_our_server(self):
        socket = f"unix://{self.folder}/serve.sock"
        ready, child = os.pipe()
        server = subprocess.Popen([CBT, "serve", "--root", self.folder, "--listen", socket, "--ready-fd", str(child)], pass_fds=[child])
        self.addCleanup(server.wait, 30)
        self.addCleanup(server.terminate)
        os.close(child)
        with os.fdopen(ready) as pipe:
            self.assertTrue(pipe.readline())
        done = run(f"{PROGRAMS}/list", socket, "vol/monday", "vol/tuesday")
        *lines, end = done.stdout.splitlines()
        self.assertEqual([tuple(map(int, line.split())) for line in lines], CHANGED)
        self.assertIn("proven", end)
        done = run(f"{PROGRAMS}/list", socket, "vol/monday", "vol/nothing")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NotFound", done.stdout)


@unittest.skipUnless(all(PEERS.values()), "CBT_PEER_SIDECAR and CBT_PEER_LISTER are not set")
class PeersTest(Case):
    """The Go sidecar before the plugin, and the lister before both sidecars."""

    DRIVER = "images.example.com"

    def kubernetes(self):
        api = parts.FakeApi()
        self.addCleanup(api.stop)
        parts.make_certificate(self.folder, "ca")
        parts.make_certificate(self.folder, "tls", "ca")
        api.put(parts.snapshot_class(driver=self.DRIVER))
        for name in ("monday", "tuesday"):
            content = parts.content(name, handle=f"vol/{name}", driver=self.DRIVER)
            content["status"]["restoreSize"] = CAPACITY
            api.put(parts.snapshot(name), content)

        def say(method, path, _body):
            old = "/apis/cbt.storage.k8s.io/v1alpha1/snapshotmetadataservices/"
            if path.startswith(old):  # listers of releases
                found = api.objects[path.replace("v1alpha1", "v1beta1")]
                return 200, dict(found, apiVersion="cbt.storage.k8s.io/v1alpha1")
            if method == "POST" and path == "/api/v1/namespaces/backup/serviceaccounts/user/token":
                return 201, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "user"},
                             "spec": {"audiences": [parts.AUDIENCE]},
                             "status": {"token": "good-user", "expirationTimestamp": "2100-01-01T00:00:00Z"}}
            return None

        api.say = say
        return api

    def check(self, program):
        api = self.kubernetes()
        self.start()
        config = api.kubeconfig(self.folder)
        # The lister reads the service's address there; the sidecar asks for its audience.
        service = parts.service(self.DRIVER)
        service["spec"]["caCert"] = base64.b64encode(parts.read(f"{self.folder}/ca.crt")).decode()
        api.put(service)
        if program:
            port, http = parts.free_port(), parts.free_port()
            log = self.enterContext(open(f"{self.folder}/go.log", "wb"))
            process = subprocess.Popen(
                [program, f"--csi-address={self.folder}/csi.sock", f"--port={port}", f"--tls-cert={self.folder}/tls.crt",
                 f"--tls-key={self.folder}/tls.key", f"--http-endpoint=127.0.0.1:{http}", "--kubeconfig", config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(process.wait, 30)
            self.addCleanup(process.terminate)
            sidecar = parts.Sidecar.__new__(parts.Sidecar)
            sidecar.port, sidecar.http = port, http
            self.assertTrue(parts.wait_until(lambda: sidecar.health() == 200), parts.read(f"{self.folder}/go.log").decode())
        else:
            sidecar = parts.Sidecar(CBT, self.folder, config)
            self.addCleanup(sidecar.stop)
        service["spec"]["address"] = f"localhost:{sidecar.port}"
        api.put(service)
        done = run(PEERS["CBT_PEER_LISTER"], "-kubeconfig", config, "-n", "ns", "-s", "tuesday", "-P", "vol/monday", "-o", "json",
                   "-service-account", "user", "-service-account-namespace", "backup", "-max-results", "1")
        self.assertEqual(done.returncode, 0, done.stdout)
        found = [(block.get("byte_offset", 0), block["size_bytes"]) for message in json.loads(done.stdout)
                 for block in message.get("block_metadata", [])]
        self.assertEqual(found, CHANGED, done.stdout)

    def test_the_go_sidecar(self):
        self.check(PEERS["CBT_PEER_SIDECAR"])

    def test_our_sidecar(self):
        self.check(None)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
