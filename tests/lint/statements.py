"""Checks that every statement about the two earlier revisions (S1 to S21 of the first, A1 to A17 of the
second) has a test with its number in the name: S8TheCreator... in C++, test_s8_... in Python.
"""

import pathlib
import re
import tempfile

import common
from disasters import tests_of

STATEMENTS = [f"S{n}" for n in range(1, 22)] + [f"A{n}" for n in range(1, 18)]
# What no component does yet.
NOT_BUILT = set()
FOLDERS = ("kube/", "cluster/", "sidecar/", "revisions/")
NUMBER = re.compile(r"(?:\.|And)([SA]\d+)(?=[A-Z])|_([sa]\d+)(?=_)")


def check(arguments, not_built=frozenset(NOT_BUILT)):
    found = set()
    findings = []
    for program, tests in tests_of(pathlib.Path(arguments.root)).items():
        if not program.startswith(FOLDERS):
            continue
        for test in tests:
            for numbers in NUMBER.findall(test):
                number = "".join(numbers).upper()
                found.add(number)
                if number not in STATEMENTS:
                    findings.append(f"{program}: {test}: there is no statement {number}")
    findings += [f"no test has the number {number}" for number in STATEMENTS
                 if number not in found | not_built]
    findings += [f"{number} has a test: strike it from NOT_BUILT" for number in STATEMENTS
                 if number in found & not_built]
    return findings


def self_test(_):
    built = [s for s in STATEMENTS if s not in ("A16", "A17", "S2", "S3", "S4")]
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            "tests/kube/a_test.cc": "\n".join(f"TEST(Many, {s}IsSo) {{}}" for s in built) +
                                    "\n// TEST(Many, S2IsCommentedOut)\nTEST(Many, S99IsNone) {}\n",
            "tests/revisions/b_test.py": "class C:\n    def test_s3_is_so(self):\n        pass\n"
                                    "    def test_a17_is_built(self):\n        pass\n",
            "tests/other/c_test.cc": "TEST(Many, S4IsElsewhere) {}\n",
        })
        arguments = type("Arguments", (), {"root": root})
        common.expect_findings(check(arguments, {"A16", "A17"}), [
            "S99IsNone: there is no statement S99",
            "no test has the number S2",
            "no test has the number S4",
            "A17 has a test",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
