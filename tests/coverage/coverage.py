#!/usr/bin/env python3
"""Which lines and branches of the library do the tests reach?

    tests/coverage/coverage.py TREE [--uncovered FOLDER] [--jobs N] [--keep]

TREE is a built tree of the preset `coverage` (clang's source-based coverage). Runs its tests,
except those of the sources or of an installed library, then prints a line per folder of src/ and
programs/, and the figures of core, adapters, decoders and cursors. The implicit branch past a `switch` over every
value does not count. --uncovered lists the places of that folder that no test reaches; --keep reads
the previous run's profile instead of running the tests.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("src", "programs", "include")
LEFT_OUT = "lint|consumer|demo"
CORE = ("core", "map", "simd", "wire")
ADAPTERS = ("net", "rpc", "ops")
# Code that parses untrusted bytes, and code that answers.
DECODERS_AND_CURSORS = ("core/bitmap_cursor", "core/extent_cursor", "core/memory_cursor", "core/requested_cursor",
                        "map/portable_", "map/map_cursor", "map/container", "map/map_file", "wire/proto_reader",
                        "wire/stream_checker")


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL, **options)


def programs(tree):
    """Every program of the tree that tests may start, tests and tools alike."""
    found = []
    for folder in ("bin", "tests"):
        for path in sorted((tree / folder).rglob("*")):
            if path.is_file() and os.access(path, os.X_OK):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        found.append(path)
    return found


def past_switches(file):
    """The number of untaken branches that lead past a switch without a default. Such a switch names
    every value (-Wswitch), so there is no way past it, but llvm-cov counts one.
    """
    lines = pathlib.Path(file["filename"]).read_text().split("\n")
    places = {(line, column) for line, column, _, _, taken, *_ in file["branches"] if taken == 0}
    return sum(lines[line - 1][:column - 1].endswith("switch (") for line, column in places)


def percent(share):
    covered, count = share
    return 100 * covered / count if count else 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--uncovered", metavar="FOLDER")
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    tree = options.tree.resolve()
    profile = tree / "tests.profdata"

    if not (options.keep and profile.exists()):
        raw = tree / "profiles"
        for old in raw.glob("*.profraw"):
            old.unlink()
        # A few files that processes merge into, instead of one per process.
        environment = dict(os.environ, LLVM_PROFILE_FILE=str(raw / "%4m.profraw"))
        tests = subprocess.run(["ctest", "--test-dir", str(tree), "--parallel", options.jobs, "--label-exclude", LEFT_OUT,
                                "--output-on-failure"], env=environment, stdin=subprocess.DEVNULL)
        if tests.returncode != 0:
            print("coverage: tests failed; the figures below are too low", file=sys.stderr)
        run("llvm-profdata", "merge", "-sparse", "-o", profile, *raw.glob("*.profraw"))

    objects = programs(tree)
    arguments = [objects[0], *(part for path in objects[1:] for part in ("-object", path)), f"-instr-profile={profile}"]
    sources = [path for folder in FOLDERS for end in ("cc", "h") for path in sorted(ROOT.glob(f"{folder}/**/*.{end}"))]
    if options.uncovered:
        wanted = [path for path in sources if options.uncovered in str(path)]
        done = run("llvm-cov", "show", *arguments, "-show-branches=count", "-show-line-counts", *wanted,
                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        print(done.stdout)
        return

    done = run("llvm-cov", "export", *arguments, *sources, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    total = collections.defaultdict(lambda: {"lines": [0, 0], "branches": [0, 0]})
    for file in json.loads(done.stdout)["data"][0]["files"]:
        name = str(pathlib.Path(file["filename"]).resolve().relative_to(ROOT))
        if not name.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
            continue
        inside = name.removeprefix("src/").removeprefix("programs/")
        groups = [inside.split("/")[0]]
        groups += ["(core)"] * (groups[0] in CORE) + ["(adapters)"] * (groups[0] in ADAPTERS)
        groups += ["(decoders and cursors)"] * inside.startswith(DECODERS_AND_CURSORS)
        no_ways = past_switches(file)
        for group in groups + [name]:
            for kind in ("lines", "branches"):
                total[group][kind][0] += file["summary"][kind]["covered"]
                total[group][kind][1] += file["summary"][kind]["count"]
            total[group]["branches"][1] -= no_ways
    width = max(map(len, total))
    for group, share in sorted(total.items()):
        print(f"{group:{width}}  lines {percent(share['lines']):6.2f} %  branches {percent(share['branches']):6.2f} %  "
              f"({share['branches'][1] - share['branches'][0]} branches not taken)")
    for group, figure in (("(core)", "core"), ("(adapters)", "adapters"), ("(decoders and cursors)", "decoders")):
        for kind in ("lines", "branches"):
            print(f"figure: r18_{figure}_{kind} {percent(total[group][kind]):.1f}")


if __name__ == "__main__":
    main()
