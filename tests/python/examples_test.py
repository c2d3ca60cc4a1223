"""Runs examples/from-python as docs/tutorials/from-python.md shows them."""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import runner
import snippets

A = argparse.Namespace(cbt=None)
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples/from-python"
BLOCK = 4096


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != status:
        raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


class Served:
    """A program that serves, until the end of the block."""

    def __init__(self, *command):
        self.process = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE)

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line.startswith("serving on "):
            raise AssertionError(line)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.address = f"unix://{self.folder}/csi.sock"

    def test_the_tutorial(self):
        page = (ROOT / "docs/tutorials/from-python.md").read_text()
        shown = dict(re.findall(r"^\$ ((?:python|cbtctl) .*)\n((?:[^`$].*\n)+)", page, re.MULTILINE))
        self.assertEqual(len(shown), 2)
        with Served(sys.executable, EXAMPLES / "plugin.py", self.address):
            for command, said in shown.items():
                words = command.replace("unix:///tmp/csi.sock", self.address).split()
                words[0] = {"python": sys.executable, "cbtctl": A.cbt}[words[0]]
                words[1] = EXAMPLES / words[1] if words[1].endswith(".py") else words[1]
                failed = said.startswith("NOT_FOUND")
                self.assertEqual(run(*words, status=int(failed)), said)
            listed = run(A.cbt, "list", self.address, "--snapshot", "tuesday", "--base", "monday", "--format", "csv")
            self.assertIn("16384,8192\n61440,4096\n", listed)
            run(A.cbt, "conform", self.address, "--snapshot", "tuesday", "--base", "monday")

    def images(self, names):
        """vol/NAME.img, one for each name."""
        random.seed(3)
        (self.folder / "vol").mkdir()
        image, found = bytearray(200 * BLOCK), []
        for name in names:
            for block in random.sample(range(200), 20):
                image[block * BLOCK:block * BLOCK + 8] = random.randbytes(8)
            (self.folder / f"vol/{name}.img").write_bytes(image)
            found.append(bytes(image))
        return found

    def test_a_report(self):
        first, second, third = self.images(["1st", "2nd", "3rd"])
        said = run(sys.executable, EXAMPLES / "report.py", self.folder / "vol")
        for base, target, before, after in (("1st", "2nd", first, second), ("2nd", "3rd", second, third)):
            changed = [before[at:at + BLOCK] != after[at:at + BLOCK] for at in range(0, len(before), BLOCK)]
            extents = sum(now and not then for then, now in zip([False, *changed], changed))
            row = rf"{base}\W+{target}\W+{extents}\W+{sum(changed) * 4}\W"
            self.assertRegex(said, row)

    def test_backups(self):
        self.images(["monday", "tuesday", "friday"])
        serve = subprocess.Popen([A.cbt, "serve", "--root", self.folder, "--listen", self.address], stderr=subprocess.PIPE)
        try:
            while not (self.folder / "csi.sock").exists():
                self.assertIsNone(serve.poll())
            repository, base = self.folder / "backups", []
            for name in ("monday", "tuesday", "friday"):
                run(sys.executable, EXAMPLES / "backup.py", "take", self.address, repository, f"vol/{name}",
                    self.folder / f"vol/{name}.img", *base)
                base = [f"vol/{name}"]
            sizes = [(repository / f"vol/{name}/data").stat().st_size for name in ("monday", "tuesday", "friday")]
            self.assertLessEqual(max(sizes[1:]), 20 * BLOCK)
            for name in ("tuesday", "friday", "monday"):
                restored = self.folder / f"restored-{name}"
                run(sys.executable, EXAMPLES / "backup.py", "restore", repository, f"vol/{name}", restored)
                self.assertEqual(restored.read_bytes(), (self.folder / f"vol/{name}.img").read_bytes())
            run(sys.executable, EXAMPLES / "backup.py", "take", self.address, repository, "vol/none", self.folder / "x", status=1)
            self.assertFalse((repository / "vol/none").exists())
        finally:
            serve.terminate()
            serve.communicate()

    def test_usage(self):
        for path in sorted(EXAMPLES.glob("*.py")):
            self.assertTrue(run(sys.executable, path, status=1).startswith(f"usage: {path.name} "))

    def test_the_loop(self):
        first, second = self.images(["1st", "2nd"])
        expected = sum(BLOCK for at in range(0, len(first), BLOCK) if first[at:at + BLOCK] != second[at:at + BLOCK])
        self.assertEqual(snippets.loop(str(self.folder / "vol/1st.img"), str(self.folder / "vol/2nd.img")), expected)

    def test_the_backup_is_short(self):
        lines = (EXAMPLES / "backup.py").read_text().splitlines()
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        self.assertLessEqual(len(code), 60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cbt", type=pathlib.Path, required=True)
    A, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], testRunner=runner.Runner)
