"""The expected answers of the cbt command, computed the obvious way: byte by byte, block by block.
Shares no code with the product.
"""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import sparse  # pylint: disable=wrong-import-position


def changed_blocks(base, target, block_size):
    """Indexes of the blocks of `target` in which a byte differs from `base`. The shorter one is
    padded with zeros, and nothing is reported past the target's end.
    """
    base = base[: len(target)].ljust(len(target), b"\0")
    blocks = []
    for index in range(-(-len(target) // block_size)):
        begin = index * block_size
        if base[begin : begin + block_size] != target[begin : begin + block_size]:
            blocks.append(index)
    return blocks


def nonzero_blocks(image, block_size):
    return changed_blocks(b"", image, block_size)


def data_blocks(path, block_size):
    """Indexes of the blocks of a file that are not entirely holes, according to the file system."""
    blocks = set()
    for begin, end in sparse.data_ranges(path):
        blocks.update(range(begin // block_size, -(-end // block_size)))
    return sorted(blocks)


def extents(blocks, block_size, capacity):
    """Maximal extents, the last one cut at the capacity."""
    result = []
    for index in blocks:
        begin, end = index * block_size, min((index + 1) * block_size, capacity)
        if result and result[-1][1] == begin:
            result[-1] = (result[-1][0], end)
        else:
            result.append((begin, end))
    return [(begin, end - begin) for begin, end in result]


def tuples(blocks, block_size, capacity, style, starting_offset=0):
    """The (offset, size) tuples of the answer that starts at `starting_offset`."""
    if starting_offset == capacity:
        return []
    kept = [index for index in blocks if (index + 1) * block_size > starting_offset]
    if style == "blocks":
        return [(index * block_size, block_size) for index in kept]
    return extents(kept, block_size, capacity)
