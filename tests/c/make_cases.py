"""Writes cases.txt: what every binding must answer, from code that shares nothing with the library.

A volume is a list with one entry for each unit of bytes, true where it changed. One case:

    case NAME
    geometry CAPACITY GRANULARITY                 bytes
    bitmap HEX | base HEX and target HEX | extents OFFSET+LENGTH ...
    layout FIRST_BIT MOST_SIGNIFICANT_FIRST INVERTED REVERSED_WORD_BYTES     of the bitmaps
    operation xor | and_not | or | and            of base and target
    other OFFSET+LENGTH ...                       extents of a second cursor, of the same geometry
    transform NAME NUMBERS ...                    any number, in this order
    seek OFFSET                                   before reading
    error CODE                                    making the cursor fails with this, or:
    expect OFFSET+LENGTH ...                      what reading it returns
    stream STARTING_OFFSET MAX_RESULTS BLOCK_SIZE BLOCK_SIZE 0: extents; the cursor without seek
    message HEX                                   each message of the stream, in order
    end
"""

import argparse
import pathlib
import random
import sys

PLACE = pathlib.Path(__file__).resolve().parent / "cases.txt"


def runs(volume):
    found, start = [], None
    for place, changed in enumerate([*volume, False]):
        if changed and start is None:
            start = place
        if not changed and start is not None:
            found.append((start, place - start))
            start = None
    return found


def marked(extents, size):
    volume = [False] * size
    for offset, length in extents:
        for place in range(offset, min(offset + length, size)):
            volume[place] = True
    return volume


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def field(number, value):
    return varint(number * 8) + varint(value) if value else b""


def message(kind, capacity, tuples):
    out = field(1, kind) + field(2, capacity)
    for offset, length in tuples:
        inner = field(1, offset) + field(2, length)
        out += varint(3 * 8 + 2) + varint(len(inner)) + inner
    return out


class Case:
    def __init__(self, name, unit, size, granularity):
        self.name, self.unit, self.size, self.granularity = name, unit, size, granularity
        self.inputs, self.transforms = [], []
        self.volume = None
        self.pieces = None  # extents that are cut, where they are not the runs of the volume
        self.blocks = None  # their size, once the cursor returns blocks

    def text(self, extents):
        return " ".join(f"{offset * self.unit}+{length * self.unit}" for offset, length in extents)

    def from_bits(self, words, operation=None, first_bit=0, msb=False, inverted=False, word=1):
        """`words`: one list of bits, or two."""
        packed = []
        for bits in words:
            count = (first_bit + len(bits) + 8 * word - 1) // (8 * word) * word
            data = bytearray(count)
            for place, bit in enumerate(bits):
                if bit != inverted:
                    at = first_bit + place
                    data[at // 8] |= 0x80 >> at % 8 if msb else 1 << at % 8
            for start in range(0, count, word):
                data[start:start + word] = data[start:start + word][::-1]
            packed.append(data.hex())
        names = ["bitmap"] if operation is None else ["base", "target"]
        self.inputs += [f"{name} {data}" for name, data in zip(names, packed)]
        self.inputs.append(f"layout {first_bit} {int(msb)} {int(inverted)} {word}")
        if operation is None:
            blocks = words[0]
        else:
            self.inputs.append(f"operation {operation}")
            both = {"xor": lambda a, b: a != b, "and_not": lambda a, b: b and not a,
                    "or": lambda a, b: a or b, "and": lambda a, b: a and b}[operation]
            blocks = [both(a, b) for a, b in zip(*words)]
        self.volume = [blocks[place // self.granularity] for place in range(self.size)]

    def from_extents(self, extents):
        self.inputs.append(f"extents {self.text(extents)}".rstrip())
        self.volume = marked(extents, self.size)
        self.pieces = extents  # those that touch stay apart

    def transform(self, name, *numbers, other=None):
        shown = " ".join(str(number * self.unit) for number in numbers)
        if other is not None:
            self.inputs.append(f"other {self.text(other)}".rstrip())
        self.transforms.append(f"transform {name} {shown}".rstrip())
        extents = self.answer()
        self.pieces = None
        if name == "coalesce":
            joined = []
            for offset, length in extents:
                if joined and offset - sum(joined[-1]) <= numbers[0]:
                    joined[-1] = (joined[-1][0], offset + length - joined[-1][0])
                else:
                    joined.append((offset, length))
            self.volume = marked(joined, self.size)
            self.blocks = None
        elif name == "align_outward":
            step = numbers[0]
            self.volume = [any(self.volume[place // step * step:place // step * step + step])
                           for place in range(self.size)]
            self.granularity = step
        elif name == "clip":
            self.volume = [changed and numbers[0] <= place < numbers[1]
                           for place, changed in enumerate(self.volume)]
            self.pieces = None
        elif name == "to_blocks":
            self.blocks = numbers[0]
        elif name == "split":
            self.pieces = [(at, min(numbers[0], offset + length - at)) for offset, length in extents
                           for at in range(offset, offset + length, numbers[0])]
        else:
            second = marked(other, self.size)
            both = {"union": lambda a, b: a or b, "intersect": lambda a, b: a and b,
                    "subtract": lambda a, b: a and not b}[name]
            self.volume = [both(a, b) for a, b in zip(self.volume, second)]

    def answer(self, start=0, block=None):
        block = block or self.blocks
        if block:
            cut = start // block * block
            return [(place, block) for place in range(0, self.size, block)
                    if place >= cut and any(self.volume[place:place + block])]
        cut = start // self.granularity * self.granularity
        extents = self.pieces if self.pieces is not None else runs(self.volume)
        return [(max(offset, cut), offset + length - max(offset, cut))
                for offset, length in extents if offset + length > cut]

    def lines(self, seek=None, streams=()):
        out = [f"case {self.name}", f"geometry {self.size * self.unit} {self.first * self.unit}"]
        out += self.inputs + self.transforms
        if seek is not None:
            out.append(f"seek {seek * self.unit}")
        out.append(f"expect {self.text(self.answer(seek or 0))}".rstrip())
        for start, most, block in streams:
            out.append(f"stream {start * self.unit} {most} {block * self.unit}")
            tuples = [(offset, length) for offset, length in self.answer(start, block)
                      if offset + length > start]
            pieces = [tuples[at:at + (most or len(tuples) or 1)]
                      for at in range(0, len(tuples), most or len(tuples) or 1)] or [[]]
            for some in pieces:
                scaled = [(offset * self.unit, length * self.unit) for offset, length in some]
                out.append("message " + message(1 if block else 2, self.size * self.unit, scaled).hex())
        return [*out, "end"]


def make():
    random.seed(7)
    out = []

    def case(name, unit, size, granularity):
        made = Case(name, unit, size, granularity)
        made.first = granularity
        return made

    def bits(count, density=0.4):
        return [random.random() < density for _ in range(count)]

    big = 1 << 40
    for unit in (1, 512, big):
        for size, granularity in ((1, 1), (64, 1), (65, 1), (200, 7), (1000, 16)):
            blocks = (size + granularity - 1) // granularity
            for density in (0.0, 0.3, 1.0):
                made = case(f"bitmap-{unit}-{size}-{granularity}-{density}", unit, size, granularity)
                made.from_bits([bits(blocks, density)])
                start = size * 2 // 3
                out += made.lines(seek=start, streams=[(0, 0, 0), (start, 3, 0)] if size <= 200 else [(start, 4, 0)])
    for operation in ("xor", "and_not", "or", "and"):
        made = case(f"pair-{operation}", 4, 333, 3)
        made.from_bits([bits(111), bits(111)], operation)
        out += made.lines(streams=[(100, 5, 0), (0, 0, 8)])
    for first, msb, inverted, word in ((3, False, False, 1), (0, True, False, 1), (5, True, True, 1),
                                       (0, False, True, 4), (9, True, False, 2), (7, False, False, 8)):
        made = case(f"layout-{first}-{msb}-{inverted}-{word}", 1, 500, 5)
        made.from_bits([bits(100)], None, first, msb, inverted, word)
        out += made.lines(seek=251)
        made = case(f"layouts-{first}-{msb}-{inverted}-{word}", 1, 500, 5)
        made.from_bits([bits(100), bits(100)], "xor", first, msb, inverted, word)
        out += made.lines()
    lists = [[], [(0, 10)], [(0, 5), (5, 5), (20, 1)], [(3, 4), (9, 30), (80, 20)], [(99, 1)]]
    for place, extents in enumerate(lists):
        made = case(f"extents-{place}", 1 << 20, 100, 1)
        made.from_extents(extents)
        out += made.lines(seek=9, streams=[(9, 1, 0)])
    other = [(0, 3), (8, 20), (50, 50)]
    for name, numbers, second in (("coalesce", (0,), None), ("coalesce", (3,), None), ("split", (4,), None),
                                  ("align_outward", (8,), None), ("align_outward", (7,), None),
                                  ("clip", (6, 85), None), ("to_blocks", (8,), None), ("to_blocks", (1,), None),
                                  ("union", (), other), ("intersect", (), other), ("subtract", (), other)):
        for place, extents in enumerate(lists):
            made = case(f"{name}-{'-'.join(str(number) for number in numbers)}-{place}", 4096, 100, 1)
            made.from_extents(extents)
            made.transform(name, *numbers, other=second)
            out += made.lines(seek=None if name == "split" else 21)
    made = case("align-coalesce-blocks", 1, 1003, 1)
    made.from_extents([(5, 1), (30, 2), (500, 100), (1002, 1)])
    made.transform("align_outward", 10)
    made.transform("coalesce", 25)
    made.transform("to_blocks", 64)
    out += made.lines(seek=600)
    for name, lines in (
            ("too-few-bits", ["geometry 1000 10", "bitmap ffffff", "layout 0 0 0 1"]),
            ("no-granularity", ["geometry 1000 0", "extents"]),
            ("too-large", [f"geometry {1 << 63} 1", "extents"]),
            ("overlap", ["geometry 1000 1", "extents 0+10 9+10"]),
            ("past-the-end", ["geometry 1000 1", "extents 990+11"]),
            ("wraps", ["geometry 1000 1", f"extents 5+{(1 << 64) - 4}"]),
            ("unaligned", ["geometry 1000 10", "extents 5+10"]),
            ("empty-extent", ["geometry 1000 1", "extents 5+0"]),
            ("word-of-three", ["geometry 8 1", "bitmap ffffff", "layout 0 0 0 3"])):
        out += [f"case error-{name}", *lines, "error INVALID_ARGUMENT", "end"]
    return "# Made by make_cases.py, which says what the lines mean.\n" + "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with cases.txt instead of writing it")
    arguments = parser.parse_args()
    if not arguments.check:
        PLACE.write_text(make())
        return 0
    if PLACE.read_text() == make():
        return 0
    print("cases.txt differs: run tests/c/make_cases.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
