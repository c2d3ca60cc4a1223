"""The container images: a valid OCI layout, the same bytes each time, nothing in it that is not needed, what
is in it said to scanners, and roots in which the sidecar, a plugin and the driver's tools run, read-only
and as the image's user.

Usage: image_test.py CBT
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
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
DRIVER = os.path.join(os.path.dirname(CBT), "cbt-driver")
BUILD = os.path.join(HERE, "..", "..", "deploy", "image", "build.py")
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402

USER = 65532
ETC = {"etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/os-release",
       "etc/ssl/certs/ca-certificates.crt"}


def version():
    with open(os.path.join(HERE, "..", "..", "include", "cbt", "version.h"), encoding="utf-8") as file:
        return re.search(r'kVersion\[\] = "([^"]*)"', file.read())[1]


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
        cls.driver = None
        if shutil.which("nbdkit"):
            cls.driver = Image(build(os.path.join(cls.folder, "driver.tar"), program=DRIVER))

    def test_the_layout_is_whole_and_holds_nothing_else(self):
        for image, name in ((self.image, "csi-snapshot-metadata"), (self.command, "cbtctl")):
            self.assertEqual(json.loads(image.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
            self.assertEqual(image.index["schemaVersion"], 2)
            (entry,) = image.index["manifests"]
            self.assertEqual(entry["mediaType"], "application/vnd.oci.image.manifest.v1+json")
            self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], version())
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
            self.assertEqual({name for name in names if name.startswith("etc/")
                              and name not in ("etc/ssl", "etc/ssl/certs")}, ETC)
            self.assertIn("usr/share/doc/libcbt/LICENSE", names)

    def test_labels_say_where_it_comes_from(self):
        image = Image(build(os.path.join(self.folder, "labels.tar"), CBT_REVISION="abc",
                            CBT_SOURCE_URL="https://example.com/libcbt", SOURCE_DATE_EPOCH="86400"))
        labels = {name.removeprefix("org.opencontainers.image."): value
                  for name, value in image.config["config"]["Labels"].items()}
        self.assertEqual(labels, {
            "title": "csi-snapshot-metadata", "version": version(), "licenses": "Apache-2.0",
            "description": "Snapshot metadata of CSI drivers, beside a plugin", "revision": "abc",
            "source": "https://example.com/libcbt", "created": "1970-01-02T00:00:00Z",
            "vendor": "libcbt maintainers"})
        self.assertEqual(image.manifest["annotations"], image.config["config"]["Labels"])

    def test_the_packages_are_those_of_the_files(self):
        with tarfile.open(fileobj=io.BytesIO(self.image.layer)) as tar:
            known = {os.path.basename(entry.name): tar.extractfile(entry).read().decode()
                     for entry in tar if entry.isfile() and "/status.d/" in entry.name}
        if not shutil.which("dpkg-query"):
            self.skipTest("no Debian")
        for name in ("libc6", "libstdc++6", "libssl3", "libcurl4", "ca-certificates"):
            installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name],
                                       capture_output=True, text=True, check=True).stdout
            self.assertIn(f"\nVersion: {installed}\n", known[name])
        with open(os.path.join(self.folder, "image.spdx.json"), encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual((document["spdxVersion"], document["dataLicense"], document["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        identifiers = [one["SPDXID"] for one in document["packages"]] + [document["SPDXID"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for one in identifiers:
            self.assertRegex(one, r"^SPDXRef-[A-Za-z0-9.-]+$")
        contained = {one["relatedSpdxElement"].removeprefix("SPDXRef-Package-")
                     for one in document["relationships"] if one["relationshipType"] == "CONTAINS"}
        contained.remove("SPDXRef-Program-csi-snapshot-metadata")
        self.assertEqual(contained, {re.sub("[^A-Za-z0-9.-]", "-", name) for name in known})
        for one in document["relationships"]:
            self.assertIn(one["spdxElementId"], identifiers)
            self.assertIn(one["relatedSpdxElement"], identifiers)
        own = document["packages"][1]
        with tarfile.open(fileobj=io.BytesIO(self.image.layer)) as tar:
            program = tar.extractfile("usr/bin/cbt-cluster").read()
            # Scanners look for it there.
            listed = json.load(tar.extractfile("usr/share/doc/libcbt/csi-snapshot-metadata.spdx.json"))
        self.assertEqual(listed, document)
        self.assertEqual(own["checksums"][0]["checksumValue"], hashlib.sha256(program).hexdigest())
        self.assertNotIn(b".symtab", program)

    def test_the_lists_of_contents_are_valid_spdx(self):
        found = subprocess.run([os.path.join(HERE, "..", "python", "environment.sh"), "--built"],
                               capture_output=True, text=True, check=False)
        if found.returncode != 0:
            self.skipTest("no virtual environment (make python-env)")
        validate = os.path.join(found.stdout.strip(), "bin", "pyspdxtools")
        for name in ("image", "command", "driver"):
            path = os.path.join(self.folder, name + ".spdx.json")
            if not os.path.exists(path):
                continue
            said = subprocess.run([validate, "--infile", path], capture_output=True, text=True, check=False)
            self.assertEqual((said.returncode, said.stderr), (0, ""), said.stdout)
        with open(os.path.join(self.folder, "image.spdx.json"), encoding="utf-8") as file:
            broken = json.load(file)
        broken["relationships"][0]["relatedSpdxElement"] = "SPDXRef-nowhere"
        with open(path := os.path.join(self.folder, "broken.spdx.json"), "w", encoding="utf-8") as file:
            json.dump(broken, file)
        self.assertNotEqual(subprocess.run([validate, "--infile", path], capture_output=True,
                                           check=False).returncode, 0)

    def test_architectures_are_joined(self):
        one = os.path.join(self.folder, "image.tar")
        other = os.path.join(self.folder, "other.tar")
        with open(one, "rb") as file, open(other, "wb") as changed:
            changed.write(file.read().replace(b'"architecture":"amd64"', b'"architecture":"arm64"'))
        joined = os.path.join(self.folder, "joined.tar")
        run = [sys.executable, "-B", BUILD, "--join", joined]
        if self.image.config["architecture"] != "amd64":
            self.skipTest("the other one is made of amd64's")
        subprocess.run([*run, other, one], check=True, capture_output=True)
        with tarfile.open(joined) as tar:
            files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        (top,) = json.loads(files["index.json"])["manifests"]
        self.assertEqual(top["mediaType"], "application/vnd.oci.image.index.v1+json")
        listed = files["blobs/" + top["digest"].replace(":", "/")]
        self.assertEqual("sha256:" + hashlib.sha256(listed).hexdigest(), top["digest"])
        manifests = json.loads(listed)["manifests"]
        self.assertEqual([entry["platform"]["architecture"] for entry in manifests],
                         ["amd64", "arm64"])
        self.assertIn("blobs/" + manifests[0]["digest"].replace(":", "/"), files)
        refused = subprocess.run([*run, one, one], capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("two images of one architecture", refused.stderr)

    def test_the_drivers_tools_run(self):
        if self.driver is None:
            self.skipTest("no nbdkit")
        self.assertEqual(self.driver.config["config"]["User"], "0:0")
        data = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        with open(f"{data}/disk", "wb") as file:
            file.truncate(16 << 20)
        os.chmod(f"{data}/disk", 0o666)
        os.chmod(data, 0o777)
        for command, word in (
                (["/usr/bin/cbt-driver", "--version"], "cbt-driver"),
                (["nbdkit", "--dump-plugin", "cbt"], "name=cbt"),
                (["mkfs.ext4", "-q", "/tmp/disk"], ""), (["e2fsck", "-fn", "/tmp/disk"], "/tmp/disk"),
                (["blkid", "-p", "-o", "value", "-s", "TYPE", "/tmp/disk"], "ext4"),
                (["losetup", "--version"], "losetup"), (["mount", "--version"], "mount"),
                (["umount", "--version"], "umount"), (["resize2fs", "/tmp/disk"], "")):
            result = subprocess.run(self.inside(self.driver, data, *command, proc=True), capture_output=True,
                                    text=True, timeout=60, check=False,
                                    env={"PATH": "/usr/sbin:/usr/bin"})
            self.assertEqual(result.returncode, 0, (command, result.stderr))
            self.assertIn(word, result.stdout, command)

    def test_the_sidecars_is_small(self):
        (layer,) = self.image.manifest["layers"]
        self.assertLessEqual(layer["size"], 12 << 20)

    def inside(self, image, data, *command, proc=False):
        """A command in an image's root, which is read-only, as an unprivileged user; `data` is at /tmp."""
        if os.geteuid() != 0:
            self.skipTest("only root can enter a root as another user")
        root = os.path.join(self.folder, "root-" + image.config["config"]["Entrypoint"][0].split("/")[-1])
        if not os.path.exists(root):
            with tarfile.open(fileobj=io.BytesIO(image.layer)) as tar:
                tar.extractall(root)
        os.chmod(self.folder, 0o755)
        script = (f'mount --bind "{root}" "{root}" && mount -o remount,bind,ro "{root}" && '
                  f'mount --bind "{data}" "{root}/tmp" && '
                  f'{{ {"false" if proc else "true"} || mount --bind /proc "{root}/proc"; }} && '
                  f'exec chroot --userspec={USER}:{USER} --groups= "{root}" "$@"')
        return ["unshare", "-m", "sh", "-c", script, "sh", *command]

    def test_the_program_starts_in_it(self):
        data = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-image-"))
        for image, command, words in ((self.image, "/usr/bin/csi-snapshot-metadata",
                                       "csi-snapshot-metadata"),
                                      (self.image, "/bin/cbt-cluster", "cbt-cluster"),
                                      (self.command, "/bin/cbtctl", "cbtctl")):
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
        plugin = start(self.command, "/usr/bin/cbtctl", "serve", "--root", "/tmp/root", "--listen",
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
