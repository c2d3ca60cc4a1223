"""Checks that every disaster of tests/disasters/table.csv has its test, that the places of
tests/planted still exist in the code, and that no test ignores the result of a property.
"""

import argparse
import csv
import pathlib
import re
import sys
import tempfile

import common

TABLE = "tests/disasters/table.csv"
COLUMNS = ["number", "system", "what happened", "class", "tests"]
DISASTERS = 37  # at least; no row goes
GTEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)")
PYTHON = re.compile(r"^\s+def (test_\w+)\(self", re.MULTILINE)


def tests_of(root):
    """{program as ctest names it: its tests}; those of C++ as Suite.Name."""
    tests = {}
    for path in common.tracked_files(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith("tests/") or not path.stem.endswith("_test"):
            continue
        program = name.removeprefix("tests/").rsplit(".", 1)[0]
        if path.suffix == ".cc":
            found = {f"{suite}.{test}" for suite, test in GTEST.findall(common.without_comments(path.read_text()))}
        elif path.suffix == ".py":
            found = set(PYTHON.findall(path.read_text()))
        else:
            continue
        tests.setdefault(program, set()).update(found)
    return tests


def check_table(root, tests):
    with open(root / TABLE, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if rows[0] != COLUMNS:
        return [f"{TABLE}:1: columns {rows[0]}, not {COLUMNS}"]
    findings = []
    numbers = []
    for line, row in enumerate(rows[1:], 2):
        at = f"{TABLE}:{line}"
        if len(row) != len(COLUMNS) or not all(row):
            findings.append(f"{at}: not {len(COLUMNS)} cells with something in each")
            continue
        numbers.append(row[0])
        for named in row[-1].split():
            program, _, test = named.partition(":")
            if program not in tests:
                findings.append(f"{at}: there is no test program {program}")
            elif test not in tests[program]:
                findings.append(f"{at}: {program} has no test {test}")
    if numbers != [str(n + 1) for n in range(max(len(numbers), DISASTERS))]:
        findings.append(f"{TABLE}: the numbers are not 1 to {DISASTERS} or more in order")
    return findings


def check_properties(root):
    """rc::check() alone fails no test: it returns false."""
    findings = []
    for path in common.tracked_files(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith("tests/") or path.suffix not in (".cc", ".h"):
            continue
        for number, line in enumerate(common.without_comments(path.read_text()).split("\n"), 1):
            if re.match(r"\s*rc::check\(", line):
                findings.append(f"{name}:{number}: what rc::check() returns is dropped")
    return findings


def check_planted(root):
    folder = root / "tests" / "planted"
    if not folder.is_dir():
        return []
    sys.path.insert(0, str(folder))
    import plant  # pylint: disable=import-outside-toplevel
    return [f"tests/planted/faults.toml: {wrong}" for wrong in plant.read_table()[1]]


def check(arguments):
    root = pathlib.Path(arguments.root)
    tests = tests_of(root)
    return check_table(root, tests) + check_properties(root) + check_planted(root)


def self_test(_):
    rows = [",".join(COLUMNS)]
    rows += [f'{n},Somebody,"It, too, broke",edge,core/a_test:Many.E1ThisHappens' for n in range(1, DISASTERS + 1)]
    rows[3] = "3,Somebody,Renamed,edge,core/a_test:Many.E1ThisHappens core/a_test:Many.Gone"
    rows[4] = "4,Somebody,Commented out,edge,core/a_test:Other.Off"
    rows[5] = "5,Somebody,No such program,edge,core/b_test:Many.E1ThisHappens"
    rows[6] = "6,Somebody,In Python,edge,cbt/c_test:test_e2_of_images"
    rows[7] = "7,Somebody,In Python too,edge,cbt/c_test:test_gone"
    rows[8] = "8,Somebody,,edge,core/a_test:Many.E1ThisHappens"
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            TABLE: "\n".join(rows) + "\n",
            "tests/core/a_test.cc": "TEST(Many, E1ThisHappens) {}\n// TEST(Other, Off)\n"
                                    "  EXPECT_TRUE(rc::check(f));\n  rc::check([&] {\n",
            "tests/cbt/c_test.py": "class C:\n    def test_e2_of_images(self):\n        pass\n",
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            "table.csv:4: core/a_test has no test Many.Gone",
            "table.csv:5: core/a_test has no test Other.Off",
            "table.csv:6: there is no test program core/b_test",
            "table.csv:8: cbt/c_test has no test test_gone",
            "table.csv:9: not 5 cells",
            f"the numbers are not 1 to {DISASTERS}",
            "a_test.cc:4: what rc::check() returns is dropped",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
