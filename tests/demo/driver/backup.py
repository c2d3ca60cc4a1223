"""A backup program: a full backup, incremental ones, and the restore. What changed comes from the
driver's SnapshotMetadata service, the data from the snapshots' files."""

import json
import struct
import subprocess

RECORD = struct.Struct("<QQ")  # offset and length, before the bytes
PIECE = 1 << 20


# [ranges]
def ranges(cbt, address, snapshot, base=None):
    """The ranges that are allocated in a snapshot, or that have changed since `base`."""
    command = [cbt, "list", address, "--quiet", "--format", "ndjson", "--snapshot", snapshot]
    if base is not None:
        command += ["--base", base]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines[-1].get("complete"):
        raise ValueError("the answer has no end: it may be cut")
    return [(line["byte_offset"], line["size_bytes"]) for line in lines[1:-1]]
# [/ranges]


def copy(source, target, length):
    while length > 0:
        piece = source.read(min(length, PIECE))
        if not piece:
            raise EOFError(f"{source.name}: {length} bytes are missing")
        target.write(piece)
        length -= len(piece)


def save(image, found, backup):
    """Copies ranges of a snapshot into a backup, and returns the number of their bytes."""
    with open(image, "rb") as source, open(backup, "xb") as target:
        for offset, length in found:
            source.seek(offset)
            target.write(RECORD.pack(offset, length))
            copy(source, target, length)
    return sum(length for _, length in found)


def restore(backups, size, image):
    """Writes backups over each other: the full one first, then each incremental one."""
    with open(image, "xb") as target:
        target.truncate(size)
        for backup in backups:
            with open(backup, "rb") as source:
                while header := source.read(RECORD.size):
                    offset, length = RECORD.unpack(header)
                    target.seek(offset)
                    copy(source, target, length)
