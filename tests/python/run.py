"""Runs a test of bindings/python in the environment of `make python-env`.

    run.py --build TREE --scratch FOLDER install             builds the package and puts it into FOLDER
    run.py --build TREE --scratch FOLDER TEST.py [ARGS...]   runs a test with it; --install: does both

Without the environment it skips, and adds that to the file that CBT_SKIPS names.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def environment():
    done = subprocess.run([HERE / "environment.sh", "--built"], text=True, stdout=subprocess.PIPE, check=False)
    return pathlib.Path(done.stdout.strip()) if done.returncode == 0 else None


def install(python, arguments):
    """The wheel in scratch/wheels, what it holds in scratch/site."""
    sources = arguments.scratch / "sources"
    for folder in (sources, arguments.scratch / "wheels", arguments.scratch / "site"):
        shutil.rmtree(folder, ignore_errors=True)
    # A build leaves files beside the sources.
    shutil.copytree(ROOT / "bindings/python", sources, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so"))
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
                    "--wheel-dir", arguments.scratch / "wheels", sources], check=True,
                   env=dict(os.environ, CBT_BUILD=str(arguments.build.resolve())))
    wheel, = (arguments.scratch / "wheels").iterdir()
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", arguments.scratch / "site", wheel],
                   check=True)
    print(wheel.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("test")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    folder = environment()
    if folder is None:
        reason = "`make python-env` has not run: the package index may be out of reach"
        if path := os.environ.get("CBT_SKIPS"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"python/{arguments.test.removesuffix('.py')}\tall\t{reason}\n")
        print(f"skipped: {reason}")
        return 0
    python = folder / "bin/python"
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    if arguments.install or arguments.test == "install":
        install(python, arguments)
    if arguments.test == "install":
        return 0
    paths = [arguments.scratch / "site", HERE, ROOT / "tests/support"]
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(str(path) for path in paths),
                     PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1", CBT_PYTHON_WHEELS=str(folder / "wheels"),
                     PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return subprocess.run([python, HERE / arguments.test, *arguments.arguments], env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
