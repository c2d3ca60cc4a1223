"""The libraries that programs start with, and those that they load later: an error that says what to
install where one of these is missing.

Usage: libraries_test.py CBT archives|shared   (what abseil is linked from)
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runner  # pylint: disable=wrong-import-position

CBT, ABSEIL = os.path.abspath(sys.argv[1]), sys.argv[2]
MOST = 15  # of `cbtctl`, with the loader; each costs the start of every run


def beside(name):
    return os.path.join(os.path.dirname(CBT), name)


def libraries(program):
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    # The kernel's is no file.
    return {os.path.basename(line.split()[0]) for line in listed.splitlines() if "linux-vdso" not in line}


def run(*command, **environment):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, **environment})


class LibrariesTest(unittest.TestCase):
    def assert_without(self, program, pattern):
        found = [name for name in libraries(program) if re.search(pattern, name)]
        self.assertEqual(found, [], program)

    def test_the_command_starts_with_few(self):
        self.assert_without(CBT, "curl|nbd|grpc|protobuf|spdlog|libfmt|icu|ldap|krb5")
        found = libraries(CBT)
        if ABSEIL == "archives":
            self.assertLessEqual(len(found), MOST, sorted(found))

    def test_servers_of_a_cluster_bring_no_sources_and_no_grpc(self):
        if not os.path.exists(beside("cbt-cluster")):
            return  # built without Kubernetes
        # Its COSI driver reads answers of S3 by expat.
        self.assert_without(beside("cbt-cluster"), "curl|nbd|grpc|protobuf|ext2fs|blkid")

    def test_commands_of_another_program_are_named(self):
        for program, name in (("cbt-cluster", "sidecar"), ("cbt-cluster", "session-manager"),
                              ("cbt-cluster", "aggregated-api"), ("cbt-cluster", "http-sidecar"),
                              ("cbt-driver", "driver"), ("cbt-driver", "volume-host")):
            for words in ([name], [name, "--help"], ["help", name]):
                done = run(CBT, *words)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr, f"cbtctl: usage: '{name}' is a command of another program: "
                                              f"{program} {name}\n")

    def check_missing(self, library, package, *command):
        """The loader takes the first file of the name, which it cannot load."""
        with tempfile.TemporaryDirectory(prefix="cbt-libraries-") as folder:
            with open(os.path.join(folder, library), "wb"):
                pass
            done = run(*command, LD_LIBRARY_PATH=folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f" need {library}: ", done.stderr)
            self.assertIn(f"; install the package {package} ", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_nbd_sources_without_libnbd(self):
        if "libnbd" in run(CBT, "--version").stdout:
            self.check_missing("libnbd.so.0", "libnbd0", CBT, "allocated",
                               "nbd://127.0.0.1:1/volume")

    def test_clusters_without_libcurl(self):
        if not os.path.exists(beside("cbt-cluster")):
            return  # built without Kubernetes
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                       "users": [{"name": "u", "user": {}}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
            file.flush()
            self.check_missing("libcurl.so.4", "libcurl4", CBT, "list", "k8s:namespace/snapshot",
                               "--kubeconfig", file.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
