"""Runs the table of cases that every binding runs; tests/c/make_cases.py says what its lines mean."""

import pathlib
import sys

import numpy as np

import cbt

TABLE = pathlib.Path(__file__).resolve().parent.parent / "c/cases.txt"
METHOD = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"


def pairs(words):
    return [tuple(int(number) for number in word.split("+")) for word in words]


def arrays(extents):
    return [np.array([extent[i] for extent in extents], np.uint64) for i in (0, 1)]


def varint(value):
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


class Case:
    def __init__(self, name):
        self.name, self.lines = name, {}
        self.transforms, self.streams = [], []

    def add(self, key, words):
        if key == "transform":
            self.transforms.append((words[0], [int(word) for word in words[1:]]))
        elif key == "stream":
            self.streams.append(([int(word) for word in words], []))
        elif key == "message":
            self.streams[-1][1].append(bytes.fromhex(words[0]))
        else:
            self.lines[key] = words

    def cursor(self):
        geometry = [int(word) for word in self.lines["geometry"]]
        first, msb, inverted, word = (int(word) for word in self.lines.get("layout", ["0", "0", "0", "1"]))
        layout = {"first_bit": first, "most_significant_first": bool(msb), "inverted": bool(inverted),
                  "reversed_word_bytes": word}
        if "base" in self.lines:
            # Memory that can be written to is copied, other memory kept.
            base, target = bytearray.fromhex(self.lines["base"][0]), bytes.fromhex(self.lines["target"][0])
            made = cbt.Cursor.from_bitmaps(base, target, self.lines["operation"][0], *geometry, **layout)
        elif "bitmap" in self.lines:
            made = cbt.Cursor.from_bitmap(bytes.fromhex(self.lines["bitmap"][0]), *geometry, **layout)
        else:
            made = cbt.Cursor.from_extents(*arrays(pairs(self.lines["extents"])), *geometry)
        for name, numbers in self.transforms:
            if name in ("union", "intersect", "subtract"):
                numbers = [cbt.Cursor.from_extents(*arrays(pairs(self.lines["other"])), *geometry)]
            made = getattr(made, name)(*numbers)
        return made

    def run(self):
        if "error" in self.lines:
            try:
                self.cursor()
            except cbt.Error as error:
                assert error.code.name == self.lines["error"][0] and str(error), (self.name, error)
            else:
                raise AssertionError(f"{self.name}: no error")
            return
        expected, seek = pairs(self.lines["expect"]), int(self.lines.get("seek", ["0"])[0])
        cursor = self.cursor()
        for size in (1, 4, 1024):
            found = [extent for batch in cursor.batches(seek, size) for extent in batch]
            assert found == expected, (self.name, size, found, expected)
        assert list(cursor.read_all(seek)) == expected, self.name
        # The other ways out of a cursor: a map is the same set, Arrow the same list.
        import pyarrow

        table = pyarrow.table(cursor.read_all(seek))
        assert list(zip(table["byte_offset"].to_pylist(), table["size_bytes"].to_pylist(), strict=True)) == expected
        for numbers, messages in self.streams:
            self.run_stream(messages, *numbers)

    def run_stream(self, expected, start, most, block):
        case = self

        class Provider:
            def allocated(self, target, _request):
                assert target == "snap"
                return cbt.Answer(case.cursor(), block_size=block)

        request = b"\x0a\x04snap" + b"\x10" + varint(start) + b"\x18" + varint(most)
        stream = cbt.Service(Provider()).open(METHOD, request)
        checker = cbt.Checker(starting_offset=start, max_results=most, require_proof=True)
        messages = []
        for message in stream:
            messages.append(message)
            checker.message(message)
        assert messages == expected, (self.name, start, most, block)
        assert checker.finish(stream.trailing_metadata) == cbt.Proof.HOLDS


def main():
    case, count = None, 0
    for line in TABLE.read_text().splitlines():
        key, *words = line.split()
        if key == "#":
            continue
        if key == "case":
            case = Case(words[0])
        elif key == "end":
            case.run()
            count += 1
        else:
            case.add(key, words)
    assert count > 100, count
    print(f"{count} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
