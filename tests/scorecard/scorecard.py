#!/usr/bin/env python3
"""The scorecard: what is promised, in figures, from one script.

    tests/scorecard/scorecard.py [--rows 1,2,19] [--all] [--judge] [--document FILE] [--output
    FOLDER]

Runs the commands of rows.py in the built tree build/release and collects the lines `figure: NAME
VALUE` that they print. Rows that take longer than a few minutes (mutation, coverage, the soak,
sanitizers) run with --all or if --rows names them; otherwise their last run counts, with its date.
--judge runs nothing. --document puts the table into a file; rows without a log keep their text
there. A row is met if its command succeeds and every figure reaches its target; a row that never
ran is marked so. Exit status 1 if a row that ran is not met.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys
import time

from rows import ROWS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BEGIN, END = "<!-- scorecard: begin -->", "<!-- scorecard: end -->"
FIGURE = re.compile(r"figure: (\w+) (-?[\d.]+(?:e[+-]?\d+)?)\b")
CTEST = re.compile(r"(\d+) tests failed out of (\d+)")
COMPARE = {"==": lambda a, b: a == b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b}


def plain(value):
    """12345678 as 12,345,678; 0.5 as 0.5."""
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def run(row, log):
    """Runs a row's commands; the log gets their output and, as the last line, whether all
    succeeded.
    """
    begin = time.monotonic()
    succeeded = True
    with open(log, "w", encoding="utf-8", errors="replace") as file:
        for command in row.commands:
            file.write(f"$ {command}\n")
            file.flush()
            done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT)
            succeeded = succeeded and done.returncode == 0
        file.write(f"\nsucceeded: {succeeded}, {time.monotonic() - begin:.0f} s\n")


def judge(row, text):
    """(met, text of the figures) from a row's log."""
    figures = {}
    for name, value in FIGURE.findall(text):
        # A figure that several programs print is summed up.
        figures[name] = figures.get(name, 0) + float(value)
    for failed, tests in CTEST.findall(text):
        figures["tests_failed"] = figures.get("tests_failed", 0) + int(failed)
        figures["tests_run"] = figures.get("tests_run", 0) + int(tests)
    for name, expression in row.sums.items():
        parts = [value for part, value in figures.items() if re.fullmatch(expression, part)]
        if parts:
            figures[name] = sum(parts)
    for name, (one, other) in row.differences.items():
        if one in figures and other in figures:
            figures[name] = figures[one] - figures[other]
    met, seen = "succeeded: True" in text, []
    for name, operator, target in row.targets:
        if name not in figures:
            met = False
            seen.append(f"{name} missing")
        elif not COMPARE[operator](figures[name], target):
            met = False
    words = re.sub(r"{(\w+)}", lambda match: plain(figures[match[1]]) if match[1] in figures else "?", row.words)
    return met, "; ".join([words, *seen])


def parts(document):
    """The text before the table, the table, and the text after it; None without markers."""
    found = re.fullmatch(f"(.*){re.escape(BEGIN)}(.*){re.escape(END)}(.*)", document, re.DOTALL)
    return found.groups() if found else None


def table_rows(table):
    """(number, (text of the figures, state)) of each row of a table."""
    for line in table.split("\n"):
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 8 and cells[1].strip().isdecimal():
            yield int(cells[1]), (cells[4].strip(), cells[5].strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--document", type=pathlib.Path, help="put the table between its markers")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "scorecard")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.document and not (old := parts(options.document.read_text(encoding="utf-8"))):
        sys.exit(f"scorecard: {options.document} has no markers")
    stands = dict(table_rows(old[1])) if options.document else {}
    wanted = {int(number) for number in options.rows.split(",") if number}

    lines = ["| # | figure | target | seen | | run it |", "| --- | --- | --- | --- | --- | --- |"]
    failed = []
    for row in ROWS:
        log = options.output / f"{row.same_run_as or row.number:02}.log"
        now = row.number in wanted or row.same_run_as in wanted if wanted else options.all or not row.is_slow
        now = now and not options.judge
        if now:
            print(f"row {row.number}: {row.title}", flush=True)
        if now and not row.same_run_as:
            run(row, log)
        if log.exists():
            text = log.read_text(encoding="utf-8", errors="replace")
            met, seen = judge(row, text)
            if now:
                print(f"  {'met' if met else 'NOT MET'}: {seen}", flush=True)
            else:
                date = datetime.date.fromtimestamp(log.stat().st_mtime)
                seen = f"{seen} ({date})"
            state = "met" if met else "**not met**"
            if now and not met:
                failed.append(row.number)
        elif row.number in stands:
            # From an earlier run elsewhere, with that run's date.
            seen, state = stands[row.number]
        else:
            seen, state = "", "not run"
        commands = row.commands or [f"as row {row.same_run_as}"]
        command = "; ".join(commands).replace("|", "\\|")
        lines.append(f"| {row.number} | {row.title} | {row.target} | {seen} | {state} | `{command}` |")

    table = "\n".join(lines) + "\n"
    (options.output / "scorecard.md").write_text(table, encoding="utf-8")
    print(f"\n{table}")
    if options.document:
        options.document.write_text(f"{old[0]}{BEGIN}\n{table}{END}{old[2]}", encoding="utf-8")
    if failed:
        sys.exit(f"scorecard: not met: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
