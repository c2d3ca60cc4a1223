"""Shared by the lint checks: finds files, strips comments from C++, reports, runs self-tests."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A raw string, a string, a character, or a comment of either kind, tried in this order. (A digit
# separator resembles a character's quote, but follows a digit.)
_TOKEN = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text):
    """C++ text with its comments blanked; line numbers stay."""

    def blank(match):
        token = match.group()
        return re.sub(r"[^\n]", " ", token) if token.startswith("/") else token

    return _TOKEN.sub(blank, text)


def tracked_files(root):
    """Files of the tree: what git knows or would add, otherwise everything but build trees."""
    paths = None
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                check=False)
        if listed.returncode == 0:
            paths = [root / name for name in listed.stdout.decode().split("\0") if name]
    if paths is None:
        paths = [path for path in root.rglob("*")
                 if path.relative_to(root).parts[0] not in ("build", ".git")]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def plant(root, files):
    """Writes {relative path: text} below root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def expect_findings(findings, wanted):
    """For self-tests: each wanted fragment is in exactly one finding, and there are no others."""
    left = list(findings)
    for fragment in wanted:
        hits = [finding for finding in left if fragment in finding]
        if len(hits) != 1:
            sys.exit(f"self-test: '{fragment}' found {len(hits)} times in:\n" + "\n".join(findings))
        left.remove(hits[0])
    if left:
        sys.exit("self-test: not wanted:\n" + "\n".join(left))
    print(f"self-test: all {len(wanted)} planted faults found, and nothing else")


def main(check, self_test, **defaults):
    """Runs check(arguments) -> findings, or the self-test. `defaults`: further options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--self-test", action="store_true")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value)
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test(arguments)
        return
    findings = check(arguments)
    for finding in findings:
        print(finding)
    if findings:
        sys.exit(f"{len(findings)} findings")
    print("nothing found")
