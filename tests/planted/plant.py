#!/usr/bin/env python3
"""Can every test fail? Plants the faults of faults.toml, one at a time: each must turn its test
red.

    tests/planted/plant.py [--only TEXT] [--check] [--jobs N]

Works in a copy of the tree, build/planted/source; yours stays untouched. The copy's build folder
has the same relative path as build/release and the same flags, so that a compiler cache recognises
what `make` has built. First every command must pass without a fault. Then each fault is planted,
what it touches is built, its command must fail (or run ten times as long), and the file is
restored. Exit status 1 if a command still passes, a fault does not build, or its place is not found
exactly once. --check only looks for the places and builds nothing.
"""

import argparse
import csv
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mutation"))
import tree  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("kernel", "property", "cursor", "faults", "memory", "scale", "cli", "interop", "rpc", "wire", "map", "threads", "source", "volume", "driver", "c", "python")
DISASTERS = range(1, 38)  # each has a fault; later ones may have one
with open(HERE.parent / "disasters" / "table.csv", newline="", encoding="utf-8") as table:
    ROWS = sum(1 for _ in csv.reader(table)) - 1
KEYS = {"name", "for", "file", "before", "after", "targets", "command"}


def read_table():
    """The faults, and the errors of the table itself."""
    faults = tomllib.loads((HERE / "faults.toml").read_text())["fault"]
    wrong = []
    names = set()
    covered = set()
    for fault in faults:
        name = fault.get("name", "(without a name)")
        if set(fault) != KEYS:
            wrong.append(f"{name}: has {sorted(fault)}, not {sorted(KEYS)}")
            continue
        if name in names:
            wrong.append(f"{name}: twice")
        names.add(name)
        covered |= set(fault["for"])
        for purpose in fault["for"]:
            if purpose not in range(1, ROWS + 1) and purpose not in KINDS:
                wrong.append(f"{name}: is for {purpose}, neither a disaster nor a kind of test")
        tree.check_place(fault, name, wrong)
    for purpose in (*DISASTERS, *KINDS):
        if purpose not in covered:
            wrong.append(f"no fault for {purpose}")
    return faults, wrong


class Copy:
    def __init__(self, jobs):
        self.source = tree.copy_tree(tree.ROOT / "build" / "planted" / "source")
        self.build_folder = self.source / "build" / "release"
        self.jobs = jobs
        tree.demand(["cmake", "-S", self.source, "-B", self.build_folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     "-DCBT_WERROR=ON", "-DCBT_BUILD_BENCH=OFF", "-DCBT_INSTALL=OFF",
                     "-DCBT_UNITY=OFF"])

    def build(self, targets):
        return tree.build(self.build_folder, self.jobs, targets)

    def test(self, command, seconds):
        """(None if green, else what failed; number of tests run)."""
        words = [word.format(tests=self.build_folder / "tests", bin=self.build_folder / "bin", build=self.build_folder,
                             source=self.source, python=sys.executable) for word in shlex.split(command)]
        environment = dict(os.environ, RC_PARAMS="max_success=60 seed=1", CBT_TEST_PAIRS="150", PYTHONDONTWRITEBYTECODE="1")
        try:
            done = tree.run(words, seconds, env=environment)
        except subprocess.TimeoutExpired:
            return "(ran too long)", 0
        ran = sum(int(number) for number in re.findall(r"\[  PASSED  \] (\d+) test|^Ran (\d+) test", done.stdout, re.M)
                  for number in number if number)
        if done.returncode == 0:
            return None, ran
        failed = re.search(r"^\[  FAILED  \] ([\w/.]+)|^(?:FAIL|ERROR): (\w+)", done.stdout, re.M)
        return (failed.group(1) or failed.group(2)) if failed else f"(ended with {done.returncode})", ran


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tree.add_arguments(parser)
    arguments = parser.parse_args()

    faults = tree.chosen(arguments, *read_table(), lambda fault: fault["name"])
    copy = Copy(arguments.jobs)
    targets = sorted({target for fault in faults for target in fault["targets"]})
    print(f"building {len(targets)} targets", flush=True)
    if (error := copy.build(targets)) is not None:
        sys.exit(f"plant: the copy does not build:\n{error}")
    limits = {}
    for command in dict.fromkeys(fault["command"] for fault in faults):
        begin = time.monotonic()
        red, ran = copy.test(command, 600)
        if red is not None:
            sys.exit(f"plant: red without any fault: {red} of {command}")
        if ran == 0:
            sys.exit(f"plant: runs no test: {command}")
        limits[command] = 10 * (time.monotonic() - begin) + 20

    planted, turned_red = 0, 0
    for fault in faults:
        begin = time.monotonic()
        with tree.Replacement(copy.source / fault["file"], fault["before"], fault["after"]):
            error = copy.build(fault["targets"])
            red = None if error is not None else copy.test(fault["command"], limits[fault["command"]])[0]
        purposes = ", ".join(map(str, fault["for"]))
        if error is not None:
            print(f"{fault['name']} (for {purposes}): DOES NOT BUILD\n{error}", flush=True)
            continue
        planted += 1
        turned_red += red is not None
        print(f"{fault['name']} (for {purposes}): {'STAYS GREEN' if red is None else 'red: ' + red}, "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    print(f"figure: r26_planted {planted}\nfigure: r26_turned_red {turned_red}")
    sys.exit(0 if turned_red == len(faults) else 1)


if __name__ == "__main__":
    main()
