"""Starts what is in container images of another architecture, under qemu-user: each program says its version, the
command finds the changes that this machine's finds, and the driver's tools make a file system.

Usage: images.py CBT FOLDER_OF_IMAGES
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile

CBT, IMAGES = sys.argv[1:3]
EMULATORS = {"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}


def unpacked(path, root):
    """The architecture of the image at `path`, whose files are below `root` from now on."""
    with tarfile.open(path) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}

    def blob(one):
        return files["blobs/" + one["digest"].replace(":", "/")]

    manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer)))) as tar:
            tar.extractall(root)
    return json.loads(blob(manifest["config"]))["architecture"]


class Started:
    """The image, and how its programs are run."""

    def __init__(self, folder, name):
        self.root = os.path.join(folder, name)
        self.emulator = EMULATORS[unpacked(os.path.join(IMAGES, name + ".tar"), self.root)]

    def run(self, program, *arguments):
        done = subprocess.run([self.emulator, "-L", self.root, self.root + program, *arguments],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            sys.exit(f"{program} {' '.join(arguments)}: {done.returncode}: {done.stderr}")
        return done.stdout


def expect(condition, what):
    if not condition:
        sys.exit(what)
    print(f"ok: {what}")


def main():
    with tempfile.TemporaryDirectory(prefix="cbt-images-") as folder:
        command, sidecar, driver = (Started(folder, name) for name in
                                    ("cbtctl", "csi-snapshot-metadata", "csi-driver"))
        version = subprocess.run([CBT, "--version"], check=True, capture_output=True,
                                 text=True).stdout.split()[1]
        for started, program in ((command, "cbtctl"), (sidecar, "cbt-cluster"), (driver, "cbt-driver")):
            said = started.run(f"/usr/bin/{program}", "--version")
            expect(said.startswith(f"{program} {version}\n"), f"{program} is {version}")

        base, target = (os.path.join(folder, name) for name in ("base", "target"))
        for path, changed in ((base, 0), (target, 255)):
            with open(path, "wb") as file:
                file.truncate(8 << 20)
                for block in range(0, 2048, 7):
                    file.seek(block * 4096 + block)
                    file.write(bytes([1 if block % 2 else changed]))
        arguments = ("delta", base, target, "--from", "image", "--format", "ndjson")
        there = command.run("/usr/bin/cbtctl", *arguments)
        here = subprocess.run([CBT, *arguments], check=True, capture_output=True, text=True).stdout
        expect(here and there == here, "cbtctl finds what this machine's finds")

        plugin = "/usr/lib/aarch64-linux-gnu/nbdkit/plugins/nbdkit-cbt-plugin.so"
        said = driver.run("/usr/bin/nbdkit", "--dump-plugin", driver.root + plugin)
        expect("\nname=cbt\n" in said, "nbdkit loads the plugin")
        driver.run("/usr/sbin/mkfs.ext4", "-q", target)
        expect("ext4" in driver.run("/usr/sbin/blkid", "-p", target), "mkfs.ext4 makes what blkid knows")


if __name__ == "__main__":
    main()
