"""The package as its users get it: from the wheel in a clean environment, repaired for other
distributions, with types."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import runner

A = argparse.Namespace(scratch=None)
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WHEELS = os.environ["CBT_PYTHON_WHEELS"]
USE = """
import cbt
assert list(cbt.Cursor.from_bitmap(b"\\x05", 8 * 4096, 4096).read_all()) == [(0, 4096), (8192, 4096)]
print(cbt.__version__)
"""


def run(*command, status=0, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, env={**environment, **variables})
    if done.returncode != status:
        raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.wheel, = (A.scratch / "wheels").iterdir()

    def use(self, what, **variables):
        """Installs into a clean environment without a network, and uses it there."""
        run(sys.executable, "-m", "venv", self.folder / "venv")
        python = self.folder / "venv/bin/python"
        run(python, "-m", "pip", "install", "--no-index", "--find-links", WHEELS, what, **variables)
        version = run(python, "-W", "error", "-c", USE).strip()
        self.assertIn(f"cbt-{version}-cp311-abi3-", self.wheel.name)
        return python

    def test_the_wheel(self):
        names = zipfile.ZipFile(self.wheel).namelist()
        for name in ("cbt/py.typed", "cbt/_native.abi3.so", "cbt/_native.pyi", "cbt/grpc.py"):
            self.assertIn(name, names)
        self.use(self.wheel)

    def test_the_sources(self):
        # As a user would: `python -m pip install .`, with an isolated build.
        python = self.use(A.scratch / "sources", CBT_BUILD=A.build, PIP_NO_INDEX="1", PIP_FIND_LINKS=WHEELS)
        self.assertIn("No module named 'grpc'", run(python, "-c", "import cbt.grpc", status=1))

    def test_the_source_distribution(self):
        """What `make install` and libcbt-dev bring, with the library that pkg-config knows."""
        build = pathlib.Path(A.build).resolve()
        run("cmake", "--install", build, "--component", "bindings", "--prefix", self.folder / "prefix")
        described = (build / "pkgconfig/cbt-c-static.pc").read_text()
        for key, value in (("libdir", build / "lib"), ("includedir", ROOT / "include")):
            described = re.sub(rf"^{key}=.*", f"{key}={value}", described, flags=re.MULTILINE)
        (self.folder / "cbt-c-static.pc").write_text(described)
        archive, = (self.folder / "prefix/share/cbt/bindings").glob("*.tar.gz")
        self.use(archive, PKG_CONFIG_PATH=str(self.folder), PIP_NO_INDEX="1", PIP_FIND_LINKS=WHEELS)

    def test_where_libcbt_is_missing(self):
        copy = self.folder / "sources"
        run("cp", "-r", A.scratch / "sources", copy)
        said = run(sys.executable, copy / "setup.py", "build_ext", status=1, PKG_CONFIG_LIBDIR="/nonexistent",
                   PKG_CONFIG_PATH="/nonexistent")
        self.assertRegex(said, "PKG_CONFIG_PATH|pkg-config")
        for name, value in (("CBT_BUILD", "/nonexistent"), ("CBT_LINK", "both")):
            self.assertIn(f"{name}={value}", run(sys.executable, copy / "setup.py", "build_ext", status=1,
                                                 **{"CBT_BUILD": A.build, name: value}))

    def test_other_distributions(self):
        said = run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", self.folder / "repaired", self.wheel)
        self.assertRegex(said, r"manylinux_\d_\d+_")
        repaired, = (self.folder / "repaired").iterdir()
        libraries = {re.sub(r"[-.].*", "", pathlib.Path(name).name)
                     for name in zipfile.ZipFile(repaired).namelist() if name.startswith("cbt.libs/")}
        self.assertIn("libssl", libraries)
        self.use(repaired)

    def test_nothing_of_the_engine_is_exported(self):
        said = run("nm", "-D", "--defined-only", A.scratch / "site/cbt/_native.abi3.so")
        names = [line.split()[-1] for line in said.splitlines()]
        self.assertEqual([name for name in names if not name.startswith("PyInit_") and name not in ("_init", "_fini")
                          and not name.startswith("_cffi_pypyinit_")], [])

    def test_types(self):
        checked = [ROOT / "bindings/python/src/cbt", *sorted((ROOT / "examples/from-python").glob("*.py"))]
        for path in checked:
            run(sys.executable, "-m", "mypy", "--config-file", ROOT / "bindings/python/pyproject.toml",
                "--cache-dir", self.folder / "mypy", path, MYPYPATH=str(ROOT / "bindings/python/src"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--build", required=True)
    A, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], testRunner=runner.Runner)
