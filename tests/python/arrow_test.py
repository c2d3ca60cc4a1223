"""Foreign readers of the Arrow stream: pyarrow, polars, DuckDB."""

import gc
import threading
import unittest

import duckdb
import numpy as np
import polars
import pyarrow
import runner

import cbt

BLOCK = 4096
BITS = np.random.default_rng(5).integers(0, 256, 50_000, np.uint8).tobytes()


def cursor_of():
    return cbt.Cursor.from_bitmap(BITS, len(BITS) * 8 * BLOCK, BLOCK)


EXPECTED = cursor_of().read_all()


class Failing:
    """Fails after some extents."""

    def __init__(self, error):
        self.error, self.place = error, 0

    def seek(self, offset):
        self.place = offset

    def next(self, _room):
        if self.place >= 1000 * BLOCK:
            raise self.error
        self.place += 2 * BLOCK
        return [self.place - 2 * BLOCK], [BLOCK], self.place

    def cursor(self):
        return cbt.Cursor.from_source(self, 1 << 40, BLOCK)


class Readers(unittest.TestCase):
    def same(self, offsets, lengths):
        self.assertTrue(np.array_equal(np.asarray(offsets), EXPECTED.offsets.view(np.uint64)))
        self.assertTrue(np.array_equal(np.asarray(lengths), EXPECTED.lengths.view(np.uint64)))

    def things(self):
        cursor = cursor_of()
        yield cursor.read_all()
        yield cbt.ChangeMap.from_cursor(cursor)
        yield cursor

    def test_pyarrow(self):
        for thing in self.things():
            table = pyarrow.table(thing)
            self.assertEqual(str(table.schema), "byte_offset: uint64 not null\nsize_bytes: uint64 not null")
            del thing
            gc.collect()
            self.same(table["byte_offset"], table["size_bytes"])
        reader = pyarrow.RecordBatchReader.from_stream(cursor_of())
        batches = list(reader)
        reader.close()
        self.assertGreater(len(batches), 1)
        del reader
        gc.collect()
        table = pyarrow.Table.from_batches(batches)
        self.same(table["byte_offset"], table["size_bytes"])

    def test_polars(self):
        for thing in self.things():
            frame = polars.DataFrame(thing)
            self.assertEqual(frame.schema, {"byte_offset": polars.UInt64, "size_bytes": polars.UInt64})
            self.same(frame["byte_offset"], frame["size_bytes"])

    def test_duckdb(self):
        for thing in self.things():
            if isinstance(thing, cbt.Cursor):
                # DuckDB asks for two streams: one for the schema.
                with self.assertRaises(duckdb.Error):
                    duckdb.sql("select * from thing").fetchall()
                thing = pyarrow.RecordBatchReader.from_stream(cursor_of())
            found = duckdb.sql("select * from thing").fetchnumpy()
            self.same(found["byte_offset"], found["size_bytes"])

    def test_blocks_past_the_end(self):
        cursor = cbt.Cursor.from_extents([0, 9000], [1, 1000], 10_000).to_blocks(BLOCK)
        expected = [(0, 4096), (8192, 4096)]
        for thing in (cursor.read_all(), cursor):
            table = pyarrow.table(thing)
            self.assertEqual(list(zip(table[0].to_pylist(), table[1].to_pylist(), strict=True)), expected)

    def test_nothing(self):
        for thing in (cbt.Cursor.from_extents([], [], 100), cbt.Cursor.from_extents([], [], 0).read_all()):
            self.assertEqual(pyarrow.table(thing).num_rows, 0)

    def test_a_failure_is_no_end(self):
        for error in (cbt.DataLossError("the disk is bad"), KeyError("x"), KeyboardInterrupt()):
            for read in (pyarrow.table, polars.DataFrame, lambda cursor: list(pyarrow.RecordBatchReader.from_stream(cursor))):
                with self.subTest(error=error, read=read), self.assertRaises(BaseException):
                    print(read(Failing(error).cursor()))
        with self.assertRaisesRegex(Exception, "the disk is bad"):
            pyarrow.table(Failing(cbt.DataLossError("the disk is bad")).cursor())
        # What an interrupted stream left behind does not reach the next call.
        self.assertEqual(len(cursor_of().read_all()), len(EXPECTED))

    def test_capsules_that_nobody_reads(self):
        released = threading.Event()

        class Watched(Failing):
            def __del__(self):
                released.set()

        capsule = Watched(cbt.AbortedError("x")).cursor().__arrow_c_stream__()
        del capsule
        gc.collect()
        self.assertTrue(released.is_set())

    def test_in_another_thread(self):
        tables = []
        capsules = [cursor_of() for _ in range(8)]
        threads = [threading.Thread(target=lambda cursor=cursor: tables.append(pyarrow.table(cursor))) for cursor in capsules]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for table in tables:
            self.same(table[0], table[1])
        self.assertEqual(len(tables), 8)


if __name__ == "__main__":
    unittest.main(testRunner=runner.Runner)
