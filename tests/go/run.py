"""Runs a test of bindings/go against the libraries of a build tree, with modules from the module cache.

    run.py --build TREE --scratch FOLDER NAME

NAME is `lint`, `test`, `race`, `cgocheck`, `static`, `client`, `user`, `arrow`, or a Python test with arguments. Without
Go or modules it skips, and adds that to the file that CBT_SKIPS names.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINDING = ROOT / "bindings/go"
ARROW = HERE / "arrow"
MODULES = (BINDING, BINDING / "examples", ARROW, ROOT / "bench/go", ROOT / "examples/provider-go")


def environment(build, scratch):
    """The variables of go: pkg-config finds the build tree's libraries, and nothing is fetched."""
    folder = scratch / "pkgconfig"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cbt-c", "cbt-c-static"):
        text = (build / "pkgconfig" / f"{name}.pc").read_text()
        for key, value in (("libdir", build / "lib"), ("includedir", ROOT / "include")):
            text = re.sub(rf"^{key}=.*", f"{key}={value}", text, flags=re.MULTILINE)
        (folder / f"{name}.pc").write_text(text)
    return dict(os.environ, PKG_CONFIG_PATH=str(folder), LD_LIBRARY_PATH=str(build / "lib"), GOPROXY="off", GOWORK="off",
                GOTOOLCHAIN="local", GOFLAGS="-mod=readonly -buildvcs=false", CGO_ENABLED="1")


def missing():
    """Why the tests can't run, or None."""
    if shutil.which("go") is None:
        return "there is no Go toolchain"
    done = subprocess.run([HERE / "modules.sh", "--built"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return None if done.returncode == 0 else "`make go-modules` has not run, or Go is too old"


def lint(go):
    unformatted = subprocess.run(["gofmt", "-l", *MODULES], text=True, stdout=subprocess.PIPE, check=True).stdout
    if unformatted:
        sys.exit(f"not as gofmt writes them:\n{unformatted}")
    for module in MODULES:
        go(module, "vet", "./...")


def without_cgo(go, scratch):
    go(BINDING, "test", "-count=1", "./client", CGO_ENABLED="0")
    # What backup tools build: a static program.
    go(BINDING / "examples", "build", "-o", str(scratch / "list"), "./list", CGO_ENABLED="0")
    sections = subprocess.run(["readelf", "-l", scratch / "list"], text=True, stdout=subprocess.PIPE, check=True).stdout
    if "INTERP" in sections:
        sys.exit("the client needs a dynamic linker")


def as_a_user(go, build, scratch):
    """The tutorial's steps in a clean folder, with the module that is installed."""
    folder, prefix = scratch / "user", scratch / "prefix"
    for each in (folder, prefix):
        shutil.rmtree(each, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["cmake", "--install", build, "--component", "bindings", "--prefix", prefix], stdout=subprocess.DEVNULL,
                   check=True)
    installed = prefix / "share/cbt/bindings/go"
    # The sums of modules are those of the cache: nothing is asked.
    alone = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOSUMDB": "off"}
    go(folder, "mod", "init", "plugin.example.com", **alone)
    go(folder, "mod", "edit", f"-replace=cbt.example.com/cbt={installed}", **alone)
    required = re.findall(r"^\t(\S+ v\S+)$", (installed / "examples/go.mod").read_text(), flags=re.MULTILINE)
    go(folder, "mod", "edit", *(f"-require={each.replace(' ', '@')}" for each in required), **alone)
    shutil.copy(installed / "examples/plugin/main.go", folder)
    go(folder, "build", "-o", "plugin", ".", **alone)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("test")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    build, scratch, test = arguments.build.resolve(), arguments.scratch.resolve(), arguments.test
    reason = missing()
    if reason:
        if path := os.environ.get("CBT_SKIPS"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"go/{test.removesuffix('.py')}\tall\t{reason}\n")
        print(f"skipped: {reason}")
        return 0
    variables = environment(build, scratch)

    def go(folder, *words, **more):
        done = subprocess.run(["go", *words], cwd=folder, env={**variables, **more}, check=False)
        if done.returncode != 0:
            sys.exit(f"go {' '.join(words)} fails in {folder}")

    if test == "lint":
        lint(go)
    elif test == "test":
        go(BINDING, "test", "-count=1", "./...")
    elif test == "race":
        go(BINDING, "test", "-count=1", "-race", "./...")
    elif test == "cgocheck":
        go(BINDING, "test", "-count=1", ".", GOEXPERIMENT="cgocheck2")
    elif test == "static":
        # Without the shared library's folder.
        go(BINDING, "test", "-count=1", "-tags", "cbt_static", "-run", "TestCases|TestServed", ".", LD_LIBRARY_PATH="")
    elif test == "arrow":
        # Compiled code of Go keeps C's pointers and the other way round.
        go(ARROW, "test", "-count=1", ".", GOEXPERIMENT="cgocheck2")
    elif test == "user":
        as_a_user(go, build, scratch)
    elif test == "client":
        without_cgo(go, scratch)
    else:
        for program in ("plugin", "list"):
            go(BINDING / "examples", "build", "-o", str(scratch / program), f"./{program}")
        return subprocess.run([sys.executable, "-B", HERE / test, scratch, *arguments.arguments], env=variables, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
