"""The disasters that a border between languages brings: loops that end early, callbacks that raise or answer
wrongly, interrupts, memory that moves."""

import array
import contextlib
import copy
import gc
import mmap
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import numpy as np
import runner
from volumes import BITS, BLOCK, EXTENTS, Case, Source, bitmap, cursor_of, extents_of, raising

import cbt


class Loops(Case):
    def test_every_loop_is_the_whole_answer(self):
        cursor = cursor_of()
        self.same(extents_of(cursor), EXTENTS)
        self.same(extents_of(cursor), EXTENTS)
        self.same(extents_of(cursor.batches(size=7)), EXTENTS)
        self.same(list(cursor.read_all()), EXTENTS)
        self.assertEqual(cursor.read_all().bytes, sum(length for _, length in EXTENTS))

    def test_batches_keep_their_arrays(self):
        kept = [(batch, batch.offsets[1:3]) for batch in cursor_of().batches(size=64)]
        self.same(extents_of(batch for batch, _ in kept), EXTENTS)
        for batch, part in kept:
            self.assertEqual(part.tolist(), batch.offsets.tolist()[1:3])

    def test_a_part_of_an_array_keeps_its_memory(self):
        parts, expected = [], []
        for batch in cursor_of().batches(size=64):
            parts.append(memoryview(batch.lengths[::2]) if len(parts) % 2 else batch.lengths[2:])
            expected.append(batch.lengths[::2].tolist() if len(parts) % 2 == 0 else batch.lengths[2:].tolist())
        self.same([part.tolist() for part in parts], expected)

    def test_memory_is_used_again_once_no_one_sees_it(self):
        addresses = {batch.offsets.ctypes.data for batch in cursor_of().batches(size=64)}
        self.assertLessEqual(len(addresses), 2)

    def test_a_loop_that_ends_early_is_an_error_of_its_block(self):
        with self.assertRaisesRegex(cbt.IncompleteError, "abandon"):
            with cursor_of() as cursor:
                for _ in cursor.batches(size=5):
                    break
        with cursor_of() as cursor:
            next(iter(cursor.batches(size=5)))
            cursor.abandon()
        with self.assertRaises(ZeroDivisionError), cursor_of() as cursor:
            for _ in cursor.batches(size=5):
                _ = 1 / 0
        with cursor_of() as cursor:
            for _ in cursor.batches(size=5):
                break
            self.same(extents_of(cursor), EXTENTS)

    def test_a_cursor_that_is_dropped_early_warns(self):
        with self.assertWarnsRegex(ResourceWarning, "before its answer was complete"):
            next(iter(cursor_of().batches(size=5)))
            gc.collect()

    def test_an_older_loop_has_no_answer(self):
        cursor = cursor_of()
        first = cursor.batches(size=5)
        next(first)
        self.same(extents_of(cursor), EXTENTS)
        for _ in range(2):
            with self.assertRaisesRegex(cbt.FailedPreconditionError, "another loop"):
                next(first)
        other = cursor.batches(size=5)
        next(other)
        cbt.ChangeMap.from_cursor(cursor)
        with self.assertRaises(cbt.FailedPreconditionError):
            next(other)

    def test_arithmetic_stays_exact(self):
        end = (1 << 63) - 1
        found = list(cbt.Cursor.from_extents([end - 3], [3], end))[0]
        self.assertEqual(found.offsets.dtype, np.int64)
        self.assertEqual(int((found.offsets - np.arange(1))[0]), end - 3)
        self.assertEqual(list(found), [(end - 3, 3)])

    def test_out_of_range(self):
        cursor = cursor_of()
        for start in (-1, 1 << 64):
            with self.assertRaises(ValueError):
                cursor.batches(start)
        with self.assertRaises(cbt.OutOfRangeError):
            cursor.batches(cursor.capacity + 1)
        for size in (0, -1, 1 << 30):
            with self.assertRaises(ValueError):
                cursor.batches(size=size)
        self.assertEqual(extents_of(cursor.batches(cursor.capacity)), [])


class Callbacks(Case):
    def test_a_source_of_ones_own(self):
        source = Source()
        self.same(extents_of(source.cursor()), source.expected())
        self.same(extents_of(source.cursor().batches(100 * BLOCK)), source.expected()[50:])
        self.assertEqual(extents_of(source.cursor().to_blocks(2 * BLOCK))[-1], ((source.blocks - 2) * BLOCK, 2 * BLOCK))

    def test_an_error_keeps_its_code_and_never_looks_like_the_end(self):
        for call in (1, 2, 40):
            source = Source({call: raising(cbt.UnavailableError("the array does not answer"))})
            cursor, found = source.cursor(), []
            loop = cursor.batches(size=64)
            with self.assertRaisesRegex(cbt.UnavailableError, "does not answer") as caught:
                for batch in loop:
                    found += batch
            self.same(found, source.expected()[:len(found)])
            for _ in range(3):
                with self.assertRaises(cbt.UnavailableError) as again:
                    next(loop)
                self.assertIs(again.exception, caught.exception)
            # The storage answers again.
            self.same(extents_of(cursor), source.expected())

    def test_other_exceptions_are_internal_and_not_shown(self):
        for depth in (0, 1):
            cursor = Source({1: raising(KeyError("a secret"))}).cursor()
            for _ in range(depth):
                cursor = cursor.coalesce(0)
            with self.assertLogs("cbt"), self.assertRaises(cbt.InternalError) as caught:
                cursor.read_all()
            self.assertNotIn("secret", str(caught.exception))
            self.assertIn("KeyError", str(caught.exception))
            self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_wrong_answers(self):
        answers = {
            "overlap": ([0, BLOCK], [2 * BLOCK, BLOCK], 4 * BLOCK),
            "past the coverage": ([0], [2 * BLOCK], BLOCK),
            "past the end": ([0], [BLOCK], 1 << 40),
            "backwards": ([4 * BLOCK, 0], [BLOCK, BLOCK], 8 * BLOCK),
            "empty": ([0], [0], BLOCK),
            "negative": ([-BLOCK], [BLOCK], BLOCK),
            "negative coverage": ([], [], -1),
            "floats": ([0.0], [4096.0], BLOCK),
            "texts": ("a", "b", BLOCK),
            "two numbers": ([0], [BLOCK]),
            "nothing": None,
            "unequal": ([0, BLOCK], [BLOCK], 2 * BLOCK),
            "a table": ([[0]], [[BLOCK]], BLOCK),
            "coverage of a text": ([], [], "all"),
        }
        with self.assertLogs("cbt"):
            for name, answer in answers.items():
                with self.subTest(name), self.assertRaises(cbt.InternalError):
                    Source({1: lambda _room, answer=answer: answer}).cursor().read_all()
            with self.assertRaises(cbt.InternalError):
                Source({1: lambda room: (np.arange(room + 1) * BLOCK, np.full(room + 1, 1), BLOCK)}).cursor().read_all()

    def test_no_methods(self):
        with self.assertLogs("cbt"), self.assertRaises(cbt.InternalError):
            cbt.Cursor.from_source(object(), 10 * BLOCK, BLOCK).read_all()

    def test_interrupts_stay_interrupts(self):
        for call in (1, 2, 3):
            for error in (KeyboardInterrupt, SystemExit):
                loop = Source({call: raising(error())}).cursor().batches(size=100)
                with self.assertRaises(error):
                    for _ in loop:
                        pass
                with self.assertRaises(error):
                    next(loop)

    def test_a_real_interrupt(self):
        def interrupt(_room):
            signal.raise_signal(signal.SIGINT)
            time.sleep(10)

        with self.assertRaises(KeyboardInterrupt):
            Source({2: interrupt}).cursor().read_all()

    def test_an_interrupt_between_calls(self):
        cursor = cursor_of(bitmap(4_000_000))
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            while True:
                extents_of(cursor.batches(size=3))
        timer.join()
        self.same(list(cursor.read_all()), extents_of(cursor))

    def test_a_callback_that_uses_its_own_cursor(self):
        cursor = None

        def use(_room):
            for method in (cursor.read_all, cursor.__iter__, lambda: cursor.coalesce(1), cursor.__arrow_c_stream__):
                with self.assertRaisesRegex(cbt.FailedPreconditionError, "in use"):
                    method()
            cursor.close()
            raise cbt.AbortedError("closed")

        cursor = Source({1: use}).cursor()
        with self.assertRaises(cbt.AbortedError):
            cursor.read_all()
        with self.assertRaises(ValueError):
            cursor.read_all()

    def test_the_source_lives_as_long_as_the_cursor(self):
        gone = []

        class Watched(Source):
            def __del__(self):
                gone.append(True)

        cursor = Watched().cursor().coalesce(BLOCK)
        gc.collect()
        self.assertEqual(len(cursor.read_all()), 1)
        self.assertEqual(gone, [])
        cursor.close()
        gc.collect()
        self.assertEqual(gone, [True])

    def test_a_source_that_never_gets_on(self):
        # Nothing but an interrupt ends it.
        def interrupt(_signal, _frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            source = Source()
            source.next = lambda _room: ([], [], 0)
            cursor = source.cursor()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with contextlib.suppress(KeyboardInterrupt, cbt.InternalError):
                self.assertIsNone(cursor.read_all())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Memory(Case):
    def test_memory_that_can_change_is_copied(self):
        bits = bytearray(BITS)
        cursor = cursor_of(bits)
        bits[:] = bytes(len(bits))
        bits.clear()
        self.same(extents_of(cursor), EXTENTS)

    def test_views_that_only_look_constant(self):
        bits = bytearray(BITS)
        array_of = np.frombuffer(bits, np.uint8)
        constant = array_of[:]
        constant.flags.writeable = False
        view = memoryview(bits).toreadonly()
        cursors = [cursor_of(view), cursor_of(constant), cursor_of(memoryview(constant)),
                   cursor_of(np.frombuffer(view, np.uint8)), cursor_of(np.asarray(view)[:]),
                   cursor_of(memoryview(np.asarray(memoryview(constant))))]
        bits[:] = bytes(len(bits))
        for cursor in cursors:
            self.same(extents_of(cursor), EXTENTS)

    def test_memory_that_is_kept_can_not_move(self):
        bits = bytearray(BITS)
        cursor = cursor_of(bits, copy=False)
        for change in (bits.clear, lambda: bits.extend(b"x"), lambda: bits.__delitem__(0)):
            with self.assertRaises(BufferError):
                change()
        made = cursor.coalesce(0)
        with self.assertRaises(BufferError):
            bits.clear()
        self.assertEqual(len(extents_of(made)), len(EXTENTS))
        del cursor, made
        gc.collect()
        bits.clear()

    def test_maps_of_files(self):
        with tempfile.TemporaryFile() as file:
            file.write(BITS)
            file.flush()
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            cursor = cursor_of(view)
            with self.assertRaises(BufferError):
                view.close()
            self.same(extents_of(cursor), EXTENTS)
            cursor.close()
            view.close()

    def test_memory_without_another_reference(self):
        cursors = [cursor_of(bytes(BITS)), cursor_of(memoryview(bytes(BITS))[:]), cursor_of(np.frombuffer(BITS, np.uint32)),
                   cursor_of(array.array("B", BITS), copy=False)]
        gc.collect()
        for cursor in cursors:
            self.same(extents_of(cursor), EXTENTS)

    def test_memory_that_is_no_bitmap(self):
        with self.assertRaisesRegex(ValueError, "contiguous"):
            cursor_of(np.zeros((64, 2), np.uint8)[:, 0])
        with self.assertRaises(TypeError):
            cbt.Cursor.from_bitmap("text", BLOCK, BLOCK)
        view = memoryview(BITS)
        view.release()
        with self.assertRaises(ValueError):
            cbt.Cursor.from_bitmap(view, BLOCK, BLOCK)
        with self.assertRaises(cbt.InvalidArgumentError):
            cbt.Cursor.from_bitmap(b"", BLOCK, BLOCK)
        self.assertEqual(extents_of(cbt.Cursor.from_bitmap(b"", 0, BLOCK)), [])

    def test_two_memories(self):
        before, after = bytearray(10 * BLOCK), bytearray(10 * BLOCK)
        after[3 * BLOCK] = after[9 * BLOCK] = 1
        self.assertEqual(extents_of(cbt.Cursor.from_memory_delta(before, after)), [(3 * BLOCK, BLOCK), (9 * BLOCK, BLOCK)])
        self.assertEqual(extents_of(cbt.Cursor.from_memory(after, copy=False)), [(3 * BLOCK, BLOCK), (9 * BLOCK, BLOCK)])

    def test_lists_of_extents(self):
        make = cbt.Cursor.from_extents
        for numbers in ([0, 8], (0, 8), np.array([0, 8]), np.array([0, 8], np.uint8), np.array([0, 8], ">u4"),
                        np.arange(0, 16, 8), np.array([0, 1, 8, 1], np.uint64)[::2], range(0, 16, 8)):
            self.assertEqual(extents_of(make(numbers, [4, 4], 100)), [(0, 4), (8, 4)])
        for numbers, error in (([-1, 8], ValueError), ([0.0, 8.0], TypeError), ([[0, 8]], ValueError), ([0], ValueError),
                               ([True, False], TypeError), ([0, 1 << 64], TypeError), (["0", "8"], TypeError)):
            with self.subTest(numbers), self.assertRaises(error):
                make(numbers, [4, 4], 100)
        for capacity in (-1, 1 << 64):
            with self.assertRaises(ValueError):
                make([], [], capacity)
        with self.assertRaises(TypeError):
            make([], [], 1.5)


class Errors(Case):
    def test_every_code_has_a_class(self):
        for code in cbt.Code:
            if code == cbt.Code.OK:
                continue
            name = "".join(word.capitalize() for word in code.name.split("_")) + "Error"
            kind = getattr(cbt, name)
            self.assertEqual(kind.code, code)
            # And passes through the engine.
            with self.assertRaisesRegex(kind, "as it was said"):
                Source({1: raising(kind("as it was said"))}).cursor().coalesce(0).read_all()

    def test_messages_name_the_thing(self):
        with self.assertRaisesRegex(cbt.NotFoundError, "/no/such/file"):
            cbt.open_source("/no/such/file", "image")
        with self.assertRaisesRegex(ValueError, "purpose"):
            cbt.open_source("x", "image", purpose="all")
        with self.assertRaises(cbt.InvalidArgumentError):
            cbt.open_source("x", "no-such-format")
        with self.assertRaisesRegex(ValueError, "NUL"):
            cbt.open_source("a\0b", "image")
        with self.assertRaisesRegex(ValueError, "NUL"):
            cbt.open_source("a", "im\0age")
        with self.assertRaises(TypeError):
            cbt.open_source(7, "image")

    def test_the_extension_declares_every_function(self):
        from cbt._native import lib

        header = pathlib.Path(__file__).resolve().parents[2] / "include/cbt/c/have.h"
        names = [line.split()[1].removeprefix("CBT_HAVE_") for line in header.read_text().splitlines()
                 if line.startswith("#define CBT_HAVE_cbt_")]
        self.assertGreater(len(names), 90)
        self.assertEqual([name for name in names if not hasattr(lib, name)], [])


if __name__ == "__main__":
    unittest.main(testRunner=runner.Runner)
