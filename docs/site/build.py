#!/usr/bin/env python3
"""Builds the site of documents and headers with Doxygen, with any warning as an error, and checks
its links.

  build.py --output DIR [--stylesheet FILE]    the site in DIR/html
  build.py --output DIR --check                the same as a test: skipped without Doxygen
  build.py --output DIR --self-test            a bad comment and bad links must be found
"""

import argparse
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.sax.saxutils

import filter as site_filter

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version():
    return re.search(r'kVersion\[\] = "([^"]+)"', (ROOT / "include/cbt/version.h").read_text()).group(1)


ROW = re.compile(r"^(?:##|-) (.*)$", re.MULTILINE)
ENTRY = re.compile(r"\[(.+)\]\((.+\.md)\)")


def tab(title, page, inside=""):
    """An entry of the navigation tree; with entries inside, a group."""
    words = f'visible="yes" title={xml.sax.saxutils.quoteattr(title)}'
    if page:
        words += f' url="@ref {site_filter.label_of(page.relative_to(ROOT))}"'
    return f'<tab type="usergroup" {words}>{inside}</tab>' if inside else f'<tab type="user" {words}/>'


def tree_of(index, there):
    """The tree of a page of lists: a group for each heading. Adds every page to `there`."""
    there.add(index)
    groups = [("", [])]
    for words in ROW.findall(index.read_text()):
        entry = ENTRY.fullmatch(words)
        if entry is not None:
            page = (index.parent / entry.group(2)).resolve()
            inside = tree_of(page, there) if page.name == "README.md" else ""
            there.add(page)
            groups[-1][1].append(tab(entry.group(1), page, inside))
        else:
            groups.append((words, []))
    return "".join(tab(title, None, "".join(tabs)) if title else "".join(tabs) for title, tabs in groups if tabs)


def layout(output):
    """Writes Doxygen's own layout with the documents in the order of docs/README.md; returns its
    path.
    """
    path, there = output / "layout.xml", set()
    subprocess.run(["doxygen", "-l", path], check=True)
    tree = tree_of(ROOT / "docs/README.md", there)
    pages = {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")}
    missing = sorted(pages - there)
    if missing:
        sys.exit(f"docs: not in docs/README.md: {', '.join(map(str, missing))}")
    text, count = re.subn('<tab type="pages"[^>]*>', lambda _: tree, path.read_text())
    if count != 1:
        sys.exit("docs: Doxygen's layout has no tab of pages")
    path.write_text(text)
    return path


def doxygen(arguments, *more, site=True):
    output = arguments.output.resolve()
    # pages of an earlier run would be checked too
    shutil.rmtree(output / "html", ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    # This interpreter and not a wrapper of it, without packages: it starts once for each file.
    rewrite = f'"{sys.executable} -S -B docs/site/filter.py"'
    settings = [f"@INCLUDE = {ROOT / 'docs/site/Doxyfile'}", f"OUTPUT_DIRECTORY = {output}",
                f"PROJECT_NUMBER = {version()}", f"LAYOUT_FILE = {layout(output)}",
                f"FILTER_PATTERNS = *.h={rewrite} *.md={rewrite}"]
    if not site:  # only warnings
        settings += ["GENERATE_HTML = NO", "GENERATE_XML = YES", "XML_PROGRAMLISTING = NO"]
    if arguments.stylesheet:
        settings.append(f"HTML_EXTRA_STYLESHEET += {arguments.stylesheet.resolve()}")
    settings += more
    return subprocess.run(["doxygen", "-"], input="\n".join(settings) + "\n", text=True, cwd=ROOT,
                          check=False).returncode


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors = set()
        self.links = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


# Doxygen links this list even if all its entries are private.
NOT_WRITTEN = "#nested-classes"


# Doxygen writes its own commands for headings and blocks, and shows them if it did not understand
# what stands before.
LEFT_OVER = re.compile(r"^@(?:sub)*section .*|^@(?:end)?code\b.*", re.MULTILINE)


def broken_links(site):
    """Links within the site whose page or anchor is missing, and headings that were not understood.
    External links are not checked.
    """
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        found += [f"{path.name}: '{command}' is shown" for command in LEFT_OVER.findall(path.read_text())]
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or link == NOT_WRITTEN:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{path.name}: {link}: no such file")
            elif parts.fragment and target in pages and \
                    urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path.name}: {link}: no such anchor")
    return len(pages), found


def self_test(arguments):
    planted = arguments.output / "planted"
    planted.mkdir(parents=True, exist_ok=True)
    header, page = planted / "planted.h", planted / "planted.html"
    for comment, status in (("@param b a number", 1), ("@param a a number", 0)):
        header.write_text(f"/// @file\n\n/// A function.\n/// {comment}\nint Planted(int a);\n")
        if bool(doxygen(arguments, f"INPUT = {header}", site=False)) != bool(status):
            sys.exit(f"docs: self-test: '{comment}' must give exit status {status}")
    page.write_text('<a id="here" href="#here"></a><a href="#gone"></a><a href="gone.html"></a>'
                    '<a href="https://example.com/gone"></a>\n@section a A\n')
    _, found = broken_links(planted)
    expected = ["planted.html: '@section a A' is shown", "planted.html: #gone: no such anchor",
                "planted.html: gone.html: no such file"]
    if found != expected:
        sys.exit(f"docs: self-test: found {found}, expected {expected}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--stylesheet", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("doxygen") is None:
        if arguments.check or arguments.self_test:
            print("skipped: no doxygen")
            return
        sys.exit("docs: no doxygen (package doxygen)")
    if arguments.self_test:
        self_test(arguments)
        return
    if doxygen(arguments) != 0:
        sys.exit("docs: Doxygen found something above")
    # Search results are pages of their own, which Doxygen's extra stylesheets do not reach.
    with open(arguments.output / "html/search/search.css", "a", encoding="utf-8") as file:
        file.write((ROOT / "docs/site/search.css").read_text())
    count, found = broken_links(arguments.output / "html")
    if found:
        sys.exit("\n".join(found) + f"\ndocs: {len(found)} broken links or headings")
    print(f"docs: {count} pages, no broken link: {arguments.output}/html/index.html")


main()
