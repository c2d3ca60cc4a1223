"""Builds the package `cbt` with the engine inside.

Where libcbt is found, in this order:

    CBT_BUILD=FOLDER   a build tree of libcbt, such as build/release
    pkg-config         an installed libcbt (PKG_CONFIG_PATH names others)
    the source tree    around this folder: its engine is built first, in build/python

CBT_LINK=static, the default, links the engine into the extension: the wheel needs nothing of libcbt
where it is installed. CBT_LINK=shared links libcbt.so.1, as a distribution would.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# The extension uses the stable interface of this Python and of every newer one.
OLDEST_PYTHON = "cp311"
COMPILE = ("bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install")


def source_tree():
    """The sources of libcbt, if they are here."""
    tree = os.environ.get("CBT_BUILD")
    if tree is not None:
        cache = pathlib.Path(tree, "CMakeCache.txt")
        if not cache.is_file():
            sys.exit(f"setup.py: CBT_BUILD={tree} is no build tree: it has no CMakeCache.txt")
        return pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.MULTILINE)[1])
    around = HERE.parent.parent
    return around if (around / "include/cbt/c/cbt.h").is_file() else None


def version():
    """The engine's."""
    root = source_tree()
    if root is not None:
        header = (root / "include/cbt/version.h").read_text()
        return ".".join(re.findall(r"define CBT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    distributed = HERE / "PKG-INFO"
    if distributed.is_file():
        return re.search(r"^Version: (.*)$", distributed.read_text(), re.MULTILINE)[1]
    return pkg_config("--modversion", "cbt-c")[0]


def pkg_config(*arguments):
    return subprocess.run(["pkg-config", *arguments], text=True, stdout=subprocess.PIPE, check=True).stdout.split()


def is_installed(package):
    return (shutil.which("pkg-config") is not None
            and subprocess.run(["pkg-config", "--exists", package], check=False).returncode == 0)


def build_engine(root):
    """Builds the engine from its sources, and returns the build tree."""
    tree = root / "build/python"
    for program in ("cmake", "ninja"):
        if shutil.which(program) is None:
            sys.exit(f"setup.py: {program} is missing, which builds libcbt; install it, or libcbt itself")
    subprocess.run(["cmake", "-S", root, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCBT_BUILD_TESTS=OFF", "-DCBT_BUILD_BENCH=OFF"], check=True)
    subprocess.run(["cmake", "--build", tree, "--target", "cbt_c", "cbt_c_static"], check=True)
    return tree


def engine():
    """(include folders, link arguments)"""
    link = os.environ.get("CBT_LINK", "static")
    if link not in ("static", "shared"):
        sys.exit(f"setup.py: CBT_LINK={link}: expected static or shared")
    package = "cbt-c" if link == "shared" else "cbt-c-static"
    tree, root = os.environ.get("CBT_BUILD"), source_tree()
    if tree is None:
        if is_installed(package):
            include = pkg_config("--cflags-only-I", "--keep-system-cflags", package)
            return [flag.removeprefix("-I") for flag in include], pkg_config("--libs", package)
        if root is None:
            sys.exit(f"setup.py: pkg-config knows no {package}; install libcbt-dev, or name the folder of its "
                     ".pc files in PKG_CONFIG_PATH")
        tree = build_engine(root)
    libraries = pathlib.Path(tree).resolve() / "lib"
    if link == "shared":
        return [str(root / "include")], [f"-L{libraries}", "-lcbt", f"-Wl,-rpath,{libraries}"]
    described = pathlib.Path(tree, "pkgconfig/cbt-c-static.pc").read_text()
    others = re.search(r"^Libs: \S+ (.*)$", described, re.MULTILINE)[1].split()
    return [str(root / "include")], [str(libraries / "libcbt.a"), *others]


def main():
    modules = []
    # Other commands describe the package, and need no engine.
    if any(command in sys.argv for command in COMPILE):
        include, link = engine()
        os.environ["CBT_INCLUDE"] = os.pathsep.join(include)
        # What is linked in stays inside: nothing clashes with other libraries of the process.
        os.environ["CBT_LINK_ARGUMENTS"] = "\n".join([*link, "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,-s"])
        modules = ["build_native.py:builder"]
    setup(version=version(), cffi_modules=modules, options={"bdist_wheel": {"py_limited_api": OLDEST_PYTHON}})


main()
