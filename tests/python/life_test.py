"""The disasters that a border between languages brings: use after close, the end of the interpreter, threads,
fork."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import warnings

import runner
from volumes import BLOCK, EXTENTS, Case, Source, bitmap, cursor_of, extents_of, oracle

import cbt


class Life(Case):
    def test_use_after_close(self):
        closed, taken, exported = cursor_of(), cursor_of(), cursor_of()
        closed.close()
        closed.close()
        taken.coalesce(0)
        exported.__arrow_c_stream__()
        for cursor in (closed, taken, exported):
            self.assertTrue(cursor.closed)
            for method in (cursor.__iter__, cursor.read_all, cursor.__arrow_c_stream__, cursor.__enter__,
                           lambda cursor=cursor: cursor.clip(0, 1), lambda cursor=cursor: cursor_of().union(cursor),
                           lambda cursor=cursor: cbt.ChangeMap.from_cursor(cursor)):
                with self.assertRaisesRegex(ValueError, "closed"):
                    method()
        cursor = cursor_of()
        loop = cursor.batches(size=10)
        next(loop)
        cursor.close()
        for _ in range(2):
            with self.assertRaises(ValueError):
                next(loop)

    def test_a_failed_combination_takes_nothing_from_others(self):
        cursor, closed = cursor_of(), cursor_of()
        closed.close()
        for combine in (lambda: cursor.union(cursor), lambda: cursor.intersect(cursor), lambda: cursor.subtract(closed)):
            with self.assertRaises(ValueError):
                combine()
            self.same(extents_of(cursor), EXTENTS)
        with self.assertRaises(cbt.InvalidArgumentError):
            cursor.split(1)
        self.assertTrue(cursor.closed)

    def test_no_copies(self):
        things = [cursor_of(), cbt.MapBuilder(BLOCK, BLOCK), cbt.Tracker.create("v", "a", BLOCK, BLOCK), cbt.Checker()]
        for thing in things:
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises(TypeError):
                    make(thing)

    def test_the_end_of_the_interpreter(self):
        program = """
import sys, threading, cbt, volumes
keep = volumes.Source().cursor()
loop = keep.batches(size=3)
next(loop)
keep.abandon()
keep.loop = loop
service = cbt.Service(object())
sys.modules['kept'] = [volumes.Source().cursor().coalesce(1), service, cbt.Tracker.create('v', 'a', 4096, 4096).writing(0, 1)]
capsule = volumes.Source().cursor().__arrow_c_stream__()
threading.Thread(target=lambda: [volumes.cursor_of().read_all() for _ in range(100)], daemon=True).start()
"""
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Threads(Case):
    def test_one_cursor(self):
        cursor, answers, refused, wrong = cursor_of(), [], [], []

        def read():
            for _ in range(50):
                try:
                    answers.append(extents_of(cursor.batches(size=1000)) == EXTENTS)
                except cbt.FailedPreconditionError as error:
                    refused.append(error)
                except BaseException as error:
                    wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertTrue(all(answers))
        self.assertEqual(len(answers) + len(refused), 200)

    def test_one_loop(self):
        # Each batch goes to one thread, and stays what it was.
        loop, batches, wrong, ended = cursor_of().batches(size=16), [], [], []

        def read():
            while not ended:
                try:
                    batches.append(next(loop))
                except StopIteration:
                    ended.append(True)
                except cbt.FailedPreconditionError:
                    time.sleep(0)
                except BaseException as error:
                    wrong.append(error)
                    ended.append(True)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.same(sorted(extents_of(batches)), EXTENTS)

    def test_cursors_of_their_own(self):
        wrong = []

        def read(seed):
            bits = bitmap(20_000, seed)
            expected = oracle(bits)
            for _ in range(20):
                if extents_of(cursor_of(bits).batches(size=seed + 1)) != expected:
                    wrong.append(seed)
                if len(Source().cursor().read_all()) != 5000:
                    wrong.append(seed)

        threads = [threading.Thread(target=read, args=[seed]) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_close_in_another_thread(self):
        entered, go_on = threading.Event(), threading.Event()

        def wait(_room):
            entered.set()
            go_on.wait(30)
            raise cbt.AbortedError("waited")

        source = Source({1: wait})
        cursor, caught = source.cursor(), []

        def read():
            try:
                cursor.read_all()
            except cbt.AbortedError as error:
                caught.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        entered.wait(30)
        with self.assertRaises(cbt.FailedPreconditionError):
            cursor.read_all()
        cursor.close()
        gc.collect()
        go_on.set()
        thread.join()
        self.assertEqual(len(caught), 1)

    def test_calls_leave_the_interpreter_to_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.csv")
            os.mkfifo(path)
            opened = []

            def read():
                try:
                    opened.append(list(cbt.open_source(path, "csv", capacity=1 << 20, purpose="delta").read_all()))
                except cbt.Error as error:
                    opened.append(error)

            # It blocks until there is a writer, and this thread has to run for that.
            thread = threading.Thread(target=read)
            thread.start()
            time.sleep(0.1)
            with open(path, "w", encoding="utf-8") as file:
                file.write("byte_offset,size_bytes\n0,4096\n")
            thread.join(30)
            self.assertFalse(thread.is_alive())
            self.assertEqual(len(opened), 1)


class Names(Case):
    def test_users_see_what_they_import(self):
        with self.assertRaises(cbt.NotFoundError) as caught:
            cbt.open_source("none.img", "image")
        shown = traceback.format_exception_only(caught.exception)
        self.assertTrue(shown[0].startswith("cbt.NotFoundError: none.img: "), shown)
        self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))), str(caught.exception))


class Fork(Case):
    def in_child(self, body):
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 1
            try:
                body()
                status = 0
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_cursors_go_on_in_both(self):
        cursor = cursor_of()
        loop = cursor.batches(size=100)
        first = list(next(loop))

        def body():
            assert first + extents_of(loop) == EXTENTS
            gc.collect()

        self.in_child(body)
        self.same(first + extents_of(loop), EXTENTS)

    def test_a_tracker_and_a_chain_belong_to_their_process(self):
        with tempfile.TemporaryDirectory() as folder:
            tracker = cbt.Tracker.create("v", "monday", 100 * BLOCK, BLOCK, directory=f"{folder}/t")
            chain = cbt.Chain.create(f"{folder}/c", "v", "monday", 100 * BLOCK, BLOCK)
            write = tracker.writing(0, BLOCK)

            def body():
                for call in (lambda: tracker.mark(0, 1), lambda: tracker.writing(0, 1), tracker.changes,
                             tracker.checkpoint, lambda: chain.remove("monday"), chain.verify):
                    try:
                        call()
                    except cbt.FailedPreconditionError:
                        continue
                    raise AssertionError(call)
                write.end()
                gc.collect()

            self.in_child(body)
            tracker.mark(50 * BLOCK, BLOCK)
            self.assertEqual(tracker.changes().blocks, 2)
            write.end()
            tracker.close()
            chain.verify()

    def test_fork_during_a_call(self):
        entered, go_on = threading.Event(), threading.Event()

        def wait(_room):
            entered.set()
            go_on.wait(30)
            raise cbt.AbortedError("waited")

        cursor = Source({1: wait}).cursor()
        thread = threading.Thread(target=lambda: self.assertRaises(cbt.AbortedError, cursor.read_all))
        thread.start()
        entered.wait(30)

        def body():
            try:
                cursor.read_all()
            except cbt.FailedPreconditionError:
                pass
            else:
                raise AssertionError("read in a child, while a call of the parent runs")
            assert extents_of(cursor_of()) == EXTENTS

        self.in_child(body)
        go_on.set()
        thread.join()


if __name__ == "__main__":
    unittest.main(testRunner=runner.Runner)
