# Incremental backups of a volume whose plugin serves changed blocks.
#
#     python backup.py take ADDRESS FOLDER SNAPSHOT DEVICE [BASE]
#     python backup.py restore FOLDER SNAPSHOT IMAGE
#
# A backup is a folder of its own: changes.cbm has the changed blocks and the names of both
# snapshots, data has the bytes of those blocks.
import os
import pathlib
import shutil
import sys
from typing import BinaryIO

import grpc
import numpy as np

import cbt
import cbt.grpc

BLOCK = 4096


def copy(source: BinaryIO, to: BinaryIO, length: int) -> None:
    while length > 0:
        data = source.read(min(length, 1 << 20))
        if not data:
            raise EOFError("the source is shorter than its changes")
        to.write(data)
        length -= len(data)


def take(address: str, folder: str, snapshot: str, device: str, base: str = "") -> None:
    place = pathlib.Path(folder, snapshot)
    unfinished = place.with_name(f".{place.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with grpc.insecure_channel(address) as channel:
        stream = cbt.grpc.read_delta(channel, base, snapshot) if base else cbt.grpc.read_allocated(channel, snapshot)
        builder = None
        for tuples in stream:
            builder = builder or cbt.MapBuilder(tuples.capacity, BLOCK)
            # The last block may end past the capacity.
            builder.add(tuples.offsets, np.minimum(tuples.lengths, tuples.capacity - tuples.offsets))
    assert builder is not None  # a complete stream has a message
    changes = builder.build(base=base, target=snapshot)
    changes.save(unfinished / "changes.cbm")
    with open(device, "rb") as source, open(unfinished / "data", "wb") as data:
        for batch in changes.cursor():
            for offset, length in batch:
                source.seek(offset)
                copy(source, data, length)
        data.flush()
        os.fsync(data.fileno())
    unfinished.rename(place)  # only a complete backup has its name
    print(f"{snapshot}: {changes.bytes} of {changes.capacity} bytes")


def restore(folder: str, snapshot: str, image: str) -> None:
    changes = cbt.ChangeMap.load(pathlib.Path(folder, snapshot, "changes.cbm"))
    if changes.base:
        restore(folder, changes.base, image)
    with open(image, "r+b" if changes.base else "wb") as to, open(pathlib.Path(folder, snapshot, "data"), "rb") as data:
        to.truncate(changes.capacity)
        for batch in changes.cursor():
            for offset, length in batch:
                to.seek(offset)
                copy(data, to, length)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: backup.py take ADDRESS FOLDER SNAPSHOT DEVICE [BASE] | restore FOLDER SNAPSHOT IMAGE")
    command, *arguments = sys.argv[1:]
    (take if command == "take" else restore)(*arguments)
