"""The container image: a valid OCI layout, the same bytes each time, nothing in it that is not needed, and a
root in which the sidecar runs, read-only and as an unprivileged user.

Usage: image_test.py CBT
"""

import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
CBT = os.path.abspath(sys.argv[1])
BUILD = os.path.join(HERE, "..", "..", "deploy", "image", "build.py")
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402

USER = 65532


def build(path, **environment):
    subprocess.run([sys.executable, "-B", BUILD, "--cbt", CBT, "--output", path], check=True,
                   capture_output=True, env={**os.environ, **environment})
    with open(path, "rb") as file:
        return file.read()


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        cls.data = build(os.path.join(cls.folder, "image.tar"))
        with tarfile.open(fileobj=io.BytesIO(cls.data)) as tar:
            cls.files = {entry.name: tar.extractfile(entry).read()
                         for entry in tar if entry.isfile()}
        cls.layer = cls.layer_of_image()

    @classmethod
    def blob(cls, descriptor):
        data = cls.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(data) == descriptor["size"], descriptor
        assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], descriptor
        return data

    @classmethod
    def manifest(cls):
        return json.loads(cls.blob(json.loads(cls.files["index.json"])["manifests"][0]))

    @classmethod
    def layer_of_image(cls):
        (layer,) = cls.manifest()["layers"]
        return gzip.decompress(cls.blob(layer))

    def test_the_layout_is_whole_and_holds_nothing_else(self):
        self.assertEqual(json.loads(self.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        index = json.loads(self.files["index.json"])
        self.assertEqual(index["schemaVersion"], 2)
        (entry,) = index["manifests"]
        self.assertEqual(entry["mediaType"], "application/vnd.oci.image.manifest.v1+json")
        self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], "latest")
        manifest = self.manifest()
        self.assertEqual((manifest["schemaVersion"], manifest["mediaType"]),
                         (2, entry["mediaType"]))
        self.assertEqual(manifest["config"]["mediaType"], "application/vnd.oci.image.config.v1+json")
        self.assertEqual(manifest["layers"][0]["mediaType"],
                         "application/vnd.oci.image.layer.v1.tar+gzip")
        config = json.loads(self.blob(manifest["config"]))
        self.assertEqual(config["rootfs"]["diff_ids"],
                         ["sha256:" + hashlib.sha256(self.layer).hexdigest()])
        self.assertEqual(config["os"], "linux")
        self.assertEqual(config["config"]["User"], f"{USER}:{USER}")
        self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/csi-snapshot-metadata"])
        # Three blobs, all of them named by another file.
        self.assertEqual(len(self.files), 5)

    def test_the_same_inputs_give_the_same_bytes(self):
        self.assertEqual(build(os.path.join(self.folder, "again.tar"), TZ="Asia/Tokyo"), self.data)
        other = build(os.path.join(self.folder, "later.tar"), SOURCE_DATE_EPOCH="1000000000")
        self.assertNotEqual(other, self.data)

    def test_the_root_holds_the_program_and_its_libraries(self):
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            entries = list(tar)
        names = [entry.name for entry in entries]
        self.assertEqual(names, sorted(names))
        for entry in entries:
            self.assertEqual((entry.uid, entry.gid, entry.mtime), (0, 0, 0), entry.name)
            self.assertFalse(entry.mode & 0o6000, entry.name)
            if entry.name != "tmp" and not entry.issym():
                self.assertFalse(entry.mode & 0o022, entry.name)
        files = {name for name in names if name.startswith("usr/") and ".so" in name}
        ldd = subprocess.run(["ldd", CBT], check=True, capture_output=True, text=True).stdout
        needed = {os.path.basename(word) for word in ldd.split() if word.startswith("/")}
        self.assertEqual({os.path.basename(name) for name in files}, needed)
        self.assertEqual({name for name in names if name.startswith("etc/")},
                         {"etc/passwd", "etc/group", "etc/nsswitch.conf"})
        self.assertIn("usr/share/doc/libcbt/LICENSE", names)

    def inside(self, data, *command):
        """A command in the root, which is read-only, as the image's user; `data` is at /tmp."""
        if os.geteuid() != 0:
            self.skipTest("only root can enter a root as another user")
        root = os.path.join(self.folder, "root")
        if not os.path.exists(root):
            with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
                tar.extractall(root)
        os.chmod(self.folder, 0o755)
        script = (f'mount --bind "{root}" "{root}" && mount -o remount,bind,ro "{root}" && '
                  f'mount --bind "{data}" "{root}/tmp" && '
                  f'exec chroot --userspec={USER}:{USER} --groups= "{root}" "$@"')
        return ["unshare", "-m", "sh", "-c", script, "sh", *command]

    def test_the_program_starts_in_it(self):
        data = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        for command, words in ((["/usr/bin/csi-snapshot-metadata", "--version"],
                                "csi-snapshot-metadata"),
                               (["/bin/cbt", "--version"], "cbt")):
            result = subprocess.run(self.inside(data, *command), capture_output=True, text=True,
                                    timeout=60, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(words, result.stdout)

    def test_the_sidecar_serves_in_it(self):
        data = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        os.makedirs(os.path.join(data, "root/vol"))
        with open(os.path.join(data, "root/vol/snap.img"), "wb") as file:
            file.write(bytes(8192))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", f"{data}/tls.key", "-out", f"{data}/tls.crt"],
                       check=True, capture_output=True)
        # No API server is needed to become ready: it is asked when a client asks.
        with open(f"{data}/kubeconfig", "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                       "users": [{"name": "u", "user": {}}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
        os.chmod(f"{data}/tls.key", 0o644)
        os.chmod(data, 0o777)
        port, http = self.free_port(), self.free_port()
        log = self.enterContext(open(f"{self.folder}/log", "w+b"))

        def start(*command):
            process = subprocess.Popen(self.inside(data, *command), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process

        sidecar = start("/usr/bin/csi-snapshot-metadata", "--csi-address=/tmp/csi.sock",
                        "--tls-cert=/tmp/tls.crt", "--tls-key=/tmp/tls.key", f"--port={port}",
                        f"--http-endpoint=127.0.0.1:{http}", "--kubeconfig=/tmp/kubeconfig")
        self.assertTrue(self.wait_for(lambda: self.health(http) == 503), self.tail(log))
        plugin = start("/usr/bin/cbt", "serve", "--root", "/tmp/root", "--listen",
                       "unix:///tmp/csi.sock")
        self.assertTrue(self.wait_for(lambda: self.health(http) == 200), self.tail(log))
        with open(f"/proc/{sidecar.pid}/status", encoding="utf-8") as status:
            self.assertIn(f"Uid:\t{USER}\t{USER}", status.read())
        for process in (sidecar, plugin):
            process.terminate()
            self.assertEqual(process.wait(30), 0, self.tail(log))

    @staticmethod
    def free_port():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    @staticmethod
    def tail(log):
        log.seek(0)
        return log.read().decode()[-2000:]

    @staticmethod
    def health(port):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    @staticmethod
    def wait_for(condition, seconds=30):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                return True
            time.sleep(0.05)
        return False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
