"""The snapshot that load tests list."""

import os
import subprocess

GRANULARITY = 4096
TUPLES = 1 << 20


def make_root(cbt, folder):
    """A folder with one snapshot, "v/s": a map of TUPLES extents, every second block allocated."""
    root = os.path.join(folder, "root")
    os.makedirs(os.path.join(root, "v"))
    bits = os.path.join(folder, "bits")
    with open(bits, "wb") as file:
        file.write(b"\x55" * (TUPLES // 4))
    subprocess.run(
        [cbt, "map", "convert", bits, "--from", "bitmap", "--as", "allocated", "--block-size", str(GRANULARITY), "--capacity",
         str(2 * TUPLES * GRANULARITY), "--volume-name", "v", "--target-name", "s", "--output",
         os.path.join(root, "v", "s.cbm")], check=True)
    return root
