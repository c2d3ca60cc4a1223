"""`cbtctl serve --provider`: a plugin in another process, with a gRPC stack of its own, answers.

Usage: FILE CBT FOLDER_OF_MESSAGES
"""

import os
import random
import subprocess
import sys
import unittest

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402

import service  # noqa: E402
from provider_support import (BITMAP, BLOCK, EXTENTS, FILE, Code, File, ProviderTest, bits, end, head, piece)  # noqa: E402
from service import tuples_of  # noqa: E402

service.CBT = CBT


class Volume:
    """Random changed blocks, and everything that can be said of them."""

    def __init__(self, rng):
        self.granularity = rng.choice([512, 4096, 65536, 1000])
        self.blocks = rng.choice([0, 1, 7, 8, 9, 63, 64, 65, 1000, 5000])
        self.capacity = self.blocks * self.granularity
        if self.blocks and rng.random() < 0.5:
            self.capacity -= rng.randrange(self.granularity)
        density = rng.choice([0, 0.02, 0.5, 0.98, 1])
        self.changed = [rng.random() < density for _ in range(self.blocks)]

    def extents(self, start=0):
        found = []
        for number, changed in enumerate(self.changed):
            begin = max(number * self.granularity, start)
            stop = min((number + 1) * self.granularity, self.capacity)
            if not changed or begin >= stop:
                continue
            if found and sum(found[-1]) == begin:
                found[-1] = (found[-1][0], found[-1][1] + stop - begin)
            else:
                found.append((begin, stop - begin))
        return found

    def bitmap(self, rng, msb, inverted):
        # Bits past the last block have no meaning.
        padded = self.changed + [rng.random() < 0.5 for _ in range(-self.blocks % 8)]
        data = bytearray(len(padded) // 8)
        for number, changed in enumerate(padded):
            if changed != inverted:
                data[number // 8] |= 128 >> number % 8 if msb else 1 << number % 8
        return bytes(data)


def cut(rng, things):
    """In pieces of random sizes, empty ones among them."""
    done = 0
    while done < len(things):
        size = min(rng.choice([0, 1, 2, 7, 100, 10000]), len(things) - done)
        yield things[done:done + size]
        done += size


class Answers(ProviderTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CBT_TEST_SEED", random.SystemRandom().randrange(2**32)))
        print(f"CBT_TEST_SEED={seed} repeats this run", file=sys.stderr)
        self.rng = random.Random(seed)

    def check(self, volume, expected_base):
        for start in {0, self.rng.randrange(volume.capacity + 1), volume.capacity}:
            # A stream begins at its starting offset, rounded down to a granule.
            begin = min(start - start % volume.granularity, volume.capacity)
            for call in (self.client.allocated("target", start), self.client.delta("base", "target", start),
                         self.client.delta("base", "target", start, max_results=3)):
                messages = list(call)
                self.assertEqual({message.volume_capacity_bytes for message in messages}, {volume.capacity})
                found = tuples_of(messages)
                if start < volume.capacity:
                    self.assertEqual(found, volume.extents(begin))
                self.assertEqual(dict(call.trailing_metadata()).keys() & {"cbt-proof"}, expected_base)

    def test_bitmaps(self):
        self.serve()
        for _ in range(40):
            volume = Volume(self.rng)
            msb, inverted, anywhere = (self.rng.random() < 0.5 for _ in range(3))
            data = volume.bitmap(self.rng, msb, inverted)

            def answer(request, _context, volume=volume, data=data, msb=msb, inverted=inverted, anywhere=anywhere):
                begin = request.starting_offset_bytes // (8 * volume.granularity) if anywhere else 0
                yield head(volume.capacity, BITMAP, granularity_bytes=volume.granularity,
                           most_significant_bit_first=msb, clear_means_changed=inverted, starts_anywhere=anywhere,
                           begins_at_bytes=begin * 8 * volume.granularity)
                for part in cut(self.rng, data[begin:]):
                    yield bits(part)
                yield end(len(data) - begin)

            self.plugin.answer = answer
            self.check(volume, set())

    def test_extents(self):
        self.serve()
        for _ in range(40):
            volume = Volume(self.rng)
            anywhere = self.rng.random() < 0.5

            def answer(request, _context, volume=volume, anywhere=anywhere):
                begin = request.starting_offset_bytes if anywhere else 0
                yield head(volume.capacity, EXTENTS, granularity_bytes=volume.granularity, starts_anywhere=anywhere,
                           begins_at_bytes=begin)
                kept = [extent for extent in volume.extents() if sum(extent) > begin]
                for part in cut(self.rng, kept):
                    yield piece(*part)
                if self.rng.random() < 0.5:
                    yield piece(covered=volume.capacity)
                yield end(len(kept))

            self.plugin.answer = answer
            self.check(volume, set())

    def test_blocks(self):
        self.serve()
        self.answers(head(3 * BLOCK - 1, EXTENTS, block_size_bytes=BLOCK), piece((1, BLOCK), (3 * BLOCK - 2, 1)), end(2))
        for message in self.client.allocated("target"):
            self.assertEqual(message.block_metadata_type, 1)
            self.assertEqual(tuples_of([message]), [(0, BLOCK), (BLOCK, BLOCK), (2 * BLOCK, BLOCK)])
        # The operator's word counts more.
        self.serve("--style", "extents")
        self.assertEqual(tuples_of(self.client.allocated("target")), [(1, BLOCK), (3 * BLOCK - 2, 1)])
        self.serve("--style", "blocks", "--block-size", 512)
        self.assertEqual(len(tuples_of(self.client.allocated("target"))), 10)

    def test_what_is_asked(self):
        self.serve()
        self.answers(head(BLOCK, EXTENTS, version="v1"), end(0))
        list(self.client.delta("b", "t", secrets={"key": "value"}))
        list(self.client.allocated("t"))
        delta, allocated = self.plugin.requests
        self.assertEqual((delta.base_snapshot_id, delta.target_snapshot_id, dict(delta.secrets)), ("b", "t", {"key": "value"}))
        self.assertEqual((allocated.base_snapshot_id, allocated.target_snapshot_id, dict(allocated.secrets)), ("", "t", {}))

    def test_conforms(self):
        changed = [(n * 3 * BLOCK, BLOCK) for n in range(3000)]
        capacity = 3 * 3000 * BLOCK - 512
        data = bytearray(9000 // 8)
        for n in range(3000):
            data[3 * n // 8] |= 1 << 3 * n % 8

        def answer(request, context):
            for name in (request.base_snapshot_id, request.target_snapshot_id):
                if name not in ("", "monday", "tuesday"):
                    context.abort(Code.NOT_FOUND, f"no such snapshot: {name}")
            if request.base_snapshot_id == request.target_snapshot_id:
                yield from (head(capacity, EXTENTS, version="1"), end(0))
            elif self.content == BITMAP:
                yield head(capacity, BITMAP, granularity_bytes=BLOCK, version="1")
                yield bits(bytes(data))
                yield end(len(data))
            else:
                yield head(capacity, EXTENTS, granularity_bytes=BLOCK, version="1")
                for at in range(0, 3000, 700):
                    yield piece(*changed[at:at + 700])
                yield end(3000)

        self.plugin.answer = answer
        for style in ("extents", "blocks"):
            self.serve("--style", style)
            for self.content in (BITMAP, EXTENTS):
                self.conforms("--snapshot", "tuesday", "--base", "monday")

    def test_holds_some_messages_and_not_the_bitmap(self):
        self.serve()
        size, message = 512 << 20, bits(bytes(1 << 20)).SerializeToString()

        def answer(_request, _context):
            yield head(size * 8 * BLOCK, BITMAP, granularity_bytes=BLOCK)
            for _ in range(size >> 20):
                yield message
            yield end(size)

        def peak():
            with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

        self.answers(head(0, EXTENTS), end(0))
        list(self.client.allocated("target"))
        before = peak()
        self.plugin.answer = answer
        self.assertEqual(tuples_of(self.client.allocated("target")), [])
        if not os.environ.get("CBT_TEST_SANITIZER"):
            self.assertLess(peak() - before, 40 << 10)  # KiB


class Files(ProviderTest):
    def setUp(self):
        super().setUp()
        self.shared = f"{self.folder}/shared"
        os.makedirs(f"{self.shared}/vol1")
        rng = random.Random(3)
        base = rng.randbytes(40 * BLOCK)
        target = bytearray(base)
        for block in (3, 4, 9, 39):
            target[block * BLOCK] ^= 1
        self.write("vol1/mon.img", base)
        self.write("vol1/tue.img", target)
        self.write("secret", b"outside", self.folder)
        self.changed = [(3 * BLOCK, 2 * BLOCK), (9 * BLOCK, BLOCK), (39 * BLOCK, BLOCK)]
        self.map = f"{self.shared}/vol1/delta.cbm"
        subprocess.run([CBT, "delta", f"{self.shared}/vol1/mon.img", f"{self.shared}/vol1/tue.img", "--from", "image",
                        "--base-name", "mon", "--target-name", "tue", "-o", self.map, "--quiet"], check=True)

    def write(self, name, data, folder=None):
        with open(f"{folder or self.shared}/{name}", "wb") as file:
            file.write(data)

    def names(self, path, kind, base_path="", capacity=0):
        self.answers(head(capacity, FILE, file=File(path=path, format=kind, base_path=base_path)), end(0))

    def test_answer(self):
        self.serve("--provider-files", self.shared)
        for names in (("vol1/delta.cbm", "cbm"), ("vol1/tue.img", "image", "vol1/mon.img")):
            self.names(*names)
            call = self.client.delta("base", "target")
            self.assertEqual(tuples_of(call), self.changed)
        self.names("vol1/tue.img", "image")
        self.assertEqual(tuples_of(self.client.allocated("target")), [(0, 40 * BLOCK)])
        self.names("vol1/delta.cbm", "cbm", capacity=40 * BLOCK)
        self.assertEqual(tuples_of(self.client.delta("base", "target", 4 * BLOCK)),
                         [(4 * BLOCK, BLOCK), *self.changed[1:]])

    def test_conform(self):
        self.serve("--provider-files", self.shared)

        def answer(request, context):
            base, target = request.base_snapshot_id, request.target_snapshot_id
            if base not in ("", "mon", "tue") or target not in ("mon", "tue"):
                context.abort(Code.NOT_FOUND, "no such snapshot")
            base_path = base and f"vol1/{base}.img"
            yield head(0, FILE, file=File(path=f"vol1/{target}.img", format="image", base_path=base_path))
            yield end(0)

        self.plugin.answer = answer
        self.conforms("--snapshot", "tue", "--base", "mon")

    def test_that_are_refused(self):
        self.serve("--provider-files", self.shared)
        os.symlink("../../secret", f"{self.shared}/vol1/link")
        os.symlink("/etc/passwd", f"{self.shared}/vol1/passwd")
        os.mkfifo(f"{self.shared}/vol1/pipe")
        for path in ("../secret", f"{self.folder}/secret", "/etc/passwd", "vol1/link", "vol1/passwd", "vol1/../../secret",
                     "vol1", "vol1/pipe", "vol1/none.img", "nbd://127.0.0.1:1/x", "nbd+unix:///?socket=/run/x", "-", "a" * 4097,
                     "vol1/tue.img\0x", "/proc/self/mem"):
            for kind in ("image", "qcow2", "cbm"):
                self.names(path, kind)
                text = self.fails(Code.INTERNAL if len(path) > 4096 else Code.FAILED_PRECONDITION)
                self.assertTrue(text.startswith("provider: "), text)
        self.names("vol1/delta.cbm", "cbm")
        self.assertIn("not what is allocated", self.fails(Code.FAILED_PRECONDITION))
        for kind in ("", "raw", "nbd", "bitmap", "ndjson", "ext"):
            self.names("vol1/tue.img", kind)
            self.assertIn("the format is not", self.fails(Code.FAILED_PRECONDITION))
        self.names("vol1/tue.img", "image")
        self.assertIn("name the base", self.fails(Code.FAILED_PRECONDITION, allocated=False))
        self.names("vol1/tue.img", "image", "vol1/mon.img")
        self.fails(Code.FAILED_PRECONDITION)
        self.names("vol1/tue.img", "image", "../secret")
        self.fails(Code.FAILED_PRECONDITION, allocated=False)
        self.names("vol1/delta.cbm", "cbm", capacity=41 * BLOCK)
        self.assertIn("41", str(41 * BLOCK) and self.fails(Code.FAILED_PRECONDITION, allocated=False).replace(
            str(41 * BLOCK), "41"))
        # A damaged map, and one that is cut.
        with open(self.map, "rb") as file:
            data = bytearray(file.read())
        for at in (len(data) // 2, len(data) - 1):
            damaged = bytearray(data)
            damaged[at] ^= 1
            self.write("bad.cbm", damaged)
            self.names("bad.cbm", "cbm")
            self.fails(Code.FAILED_PRECONDITION, allocated=False)
            self.write("bad.cbm", data[:at])
            self.fails(Code.FAILED_PRECONDITION, allocated=False)

    def test_need_a_directory(self):
        self.serve()
        self.names("vol1/delta.cbm", "cbm")
        self.assertIn("--provider-files", self.fails(Code.FAILED_PRECONDITION, allocated=False))

    def test_that_end_without_an_end(self):
        self.serve("--provider-files", self.shared)
        self.answers(head(0, FILE, file=File(path="vol1/tue.img", format="image")))
        self.fails(Code.DATA_LOSS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], testRunner=runner.Runner)
