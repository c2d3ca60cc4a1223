#!/usr/bin/env python3
"""What the border to Python costs: ten million and more tuples of a bitmap, an eighth of whose bits are
set at random, read by Python and by C++ in turns, and single calls.

    bench/python/border.py BENCH_BORDER [--rounds N] [--most RATIO]

BENCH_BORDER is build/release/bin/bench_border, which measures C++. The ratio is the median of those of
all rounds; the run fails where it is above --most. `make bench-python` runs it.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

import cbt
from cbt._native import lib

BLOCK = 4096
BYTES = 16 << 20


def cpp(program):
    """ns for each tuple, with batches of 65,536."""
    done = subprocess.run([program, "--benchmark_filter=border/batches/.*/cpp", "--benchmark_format=json",
                           "--benchmark_min_time=0.2"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True)
    row, = json.loads(done.stdout)["benchmarks"]
    return 1e9 / row["items_per_second"]


def python(cursor):
    """(ns for each tuple, tuples, the sum of their lengths)"""
    count = total = 0
    # Time of the processor, as in the other program: others may use the machine.
    start = time.process_time()
    for batch in cursor:
        total += int(batch.lengths.sum())
        count += len(batch)
    return (time.process_time() - start) * 1e9 / count, count, total


def each(body, times):
    start = time.process_time()
    for _ in range(times):
        body()
    return (time.process_time() - start) * 1e9 / times


def nothing():
    """What a call of Python's own costs."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--most", type=float, default=1.3)
    arguments = parser.parse_args()
    random = np.random.default_rng(7)
    words = [random.integers(0, 256, BYTES, np.uint8) for _ in range(3)]
    bits = (words[0] & words[1] & words[2]).tobytes()
    blocks = int(np.unpackbits(np.frombuffer(bits, np.uint8)).sum(dtype=np.int64))
    cursor = cbt.Cursor.from_bitmap(bits, BYTES * 8 * BLOCK, BLOCK)
    ratios, ours, theirs = [], [], []
    for _ in range(arguments.rounds):
        ns, count, total = python(cursor)
        if total != blocks * BLOCK:
            sys.exit(f"border: {total} bytes were read, expected {blocks * BLOCK}")
        ours.append(ns)
        theirs.append(cpp(arguments.program))
        ratios.append(ours[-1] / theirs[-1])
    print(f"{platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}, {cbt.simd_level()}, "
          f"{count} tuples, {arguments.rounds} rounds")
    for name, values in (("Python, ns a tuple", ours), ("C++, ns a tuple", theirs), ("ratio", ratios)):
        print(f"{name:<36} min {min(values):.2f}  median {statistics.median(values):.2f}  max {max(values):.2f}")
    handle = cursor._handle
    loop = cursor.batches(size=1)
    rows = (("an empty function of Python", nothing), ("a call: cbt_cursor_covered()", lambda: lib.cbt_cursor_covered(handle)),
            ("a batch of one tuple", lambda: next(loop)))
    for name, body in rows:
        found = [each(body, 100_000) for _ in range(5)]
        print(f"{name:<36} min {min(found):.0f} ns  median {statistics.median(found):.0f} ns")
    cursor.abandon()
    ratio = statistics.median(ratios)
    if ratio > arguments.most:
        sys.exit(f"border: Python takes {ratio:.2f} times as long as C++, more than {arguments.most}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
