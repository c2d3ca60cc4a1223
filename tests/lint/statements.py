"""Checks that every statement of docs/reference has a test with its number in the name, and that
every number in a test's name is that of a statement: S and A of earlier-revisions.md below
tests/kube, C and S of cosi.md (with the prefix Cosi) and E of scenarios.md in any test.
S8TheCreator... in C++, test_s8_... in Python; CosiS8TheAccount..., test_cosi_c8_c9_...
"""

import pathlib
import re
import tempfile

import common
from disasters import tests_of

COMPONENTS = ("kube/", "cluster/", "sidecar/", "revisions/")
# {document: {letter: folders of its tests}}
DOCUMENTS = {"docs/reference/earlier-revisions.md": {"S": COMPONENTS, "A": COMPONENTS},
             "docs/reference/cosi.md": {"C": ("",), "S": ("",)},
             "docs/reference/scenarios.md": {"E": ("",)}}
# What stands before the first number in a test's name.
PREFIXES = {"docs/reference/cosi.md": "Cosi"}
STATEMENT = re.compile(r"^- \*\*([A-Z])(\d+)\.\*\*(.*)")


def read_statements(name, text, letters):
    """The numbers of each letter, and lines of findings. Each begins at 1, and none is missing."""
    numbers = {letter: [] for letter in letters}
    findings = []
    for line, words in enumerate(text.splitlines(), 1):
        found = STATEMENT.match(words)
        if not found:
            continue
        letter, number, sentence = found[1], int(found[2]), found[3]
        if letter not in numbers:
            findings.append(f"{name}:{line}: statements of this page begin with {' or '.join(letters)}")
            continue
        if number != len(numbers[letter]) + 1:
            findings.append(f"{name}:{line}: {letter}{number} follows {letter}{len(numbers[letter])}")
        if len(sentence.split()) < 3:
            findings.append(f"{name}:{line}: {letter}{number} says nothing")
        numbers[letter].append(number)
    return numbers, findings


def numbers_of(test, letter, prefix=""):
    """The numbers in a test's name: S8TheCreator..., AndS8..., test_s8_..., and with a prefix CosiS8..., and
    test_cosi_c8_s9_..."""
    name = test.rsplit(".", 1)[-1]
    if prefix:
        numbered = re.match(rf"{prefix}((?:[A-Z]\d+(?:And)?)+)(?=[A-Z])|test_{prefix.lower()}((?:_[a-z]\d+)+)_", name)
        if numbered is None:
            return set()
        return {int(number) for one, number in re.findall(r"([A-Za-z])(\d+)", numbered[0])
                if one.upper() == letter}
    if any(name.lower().startswith(("test_" + one.lower() + "_", one.lower())) for one in PREFIXES.values()):
        return set()
    pattern = rf"(?:\.|And){letter}(\d+)(?=[A-Z])|_{letter.lower()}(\d+)(?=_)"
    return {int(a or b) for a, b in re.findall(pattern, test)}


def check(arguments):
    root = pathlib.Path(arguments.root)
    tests = tests_of(root)
    findings = []
    for name, letters in DOCUMENTS.items():
        numbers, wrong = read_statements(name, (root / name).read_text(encoding="utf-8"), letters)
        findings += wrong
        for letter, folders in letters.items():
            if not numbers[letter]:
                findings.append(f"{name}: it has no statement {letter}1")
            tested = set()
            for program, names in tests.items():
                if not program.startswith(folders):
                    continue
                for test in sorted(names):
                    found = numbers_of(test, letter, PREFIXES.get(name, ""))
                    tested |= found
                    findings += [f"{program}: {test}: {name} has no statement {letter}{number}"
                                 for number in sorted(found - set(numbers[letter]))]
            findings += [f"{name}: no test has the number {letter}{number}"
                         for number in numbers[letter] if number not in tested]
    return findings


def self_test(_):
    earlier, cosi, scenarios = DOCUMENTS
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            earlier: "# Statements, S9 among them\n\n- **S1.** One is tested.\n- **S2.** Two is commented out.\n"
                     "- **S3.** Three is tested in Python.\n- **S4.** Four is tested elsewhere.\n"
                     "- **S6.** Five is missing.\n- **S6.** Six\n  continues.\n- **E1.** Another page's letter.\n",
            scenarios: "- **E1.** One is tested.\n- **E2.** Two is tested in Python.\n- **E3.** Three has no test.\n",
            cosi: "- **C1.** One is tested.\n- **C2.** Two has no test.\n- **S1.** One is tested too.\n",
            "tests/cosi/e_test.py": "class C:\n    def test_cosi_c1_s1_is_so(self):\n        pass\n"
                                    "    def test_cosi_c9_has_no_text(self):\n        pass\n",
            "tests/kube/a_test.cc": "TEST(Many, S1IsSo) {}\nTEST(Many, S6IsSo) {}\n"
                                    "// TEST(Many, S2IsCommentedOut)\nTEST(Many, S99HasNoText) {}\n",
            "tests/revisions/b_test.py": "class C:\n    def test_s3_is_so(self):\n        pass\n"
                                    "    def test_e12_has_no_text(self):\n        pass\n",
            "tests/other/c_test.cc": "TEST(Many, S4IsElsewhere) {}\nTEST(Many, E1ThisHappens) {}\n"
                                     "TEST_F(Many, NoE3Here) {}\n",
            "tests/other/d_test.py": "class C:\n    def test_e2_of_images(self):\n        pass\n",
        })
        common.expect_findings(check(type("Arguments", (), {"root": root})), [
            "earlier-revisions.md:7: S6 follows S4",
            "earlier-revisions.md:8: S6 says nothing",
            "earlier-revisions.md:10: statements of this page begin with S or A",
            "earlier-revisions.md: it has no statement A1",
            "test_cosi_c9_has_no_text: docs/reference/cosi.md has no statement C9",
            "cosi.md: no test has the number C2",
            "S99HasNoText: docs/reference/earlier-revisions.md has no statement S99",
            "no test has the number S2",
            "no test has the number S4",
            "test_e12_has_no_text: docs/reference/scenarios.md has no statement E12",
            "no test has the number E3",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
