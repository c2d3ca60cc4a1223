"""Checks tests/rpc/conformance/protocol.csv: every rule of gRPC's HTTP/2 mapping has a number and,
for each side it applies to, a test that exists and is built.
"""

import argparse
import csv
import pathlib
import re
import tempfile

import common

TABLE = "tests/rpc/conformance/protocol.csv"
LISTED = ("tests/rpc/CMakeLists.txt", "tests/net/CMakeLists.txt", "tests/core/CMakeLists.txt")
FOLDERS = ["tests/rpc/http2", "tests/net", "tests/rpc", "tests/base"]
COLUMNS = ["number", "rule", "our server", "its tests", "our client", "its tests"]
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+)\s*,\s*(\w+)")


def rows_of(text):
    """[(line, cells)] of the table, without its head."""
    reader = csv.reader(text.splitlines())
    findings = [] if next(reader, None) == COLUMNS else [f"{TABLE}:1: the columns are {', '.join(COLUMNS)}"]
    return [(reader.line_num, cells) for cells in reader], findings


def wrong_test(root, named, tests, built):
    """Why a test is not valid; None if it is."""
    file, _, test = named.partition(":")
    paths = [f"{folder}/{file}.cc" for folder in FOLDERS]
    path = next((path for path in paths if (root / path).is_file()), None)
    if not test or path is None:
        return f"no test file {file}"
    if path not in tests:
        text = common.without_comments((root / path).read_text())
        tests[path] = {".".join(names) for names in TEST.findall(text)}
    if test not in tests[path]:
        return f"{path} has no test {test}"
    if path.removeprefix("tests/").removesuffix(".cc") not in built:
        return f"{path} is not built: it is not in {' or '.join(LISTED)}"
    return None


def check_side(at, does, named, verify):
    if (does == "-") != (named == "-") or not does or not named:
        return [f"{at} says '{does}', and its tests are '{named}'"]
    if does == "-":
        return []
    return [f"{at}: {wrong}" for wrong in map(verify, named.split()) if wrong]


def check(arguments):
    root = pathlib.Path(arguments.root)
    rows, findings = rows_of((root / TABLE).read_text())
    built = set(re.findall(r"\b(?:rpc|net|base)/[\w/]+", "".join((root / name).read_text() for name in LISTED)))
    tests, sides, before = {}, 0, (0, 0)
    for line, cells in rows:
        at = f"{TABLE}:{line}"
        if len(cells) != len(COLUMNS):
            findings.append(f"{at}: {len(cells)} columns")
            continue
        rule, says, server, server_tests, client, client_tests = cells
        number = tuple(int(part) for part in rule.split(".")) if re.fullmatch(r"\d+\.\d+", rule) else None
        if number not in ((before[0], before[1] + 1), (before[0] + 1, 1)):
            findings.append(f"{at}: {rule} does not follow {before[0]}.{before[1]}")
        before = number or before
        if not says:
            findings.append(f"{at}: {rule} says nothing")
        if server == "-" and client == "-":
            findings.append(f"{at}: {rule} is for no side")
        for side, does, named in (("server", server, server_tests), ("client", client, client_tests)):
            wrong = check_side(f"{at}: {rule}: {side}", does, named,
                               lambda name: wrong_test(root, name, tests, built))
            findings += wrong
            sides += does != "-" and not wrong
    print(f"figure: protocol_rules {len(rows)}")
    print(f"figure: protocol_rules_tested_sides {sides}")
    return findings if rows else findings + [f"{TABLE}: no rules"]


def self_test(_):
    head = f"{','.join(COLUMNS)}\n"
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            TABLE: head +
                   "1.1,good,does,a_test:A.One b/b_test:B.Two,-,-\n"
                   "1.2,good,-,-,does,server/c_test:C.Three\n"
                   "1.2,again,does,a_test:A.One,-,-\n"
                   "1.3,untested,does,-,-,-\n"
                   "1.4,gone,does,a_test:A.Gone,-,-\n"
                   "1.5,commented,does,a_test:A.Off,-,-\n"
                   "1.6,no file,does,z_test:A.One,-,-\n"
                   "1.7,not built,-,-,does,d_test:D.Four\n"
                   "1.8,no side's,-,-,-,-\n"
                   "1.9,short,-\n"
                   "1.9,,does,a_test:A.One,-,-\n"
                   "1.10,tests of nothing,does,a_test:A.One,-,a_test:A.One\n"
                   "2.1,good,does,a_test:A.One,-,-\n"
                   "2.x,odd,does,a_test:A.One,-,-\n",
            LISTED[1]: "net/c_test\n",
            LISTED[2]: "base/e_test\n",
            LISTED[0]: "set(tests\n  rpc/http2/a_test\n  rpc/http2/b/b_test\n"
                    "  rpc/server/c_test)\n",
            "tests/rpc/http2/a_test.cc": "TEST(A, One) {}\n// TEST(A, Off) {}\n",
            "tests/rpc/http2/b/b_test.cc": "TEST_F(B,\n       Two) {}\n",
            "tests/rpc/http2/d_test.cc": "TEST(D, Four) {}\n",
            "tests/rpc/server/c_test.cc": "TEST_P(C, Three) {}\n",
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            ":4: 1.2 does not follow 1.2",
            ":5: 1.3: server says 'does', and its tests are '-'",
            ":6: 1.4: server: tests/rpc/http2/a_test.cc has no test A.Gone",
            ":7: 1.5: server: tests/rpc/http2/a_test.cc has no test A.Off",
            ":8: 1.6: server: no test file z_test",
            ":9: 1.7: client: tests/rpc/http2/d_test.cc is not built",
            ":10: 1.8 is for no side", ":11: 3 columns", ":12: 1.9 says nothing",
            ":13: 1.10: client says '-', and its tests are 'a_test:A.One'",
            ":15: 2.x does not follow 2.1"])
        (root / TABLE).write_text(head.replace("rule", "law") + "1.1,good,does,a_test:A.One,-,-\n")
        common.expect_findings(check(argparse.Namespace(root=root)), [":1: the columns are"])


if __name__ == "__main__":
    common.main(check, self_test)
