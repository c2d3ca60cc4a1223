"""Checks that each target of the Makefile has the text that `make help` prints, that only `make deps`
installs packages, and that documents name no target that does not exist.
"""

import argparse
import pathlib
import re
import tempfile

import common

TARGET = re.compile(r"^([a-z0-9-]+):(.*)")
DESCRIBED = re.compile(r"  ## \S")
INSTALLS = re.compile(r"install-packages\.sh(?! --check)")
# In backquotes, or at the beginning of a line of code.
NAMED = re.compile(r"(?:`|^)make (?:[A-Z_]+=\S+ )*([a-z][a-z0-9-]*)")
# They say what was.
HISTORY = ("CHANGELOG.md", "docs/log/")


def read_makefile(text):
    """The targets, and lines of findings."""
    targets, findings, target = {"all"}, [], None
    for number, line in enumerate(text.splitlines(), 1):
        found = TARGET.match(line)
        if found:
            target = found[1]
            targets.add(target)
            if not DESCRIBED.search(line):
                findings.append(f"Makefile:{number}: {target} has no text for `make help`: '  ## ...'")
        elif line.startswith("\t") and target != "deps" and INSTALLS.search(line):
            findings.append(f"Makefile:{number}: {target} installs packages; that is for `make deps`")
    return targets, findings


def check(arguments):
    root = pathlib.Path(arguments.root)
    targets, findings = read_makefile((root / "Makefile").read_text(encoding="utf-8"))
    for path in common.tracked_files(root):
        name = path.relative_to(root).as_posix()
        if path.suffix != ".md" or name.startswith(HISTORY):
            continue
        in_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                in_code = not in_code
                continue
            for found in NAMED.finditer(line):
                if not in_code and not found[0].startswith("`"):
                    continue  # a sentence that begins with the verb
                if found[1] not in targets:
                    findings.append(f"{name}:{number}: the Makefile has no target {found[1]}")
    return findings


def self_test(_):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            "Makefile": "PACKAGES := cmake/install-packages.sh --check\n\nall:  ## libraries\n\t@$(PACKAGES) build\n\n"
                        "deps:  ## packages\n\t@cmake/install-packages.sh $(DEPS)\n\n"
                        "quick: all\n\t@echo\n\nlint:  ## rules\n\t@cmake/install-packages.sh lint\n",
            "README.md": "Call `make lint`, `make JOBS=2 gone` or\nmake it so.\n\n```\nmake quick\nmake away  # a comment\n```\n",
            "CHANGELOG.md": "`make history` has gone.\n",
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            "Makefile:9: quick has no text",
            "Makefile:13: lint installs packages",
            "README.md:1: the Makefile has no target gone",
            "README.md:6: the Makefile has no target away",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
