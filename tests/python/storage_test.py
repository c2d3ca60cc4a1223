"""Maps, chains, trackers and sources, against sets of block numbers."""

import os
import pathlib
import pickle
import random
import tempfile
import threading
import unittest

import runner

import cbt

BLOCK = 4096
BLOCKS = 1000


def map_of(blocks, **names):
    builder = cbt.MapBuilder(BLOCKS * BLOCK, BLOCK)
    for block in random.Random(1).sample(sorted(blocks), len(blocks)):
        builder.add(block * BLOCK + 5, 1)
    return builder.build(**names)


def blocks_of(thing):
    cursor = thing.cursor() if isinstance(thing, cbt.ChangeMap) else thing
    return {block for offset, length in cursor.read_all() for block in range(offset // BLOCK, -(-(offset + length) // BLOCK))}


def some(seed, share=0.3):
    return {block for block in range(BLOCKS) if random.Random(f"{seed}-{block}").random() < share}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Maps(Folder):
    def test_what_was_added(self):
        blocks = some(1)
        made = map_of(blocks)
        self.assertEqual(blocks_of(made), blocks)
        self.assertEqual([block for block in range(BLOCKS + 5) if block in made], sorted(blocks))
        self.assertNotIn(-1, made)
        self.assertNotIn(1 << 70, made)
        self.assertEqual((made.blocks, made.bytes, made.geometry), (len(blocks), len(blocks) * BLOCK, (BLOCKS * BLOCK, BLOCK)))
        self.assertEqual(made.runs, len(made.cursor().read_all()))
        self.assertEqual(map_of(set()).bytes, 0)

    def test_algebra(self):
        a, b, c = some(1), some(2), some(3)
        x, y, z = map_of(a), map_of(b), map_of(c)
        self.assertEqual(blocks_of(x | y), a | b)
        self.assertEqual(blocks_of(x & y), a & b)
        self.assertEqual(blocks_of(x - y), a - b)
        self.assertEqual(blocks_of(x ^ y), a ^ b)
        self.assertEqual(blocks_of(cbt.ChangeMap.union(x, y, z)), a | b | c)
        self.assertEqual(x, map_of(a, volume="v"))
        self.assertNotEqual(x, y)
        self.assertNotEqual(x, a)
        with self.assertRaises(TypeError):
            hash(x)
        for operation in ("__or__", "__and__", "__sub__", "__xor__"):
            self.assertIs(getattr(x, operation)(a), NotImplemented)
        with self.assertRaises(cbt.InvalidArgumentError):
            cbt.ChangeMap.union()
        with self.assertRaises(cbt.InvalidArgumentError):
            _ = x & cbt.MapBuilder(7 * BLOCK, BLOCK).build()

    def test_another_geometry(self):
        made = map_of({3, 999}).with_geometry((BLOCKS + 10) * BLOCK, 2 * BLOCK)
        self.assertEqual(blocks_of(made), {2, 3, 998, 999} | set(range(BLOCKS, BLOCKS + 10)))

    def test_files(self):
        made = map_of(some(4), volume="vol", base="monday", target="tuesday")
        path = self.folder / "a.cbm"
        made.save(path)
        for other in (cbt.ChangeMap.load(path), cbt.ChangeMap.load(str(path)), cbt.ChangeMap.load(os.fsencode(path)),
                      cbt.ChangeMap.decode(made.encode()), pickle.loads(pickle.dumps(made))):
            self.assertEqual((other, other.volume, other.base, other.target), (made, "vol", "monday", "tuesday"))
        self.assertEqual(path.read_bytes(), made.encode())
        renamed = made.with_names("vol", "tuesday", "friday")
        self.assertEqual((renamed, renamed.target, made.target), (made, "friday", "tuesday"))
        data = bytearray(made.encode())
        data[len(data) // 2] ^= 1
        with self.assertRaises(cbt.DataLossError):
            cbt.ChangeMap.decode(data)
        path.write_bytes(data)
        with self.assertRaises(cbt.DataLossError):
            cbt.ChangeMap.load(path)
        with self.assertRaises(cbt.NotFoundError):
            cbt.ChangeMap.load(self.folder / "none")
        with self.assertRaises(cbt.NotFoundError):
            made.save(self.folder / "none/a.cbm")

    def test_roaring(self):
        made = map_of(some(5))
        for bits in (32, 64):
            data = made.to_portable(bits)
            for memory in (data, bytearray(data)):
                again = cbt.ChangeMap.from_portable(memory, *made.geometry, bits=bits)
                if isinstance(memory, bytearray):
                    memory[:] = bytes(len(memory))
                self.assertEqual(again, made)
        with self.assertRaises(cbt.DataLossError):
            cbt.ChangeMap.from_portable(b"\1\2\3", *made.geometry)

    def test_builders(self):
        builder = cbt.MapBuilder(BLOCKS * BLOCK, BLOCK)
        builder.add([0, 7 * BLOCK], [1, BLOCK + 1])
        with self.assertRaises(cbt.OutOfRangeError):
            builder.add(BLOCKS * BLOCK, 1)
        with self.assertRaises(ValueError):
            builder.add(-1, 1)
        self.assertEqual(blocks_of(builder.build()), {0, 7, 8})
        self.assertEqual(builder.build().blocks, 0)
        builder.close()
        with self.assertRaises(ValueError):
            builder.add(0, 1)
        with self.assertRaises(cbt.InvalidArgumentError):
            cbt.MapBuilder(BLOCK, 0)

    def test_of_a_cursor(self):
        cursor = map_of({1, 2, 500}).cursor()
        self.assertEqual(blocks_of(cbt.ChangeMap.from_cursor(cursor, 4 * BLOCK, volume="v")), {*range(4), *range(500, 504)})
        self.assertEqual(blocks_of(cursor), {1, 2, 500})

    def test_a_map_outlives_nothing_that_it_needs(self):
        cursor = map_of(some(6)).cursor()
        self.assertEqual(blocks_of(cursor), some(6))


class Chains(Folder):
    def test_a_history(self):
        steps = [some(seed, 0.05) for seed in range(6)]
        with cbt.Chain.create(self.folder / "c", "vol", "s0", BLOCKS * BLOCK, BLOCK, sync=False) as chain:
            for number, blocks in enumerate(steps):
                chain.append(map_of(blocks, volume="vol", base=f"s{number}", target=f"s{number + 1}"))
            with self.assertRaises(cbt.FailedPreconditionError):
                chain.append(map_of(set(), volume="vol", base="s2", target="s9"))
            with self.assertRaises(cbt.UnavailableError):
                cbt.Chain.open(self.folder / "c", change=True)
        with self.assertRaises(ValueError):
            chain.verify()
        with cbt.Chain.open(self.folder / "c") as chain:
            self.assertEqual(chain.snapshots, [(f"s{number}", BLOCKS * BLOCK, None) for number in range(7)])
            for base in range(7):
                for target in range(base, 7):
                    expected = set().union(*steps[base:target])
                    self.assertEqual(blocks_of(chain.delta(f"s{base}", f"s{target}")), expected)
            cursor = chain.delta("s0", "s6")
            chain.verify()
            with self.assertRaises(cbt.NotFoundError):
                chain.delta("s0", "none")
        self.assertEqual(blocks_of(cursor), set().union(*steps))
        with cbt.Chain.open(self.folder / "c", change=True) as chain:
            chain.remove("s3")
            self.assertEqual(len(chain.snapshots), 6)
            self.assertEqual(blocks_of(chain.delta("s2", "s4")), steps[2] | steps[3])
        with self.assertRaises(cbt.AlreadyExistsError):
            cbt.Chain.create(self.folder / "c", "vol", "s0", BLOCK, BLOCK)
        with self.assertRaises(cbt.NotFoundError):
            cbt.Chain.open(self.folder / "none")

    def test_times(self):
        taken = 1764201600000000007
        with cbt.Chain.create(self.folder / "c", "vol", "s0", BLOCKS * BLOCK, BLOCK, time=-1) as chain:
            chain.append(map_of({1}, volume="vol", base="s0", target="s1"), time=taken)
            chain.append(map_of({2}, volume="vol", base="s1", target="s2"))
            with self.assertRaises(OverflowError):
                chain.append(map_of({2}, volume="vol", base="s2", target="s3"), time=2**63)
        with cbt.Chain.open(self.folder / "c") as chain:
            self.assertEqual([snapshot.time for snapshot in chain.snapshots], [-1, taken, None])

    def test_threads(self):
        with cbt.Chain.create(self.folder / "c", "vol", "s0", BLOCKS * BLOCK, BLOCK, sync=False) as chain:
            chain.append(map_of({1}, volume="vol", base="s0", target="s1"))
            wrong = []

            def read():
                for _ in range(100):
                    if blocks_of(chain.delta("s0", "s1")) != {1} or chain.snapshots[0].id != "s0":
                        wrong.append(True)

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for number in range(1, 20):
                chain.append(map_of({number}, volume="vol", base=f"s{number}", target=f"s{number + 1}"))
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


class Trackers(Folder):
    def tracker(self, name=None, make=cbt.Tracker.create):
        return make("vol", "monday", BLOCKS * BLOCK, BLOCK, directory=name and self.folder / name)

    def test_a_snapshot(self):
        for name in (None, "t"):
            with self.tracker(name) as tracker:
                with tracker.writing(0, 1):
                    pass
                tracker.mark([5 * BLOCK, 9 * BLOCK], [BLOCK, 2 * BLOCK])
                self.assertEqual(blocks_of(tracker.changes()), {0, 5, 9, 10})
                write = tracker.writing(20 * BLOCK, 1)
                tracker.open_epoch("tuesday")
                tracker.mark(30 * BLOCK, 1)
                self.assertEqual([epoch.base for epoch in tracker.epochs], ["monday", "tuesday"])
                made = tracker.close_epoch()
                write.end()
                write.end()
                self.assertEqual(blocks_of(made), {0, 5, 9, 10, 20, 30})
                self.assertEqual((made.volume, made.base, made.target), ("vol", "monday", "tuesday"))
                self.assertTrue(tracker.epochs[0].closed)
                tracker.acknowledge(made)
                # A write that was in flight counts on both sides.
                self.assertEqual(blocks_of(tracker.changes()), {20, 30})
                with self.assertRaises(cbt.OutOfRangeError):
                    tracker.writing(BLOCKS * BLOCK, 1)
                with self.assertRaises(cbt.FailedPreconditionError):
                    tracker.cancel_epoch()
                tracker.checkpoint() if name else None
            for call in (tracker.changes, lambda: tracker.writing(0, 1), tracker.checkpoint, tracker.__enter__):
                with self.assertRaises(ValueError):
                    call()

    def test_recovery(self):
        tracker = self.tracker("t")
        tracker.mark(3 * BLOCK, 1)
        with self.assertRaises(cbt.UnavailableError):
            self.tracker("t", cbt.Tracker.recover)
        tracker.close()
        tracker.close()
        with self.tracker("t", cbt.Tracker.recover) as again:
            self.assertEqual(blocks_of(again.changes()), {3})
            self.assertEqual(again.epochs, [("monday", False, True)])
        with self.assertRaises(cbt.AlreadyExistsError):
            self.tracker("t")

    def test_a_write_without_an_end_is_reported_again(self):
        with self.assertWarnsRegex(ResourceWarning, "in flight from now on"):
            tracker = self.tracker()
            tracker.writing(7 * BLOCK, 1)
        for name in ("tuesday", "friday"):
            tracker.open_epoch(name)
            made = tracker.close_epoch()
            self.assertEqual(blocks_of(made), {7})
            tracker.acknowledge(made)
        self.assertEqual(blocks_of(tracker.changes()), {7})

    def test_a_write_that_outlives_its_tracker(self):
        tracker = self.tracker("t")
        write = tracker.writing(0, 1)
        tracker.close()
        del tracker
        write.end()

    def test_threads(self):
        with self.tracker() as tracker:
            def mark(first):
                for block in range(first, BLOCKS, 8):
                    with tracker.writing(block * BLOCK, 1):
                        tracker.mark(block * BLOCK, 1)

            threads = [threading.Thread(target=mark, args=[first]) for first in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(tracker.changes().blocks, BLOCKS)


class Sources(Folder):
    def test_images(self):
        base, target = (self.folder / name for name in ("base.img", "target.img"))
        base.write_bytes(bytes(100 * BLOCK))
        with open(target, "wb") as file:
            file.truncate(100 * BLOCK)
            for block in (3, 4, 80):
                file.seek(block * BLOCK + 9)
                file.write(b"x")
        with cbt.open_source(target, "image", base=base) as cursor:
            self.assertEqual(list(cursor.read_all()), [(3 * BLOCK, 2 * BLOCK), (80 * BLOCK, BLOCK)])
        self.assertEqual(list(cbt.open_source(str(target), "image", base=str(base), block_size=2 * BLOCK).read_all()),
                         [(2 * BLOCK, 4 * BLOCK), (80 * BLOCK, 2 * BLOCK)])

    def test_maps(self):
        map_of({1, 5}, volume="v", base="a", target="b").save(self.folder / "a.cbm")
        self.assertEqual(blocks_of(cbt.open_source(self.folder / "a.cbm", "cbm", purpose="delta")), {1, 5})

    def test_limits(self):
        for limit in (0, -1, float("nan"), 1e30):
            with self.assertRaises(ValueError):
                cbt.open_source("x", "image", time_limit=limit)


if __name__ == "__main__":
    unittest.main(testRunner=runner.Runner)
