#!/usr/bin/env python3
"""Plants small faults in the code and reports those that no test notices.

    tests/mutation/mutate.py [--mutants N] [--seed N] [--only TEXT] [--report FILE] [--go-on FILE]
    [--check]

Works in a copy of the tree under build/mutation; your copy stays untouched. Each mutant changes one
place: a comparison is flipped or off by one, a bound, a carry or a tail is dropped, operators are
swapped, a statement is removed. A mutant counts if it compiles. It is caught if a test fails,
crashes, or takes four times its usual processor time. What passes all tests meets them once more
under the address and undefined-behaviour sanitizers, as in the gate. Exit status 1 if fewer than --target percent
are caught. Survivors that cannot change any answer are listed with the reason in equivalent.txt;
--check verifies that these are still mutants of the code, and builds nothing. --go-on reuses the
verdicts from the output of an interrupted run.
"""

import argparse
import collections
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from tree import ROOT, copy_tree, demand

FOLDERS = ("src/base", "src/core", "src/map", "src/wire")
# Only words, texts and threads: no answer depends on these files.
LEFT_OUT = ("base/text", "thread_pool", "secrets", "lines.h")

# These take nine tenths of the time and catch few faults alone, so they run once the others pass.
SLOW = ("BoundaryTest.EveryBoundaryThroughEveryOperation:TruthTest.*:Scale.*:PersistentTrackerTest.ADamagedLogNeverUnderReports:"
        "ChangeChainTest.IsWhatTheModelSaysAfterAnyChanges:MapDamageTest.*:ParallelCursorTest.ThroughThePublicFactory")

# These see what a file system does, and what it refuses; they run last, for the files that use one.
FAULT_PROGRAMS = ("power_loss_test", "tracker_faults_test")
FAULT_FOLDERS = ("src/base/", "src/map/")

NOT_NOTICED = "NOT NOTICED"

# No test sleeps that long.
WAITING_SECONDS = 60

# Processor time of all tests under the sanitizers.
CHECKED_SECONDS = 900

# (kind, pattern, replacement). In this code binary operators have blanks around them, templates do
# not.
OPERATORS = [
    ("comparison", r" < ", " <= "), ("comparison", r" <= ", " < "), ("comparison", r" > ", " >= "), ("comparison", r" >= ", " > "),
    ("flipped", r" == ", " != "), ("flipped", r" != ", " == "), ("flipped", r" < ", " >= "), ("flipped", r" > ", " <= "),
    ("logic", r" && ", " || "), ("logic", r" \|\| ", " && "), ("logic", r"\(!", "("),
    ("off by one", r" \+ 1\b", ""), ("off by one", r" - 1\b", ""), ("off by one", r"\[i\]", "[i + 1]"),
    ("arithmetic", r" \+ ", " - "), ("arithmetic", r" - ", " + "), ("arithmetic", r" % ", " / "), ("arithmetic", r" / ", " % "),
    ("bits", r" & ~", " & "), ("bits", r" & ", " | "), ("bits", r" \| ", " & "), ("bits", r" << ", " >> "), ("bits", r" >> ", " << "),
    ("bound", r"std::min\b", "std::max"), ("bound", r"std::max\b", "std::min"), ("bound", r"\btrue\b", "false"),
    ("bound", r"\bfalse\b", "true"), ("bound", r"\b(\d+)\b", lambda m: str(int(m.group(1)) + 1)),
    ("dropped", r"^\s+(?:\+\+|--)?[\w\.\->\[\]\(\)]+ (?:\+|-|\||&)?= [^;]+;$", ""), ("dropped", r"^\s+(?:\+\+|--)[\w\.\->\[\]]+;$", ""),
    ("dropped", r"^\s+[\w\.\->]+\([^;{}]*\);$", ""), ("dropped", r"\bcontinue;", ";"), ("dropped", r"\bbreak;", ";"),
]


def code_lines(text):
    """Numbers of the lines with executable code."""
    comment = False
    for number, line in enumerate(text.split("\n")):
        bare = line.strip()
        if comment or bare.startswith("/*"):
            comment = "*/" not in bare
            continue
        if (not bare or bare.startswith(("//", "#", "namespace", "using", "template", "static_assert", "}", "class ", "struct "))
                or "absl::StrCat" in bare or "Error(" in bare or '"' in bare or "reserve(" in bare or "constexpr" in bare):
            continue
        yield number


def mutants_of(path):
    text = path.read_text()
    lines = text.split("\n")
    for number in code_lines(text):
        line = lines[number]
        code = line.split("  //")[0]
        for kind, pattern, replacement in OPERATORS:
            for match in re.finditer(pattern, code):
                new = code[:match.start()] + match.expand(replacement if isinstance(replacement, str) else replacement(match)) + \
                    code[match.end():]
                if new != code:
                    yield kind, number, line, new


def change_of(old, new):
    return f"{old.strip()} -> {new.strip() or '(nothing)'}"


def read_equivalent(text):
    """{(file, change): reason}"""
    equivalent = {}
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            place, _, rest = line.partition(" | ")
            change, _, reason = rest.rpartition(" | ")  # the change may contain a "|"
            equivalent[place, change] = reason
    return equivalent


def all_mutants(source, only=""):
    """(path, file, kind, number, old, new) of every mutant of the tree."""
    for folder in FOLDERS:
        for path in sorted((source / folder).rglob("*.cc")) + sorted((source / folder).rglob("*.h")):
            name = str(path.relative_to(source))
            if only in name and not any(part in name for part in LEFT_OUT):
                for mutant in mutants_of(path):
                    yield path, name, *mutant


def is_blocked(process):
    """Returns True once the process is blocked indefinitely, False once it has ended. A process
    that waits for the processor is in state R, one that waits for a disk in state D.
    """
    used, since = None, time.monotonic()
    while True:
        try:
            process.wait(1)
            return False
        except subprocess.TimeoutExpired:
            pass
        try:
            stats = [stat.read_text().rpartition(")")[2].split() for stat in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat")]
        except OSError:  # a thread ended in between
            continue
        now = sum(int(stat[11]) + int(stat[12]) for stat in stats)
        if now != used or any(stat[0] != "S" for stat in stats):
            used, since = now, time.monotonic()
        elif time.monotonic() - since > WAITING_SECONDS:
            return True


def near_tests(source, name):
    """A filter for the tests in the folder that mirrors the one of src/.../file."""
    folder = source / "tests" / pathlib.Path(name).relative_to("src").parent
    texts = "".join(path.read_text() for path in sorted(folder.glob("*_test.cc")))
    suites = set(re.findall(r"^(?:TEST(?:_[FP])?|RC_GTEST_(?:FIXTURE_)?PROP)\((\w+),", texts, re.MULTILINE))
    return ":".join(f"{suite}.*" for suite in sorted(suites))


class Tree:
    def __init__(self, folder):
        self.limits = {}  # seconds, by filter
        self.build_folder = folder / "build"
        self.checked_folder = folder / "checked"
        self.source = copy_tree(folder / "source")
        self.configure(self.build_folder)
        # The tests' own code is not what is tested.
        self.configure(self.checked_folder, "-DCBT_SANITIZE=address,undefined", "-DCBT_SANITIZE_TESTS=OFF")

    def configure(self, build_folder, *options):
        demand(["cmake", "-S", self.source, "-B", build_folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCBT_BUILD_BENCH=OFF", "-DCBT_INSTALL=OFF",
                # a mutant compiles one file again
                "-DCBT_UNITY=OFF", *options])

    def build(self, programs=("cbt_mutation_judge",), checked=False):
        return subprocess.run(["cmake", "--build", self.checked_folder if checked else self.build_folder, "--target", *programs],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def runs(self, name):
        """(program, filter) of what runs for the file `name`: first its own folder's tests, which
        catch most mutants.
        """
        near = near_tests(self.source, name)
        filters = ([f"{near}-{SLOW}"] if near else []) + [f"-{SLOW}", SLOW]
        return ([("cbt_mutation_judge", tests) for tests in filters] +
                [(program, "*") for program in FAULT_PROGRAMS if name.startswith(FAULT_FOLDERS)])

    def measure(self, runs):
        """Limits for judge(), from runs without a mutant."""
        for program, tests in runs:
            if (program, tests) not in self.limits:
                begin = resource.getrusage(resource.RUSAGE_CHILDREN)
                if (failed := self.run(program, tests, 600)) is not None:
                    sys.exit(f"mutate: {failed} fails without any mutant")
                end = resource.getrusage(resource.RUSAGE_CHILDREN)
                self.limits[program, tests] = 4 * (end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime) + 5

    def judge(self, runs):
        """The name of the first test that fails; None if all pass. Limits are processor time, so
        that other load does not count; blocked processes are killed as well.
        """
        for program, tests in runs:
            if program in FAULT_PROGRAMS and not self.build([program]):
                sys.exit(f"mutate: {program} does not build")
            if (failed := self.run(program, tests, self.limits[program, tests])) is not None:
                return failed
        return None

    def check(self):
        """As judge(), under the sanitizers: an access past a container, for example."""
        if not self.build(checked=True):
            sys.exit("mutate: the tree does not build with sanitizers")
        return self.run("cbt_mutation_judge", f"-{SLOW}", CHECKED_SECONDS, self.checked_folder)

    def run(self, program, tests, seconds, build_folder=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))

        command = [(build_folder or self.build_folder) / "tests" / program, f"--gtest_filter={tests}", "--gtest_fail_fast",
                   "--gtest_brief=1"]
        with tempfile.TemporaryFile() as output:
            judge = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit,
                                     env={"RC_PARAMS": "max_success=30 seed=1", "PATH": "/usr/bin:/bin"})
            if is_blocked(judge):
                judge.kill()
                judge.wait()
                return "(blocked)"
            output.seek(0)
            said = output.read().decode(errors="replace")
        if judge.returncode == 0:
            return None
        if -judge.returncode in (signal.SIGXCPU, signal.SIGKILL):
            return "(ran too long)"
        failed = re.search(r"\[  FAILED  \] (\S+)", said)
        return failed.group(1).rstrip(",") if failed else f"(ended with {judge.returncode})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="mutate only files whose path contains this")
    parser.add_argument("--target", type=float, default=95)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--go-on", metavar="FILE")
    parser.add_argument("--report", help="write the mutants and verdicts to this file")
    arguments = parser.parse_args()

    equivalent = read_equivalent((pathlib.Path(__file__).parent / "equivalent.txt").read_text())
    if arguments.check:
        known = {(name, change_of(old, new)) for _, name, _, _, old, new in all_mutants(ROOT)}
        wrong = [place for place, reason in equivalent.items() if place not in known or not reason]
        for name, change in wrong:
            print(f"equivalent.txt: no mutant, or no reason: {name}: {change}")
        sys.exit(1 if wrong else 0)

    tree = Tree(ROOT / "build" / "mutation")
    print("building the tests", flush=True)
    if not tree.build(("cbt_mutation_judge", *FAULT_PROGRAMS)) or not tree.build(checked=True):
        sys.exit("mutate: the tree does not build")
    if (failed := tree.run("cbt_mutation_judge", f"-{SLOW}", CHECKED_SECONDS, tree.checked_folder)) is not None:
        sys.exit(f"mutate: {failed} fails under the sanitizers without any mutant")
    for folder in sorted({name.rpartition("/")[0] for _, name, *_ in all_mutants(tree.source, arguments.only)}):
        tree.measure(tree.runs(f"{folder}/x"))

    known = {}
    if arguments.go_on:
        for line in pathlib.Path(arguments.go_on).read_text().split("\n"):
            mutant, _, verdict = line.rpartition(": ")
            known[mutant] = None if verdict == NOT_NOTICED else verdict

    candidates = list(all_mutants(tree.source, arguments.only))
    places = collections.Counter((name, change_of(old, new)) for _, name, _, _, old, new in candidates)
    random.Random(arguments.seed).shuffle(candidates)
    caught, survived, report = 0, [], []
    for path, name, kind, number, old, new in candidates:
        if caught + len(survived) >= arguments.mutants:
            break
        change = change_of(old, new)
        # If a listed change matches several places, a survivor is taken for the listed one.
        is_listed = (name, change) in equivalent
        if is_listed and places[name, change] == 1:
            continue
        mutant = f"{name}:{number + 1}: {kind}: {change}"
        if mutant in known:
            judged = known[mutant]
        else:
            original = path.read_text()
            lines = original.split("\n")
            lines[number] = new
            try:
                path.write_text("\n".join(lines))
                if not tree.build():
                    continue
                judged = tree.judge(tree.runs(name)) or tree.check()
            finally:
                path.write_text(original)
        if judged is None and is_listed:
            continue
        if judged is None:
            survived.append((name, number + 1, kind, change))
        else:
            caught += 1
        line = f"{mutant}: {judged or NOT_NOTICED}"
        report.append(line)
        print(line, flush=True)
    tried = caught + len(survived)
    share = 100 * caught / tried if tried else 0
    print(f"figure: r19_mutants {tried}\nfigure: r19_noticed {caught}\nfigure: r19_percent {share:.1f}")
    print(f"\n{caught} of {tried} faults noticed ({share:.1f} %), {len(candidates)} places, seed {arguments.seed}")
    for name, number, kind, change in survived:
        print(f"not noticed: {name}:{number}: {kind}: {change}")
    if arguments.report:
        pathlib.Path(arguments.report).write_text("\n".join(report) + "\n")
    sys.exit(0 if share >= arguments.target else 1)


if __name__ == "__main__":
    main()
