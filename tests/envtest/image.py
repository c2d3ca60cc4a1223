"""A container image made of files of this machine, for `ctr images import`. Not a test."""

import hashlib
import io
import json
import os
import platform
import tarfile

FOLDERS = ("proc", "sys", "dev", "etc", "root", "var/run")


class Link(str):
    """A symbolic link in the image, to this path."""


def add(tar, path, data=b"", **attributes):
    entry = tarfile.TarInfo(path)
    entry.size = len(data)
    for name, value in attributes.items():
        setattr(entry, name, value)
    tar.addfile(entry, io.BytesIO(data))


def make_layer(files):
    """{path in the image: file or Link} as a tar archive."""
    layer, made = io.BytesIO(), set()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        def folder(path, mode=0o755):
            if path and path not in made:
                folder(os.path.dirname(path))
                made.add(path)
                add(tar, path, type=tarfile.DIRTYPE, mode=mode)

        folder("tmp", 0o1777)
        for path in FOLDERS:
            folder(path)
        for target, source in sorted(files.items()):
            target = target.lstrip("/")
            folder(os.path.dirname(target))
            if isinstance(source, Link):
                add(tar, target, type=tarfile.SYMTYPE, linkname=source)
                continue
            with open(source, "rb") as file:
                add(tar, target, file.read(), mode=0o755)
    return layer.getvalue()


def write(path, name, entrypoint, files):
    """Writes the archive `path` with one image, `name`, whose entry point is a list of words."""
    layer = make_layer(files)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()], "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin:/sbin:/usr/bin:/usr/sbin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        add(tar, config_name, config)
        add(tar, f"{digest}/layer.tar", layer)
        add(tar, "manifest.json", json.dumps(manifest).encode())
