"""Checks tests/rpc/conformance/conformance.csv: every rule of the contract has an existing test,
and every rule of the conformance checker is listed with one of the contract.
"""

import csv
import pathlib
import re
import tempfile

import common

TABLE = "tests/rpc/conformance/conformance.csv"
COLUMNS = ["rule", "says", "tests", "checker"]
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+)\s*,\s*(\w+)")
CHECKER_RULE = re.compile(r'\b(?:Wire)?Rule\(\s*"([a-z-]+)"')


def names_of(root, folder, pattern, expression):
    """Matches of the expression in the files' code, without comments."""
    found = set()
    for path in sorted((root / folder).rglob(pattern)):
        found.update(expression.findall(common.without_comments(path.read_text())))
    return found


def check(arguments):
    root = pathlib.Path(arguments.root)
    tests = {".".join(names) for names in names_of(root, "tests", "*_test.cc", TEST)}
    checker = names_of(root, "src/rpc", "conformance_*.cc", CHECKER_RULE)
    findings, seen, mapped, mapped_checker = [], set(), 0, set()
    with open(root / TABLE, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows or rows[0] != COLUMNS:
        return [f"{TABLE}:1: the columns are {', '.join(COLUMNS)}"]
    for number, row in enumerate(rows[1:], 2):
        at = f"{TABLE}:{number}"
        if len(row) != len(COLUMNS):
            findings.append(f"{at}: {len(row)} columns")
            continue
        rule, says, named_tests, named_rules = row
        if rule in seen:
            findings.append(f"{at}: {rule} is there twice")
        seen.add(rule)
        if not says:
            findings.append(f"{at}: {rule} says nothing")
        missing = [name for name in named_tests.split() if name not in tests]
        findings += [f"{at}: {rule}: no test {name}" for name in missing]
        findings += [f"{at}: {rule}: the checker has no rule {name}"
                     for name in named_rules.split() if name not in checker]
        mapped_checker.update(named_rules.split())
        if not named_tests.split():
            findings.append(f"{at}: {rule} has no test")
        elif not missing:
            mapped += 1
    findings += [f"{TABLE}: the checker's rule {name} is nowhere"
                 for name in sorted(checker - mapped_checker)]
    print(f"figure: r20_rules {len(rows) - 1}")
    print(f"figure: r20_rules_mapped {mapped}")
    print(f"figure: r20_checker_rules {len(checker)}")
    print(f"figure: r20_checker_rules_mapped {len(checker & mapped_checker)}")
    return findings


def self_test(arguments):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        common.plant(root, {
            TABLE: "rule,says,tests,checker\n"
                   'good,"it is, so",A.One A.Two,order\n'
                   "gone,words,A.Three,\n"
                   "commented,words,A.Four,\n"
                   "untested,words,,order\n"
                   "good,words,A.One,\n"
                   "silent,,A.One,\n"
                   "odd,words,A.One,nothing\n"
                   "short,words\n",
            "tests/a_test.cc": "TEST(A, One) {}\nTEST_F(A,\n       Two) {}\n// TEST(A, Four) {}\n",
            "tests/a.h": "TEST(A, Three) {}\n",
            "src/rpc/conformance_x.cc": 'Rule("order", "x");\nWireRule(\n"left", "x");\n',
        })
        arguments.root = root
        common.expect_findings(check(arguments), [
            ":3: gone: no test A.Three", ":4: commented: no test A.Four", ":5: untested has no test",
            ":6: good is there twice", ":7: silent says nothing",
            ":8: odd: the checker has no rule nothing", ":9: 2 columns", "rule left is nowhere"])


if __name__ == "__main__":
    common.main(check, self_test)
