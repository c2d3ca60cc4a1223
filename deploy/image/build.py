#!/usr/bin/env python3
"""Builds a container image of cbt-cluster or of cbt as an OCI archive, without a daemon and without a base image.

The root holds the program, the shared libraries that it is linked with, libcurl, which it loads for API
servers, their loader, the licences of all of them, and what the C library wants to find in /etc. Not
libnbd: it brings as much as all the rest, so `cbt` in its image reads no NBD servers. The same inputs
give the same bytes: times, owners, order and modes are fixed. SOURCE_DATE_EPOCH sets the times
(default: 0).

  deploy/image/build.py --program build/release/bin/cbt-cluster --output build/image/csi-snapshot-metadata.tar
  skopeo copy oci-archive:build/image/csi-snapshot-metadata.tar docker://REGISTRY/NAME:TAG
"""

import argparse
import dataclasses
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

USER = 65532  # "nonroot", by the custom of images without a distribution
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# e_machine of ELF: the architecture's name for OCI.
MACHINES = {62: "amd64", 183: "arm64"}

# Loaded while the programs run.
LOADED = ("libcurl.so.4",)


@dataclasses.dataclass
class Image:
    title: str
    description: str
    name: str  # of the program when it is started: itself, or a link to it
    ports: tuple


IMAGES = {
    # By this name the program is the sidecar.
    "cbt-cluster": Image("csi-snapshot-metadata", "Snapshot metadata of CSI drivers, beside a plugin",
                         "csi-snapshot-metadata", ("50051/tcp", "8080/tcp")),
    "cbt": Image("cbt", "Changed blocks of volumes and their snapshots", "cbt", ()),
}

PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\ncbt:x:{USER}:{USER}:cbt:/:/sbin/nologin\n"
GROUP = f"root:x:0:\ncbt:x:{USER}:\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


def fail(text):
    sys.exit(f"image: {text}")


def architecture(program):
    with open(program, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF":
        fail(f"{program}: not an ELF file")
    machine = struct.unpack("<H", head[18:20])[0]
    if machine not in MACHINES:
        fail(f"{program}: unknown machine {machine}")
    return MACHINES[machine]


def libraries(program):
    """The shared libraries of a program, and the loader, as the loader itself finds them."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    paths = []
    for line in listed.splitlines():
        if "not found" in line:
            fail(f"{program}: {line.strip()}")
        found = re.search(r"(/\S+) \(0x", line)
        if found:
            paths.append(found.group(1))
    return paths


def loaded_libraries(linked):
    """The libraries of LOADED, which are beside those that are linked, with all that they need."""
    folders = sorted({os.path.dirname(path) for path in linked})
    paths = []
    for name in LOADED:
        found = [os.path.join(folder, name) for folder in folders
                 if os.path.exists(os.path.join(folder, name))]
        if not found:
            fail(f"{name} is in none of {', '.join(folders)}")
        paths += [found[0], *libraries(found[0])]
    return paths


def licences_of(paths):
    """The copyright files of the Debian packages that own the files, by package; empty elsewhere."""
    spellings = {spelling for path in paths
                 for spelling in (path, os.path.realpath(path), path.removeprefix("/usr"), "/usr" + path)}
    try:
        # One query for all: each reads the lists of every package. It fails for unknown spellings.
        owners = subprocess.run(["dpkg-query", "-S", *sorted(spellings)], capture_output=True, text=True,
                                check=False).stdout
    except FileNotFoundError:
        return {}
    found = {}
    for line in owners.splitlines():
        package = line.split(":")[0]
        file = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(file):
            found[package] = read(file)
    return found


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


def make_root(program, image):
    root = Root()
    # As on a merged system: the loader's path is part of the program, and it looks for libraries in
    # its own folders without a cache.
    for name in ("bin", "lib", "lib64", "sbin"):
        root.folder(f"usr/{name}")
        root.link(name, f"usr/{name}")
    name = os.path.basename(program)
    root.file(f"usr/bin/{name}", read(program), 0o755)
    if image.name != name:
        root.link(f"usr/bin/{image.name}", name)
    used = libraries(program)
    used += loaded_libraries(used)
    for path in used:
        place = path if path.startswith("/usr/") else "/usr" + path
        root.file(place.lstrip("/"), read(path), 0o755)
    for package, text in licences_of(used).items():
        root.file(f"usr/share/doc/{package}/copyright", text)
    root.file("usr/share/doc/libcbt/LICENSE", read(os.path.join(PROJECT, "LICENSE")))
    root.file("etc/passwd", PASSWD.encode())
    root.file("etc/group", GROUP.encode())
    root.file("etc/nsswitch.conf", NSSWITCH.encode())
    # Where volumes are mounted.
    for path in ("csi", "run", "proc", "sys", "dev", "var/run"):
        root.folder(path)
    root.folder("tmp", 0o1777)
    return root


def make_archive(program, image, version, tag):
    layer = make_root(program, image).tar()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
        stream.write(layer)
    blobs = {}

    def blob(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def as_json(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": image.title,
        "org.opencontainers.image.description": image.description,
        "org.opencontainers.image.version": version,
    }
    platform = {"architecture": architecture(program), "os": "linux"}
    config = blob(as_json({
        **platform,
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": [f"/usr/bin/{image.name}"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "ExposedPorts": {port: {} for port in image.ports},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created, "created_by": "deploy/image/build.py"}],
    }), "application/vnd.oci.image.config.v1+json")
    manifest = blob(as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [blob(packed.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip")],
        "annotations": labels,
    }), "application/vnd.oci.image.manifest.v1+json")
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{**manifest, "platform": platform,
                       "annotations": {"org.opencontainers.image.ref.name": tag}}],
    }
    archive = Root()
    archive.file("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
    archive.file("index.json", as_json(index))
    for digest, data in blobs.items():
        archive.file(f"blobs/sha256/{digest}", data)
    archive.entries.pop("", None)
    return archive.tar(), manifest["digest"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="cbt-cluster or cbt")
    parser.add_argument("--output", required=True, help="the archive")
    parser.add_argument("--tag", default="latest", help="the image's reference in the archive")
    arguments = parser.parse_args()
    version = re.search(r'kVersion\[\] = "([0-9.]+)"',
                        read(os.path.join(PROJECT, "include/cbt/version.h")).decode()).group(1)
    name = os.path.basename(arguments.program)
    if name not in IMAGES:
        fail(f"{arguments.program}: expected {' or '.join(IMAGES)}")
    data, digest = make_archive(arguments.program, IMAGES[name], version, arguments.tag)
    folder = os.path.dirname(os.path.abspath(arguments.output))
    os.makedirs(folder, exist_ok=True)
    temporary = arguments.output + ".new"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, arguments.output)
    print(f"{arguments.output}: {len(data) / 2**20:.1f} MiB, {digest}")


if __name__ == "__main__":
    main()
