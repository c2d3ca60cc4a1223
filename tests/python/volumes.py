"""What the tests of the border share."""

import unittest

import numpy as np

import cbt

BLOCK = 4096


def bitmap(blocks=100_000, seed=3):
    return np.random.default_rng(seed).integers(0, 256, blocks // 8, np.uint8).tobytes()


def oracle(bits):
    """The runs of set bits, bit by bit."""
    found, start = [], None
    flat = [byte >> bit & 1 for byte in bits for bit in range(8)] + [0]
    for place, bit in enumerate(flat):
        if bit and start is None:
            start = place
        if not bit and start is not None:
            found.append((start * BLOCK, (place - start) * BLOCK))
            start = None
    return found


BITS = bitmap()
EXTENTS = oracle(BITS)


def cursor_of(bits=BITS, **options):
    return cbt.Cursor.from_bitmap(bits, memoryview(bits).nbytes * 8 * BLOCK, BLOCK, **options)


def extents_of(batches):
    return [extent for batch in batches for extent in batch]


class Source:
    """Every second block of a volume; `at` maps the number of a call of next() to what happens there."""

    def __init__(self, at=None, blocks=10_000):
        self.at, self.blocks, self.place, self.calls = at or {}, blocks, 0, 0

    def seek(self, offset):
        self.place = offset // BLOCK

    def next(self, room):
        self.calls += 1
        if self.calls in self.at:
            return self.at[self.calls](room)
        end = min(self.place + 2 * min(room, 50), self.blocks)
        offsets = np.arange(self.place, end, 2) * BLOCK
        self.place = end
        return offsets, np.full(len(offsets), BLOCK), end * BLOCK

    def cursor(self):
        return cbt.Cursor.from_source(self, self.blocks * BLOCK, BLOCK)

    def expected(self):
        return [(block * BLOCK, BLOCK) for block in range(0, self.blocks, 2)]


def raising(error):
    def fail(_room):
        raise error

    return fail


class Case(unittest.TestCase):
    def same(self, found, expected):
        """assertEqual() would take minutes to show how long lists differ."""
        for place, (one, other) in enumerate(zip(found, expected)):
            if one != other:
                self.fail(f"number {place}: {one}, expected {other}")
        self.assertEqual(len(found), len(expected))
