"""`deploy/release/release.py`: the same commit gives the same bytes, everything is in the list of checksums, and
the manifests name the images by their digests.

Usage: release_test.py CBT
"""

import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.abspath(os.path.join(HERE, "..", ".."))
PROGRAMS = os.path.dirname(os.path.abspath(sys.argv[1]))
RELEASE = os.path.join(PROJECT, "deploy", "release", "release.py")
sys.path.append(HERE)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import built  # noqa: E402
import pods  # noqa: E402
import rules  # noqa: E402
import runner  # noqa: E402

REGISTRY = "images.example.org/cbt"


def lacks():
    if subprocess.run(["git", "-C", PROJECT, "rev-parse", "HEAD"], capture_output=True,
                      check=False).returncode != 0:
        return "not a clone"
    return "" if shutil.which("nbdkit") else "no nbdkit"


@unittest.skipIf(lacks(), lacks())
class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-dist-"))
        wheel = os.path.join(cls.folder, "cbt-0-py3-none-any.whl")
        with open(wheel, "wb") as file:
            file.write(b"a package")
        cls.releases = []
        for name in ("one", "two"):
            cls.releases.append(os.path.join(cls.folder, name))
            subprocess.run([sys.executable, "-B", RELEASE, "--output", cls.releases[-1], "--programs",
                            PROGRAMS, "--packages", wheel, "--registry", REGISTRY, "--dirty"],
                           check=True, capture_output=True, env={**os.environ, "TZ": f"UTC-{name}"})
        with open(os.path.join(cls.releases[0], "SHA256SUMS"), encoding="utf-8") as file:
            cls.sums = dict(reversed(line.split()) for line in file)

    def test_twice_gives_the_same_bytes(self):
        one, two = self.releases
        names = [os.path.relpath(os.path.join(folder, name), one)
                 for folder, _, files in os.walk(one) for name in files]
        same, different, errors = filecmp.cmpfiles(one, two, names, shallow=False)
        self.assertEqual((different, errors), ([], []))
        self.assertEqual(set(same), set(self.sums) | {"SHA256SUMS"})

    def test_everything_is_there(self):
        kinds = {name.partition("/")[0] for name in self.sums}
        self.assertTrue({"images", "packages", "bindings", "CHANGES.md"} <= kinds)
        for language in ("cbt", "libcbt-go", "libcbt-rust"):
            self.assertTrue([name for name in self.sums
                             if re.fullmatch(rf"bindings/{language}-[0-9.]+\.tar\.gz", name)], language)
        for name in ("csi-snapshot-metadata", "csi-driver", "cbtctl"):
            self.assertIn(f"images/{name}.tar", self.sums)
            self.assertEqual(len([one for one in self.sums
                                  if re.fullmatch(rf"images/{name}-[a-z0-9]+\.spdx\.json", one)]), 1)
        for name, digest in self.sums.items():
            with open(os.path.join(self.releases[0], name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest, name)
        with open(os.path.join(self.releases[0], "CHANGES.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r"^# libcbt \d+\.\d+\.\d+\n\n###? ")
        (sources,) = [name for name in self.sums if re.fullmatch(r"libcbt-[0-9.]+\.tar\.gz", name)]
        with tarfile.open(os.path.join(self.releases[0], sources)) as tar:
            names = tar.getnames()
        self.assertIn(sources.removesuffix(".tar.gz") + "/CMakeLists.txt", names)

    def test_manifests_name_the_images_by_their_digests(self):
        (name,) = [name for name in self.sums if name.endswith("-kubernetes.tar.gz")]
        folder = tempfile.mkdtemp(dir=self.folder)
        with tarfile.open(os.path.join(self.releases[0], name)) as tar:
            tar.extractall(folder)
        for program in ("certificate.sh", "kubernetes/backup/fleet.py"):
            path = os.path.join(folder, name.removesuffix("-kubernetes.tar.gz"), program)
            self.assertTrue(os.access(path, os.X_OK), path)
        digests = {}
        for title in ("csi-snapshot-metadata", "csi-driver", "cbtctl"):
            with tarfile.open(os.path.join(self.releases[0], "images", title + ".tar")) as tar:
                index = json.load(tar.extractfile("index.json"))
            digests[title] = index["manifests"][0]["digest"]
        if built.kubectl() is None:
            self.skipTest("no kubectl")
        root = os.path.join(folder, name.removesuffix("-kubernetes.tar.gz"), "kubernetes")
        found = set()
        for part in ("driver", "example", "sessions", "aggregated"):
            objects = built.build(os.path.join(root, part))
            self.assertEqual(list(rules.images_can_exist(objects)), [])
            for pod in pods.workloads(objects):
                for container in pod.containers:
                    image, _, digest = container["image"].partition("@")
                    if image.startswith(REGISTRY):
                        title = image.rpartition("/")[2].partition(":")[0]
                        self.assertEqual(digest, digests[title])
                        found.add(title)
        self.assertEqual(found, set(digests))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
