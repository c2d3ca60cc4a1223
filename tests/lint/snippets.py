"""Checks that every program in a document is code that is built: each block of C, C++, CMake
or Python is part of a file that a test builds or runs.

In Markdown, a comment before the block names its sources, `FILE` or `FILE#SECTION`:

    <!-- snippet: examples/plugin/plugin.cc -->

In a header, a line of the comment does, and the indented lines after it are the block:

    // snippet: examples/embedded-plugin/plugin.cc#serve
    //   MyProvider provider;

A section is between `// [NAME]` and `// [/NAME]` (`#` in CMake and Python); a whole file is shown without its
top comment. --write updates the documents.
"""

import argparse
import pathlib
import re
import sys
import tempfile
import textwrap

import common

LANGUAGES = {".c": "c", ".cc": "cpp", ".go": "go", ".h": "cpp", ".proto": "proto", ".rs": "rust", ".toml": "toml",
             ".txt": "cmake", ".py": "python", ".sh": "bash"}
# Blocks of these may also be by themselves.
SHOWN = {**LANGUAGES, ".yaml": "yaml"}
MARK = re.compile(r"<!-- snippet: (.+) -->")
FENCE = re.compile(r"```(\w*)")
HEADER_MARK = re.compile(r"// snippet: (.+)$")
# A line that looks like a statement in a header's comment.
STATEMENT = re.compile(r"//   \S.*[;{]$")
SECTION = re.compile(r"\s*(?://|#) \[/?[\w-]+\]$")


class Wrong(Exception):
    """A mark whose source does not exist."""


def source_of(root, name):
    """The lines that a mark names."""
    path, _, section = name.partition("#")
    file = root / path
    if not file.is_file():
        raise Wrong(f"there is no {path}")
    lines = file.read_text().splitlines()
    if section:
        marks = [number for number, line in enumerate(lines)
                 if re.fullmatch(rf"\s*(?://|#) \[/?{re.escape(section)}\]", line)]
        if len(marks) != 2:
            raise Wrong(f"{path} has no section {section}")
        lines = lines[marks[0] + 1:marks[1]]
    else:
        while lines and lines[0].startswith("//"):
            lines.pop(0)
    # gofmt indents with tabs, documents with spaces.
    lines = [line.expandtabs(4) for line in lines if not SECTION.fullmatch(line)]
    return textwrap.dedent("\n".join(lines)).strip("\n").split("\n")


def shown(root, names):
    """The block of several sources, separated by empty lines."""
    parts = [source_of(root, name) for name in names.split()]
    return [line for i, part in enumerate(parts) for line in ([""] if i else []) + part]


def update_markdown(root, lines, at):
    """(lines with the blocks of their sources, findings)."""
    result, findings, names, i = [], [], None, 0
    while i < len(lines):
        line = lines[i]
        fence = FENCE.fullmatch(line)
        if not fence:
            mark = MARK.fullmatch(line)
            if mark or line:
                names = mark.group(1) if mark else None
            result.append(line)
            i += 1
            continue
        end = lines.index("```", i + 1) if "```" in lines[i + 1:] else len(lines) - 1
        block = lines[i + 1:end]
        if names is not None:
            try:
                block = shown(root, names)
            except Wrong as wrong:
                findings.append(f"{at}:{i}: {wrong}")
            want = SHOWN.get(pathlib.PurePath(names.split()[0].partition("#")[0]).suffix)
            if fence.group(1) != want:
                findings.append(f"{at}:{i + 1}: a snippet of this source is a block of {want}")
        elif fence.group(1) in LANGUAGES.values():
            findings.append(f"{at}:{i + 1}: a program that no test builds; name its source")
        result += [line, *block, "```"]
        names, i = None, end + 1
    return result, findings


def update_header(root, lines, at):
    result, findings, i = [], [], 0
    while i < len(lines):
        line = lines[i]
        result.append(line)
        i += 1
        mark = HEADER_MARK.fullmatch(line)
        if mark is None:
            if STATEMENT.match(line):
                findings.append(f"{at}:{i}: code that no test builds; name its source")
            continue
        end = i
        while end < len(lines) and (lines[end].startswith("//   ") or (
                lines[end] == "//" and end + 1 < len(lines) and lines[end + 1].startswith("//   "))):
            end += 1
        try:
            result += [f"//   {text}".rstrip() for text in shown(root, mark.group(1))]
        except Wrong as wrong:
            findings.append(f"{at}:{i}: {wrong}")
            result += lines[i:end]
        i = end
    return result, findings


def documents(root):
    for path in common.tracked_files(root):
        name = path.relative_to(root).as_posix()
        if name == "README.md" or (name.startswith("docs/") and name.endswith(".md")):
            yield path, name, update_markdown
        elif name.startswith("include/") and name.endswith(".h"):
            yield path, name, update_header


def check(arguments, write=False):
    root = pathlib.Path(arguments.root)
    findings = []
    for path, name, update in documents(root):
        lines = path.read_text().splitlines()
        updated, more = update(root, lines, name)
        findings += more
        if updated == lines:
            continue
        if write:
            path.write_text("\n".join(updated) + "\n")
            print(f"{name}: rewritten")
        else:
            findings.append(f"{name}: a snippet differs from its source; "
                            "run tests/lint/snippets.py --write")
    return findings


def self_test(_):
    source = "// A program.\n#include <a>\n\n// [part]\nint a;\n\n  // [inner]\n  int b;\n  // [/inner]\n// [/part]\n"
    good = "<!-- snippet: examples/a.cc#inner -->\n\n```cpp\nint b;\n```\n\n```\nplain\n```\n"
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            "examples/a.cc": source,
            "README.md": good,
            "docs/whole.md": "<!-- snippet: examples/a.cc -->\n```cpp\n#include <a>\n\nint a;\n\n  int b;\n```\n",
            "docs/text.md": "```cpp\nint c;\n```\n",
            "docs/old.md": good.replace("int b", "int c"),
            "docs/none.md": good.replace("a.cc#inner", "b.cc"),
            "docs/section.md": good.replace("#inner", "#other"),
            "docs/language.md": good.replace("```cpp", "```cmake"),
            "include/good.h": "// snippet: examples/a.cc#inner\n//   int b;\n//\n// More.\nint x;\n",
            "include/old.h": "// snippet: examples/a.cc#part\n//   int a;\n//\n// More.\n",
            "include/text.h": "// Use it:\n//   int d;\n",
        })
        arguments = argparse.Namespace(root=root)
        wanted = ["docs/text.md:1: a program", "docs/old.md: a snippet differs",
                  "docs/none.md:2: there is no examples/b.cc", "docs/section.md:2: examples/a.cc has no",
                  "docs/language.md:3: a snippet of", "include/old.h: a snippet differs",
                  "include/text.h:2: code"]
        common.expect_findings(check(arguments), wanted)
        check(arguments, write=True)
        common.expect_findings(check(arguments), [each for each in wanted if "differs" not in each])
        if (root / "include/old.h").read_text() != (
                "// snippet: examples/a.cc#part\n//   int a;\n//\n//     int b;\n//\n// More.\n"):
            raise AssertionError((root / "include/old.h").read_text())


if __name__ == "__main__":
    # Only this check has --write.
    write = "--write" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--write"]
    common.main(lambda arguments: check(arguments, write), self_test)
