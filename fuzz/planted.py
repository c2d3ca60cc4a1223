#!/usr/bin/env python3
"""Can every fuzzer find something? Plants the bugs of planted.toml, one at a time: each must be found within a minute.

    fuzz/planted.py [--only TEXT] [--check] [--seconds N] [--jobs N] [--cbt CBT]

Works in a copy of the tree, build/fuzz-planted; your tree is left alone. The copy's build folder is build/fuzz, as
in the tree, and has the same flags, so that a compiler cache has what `make fuzz` has built. For each bug: it is planted, the
library and the one fuzzer are built, the fuzzer runs on its usual seeds with its dictionary for --seconds at most (60), and the file is
restored; finally, every fuzzer that was used must find nothing in its seeds. Prints how long each bug took. Exit status 1 if one
is not found, does not build, or if its place does not occur exactly once. --check only looks for the places and builds nothing.
"""

import argparse
import pathlib
import re
import sys
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "mutation"))
import tree  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("decoder", "encoder", "importer", "kernel", "transform", "algebra", "checksum", "request", "token", "stream")
KEYS = {"name", "kind", "fuzzer", "file", "before", "after"}


def fuzzers():
    return {path.name.removesuffix("_fuzz.cc") for path in HERE.rglob("*_fuzz.cc")}


def read_table():
    """The bugs, and what is wrong with the table itself."""
    bugs = tomllib.loads((HERE / "planted.toml").read_text())["bug"]
    wrong = []
    for bug in bugs:
        name = bug.get("name", "(without a name)")
        if set(bug) != KEYS:
            wrong.append(f"{name}: has {sorted(bug)}, not {sorted(KEYS)}")
            continue
        if bug["kind"] not in KINDS:
            wrong.append(f"{name}: no such kind: {bug['kind']}")
        if bug["fuzzer"] not in fuzzers():
            wrong.append(f"{name}: no such fuzzer: {bug['fuzzer']}")
        tree.check_place(bug, name, wrong)
    wrong += [f"no bug of the kind {kind}" for kind in KINDS if all(bug.get("kind") != kind for bug in bugs)]
    wrong += [f"no bug for {name}" for name in sorted(fuzzers()) if all(bug.get("fuzzer") != name for bug in bugs)]
    return bugs, wrong


class Copy:
    def __init__(self, jobs, cbt):
        self.folder = tree.ROOT / "build" / "fuzz-planted"
        self.source = tree.copy_tree(self.folder / "source")
        self.build_folder = self.source / "build" / "fuzz"
        self.jobs = jobs
        tree.demand(["cmake", "-S", self.source, "--preset", "fuzz"])
        tree.demand([sys.executable, "-B", self.source / "fuzz" / "make_corpus.py", "--output", self.folder / "corpus",
                     *(["--cbt", cbt] if cbt else [])])

    def build(self, names):
        return tree.build(self.build_folder, self.jobs, [f"fuzz_{name}" for name in names])

    def fuzz(self, name, *options):
        """(None if nothing was found, otherwise the finding; seconds; inputs tried)."""
        kept = self.folder / "kept"
        kept.mkdir(exist_ok=True)
        for path in kept.iterdir():
            path.unlink()
        dictionary = self.source / "fuzz" / "dictionaries" / f"{name}.dict"
        begin = time.monotonic()
        done = tree.run([self.build_folder / "bin" / f"fuzz_{name}", "-seed=1", "-timeout=20", "-rss_limit_mb=1024",
                    f"-artifact_prefix={self.folder}/finding-", *([f"-dict={dictionary}"] if dictionary.exists() else []), *options,
                    kept, self.folder / "corpus" / name])
        seconds = time.monotonic() - begin
        inputs = max(map(int, re.findall(r"^#(\d+)", done.stdout, re.M)), default=0)
        if done.returncode == 0:
            return None, seconds, inputs
        finding = re.search(r"check failed: .*|ERROR: \w+: [\w-]+|runtime error: .*", done.stdout)
        return finding.group(0) if finding else f"(ended with {done.returncode})", seconds, inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tree.add_arguments(parser)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--cbt", help="the command, for seeds that it makes; see make_corpus.py")
    arguments = parser.parse_args()

    bugs = tree.chosen(arguments, *read_table(), lambda bug: f"{bug['name']}, {bug['fuzzer']}")
    copy = Copy(arguments.jobs, arguments.cbt)
    names = sorted({bug["fuzzer"] for bug in bugs})
    missed = 0
    for bug in bugs:
        with tree.Replacement(copy.source / bug["file"], bug["before"], bug["after"]):
            error = copy.build([bug["fuzzer"]])
            found, seconds, inputs = (None, 0, 0) if error else copy.fuzz(bug["fuzzer"], f"-max_total_time={arguments.seconds}")
        verdict = f"does not build:\n{error}" if error else f"{found or 'NOT FOUND'} ({inputs} inputs)"
        missed += error is not None or found is None
        print(f"{seconds:5.1f} s  {bug['kind']:9} {bug['fuzzer']:14} {bug['name']}: {verdict}", flush=True)

    # A fuzzer that also fails on unchanged code proves nothing.
    if (error := copy.build(names)) is not None:
        sys.exit(f"planted: the copy does not build even without a bug:\n{error}")
    for name in names:
        if (found := copy.fuzz(name, "-runs=0")[0]) is not None:
            print(f"{name}: finds something without a bug: {found}")
            missed += 1
    print(f"figure: r6_bugs_planted {len(bugs)}")
    print(f"figure: r6_bugs_not_found {missed}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
