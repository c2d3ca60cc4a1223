"""Checks that each link of a document leads to a file, and to one that is installed beside it.

`cmake --install` and the package cbt-doc lay out the top folder's pages, LICENSE, docs/ and examples/ as
the source tree does. So a document links nothing else: headers and sources are named in
code font, and the site makes links of headers. Anchors are checked as GitHub makes them.
"""

import argparse
import pathlib
import re
import tempfile
import urllib.parse

import common

# As in cmake/CbtInstall.cmake and debian/rules.
INSTALLED = re.compile(r"[^/]+\.md|LICENSE|(?:docs|examples)/.*|docs|examples")
SITE = "docs/site/"  # how the site is made
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}[ ]+(.*?)[ ]*$", re.MULTILINE)


def documents(root):
    return sorted(path for path in [*root.glob("*.md"), *root.glob("docs/**/*.md")] if path.is_file())


def anchors(text):
    """The anchors that GitHub gives the headings of a document."""
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 1
        unique = anchor
        while unique in found:
            unique, number = f"{anchor}-{number}", number + 1
        found.add(unique)
    return found


def check(arguments):
    root = pathlib.Path(arguments.root).resolve()
    findings = []
    for page in documents(root):
        name = page.relative_to(root).as_posix()
        text = page.read_text()
        for link in LINK.findall(CODE.sub("", FENCED.sub("", text))):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            if not target.is_relative_to(root) or not target.exists():
                findings.append(f"{name}: {link}: there is no such file")
                continue
            path = target.relative_to(root).as_posix()
            if not INSTALLED.fullmatch(path) or path.startswith(SITE):
                findings.append(f"{name}: {link}: is not installed; name it in code font instead")
            elif parts.fragment and target.suffix == ".md" and parts.fragment not in anchors(target.read_text()):
                findings.append(f"{name}: {link}: there is no such heading")
    return findings


def self_test(_):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        common.plant(root, {
            "README.md": "# R\n\n[a](docs/a.md#two-words) [e](examples/x) [s](https://example.com/x)\n"
                         "[gone](docs/gone.md) [header](include/cbt/h.h) `[code](x.md)`\n\n```\n[x](y.md)\n```\n",
            "docs/a.md": "# A\n\n## Two `words`\n\n## Two words\n\n[b](#two-words-1) [c](#three) [d](site/build.py)\n"
                         "[up](../../outside.md)\n",
            "docs/site/build.py": "\n",
            "examples/x/x.cc": "\n",
            "include/cbt/h.h": "\n",
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            "README.md: docs/gone.md: there is no such file",
            "README.md: include/cbt/h.h: is not installed",
            "docs/a.md: #three: there is no such heading",
            "docs/a.md: site/build.py: is not installed",
            "docs/a.md: ../../outside.md: there is no such file",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
