"""Checks every text file of the tree: no open ends, clean whitespace, a readable length, no paths
of the machine it was written on, plain ASCII except for pictures, and no words that make a native
reader stop.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile

import common

MAX_LINES = 600
# One class that would only be cut at random.
MAY_BE_LONG = {"src/rpc/http2/connection.cc": 800}
CODE = {".cc", ".go", ".h", ".proto", ".py", ".sh", ".cmake", ".inc"}
# Split, so that this file passes its own check.
OPEN_END = re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b")
# Home folders, and the top folder of this checkout, unless every machine has it.
EVERYWHERE = {"bin", "dev", "etc", "lib", "mnt", "opt", "proc", "run", "srv", "sys", "tmp", "usr", "var"}
ONE_MACHINES = {"ho" "me", "ro" "ot"} | ({pathlib.Path(__file__).resolve().parts[1]} - EVERYWHERE)
MACHINE_PATH = re.compile(rf"(?<![\w.$}}~-])/(?:{'|'.join(map(re.escape, sorted(ONE_MACHINES)))})/")
# Data that tests read byte for byte, and inputs of the fuzzers.
DATA_FOLDERS = {"corpus", "data"}
# Beyond ASCII, code may have the characters of volume pictures: lines, blocks, and the middle dot
# for an empty cell. Tests may have anything: they use names in other scripts.
NOT_ASCII = re.compile(r"[^\x00-\x7f\u2500-\u259f\u00b7]")

# Word-for-word translations. Report, return, no client, the caller, forever: the field has words.
# Parts of hyphenated and longer names are not words.
RETIRED = re.compile(r"(?<![\w-])(?:[Tt]ells?|[Tt]old|[Nn]obody|[Ww]hoever|[Ii]s none|[Oo]f no kind|"
                     r"[Ii]n peace|[Ff]or ever)(?![\w-])")
SPEAKING = {"bindings", "src", "programs", "include", "tests", "bench", "fuzz", "docs", "examples", "cmake", "debian", "deploy", ".ci"}
# RapidJSON requires a method of this name of its streams; planted faults keep their names; this check.
MAY_SPEAK = {"src/kube/object/json.cc", "src/source/lists/json_records.cc", "tests/planted/faults.toml", "tests/lint/text.py"}


def check_text(name, text):
    path = pathlib.PurePath(name)
    lines = text.split("\n")
    is_code = path.suffix in CODE and not name.endswith(".pb.go")  # protoc's
    may_use_tabs = name in ("Makefile", "debian/rules") or path.name == "go.mod" or path.suffix == ".go"
    findings = []
    if text and not text.endswith("\n"):
        findings.append(f"{name}: no newline at the end")
    if text.endswith("\n\n"):
        findings.append(f"{name}: blank lines at the end")
    most = MAY_BE_LONG.get(name, MAX_LINES)
    if is_code and len(lines) - 1 > most:
        findings.append(f"{name}: {len(lines) - 1} lines, more than {most}")
    for number, line in enumerate(lines, 1):
        at = f"{name}:{number}"
        if OPEN_END.search(line):
            findings.append(f"{at}: an open end; finish it or open an issue")
        if line != line.rstrip():
            findings.append(f"{at}: trailing blanks")
        if "\t" in line and not may_use_tabs:
            findings.append(f"{at}: a tab")
        if MACHINE_PATH.search(line):
            findings.append(f"{at}: a path of one machine")
        retired = RETIRED.search(line)
        if retired and (len(path.parts) == 1 or path.parts[0] in SPEAKING) and name not in MAY_SPEAK:
            findings.append(f"{at}: '{retired.group()}': see Documents in CONTRIBUTING.md")
        odd = NOT_ASCII.search(line)
        if odd and is_code and path.parts[0] != "tests":
            findings.append(f"{at}: neither ASCII nor part of a picture: U+{ord(odd.group()):04X}")
    return findings


def check(arguments):
    root = pathlib.Path(arguments.root)
    findings = []
    for path in common.tracked_files(root):
        name = path.relative_to(root).as_posix()
        content = path.read_bytes()
        if b"\0" in content or DATA_FOLDERS.intersection(pathlib.PurePath(name).parts):
            continue
        try:
            findings += check_text(name, content.decode())
        except UnicodeDecodeError as error:
            findings.append(f"{name}: not UTF-8 at byte {error.start}")
    return findings


def self_test(_):
    open_end, machine = "TO" + "DO", "/ro" + "ot/x"
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            "Makefile": "all:\n\techo\n",
            "README.md": "A picture: \u2588\n",
            "tests/module/go.mod": "require (\n\tm v1.0.0\n)\n",
            "tests/module/main.go": "func main() {\n\trun()\n}\n",
            "tests/name.cc": '"M\u00fcller"\n',
            "src/good.cc": "int mastodon = 1;  // a/home/b ${x}/home/c\n",
            "tests/data/raw.txt": "\t \n\n\n",
            "build/ignored.cc": "\t\n",
            "src/open.cc": f"// {open_end}: later\n",
            "src/tab.h": "\tint x;\n",
            "src/blanks.cc": "int x; \n",
            "docs/end.md": "no newline",
            "docs/ends.md": "too many\n\n",
            "src/long.cc": "\n" * MAX_LINES + "int x;\n",
            "docs/path.md": f"see {machine}\n",
            "src/picture.cc": "// \u2588\n",
            "src/dash.cc": "// \u2013\n",
            "src/names.cc": "// x-tells-y told_y NobodyLearns, a list is nonempty, Python: x is None\n",
            "src/source/lists/json_records.cc": "size_t Tell() const;\n",
            "other/told.cc": "// Outside of the folders that the rule covers: told.\n",
            "include/tells.h": "// It tells how much.\n",
            "tests/whoever.py": "# Whoever asks\n",
            "docs/ever.md": "Stays for ever.\n",
            "cmake/none.cmake": "# One that is none.\n",
            "fuzz/nobody.cc": 'Fail("nobody knows");\n',
        })
        (root / "src/latin.cc").write_bytes(b"// \xe9\n")
        wanted = [
            "src/open.cc:1: an open end",
            "src/tab.h:1: a tab",
            "src/blanks.cc:1: trailing blanks",
            "docs/end.md: no newline",
            "docs/ends.md: blank lines at the end",
            f"src/long.cc: {MAX_LINES + 1} lines",
            "docs/path.md:1: a path of one machine",
            "src/dash.cc:1: neither ASCII nor part of a picture: U+2013",
            "src/latin.cc: not UTF-8",
            "include/tells.h:1: 'tells'",
            "tests/whoever.py:1: 'Whoever'",
            "docs/ever.md:1: 'for ever'",
            "cmake/none.cmake:1: 'is none'",
            "fuzz/nobody.cc:1: 'nobody'",
        ]
        common.expect_findings(check(argparse.Namespace(root=root)), wanted)
        # The same with git, including files it does not know yet; a release may be built without
        # git.
        if not shutil.which("git"):
            return
        subprocess.run(["git", "init", "-q", root], check=True)
        (root / ".gitignore").write_text("/build/\n")
        common.expect_findings(check(argparse.Namespace(root=root)), wanted)


if __name__ == "__main__":
    common.main(check, self_test)
