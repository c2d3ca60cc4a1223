"""Finds the data of sparse files."""

import errno
import os


def data_ranges(path):
    """Ascending (begin, end) pairs from the file system."""
    found = []
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise
            at = min(os.lseek(file.fileno(), begin, os.SEEK_HOLE), size)
            found.append((begin, at))
    return found
