"""Whole processes in turns: each one's wall clock, processor time and peak memory."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

OURS = "cbt"


@dataclasses.dataclass
class Run:
    wall: float  # seconds
    cpu: float  # seconds of processor, the kernel's included
    peak_mib: float


@dataclasses.dataclass
class Row:
    what: str
    peers: dict  # {name: text}, ours not among them
    runs: dict  # {name: [Run]}


@dataclasses.dataclass
class Program:
    """What takes a turn: a command whose output goes to a file, or a function that returns a Run."""

    name: str
    command: list = None
    output: str = os.devnull
    statuses: tuple = (0,)  # `cmp` says with 1 that files differ
    environment: dict = dataclasses.field(default_factory=dict)
    function: object = None
    peak_mib: float = 0

    def run(self):
        return self.function() if self.function else measure(self)

    def find_peak(self):
        """One more run. `time` starts it: a child of this process would count what this process has."""
        if self.function:
            return
        with tempfile.NamedTemporaryFile("r") as said:
            begun = Program(self.name, ["/usr/bin/time", "-q", "-f", "%M", "-o", said.name, *self.command], self.output, self.statuses,
                            self.environment)
            measure(begun)
            self.peak_mib = int(said.read().split()[-1]) / 1024


def measure(program):
    with open(program.output, "wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(program.command, env={**os.environ, **program.environment}, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.PIPE)
        with process.stderr as errors:
            said = errors.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in program.statuses:
        sys.exit(f"{program.command}: status {process.returncode}: {said.decode(errors='replace')}")
    return Run(wall, usage.ru_utime + usage.ru_stime, program.peak_mib)


def run_all(*programs):
    for program in programs:
        program.run()


def version(*command):
    """The first word of a program's answer that looks like a version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    for word in (done.stdout + done.stderr).split():
        if word[:1].isdigit() and "." in word or word[:1] == "v" and word[1:2].isdigit():
            return word.strip("(),")
    return "?"


def take_turns(programs, rounds):
    """A list of runs for each program. A first round, which is not counted, fills the caches."""
    for program in programs:
        program.find_peak()
    runs = {program.name: [] for program in programs}
    for turn in range(rounds + 1):
        for program in programs if turn % 2 == 0 else reversed(programs):
            run = program.run()
            if turn > 0:
                runs[program.name].append(run)
    return runs


def median(runs, field):
    return statistics.median(getattr(run, field) for run in runs)


def ratio(theirs, ours, field):
    """The median of the ratios of turns that followed each other."""
    return statistics.median(getattr(a, field) / max(getattr(b, field), 1e-6) for a, b in zip(theirs, ours))


def seconds(value):
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def shown(some):
    """Wall clock, processor time and MiB, where they are known."""
    cells = [seconds(median(some, "wall")), seconds(median(some, "cpu"))]
    peak = median(some, "peak_mib")
    return ", ".join(cells + ([f"{peak:.0f}"] if peak else []))


def table(rows):
    """Markdown of rows: what ours takes, and how many times as much each peer does."""
    lines = ["| what | wall, processor, MiB | peer | ratio |", "| --- | --- | --- | --- |"]
    for row in rows:
        ours = row.runs[OURS]
        for name, text in row.peers.items():
            ratios = ", ".join(f"{ratio(row.runs[name], ours, field):.2g}" for field in ("wall", "cpu", "peak_mib"))
            lines.append(f"| {row.what} | {shown(ours)} | {text} | {ratios} |")
    return "\n".join(lines) + "\n"


def as_json(rows):
    return json.dumps({name: dataclasses.asdict(row) for name, row in rows.items()})


def read_rows(path):
    """What as_json() wrote; nothing if there is no file."""
    if not path or not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {name: Row(row["what"], row["peers"], {peer: [Run(**run) for run in some] for peer, some in row["runs"].items()})
            for name, row in rows.items()}
