#!/usr/bin/env python3
"""Makes everything that a release has, in one folder:

  libcbt-VERSION.tar.gz            the sources of the commit
  libcbt-VERSION-kubernetes.tar.gz deploy/kubernetes, its images pinned by their digests, and certificate.sh
  images/NAME.tar                  container images, each of all architectures
  images/NAME-ARCH.spdx.json       what is in them
  bindings/                        the Python package's sources; modules of Go and crates of Rust as archives
  packages/                        what --packages names: Debian packages, wheels
  CHANGES.md                       the version's section of CHANGELOG.md
  SHA256SUMS                       of all of it

The same commit and packages give the same bytes: times are the commit's.

  deploy/release/release.py --output build/dist --registry registry.example.com/libcbt
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REGISTRY = "registry.example.com/libcbt"  # of the manifests
PROGRAMS = ("cbt-cluster", "cbtctl", "cbt-driver")
BUILD_IMAGE = os.path.join(PROJECT, "deploy", "image", "build.py")


def fail(text):
    sys.exit(f"release: {text}")


def git(*command):
    return subprocess.run(["git", "-C", PROJECT, *command], check=True, capture_output=True).stdout


def read(*path):
    with open(os.path.join(PROJECT, *path), "rb") as file:
        return file.read()


def packed(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
        stream.write(data)
    return out.getvalue()


def changes(text, version):
    """The section of the version, or what is unreleased."""
    for title in (version, "Unreleased"):
        found = re.search(rf"^## \[{re.escape(title)}\].*?\n(.*?)(?=^## \[|\Z)", text, re.M | re.S)
        if found:
            return f"# libcbt {version}\n\n{found[1].strip()}\n"
    fail(f"CHANGELOG.md has no section of {version}")
    return None


def pinned(text, registry, digests):
    """A manifest whose images of ours are those of the digests."""
    def pin(found):
        name, tag = found[1], found[2]
        if name not in digests:
            fail(f"a manifest names the image {name}, which is not built")
        return f"{registry}/{name}:{tag}@{digests[name]}"
    return re.sub(re.escape(REGISTRY) + r"/([a-z0-9-]+):([0-9.]+)", pin, text)


def manifests(commit, registry, digests, time, prefix):
    """deploy/kubernetes of the commit, and what makes certificates, as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "deploy/kubernetes",
                                                   "deploy/certificate.sh"))) as tree, \
            tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in sorted(tree, key=lambda one: one.name):
            if not entry.isfile():
                continue
            text = tree.extractfile(entry).read().decode()
            data = pinned(text, registry, digests).encode()
            info = tarfile.TarInfo(f"{prefix}/{os.path.relpath(entry.name, 'deploy')}")
            info.size, info.mtime, info.mode = len(data), time, 0o755 if entry.mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Release:
    def __init__(self, folder):
        self.folder = folder
        self.names = []

    def path(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.names.append(name)
        return path

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def sums(self):
        lines = []
        for name in sorted(self.names):
            with open(os.path.join(self.folder, name), "rb") as file:
                lines.append(f"{hashlib.sha256(file.read()).hexdigest()}  {name}\n")
        with open(os.path.join(self.folder, "SHA256SUMS"), "w", encoding="utf-8") as file:
            file.writelines(lines)


def make_images(release, arguments, commit, time):
    """{the image's name: its digest}"""
    sys.path.append(os.path.dirname(BUILD_IMAGE))
    from images import IMAGES  # pylint: disable=import-outside-toplevel

    def build(*options):
        return subprocess.run(
            [sys.executable, "-B", BUILD_IMAGE, *options], check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(time), "CBT_REVISION": commit}).stdout

    systems = [(arguments.programs, [])]
    systems += [(os.path.join(folder, "tree", "bin"), ["--foreign", os.path.join(folder, "root")])
                for folder in arguments.foreign]
    digests = {}
    for program in PROGRAMS:
        title = IMAGES[program].title
        with tempfile.TemporaryDirectory() as folder:
            archives = []
            for number, (binaries, options) in enumerate(systems):
                archive = os.path.join(folder, f"{number}.tar")
                build("--program", os.path.join(binaries, program), *options, "--output", archive)
                archives.append(archive)
                name = f"images/{title}-{architecture(archive)}.spdx.json"
                shutil.copyfile(archive.removesuffix(".tar") + ".spdx.json", release.path(name))
            said = build("--join", release.path(f"images/{title}.tar"), *archives)
        digests[title] = re.search(r"sha256:[0-9a-f]{64}", said)[0]
    return digests


def architecture(archive):
    with tarfile.open(archive) as tar:
        return json.load(tar.extractfile("index.json"))["manifests"][0]["platform"]["architecture"]


def make_bindings(release, tree, commit, version):
    """What others build against the installed library."""
    for language in ("go", "rust"):
        name = f"libcbt-{language}-{version}"
        # In the folder, of the commit: times of a tree would be those of now.
        release.write(f"bindings/{name}.tar.gz", packed(git(
            "-C", f"bindings/{language}", "archive", "--format=tar", f"--prefix={name}/", commit)))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cmake", "--install", tree, "--component", "bindings", "--prefix", folder],
                       check=True, stdout=subprocess.DEVNULL)
        name = f"cbt-{version}.tar.gz"
        shutil.copyfile(os.path.join(folder, "share", "cbt", "bindings", name), release.path(f"bindings/{name}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the folder; what is in it is removed")
    parser.add_argument("--programs", default=os.path.join(PROJECT, "build", "release", "bin"),
                        help="folder of the built programs")
    parser.add_argument("--foreign", metavar="FOLDER", action="append", default=[],
                        help="programs and packages of another architecture, as deploy/image/foreign.sh "
                        "leaves them")
    parser.add_argument("--packages", nargs="*", default=[], help="further files")
    parser.add_argument("--registry", default=REGISTRY, help="where the images will be")
    parser.add_argument("--dirty", action="store_true", help="take a tree with changes, of which only "
                        "the commit is released")
    arguments = parser.parse_args()
    if git("status", "--porcelain").strip() and not arguments.dirty:
        fail("the tree has changes: commit them")
    version = re.search(r'kVersion\[\] = "([^"]*)"', read("include", "cbt", "version.h").decode())[1]
    commit = git("rev-parse", "HEAD").decode().strip()
    time = int(git("log", "-1", "--format=%ct", commit))
    name = f"libcbt-{version}"
    shutil.rmtree(arguments.output, ignore_errors=True)
    release = Release(arguments.output)
    release.write(f"{name}.tar.gz",
                  packed(git("archive", "--format=tar", f"--prefix={name}/", commit)))
    digests = make_images(release, arguments, commit, time)
    make_bindings(release, os.path.dirname(os.path.abspath(arguments.programs)), commit, version)
    release.write(f"{name}-kubernetes.tar.gz",
                  packed(manifests(commit, arguments.registry, digests, time, name)))
    for path in arguments.packages:
        shutil.copyfile(path, release.path(f"packages/{os.path.basename(path)}"))
    release.write("CHANGES.md", changes(read("CHANGELOG.md").decode(), version).encode())
    release.sums()
    print(f"{arguments.output}: {len(release.names)} files of {name}")


if __name__ == "__main__":
    main()
