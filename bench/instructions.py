"""Counts instructions of benchmark rows with callgrind, by library and by function.

  python3 bench/instructions.py build/release/bin [--functions N] [ROW...]

A row runs once and five times; a quarter of the difference is what one run takes, without start and
calibration. Valgrind runs user code only, one thread at a time, and knows no AVX-512: kernels and
OpenSSL choose AVX2. The C library copies large blocks by `rep movsb`, of which each byte counts. Default
rows are those whose targets are missed, each beside what it is compared with.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROWS = {
    "bench_tuples": ["decode/small/8192/cbt", "decode/small/8192/libprotobuf", "decode/small/8192/positions"],
    "bench_rpc": ["rpc/extents-unix/8192/cbt", "rpc/extents-unix-tls/8192/cbt", "relay/extents-unix/8192/direct",
                  "relay/extents-unix/8192/cbt", "relay/extents-unix/8192/unchecked"],
}
MORE = 5
# 1,234 ( 5.67%)  file:function [object]; the object is missing where it is that of the line before.
LINE = re.compile(r"^\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*?)(?: \[([^\]]*)\])?$")


def count(program, row, repetitions, folder):
    """Instructions of (object, function), and items of a repetition."""
    out = pathlib.Path(folder, "callgrind")
    ran = subprocess.run(
        ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", program, f"--benchmark_filter=^{row}(/|$)",
         "--benchmark_min_time=0.0001", f"--benchmark_repetitions={repetitions}", "--benchmark_format=json"],
        stdout=subprocess.PIPE, check=True)
    runs = [run for run in json.loads(ran.stdout)["benchmarks"] if run["run_type"] == "iteration"]
    if len(runs) != repetitions or any(run["iterations"] != 1 for run in runs):
        sys.exit(f"{row}: not {repetitions} runs of one iteration")
    shown = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=yes", out], stdout=subprocess.PIPE, check=True, text=True)
    costs = collections.Counter()
    for line in shown.stdout.splitlines():
        found = LINE.match(line)
        if found and found[2] != "PROGRAM TOTALS":
            function = found[2].split(":", 1)[1] if ":" in found[2] else found[2]
            costs[pathlib.PurePath(found[3] or "?").name, function] += int(found[1].replace(",", ""))
    run = runs[0]
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[run["time_unit"]]
    return costs, run["items_per_second"] * run["real_time"] * scale


def measure(program, row):
    with tempfile.TemporaryDirectory() as folder:
        once, items = count(program, row, 1, folder)
        often, _ = count(program, row, MORE, folder)
    return {key: (often[key] - once[key]) / (MORE - 1) for key in often}, items


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--functions", type=int, default=0, help="as many lines of functions for each row")
    options = parser.parse_args()
    print("| row | instructions an item | by library |\n| --- | --- | --- |")
    for program, rows in ROWS.items():
        for row in rows:
            if options.rows and row not in options.rows:
                continue
            costs, items = measure(options.bin / program, row)
            objects = collections.Counter()
            for (library, _), cost in costs.items():
                objects[library] += cost
            total = sum(objects.values())
            parts = ", ".join(f"{library.split('.so')[0]} {cost / items:.2f}" for library, cost in objects.most_common(6)
                              if cost > 0.01 * total)
            print(f"| `{row}` | {total / items:.2f} | {parts} |", flush=True)
            for (library, function), cost in sorted(costs.items(), key=lambda part: -part[1])[:options.functions]:
                print(f"    {cost / items:8.3f} {cost / total:6.1%} {library.split('.so')[0]}: {function[:120]}")


if __name__ == "__main__":
    main()
