"""The crates of bindings/rust, as their users build them.

Usage: FILE CBT FOLDER_OF_LIBCBT FOLDER_FOR_BUILDS. cbt-sys and cbt need no other crate; `make
rust-crates` fetches those of the plugin. What is missing is skipped.
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

CBT, LIBRARY, BUILDS = (os.path.abspath(path) for path in sys.argv[1:4])
ROOT = pathlib.Path(__file__).resolve().parents[2]
RUST = ROOT / "bindings" / "rust"
sys.path.append(str(ROOT / "tests" / "support"))

import runner  # noqa: E402  pylint: disable=wrong-import-position


def cargo(*arguments, folder=RUST, target="crates", **environment):
    return subprocess.run(
        ["cargo", *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env=dict(os.environ, CARGO_TARGET_DIR=f"{BUILDS}/{target}", CBT_LIB_DIR=LIBRARY, LD_LIBRARY_PATH=LIBRARY, **environment))


class RustTest(unittest.TestCase):
    def setUp(self):
        if shutil.which("cargo") is None:
            self.skipTest("no cargo")
        version = re.search(r"cargo 1\.(\d+)", subprocess.run(["cargo", "--version"], text=True, capture_output=True, check=False).stdout)
        if version is None or int(version[1]) < 81:
            self.skipTest("no cargo of Rust 1.81 or newer")


class Crates(RustTest):
    def test_cases_border_and_documents(self):
        done = cargo("test", "--offline", "--locked", "--workspace")
        self.assertEqual(done.returncode, 0, done.stdout)
        passed = [int(count) for count in re.findall(r"test result: ok\. (\d+) passed", done.stdout)]
        self.assertGreater(sum(passed), 15, done.stdout)

    def test_memory(self):
        """No invalid access and no leak, of both sides together."""
        if shutil.which("valgrind") is None:
            self.skipTest("no valgrind")
        done = cargo("test", "--offline", "--locked", "--package", "cbt", "--test", "border", "--no-run")
        self.assertEqual(done.returncode, 0, done.stdout)
        program = re.search(r"tests/border\.rs \((.+)\)", done.stdout)[1]
        # It knows no AVX-512. One thread of tests: it runs one at a time.
        done = subprocess.run(
            ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,indirect",
             "--errors-for-leak-kinds=definite,indirect", program, "--test-threads=1"],
            env=dict(os.environ, LD_LIBRARY_PATH=LIBRARY, CBT_SIMD="avx2"), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_packages(self):
        """What a registry would get builds by itself."""
        done = cargo("package", "--offline", "--locked", "--allow-dirty", "--workspace")
        if re.search("no matching package named `cbt-sys`", done.stdout):
            self.skipTest("this cargo can't package crates that depend on one another")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_clippy(self):
        if shutil.which("cargo-clippy") is None:
            self.skipTest("no cargo-clippy")
        done = cargo("clippy", "--offline", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_format(self):
        if shutil.which("cargo-fmt") is None:
            self.skipTest("no cargo-fmt")
        for folder in (RUST, RUST / "plugin"):
            done = cargo("fmt", "--all", "--check", folder=folder)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_bindgen(self):
        if shutil.which("bindgen") is None:
            self.skipTest("no bindgen")
        done = subprocess.run([RUST / "bindgen.sh", "--check"], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Declarations(unittest.TestCase):
    """Without bindgen: all functions are declared, and all structures have the members of the headers."""

    def setUp(self):
        self.text = (RUST / "cbt-sys" / "src" / "bindings.rs").read_text()

    def test_functions(self):
        exported = set(re.findall(r"\b(cbt_\w+);", (ROOT / "src" / "c" / "libcbt.map").read_text()))
        self.assertGreater(len(exported), 90)
        self.assertEqual(set(re.findall(r"pub fn (cbt_\w+)", self.text)), exported)

    def test_structures(self):
        checked = 0
        for header in sorted((ROOT / "include" / "cbt" / "c").glob("*.h")):
            for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (\w+);", header.read_text(), re.DOTALL):
                body = re.sub(r"//[^\n]*", "", body)
                members = []
                for member in filter(None, map(str.strip, body.split(";"))):
                    function = re.search(r"\(\*(\w+)\)", member)
                    members.append(function[1] if function else re.search(r"(\w+)(?:\[\d+\])?$", member)[1])
                declared = re.search(rf"pub struct {name} \{{(.*?)\n\}}", self.text, re.DOTALL)
                self.assertIsNotNone(declared, name)
                self.assertEqual([member.rstrip("_") for member in re.findall(r"pub (\w+):", declared[1])], members, name)
                checked += 1
        self.assertGreater(checked, 10)


class Plugin(RustTest):
    """bindings/rust/plugin, the example of docs/tutorials/from-rust.md."""

    def test_answers_and_conforms(self):
        done = cargo("build", "--offline", "--locked", folder=RUST / "plugin", target="plugin")
        if re.search(r"--offline|failed to (download|get)|no matching package", done.stdout) and done.returncode:
            self.skipTest("a crate of bindings/rust/plugin is not in cargo's cache: make rust-crates")
        self.assertEqual(done.returncode, 0, done.stdout)
        folder = tempfile.TemporaryDirectory(prefix="cbt-rust-")
        self.addCleanup(folder.cleanup)
        plugin = subprocess.Popen([f"{BUILDS}/plugin/debug/plugin", f"{folder.name}/csi.sock"], stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, LD_LIBRARY_PATH=LIBRARY))
        self.addCleanup(plugin.wait)
        self.addCleanup(plugin.kill)
        address = f"unix://{folder.name}/csi.sock"
        until = time.monotonic() + 60
        while not os.path.exists(f"{folder.name}/csi.sock"):
            self.assertIsNone(plugin.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        listed = subprocess.run([CBT, "list", address, "--base", "monday", "--snapshot", "tuesday", "--format", "csv"],
                                text=True, capture_output=True, check=False)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        shown = re.search(r"\$ cbtctl list .*?\n(.*?)```", (ROOT / "docs/tutorials/from-rust.md").read_text(), re.DOTALL)[1]
        tuples = r"(?m)^\d+,\d+$"
        self.assertEqual(re.findall(tuples, listed.stdout), re.findall(tuples, shown))
        self.assertEqual(re.findall(tuples, shown), ["16384,8192", "61440,4096"])
        done = subprocess.run([CBT, "conform", address, "--base", "monday", "--snapshot", "tuesday"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"\d+ passed, 0 failed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
