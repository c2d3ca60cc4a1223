"""Compares the binary interface of libcbt.so.1 with the dump in abi/: functions, structures, and the
values of constants. A change that breaks a caller is never made; what is added is written there with
--write, and gets a new minor version in cbt/c/base.h and a node in libcbt.map once there was a
release."""

import argparse
import pathlib
import platform
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "include/cbt/c"
DUMP = HERE / "abi/libcbt.so.1.x86_64.abi"
CONSTANTS = HERE / "abi/constants.txt"
SUPPRESSIONS = HERE / "abi/suppressions.ini"
INCOMPATIBLE = 8


def dump(library, out):
    subprocess.run(["abidw", "--exported-interfaces-only", "--suppressions", SUPPRESSIONS, "--headers-dir", HEADERS,
                    "--drop-private-types", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--short-locs",
                    "--no-elf-needed", "--no-parameter-names", "--out-file", out, library], check=True)


def constants():
    found = []
    for header in sorted(HEADERS.glob("*.h")):
        text = re.sub(r"//.*", "", header.read_text())
        found += re.findall(r"\b(CBT_[A-Z_]+) = (-?\d+)", text)
        found += re.findall(r"^#define (CBT_[A-Z_]+) (\d+)$", text, re.MULTILINE)
    return sorted(f"{name} {value}" for name, value in found)


def compare(old, new):
    done = subprocess.run(["abidiff", old, new], text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode == 0:
        return []
    if done.returncode & 3:
        return [f"abidiff failed: {done.stdout}"]
    what = "breaks callers" if done.returncode & INCOMPATIBLE else "has changed: if it only grew, run tests/c/abi.py --write"
    return [f"{done.stdout}\nthe binary interface {what}"]


def compare_constants(old, new):
    findings = [f"{line}: was removed or changed" for line in old if line not in new]
    return findings + [f"{line}: is new; run tests/c/abi.py --write" for line in new if line not in old]


def self_test(scratch):
    text = DUMP.read_text()
    gone = scratch / "planted.abi"
    name = "cbt_stream_keep"
    planted = {
        "a function that is gone": re.sub(rf"<elf-symbol name='{name}'.*?/>\n", "", re.sub(
            rf"<function-decl name='{name}'.*?</function-decl>\n", "", text, flags=re.DOTALL)),
        "a structure of another size": re.sub(r"(class-decl name='cbt_batch' size-in-bits=')\d+", r"\g<1>448", text),
        "a parameter of another type": re.sub(
            r"(<function-decl name='cbt_cursor_seek'.*?<parameter type-id='[^']+'/>\s+<parameter type-id=')[^']+",
            lambda match: match.group(1) + re.search(r"type-decl name='int' [^>]*id='([^']+)'", text).group(1),
            text, flags=re.DOTALL),
    }
    wrong = []
    for what, changed in planted.items():
        gone.write_text(changed)
        if changed == text or not compare(DUMP, gone):
            wrong.append(f"not noticed: {what}")
    if compare(DUMP, DUMP):
        wrong.append("the dump differs from itself")
    if not compare_constants(["A 1"], ["A 2"]) or not compare_constants([], ["A 2"]):
        wrong.append("not noticed: a constant of another value")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/tmp"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("abidw") is None or shutil.which("abidiff") is None:
        print("skipped: abidw and abidiff (Debian: abigail-tools) are not installed")
        return 0
    if platform.machine() != "x86_64":
        print("skipped: the dump is of x86_64")
        return 0
    if arguments.self_test:
        findings = self_test(arguments.scratch)
    elif arguments.write:
        dump(arguments.library, DUMP)
        CONSTANTS.write_text("\n".join(constants()) + "\n")
        findings = []
    else:
        now = arguments.scratch / "libcbt.so.1.abi"
        dump(arguments.library, now)
        findings = compare(DUMP, now) + compare_constants(CONSTANTS.read_text().split("\n")[:-1], constants())
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
