"""The plugin of docs/guides/provider.md in plain Go (examples/provider-go), as its reader runs it.

Usage: FILE CBT. `make go-modules` fetches the modules once; without them, or without Go, the
test is skipped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CBT = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

import runner  # noqa: E402  pylint: disable=wrong-import-position


class Example(unittest.TestCase):
    def setUp(self):
        if shutil.which("go") is None:
            self.skipTest("no go")
        folder = tempfile.TemporaryDirectory(prefix="cbt-provider-go-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # No toolchain and no module is fetched here, and nothing of C is linked.
        environment = dict(os.environ, CGO_ENABLED="0", GOPROXY="off", GOTOOLCHAIN="local", GOFLAGS="-mod=readonly")
        built = subprocess.run(["go", "build", "-o", f"{self.folder}/plugin", "."], cwd=ROOT / "examples/provider-go",
                               env=environment, text=True, capture_output=True, check=False)
        if "module lookup disabled" in built.stderr or "GOTOOLCHAIN=local" in built.stderr:
            self.skipTest("a module of examples/provider-go is not in Go's cache, or Go is too old: make go-modules")
        self.assertEqual(built.returncode, 0, built.stderr)
        vetted = subprocess.run(["go", "vet", "."], cwd=ROOT / "examples/provider-go", env=environment, text=True,
                                capture_output=True, check=False)
        self.assertEqual(vetted.returncode, 0, vetted.stderr)

    def start(self, *command, **options):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def test_answers_and_conforms(self):
        self.start(f"{self.folder}/plugin", f"{self.folder}/provider.sock")
        ready, child = os.pipe()
        self.start(CBT, "serve", "--provider", f"unix://{self.folder}/provider.sock", "--listen",
                   f"unix://{self.folder}/csi.sock", "--ready-fd", str(child), pass_fds=[child])
        os.close(child)
        with os.fdopen(ready) as pipe:
            address = pipe.readline().strip()
        ask = [CBT, "list", address, "--base", "monday", "--snapshot", "tuesday", "--format", "csv"]
        until = time.monotonic() + 30
        while (done := subprocess.run(ask, text=True, capture_output=True, check=False)).returncode:
            self.assertLess(time.monotonic(), until, done.stderr)
            time.sleep(0.05)
        self.assertRegex(done.stdout, r"(?m)^16384,8192\n61440,4096\ncomplete,2$")
        done = subprocess.run([CBT, "conform", address, "--base", "monday", "--snapshot", "tuesday"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        shown = re.search(r"(\d+) passed, 0 failed", done.stdout)
        self.assertIsNotNone(shown, done.stdout)

    def test_has_generated_what_the_contract_says(self):
        """The committed code was made from this contract: every name of it is there."""
        contract = (ROOT / "src/proto/provider.proto").read_text()
        generated = (ROOT / "examples/provider-go/providerv1/provider.pb.go").read_text()
        for name, number in re.findall(r"(?m)^\s+(?:optional |repeated )?[\w<>, ]+ (\w+) = (\d+);", contract):
            if name.isupper():
                self.assertIn(f" = {number}", generated)
            else:
                self.assertRegex(generated, rf'protobuf:"\w+,{number},\w+,(packed,)?name={name}')

    def test_is_short(self):
        self.assertLessEqual(len((ROOT / "examples/provider-go/main.go").read_text().splitlines()), 80)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], testRunner=runner.Runner)
