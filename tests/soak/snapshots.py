"""A folder of snapshots of every kind that `cbtctl serve` reads, with the truth about each: known from
its construction, without code of the project.
"""

import bisect
import os
import random
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import sparse  # pylint: disable=wrong-import-position

MIB = 1 << 20
GRANULARITY = 4096


class Answer:
    """The expected answer for a volume: ascending (begin, end) in bytes, and the capacity."""

    def __init__(self, capacity, ranges, unit=0):
        self.capacity = capacity
        self.ranges = ranges
        self.unit = unit  # the unit at which the source cuts ranges, if larger than a block
        self.cache = {}

    def whole(self, shape):
        """All tuples in a shape (style, block size)."""
        if shape not in self.cache:
            self.cache[shape] = list(self._tuples(*shape))
        return self.cache[shape]

    def _tuples(self, style, block):
        begin, end = None, 0
        for first, last in self.ranges + [(None, None)]:
            if first is not None:
                first, last = first // block * block, -(-last // block) * block
                if begin is not None and first <= end:
                    end = max(end, last)
                    continue
            if begin is not None and style == "blocks":
                yield from ((at, block) for at in range(begin, end, block))
            elif begin is not None:
                yield begin, min(end, self.capacity) - begin
            begin, end = first, last

    def since(self, shape, offset):
        """The tuples of a stream that starts at an offset."""
        style, block = shape
        whole = self.whole(shape)
        if offset >= self.capacity:
            return []
        # The first that ends past the offset.
        index = bisect.bisect_right(whole, offset, key=sum)
        rest = whole[index:]
        if rest and style == "extents" and rest[0][0] < offset:
            at, size = rest[0]
            cut = max(at, offset // block * block)
            rest[0] = (cut, at + size - cut)
        return rest

    def is_since(self, shape, offset, found, pages=False, whole=True):
        """Whether these tuples are all of a stream that started at an offset, or its first ones.
        The first may begin earlier, rounded down to the source's own blocks. Pages have no style:
        their last block ends with the volume, and the first range is not cut.
        """
        want = self.since(shape, offset)
        if not whole:
            want = want[:len(found)]
        if len(found) != len(want):
            return False
        if not found:
            return True
        first, end = found[0][0], sum(found[0])
        at = self.whole(shape)[-len(self.since(shape, offset))][0]
        starts = {want[0][0]} | ({max(at, offset // self.unit * self.unit)} if self.unit else set())
        if pages:
            starts.add(at)
            last = min(sum(want[-1]), self.capacity) - want[-1][0]
            want[-1] = (want[-1][0], last)
        if first not in starts or end != sum(want[0]):
            return False
        return found[1:] == want[1:]


def ranges_of(blocks, unit, capacity):
    return [(b * unit, min((b + 1) * unit, capacity)) for b in sorted(blocks)]


class Folder:
    """The snapshots below `root`; `questions` is [(volume, base or None, target, Answer)]."""

    def __init__(self, cbt, root, seed, size=1.0):
        self.cbt, self.root, self.size = cbt, root, size
        self.random = random.Random(seed)
        self.questions = []
        self.raw()
        self.maps()
        self.chain()
        self.lists()
        if shutil.which("qemu-img") and shutil.which("qemu-io"):
            self.qcow2()

    def run(self, *command, cwd=None):
        done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout.decode(errors='replace')}")

    def volume(self, name):
        folder = os.path.join(self.root, name)
        os.makedirs(folder)
        return folder

    def blocks(self, end, count, longest=1):
        """About `count` runs of random blocks below `end`."""
        found = set()
        for _ in range(max(int(count * self.size), 3)):
            first = self.random.randrange(end)
            found.update(range(first, min(first + self.random.randint(1, longest), end)))
        found.add(end - 1)
        return found

    def raw(self):
        """Four images: some pages are holes, some are zero, the last block is partial."""
        folder = self.volume("raw")
        capacity = int(16 * self.size) * MIB + 8 * MIB + 1234
        pages = -(-capacity // GRANULARITY)
        content = {page: self.random.randbytes(GRANULARITY)
                   for page in self.blocks(pages, 250, 60) if self.random.random() < 0.9}
        changed = {}
        for number in range(4):
            if number:
                changed[number] = self.blocks(pages, 600, 4)
                for page in changed[number]:
                    old = content.get(page, bytes(GRANULARITY))
                    kept = min(GRANULARITY, capacity - page * GRANULARITY)
                    at = self.random.randrange(kept)
                    content[page] = (old[:at] + bytes([old[at] ^ 0x55]) + old[at + 1:])
            path = os.path.join(folder, f"s{number}.img")
            with open(path, "wb") as file:
                for page in sorted(content):
                    file.seek(page * GRANULARITY)
                    file.write(content[page])
                file.truncate(capacity)
                os.fsync(file.fileno())
            held = sparse.data_ranges(path)
            for page in content:
                at = page * GRANULARITY
                index = bisect.bisect_right(held, at, key=lambda r: r[1])
                assert index < len(held) and held[index][0] <= at, "data where there is a hole"
            self.questions.append(("raw", None, f"s{number}", Answer(capacity, held)))
        # Flipping a byte twice restores it, so each number flips another byte.
        for number in changed:
            self.questions.append(("raw", f"s{number - 1}", f"s{number}", Answer(
                capacity, ranges_of(changed[number], GRANULARITY, capacity))))

    def bitmap(self, path, blocks, blocks_of_all):
        bits = bytearray(-(-blocks_of_all // 8))
        for block in blocks:
            bits[block >> 3] |= 1 << (block & 7)
        with open(path, "wb") as file:
            file.write(bits)

    def map_file(self, path, blocks, capacity, volume, base, target):
        bits = os.path.join(self.root, ".bits")
        self.bitmap(bits, blocks, -(-capacity // GRANULARITY))
        names = ["--volume-name", volume, "--target-name", target]
        self.run(self.cbt, "map", "convert", bits, "--from", "bitmap", "--capacity", capacity,
                 "--block-size", GRANULARITY, "--output", path, *names, *(["--base-name", base] if base else []),
                 "--as", "delta" if base else "allocated")
        os.unlink(bits)

    def maps(self):
        """Maps whose images are gone; one has streams too large for any buffer."""
        folder = self.volume("map")
        capacity = (64 << 30) - 512
        end = -(-capacity // GRANULARITY)
        for base, target, count in (("m0", "m1", 120_000), ("m1", "m2", 9_000),
                                    (None, "m2", 30_000)):
            blocks = self.blocks(end, count)
            path = os.path.join(folder, f"{base}-{target}.cbm")
            self.map_file(path, blocks, capacity, "map", base, target)
            self.questions.append(
                ("map", base, target, Answer(capacity, ranges_of(blocks, GRANULARITY, capacity))))

    def chain(self):
        folder = self.volume("hist")
        capacity = (40 << 30) + GRANULARITY
        end = -(-capacity // GRANULARITY)
        chain = os.path.join(folder, "h.chain")
        self.run(self.cbt, "chain", "create", chain, "--volume", "hist", "--snapshot", "h0",
                 "--capacity", capacity)
        days = [set()]
        one = os.path.join(self.root, ".day.cbm")
        for day in range(1, 9):
            days.append(self.blocks(end, 2500, 3))
            self.map_file(one, days[day], capacity, "hist", f"h{day - 1}", f"h{day}")
            self.run(self.cbt, "chain", "append", chain, one)
        os.unlink(one)
        for base, target in ((0, 8), (0, 1), (2, 7), (3, 4), (5, 8)):
            blocks = set().union(*days[base + 1:target + 1])
            self.questions.append(("hist", f"h{base}", f"h{target}", Answer(
                capacity, ranges_of(blocks, GRANULARITY, capacity))))

    def lists(self):
        """Lists that are read again for each stream."""
        folder = self.volume("lists")
        unit = 1 << 16
        end = 5000
        capacity = end * unit
        blocks = self.blocks(end, 900)
        self.bitmap(os.path.join(folder, ".bits"), blocks, end)
        with open(os.path.join(folder, "t0-t1.source"), "w", encoding="utf-8") as file:
            file.write("base t0\ntarget t1\naddress .bits\n"
                       f"from bitmap:granularity={unit}\ncapacity {capacity}\n")
        self.questions.append(("lists", "t0", "t1", Answer(
            capacity, ranges_of(blocks, unit, capacity), unit)))
        version = subprocess.run([self.cbt, "--version"], stdout=subprocess.PIPE, check=True).stdout
        if b"rapidjson" not in version:
            return
        blocks = self.blocks(end, 700)
        rows, first = [], 0
        for block in range(1, end + 1):
            if block == end or (block in blocks) != (first in blocks):
                data = "true" if first in blocks else "false"
                zero = "false" if first in blocks else "true"
                rows.append(f'{{"start": {first * unit}, "length": {(block - first) * unit}, '
                            f'"depth": 0, "present": {data}, "zero": {zero}, "data": {data}}}')
                first = block
        with open(os.path.join(folder, ".map.json"), "w", encoding="utf-8") as file:
            file.write("[" + ",\n".join(rows) + "]\n")
        with open(os.path.join(folder, "t1.source"), "w", encoding="utf-8") as file:
            file.write(f"target t1\naddress .map.json\nfrom qemu-map\ncapacity {capacity}\n")
        self.questions.append(
            ("lists", None, "t1", Answer(capacity, ranges_of(blocks, unit, capacity))))

    def qcow2(self):
        """An image and two overlays."""
        folder = self.volume("cow")
        unit = 1 << 16
        capacity = 256 * MIB
        end = capacity // unit
        written = []
        for number in range(3):
            name = f"q{number}.qcow2"
            below = ["-b", f"q{number - 1}.qcow2", "-F", "qcow2"] if number else []
            self.run("qemu-img", "create", "-q", "-f", "qcow2", *below, name,
                     *([] if number else [capacity]), cwd=folder)
            written.append(self.blocks(end, 150))
            writes = [word for block in sorted(written[-1])
                      for word in ("-c", f"write -q -P {number + 7} {block * unit + 512} 1024")]
            self.run("qemu-io", "-f", "qcow2", *writes, name, cwd=folder)
            self.questions.append(("cow", None, f"q{number}", Answer(
                capacity, ranges_of(set().union(*written), unit, capacity))))
            for base in range(number):
                blocks = set().union(*written[base + 1:])
                self.questions.append(("cow", f"q{base}", f"q{number}", Answer(
                    capacity, ranges_of(blocks, unit, capacity))))
