#!/usr/bin/env python3
"""Builds a container image of cbt-cluster, cbt-driver or cbtctl as an OCI archive, without a daemon and without a
base image.

The root holds the program, the tools that it runs (images.py), the shared libraries of both, libcurl,
which it loads for API servers, their loader, the certificate authorities of the system, the licences of
all of them, and what the C library wants to find in /etc. Not libnbd: it brings as much as all the
rest, so `cbtctl` in its image reads no NBD servers. Scanners find the packages that files come from in
/var/lib/dpkg/status.d, and with what is compiled in, in the list of contents (SPDX) below
/usr/share/doc/libcbt, which is OUTPUT with the ending .spdx.json, too.

The same inputs give the same bytes: times, owners, order and modes are fixed. SOURCE_DATE_EPOCH sets
the times (default: 0), CBT_REVISION the commit (default: that of the tree, if it has one).

  deploy/image/build.py --program build/release/bin/cbt-cluster --output build/image/csi-snapshot-metadata.tar
  deploy/image/build.py --foreign build/foreign/arm64 --program build/arm64/bin/cbtctl --output build/image/arm64/cbtctl.tar
  deploy/image/build.py --join build/image/index.tar amd64.tar arm64.tar
  skopeo copy --all oci-archive:build/image/csi-snapshot-metadata.tar docker://REGISTRY/NAME:TAG
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import tempfile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import sbom  # noqa: E402
import system_files  # noqa: E402
from images import IMAGES, USER  # noqa: E402

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# e_machine of ELF: the architecture's name for OCI and Debian, and for compilers.
MACHINES = {62: ("amd64", "x86_64-linux-gnu"), 183: ("arm64", "aarch64-linux-gnu")}

PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\ncbt:x:{USER}:{USER}:cbt:/:/sbin/nologin\n"
GROUP = f"root:x:0:\ncbt:x:{USER}:\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


def fail(text):
    sys.exit(f"image: {text}")


def machine(program):
    with open(program, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF":
        fail(f"{program}: not an ELF file")
    number = struct.unpack("<H", head[18:20])[0]
    if number not in MACHINES:
        fail(f"{program}: unknown machine {number}")
    return MACHINES[number]


def stripped(program, system):
    """The program's bytes, without its symbols."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([system.strip, "--strip-all", "-o", file.name, program], check=True)
        return read(file.name)


def found_tools(image, system):
    paths = []
    for tool in image.tools + image.optional_tools:
        path = system.tool(tool)
        if path:
            paths.append(path)
        elif tool in image.tools:
            fail(f"there is no {tool} here")
        else:
            print(f"image: without {tool}, which is not here", file=sys.stderr)
    return paths


def plugins_of(program, image, system):
    """{the file here: its place in the image}"""
    if not image.plugins:
        return {}
    folder = system.nbdkit_plugins()
    own = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    return {os.path.join(own, name): os.path.join(folder, name) for name in image.plugins}


def revision():
    given = os.environ.get("CBT_REVISION")
    if given is not None:
        return given
    said = subprocess.run(["git", "-C", PROJECT, "rev-parse", "HEAD"], capture_output=True, text=True,
                          check=False)
    return said.stdout.strip()


class Root:
    """The files of the image by their paths, without a leading slash."""

    def __init__(self):
        self.entries = {}

    def folder(self, path, mode=0o755):
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.folder(parent)
        self.entries.setdefault(path, ("folder", mode, b""))

    def file(self, path, data, mode=0o644):
        self.folder(os.path.dirname(path))
        self.entries[path] = ("file", mode, data)

    def link(self, path, target):
        if os.path.dirname(path):
            self.folder(os.path.dirname(path))
        self.entries[path] = ("link", 0o777, target.encode())

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted(self.entries):
                kind, mode, data = self.entries[path]
                info = tarfile.TarInfo(path)
                info.mode = mode
                info.mtime = EPOCH
                if kind == "folder":
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                elif kind == "link":
                    info.type = tarfile.SYMTYPE
                    info.linkname = data.decode()
                    tar.addfile(info)
                else:
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def place_of(path):
    """In the image, which has /usr merged."""
    return (path if path.startswith("/usr/") else "/usr" + path).lstrip("/")


def make_root(program, image, version, system):
    """The root, and the list of its contents."""
    root = Root()
    # As on a merged system: the loader's path is part of the program, and it looks for libraries in
    # its own folders without a cache.
    for name in ("bin", "lib", "lib64", "sbin"):
        root.folder(f"usr/{name}")
        root.link(name, f"usr/{name}")
    name = os.path.basename(program)
    root.file(f"usr/bin/{name}", stripped(program, system), 0o755)
    if image.name != name:
        root.link(f"usr/bin/{image.name}", name)
    plugins, tools = plugins_of(program, image, system), found_tools(image, system)
    used = []
    for one in (program, *plugins, *(system.root + tool for tool in tools)):
        used += system.libraries(one)
    used += system.loaded_libraries(used)
    for one, place in plugins.items():
        root.file(place_of(place), stripped(one, system), 0o755)
    for path in tools + used:
        root.file(place_of(path), system.read(path), 0o755)
    configured = [path for path in ("/etc/mke2fs.conf",) if "mkfs.ext4" in image.tools]
    for path in configured:
        root.file(path.lstrip("/"), system.read(path))
    # Of this machine: they are the same for each architecture, and the authorities' file is put
    # together when its package is installed.
    for path in (system_files.AUTHORITIES, "/etc/os-release"):
        root.file(path.lstrip("/"), read(path))
    owners = system.owners_of(tools + used + configured) + ["ca-certificates"]
    packages = system.described(owners)
    for package in packages:
        root.file(f"var/lib/dpkg/status.d/{package.name}", package.control.encode())
        licence = system.licence_of(package.name)
        if licence:
            root.file(f"usr/share/doc/{package.name}/copyright", system.read(licence))
    root.file("usr/share/doc/libcbt/LICENSE", read(os.path.join(PROJECT, "LICENSE")))
    root.file("etc/passwd", PASSWD.encode())
    root.file("etc/group", GROUP.encode())
    root.file("etc/nsswitch.conf", NSSWITCH.encode())
    if image.tools:
        # Where mount and e2fsprogs look for mounts.
        root.link("etc/mtab", "../proc/self/mounts")
    # Where volumes are mounted.
    for path in ("csi", "run", "proc", "sys", "dev", "var/run"):
        root.folder(path)
    root.folder("tmp", 0o1777)
    contents = as_text(sbom.document(image, version, created(), root.entries[f"usr/bin/{name}"][2],
                                     packages, system.described(system_files.COMPILED_IN)))
    root.file(f"usr/share/doc/libcbt/{image.title}.spdx.json", contents)
    return root, contents


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def as_text(value):
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def created():
    return datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def pack(manifests, blobs):
    """An OCI archive."""
    archive = Root()
    archive.file("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
    archive.file("index.json", as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }))
    for digest, data in blobs.items():
        archive.file(f"blobs/sha256/{digest}", data)
    archive.entries.pop("", None)
    return archive.tar()


def keep(blobs, data, media_type):
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def make_archive(program, image, version, tag, system):
    """The archive, the digest of its image, and the list of its contents."""
    root, contents = make_root(program, image, version, system)
    layer = root.tar()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
        stream.write(layer)
    blobs = {}
    labels = {
        "org.opencontainers.image.title": image.title,
        "org.opencontainers.image.description": image.description,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created(),
        "org.opencontainers.image.vendor": "libcbt maintainers",
    }
    if revision():
        labels["org.opencontainers.image.revision"] = revision()
    if os.environ.get("CBT_SOURCE_URL"):
        labels["org.opencontainers.image.source"] = os.environ["CBT_SOURCE_URL"]
    platform = {"architecture": machine(program)[0], "os": "linux"}
    config = keep(blobs, as_json({
        **platform,
        "created": created(),
        "config": {
            "User": f"{image.user}:{image.user}",
            "Entrypoint": [f"/usr/bin/{image.name}"],
            "Env": ["PATH=/usr/sbin:/usr/bin" if image.tools else "PATH=/usr/bin"],
            "WorkingDir": "/",
            "ExposedPorts": {port: {} for port in image.ports},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created(), "created_by": "deploy/image/build.py"}],
    }), "application/vnd.oci.image.config.v1+json")
    manifest = keep(blobs, as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [keep(blobs, packed.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip")],
        "annotations": labels,
    }), "application/vnd.oci.image.manifest.v1+json")
    data = pack([{**manifest, "platform": platform,
                  "annotations": {"org.opencontainers.image.ref.name": tag}}], blobs)
    return data, manifest["digest"], contents


def join(archives, tag):
    """One archive of the same image for several architectures, and the digest of their list."""
    blobs, manifests = {}, []
    for path in archives:
        with tarfile.open(path) as tar:
            files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        for entry in json.loads(files["index.json"])["manifests"]:
            entry.pop("annotations", None)
            manifests.append(entry)
        blobs.update({name.rpartition("/")[2]: data for name, data in files.items()
                      if name.startswith("blobs/")})
    manifests.sort(key=lambda entry: entry["platform"]["architecture"])
    platforms = [entry["platform"]["architecture"] for entry in manifests]
    if len(set(platforms)) != len(platforms):
        fail(f"two images of one architecture: {', '.join(platforms)}")
    media_type = "application/vnd.oci.image.index.v1+json"
    listed = keep(blobs, as_json({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}),
                  media_type)
    data = pack([{**listed, "annotations": {"org.opencontainers.image.ref.name": tag}}], blobs)
    return data, listed["digest"]


def write(path, data):
    """Whole or not at all."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)


def main():
    version = re.search(r'kVersion\[\] = "([0-9.]+)"',
                        read(os.path.join(PROJECT, "include/cbt/version.h")).decode()).group(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", help="cbt-cluster, cbt-driver or cbtctl")
    parser.add_argument("--output", help="the archive")
    parser.add_argument("--foreign", metavar="FOLDER",
                        help="for another architecture: its packages, see foreign_root.sh")
    parser.add_argument("--join", nargs="+", metavar="ARCHIVE",
                        help="instead: the archive of all architectures, then those of each")
    parser.add_argument("--tag", default=version, help="the image's reference in the archive; the version")
    arguments = parser.parse_args()
    if arguments.join:
        output = arguments.join[0]
        data, digest = join(arguments.join[1:], arguments.tag)
    else:
        if not arguments.program or not arguments.output:
            parser.error("expected --program and --output, or --join")
        output, name = arguments.output, os.path.basename(arguments.program)
        if name not in IMAGES:
            fail(f"{arguments.program}: expected {' or '.join(IMAGES)}")
        system = system_files.System()
        if arguments.foreign:
            system = system_files.ForeignSystem(arguments.foreign, machine(arguments.program)[1])
        data, digest, contents = make_archive(arguments.program, IMAGES[name], version, arguments.tag, system)
        write(output.removesuffix(".tar") + ".spdx.json", contents)
    write(output, data)
    print(f"{output}: {len(data) / 2**20:.1f} MiB, {digest}")


if __name__ == "__main__":
    main()
