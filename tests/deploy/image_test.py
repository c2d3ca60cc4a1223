"""The container images: a valid OCI layout, the same bytes each time, nothing in it that is not needed, and
roots in which the sidecar and a plugin run, read-only and as an unprivileged user.

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
CLUSTER = os.path.join(os.path.dirname(CBT), "cbt-cluster")
BUILD = os.path.join(HERE, "..", "..", "deploy", "image", "build.py")
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402

USER = 65532


def build(path, program=CLUSTER, **environment):
    subprocess.run([sys.executable, "-B", BUILD, "--program", program, "--output", path], check=True,
                   capture_output=True, env={**os.environ, **environment})
    with open(path, "rb") as file:
        return file.read()


class Image:
    def __init__(self, data):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.files = {entry.name: tar.extractfile(entry).read()
                          for entry in tar if entry.isfile()}
        self.index = json.loads(self.files["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.config = json.loads(self.blob(self.manifest["config"]))
        (layer,) = self.manifest["layers"]
        self.layer = gzip.decompress(self.blob(layer))

    def blob(self, descriptor):
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(data) == descriptor["size"], descriptor
        assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], descriptor
        return data


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        cls.data = build(os.path.join(cls.folder, "image.tar"))
        cls.image = Image(cls.data)
        cls.command = Image(build(os.path.join(cls.folder, "command.tar"), program=CBT))

    def test_the_layout_is_whole_and_holds_nothing_else(self):
        for image, name in ((self.image, "csi-snapshot-metadata"), (self.command, "cbt")):
            self.assertEqual(json.loads(image.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
            self.assertEqual(image.index["schemaVersion"], 2)
            (entry,) = image.index["manifests"]
            self.assertEqual(entry["mediaType"], "application/vnd.oci.image.manifest.v1+json")
            self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], "latest")
            manifest, config = image.manifest, image.config
            self.assertEqual((manifest["schemaVersion"], manifest["mediaType"]),
                             (2, entry["mediaType"]))
            self.assertEqual(manifest["config"]["mediaType"],
                             "application/vnd.oci.image.config.v1+json")
            self.assertEqual(manifest["layers"][0]["mediaType"],
                             "application/vnd.oci.image.layer.v1.tar+gzip")
            self.assertEqual(config["rootfs"]["diff_ids"],
                             ["sha256:" + hashlib.sha256(image.layer).hexdigest()])
            self.assertEqual(config["os"], "linux")
            self.assertEqual(config["config"]["User"], f"{USER}:{USER}")
            self.assertEqual(config["config"]["Entrypoint"], [f"/usr/bin/{name}"])
            # Three blobs, all of them named by another file.
            self.assertEqual(len(image.files), 5)

    def test_the_same_inputs_give_the_same_bytes(self):
        self.assertEqual(build(os.path.join(self.folder, "again.tar"), TZ="Asia/Tokyo"), self.data)
        other = build(os.path.join(self.folder, "later.tar"), SOURCE_DATE_EPOCH="1000000000")
        self.assertNotEqual(other, self.data)

    def test_the_root_holds_the_program_and_its_libraries(self):
        for image, program in ((self.image, CLUSTER), (self.command, CBT)):
            with tarfile.open(fileobj=io.BytesIO(image.layer)) as tar:
                entries = list(tar)
            names = [entry.name for entry in entries]
            self.assertEqual(names, sorted(names))
            for entry in entries:
                self.assertEqual((entry.uid, entry.gid, entry.mtime), (0, 0, 0), entry.name)
                self.assertFalse(entry.mode & 0o6000, entry.name)
                if entry.name != "tmp" and not entry.issym():
                    self.assertFalse(entry.mode & 0o022, entry.name)
            files = {name for name in names if name.startswith("usr/") and ".so" in name}
            # What it loads itself, for API servers.
            (curl,) = [name for name in files if os.path.basename(name) == "libcurl.so.4"]
            needed = {"libcurl.so.4"}
            for linked in (program, "/" + curl):
                ldd = subprocess.run(["ldd", linked], check=True, capture_output=True, text=True).stdout
                needed |= {os.path.basename(word) for word in ldd.split() if word.startswith("/")}
            self.assertEqual({os.path.basename(name) for name in files}, needed)
            self.assertEqual({name for name in names if name.startswith("etc/")},
                             {"etc/passwd", "etc/group", "etc/nsswitch.conf"})
            self.assertIn("usr/share/doc/libcbt/LICENSE", names)

    def test_the_sidecars_is_small(self):
        (layer,) = self.image.manifest["layers"]
        self.assertLessEqual(layer["size"], 12 << 20)

    def inside(self, image, data, *command):
        """A command in an image's root, which is read-only, as the image's user; `data` is at /tmp."""
        if os.geteuid() != 0:
            self.skipTest("only root can enter a root as another user")
        root = os.path.join(self.folder, "root-" + image.config["config"]["Entrypoint"][0].split("/")[-1])
        if not os.path.exists(root):
            with tarfile.open(fileobj=io.BytesIO(image.layer)) as tar:
                tar.extractall(root)
        os.chmod(self.folder, 0o755)
        script = (f'mount --bind "{root}" "{root}" && mount -o remount,bind,ro "{root}" && '
                  f'mount --bind "{data}" "{root}/tmp" && '
                  f'exec chroot --userspec={USER}:{USER} --groups= "{root}" "$@"')
        return ["unshare", "-m", "sh", "-c", script, "sh", *command]

    def test_the_program_starts_in_it(self):
        data = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        for image, command, words in ((self.image, "/usr/bin/csi-snapshot-metadata",
                                       "csi-snapshot-metadata"),
                                      (self.image, "/bin/cbt-cluster", "cbt-cluster"),
                                      (self.command, "/bin/cbt", "cbt")):
            result = subprocess.run(self.inside(image, data, command, "--version"),
                                    capture_output=True, text=True,
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

        def start(image, *command):
            process = subprocess.Popen(self.inside(image, data, *command), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process

        sidecar = start(self.image, "/usr/bin/csi-snapshot-metadata", "--csi-address=/tmp/csi.sock",
                        "--tls-cert=/tmp/tls.crt", "--tls-key=/tmp/tls.key", f"--port={port}",
                        f"--http-endpoint=127.0.0.1:{http}", "--kubeconfig=/tmp/kubeconfig")
        self.assertTrue(self.wait_for(lambda: self.health(http) == 503), self.tail(log))
        plugin = start(self.command, "/usr/bin/cbt", "serve", "--root", "/tmp/root", "--listen",
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
