"""Doxygen's input filter: prints a file of the source tree in the form that Doxygen reads best.

Headers have plain comments and documents have GitHub's links, for people who read the sources. Run
in the source tree: filter.py FILE.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAIN_PAGE = pathlib.Path("README.md")
FENCED = re.compile(r"(^[ ]*```.*?^[ ]*```[ ]*$)", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6})[ ]+(.*?)[ ]*$", re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# A public header in code font, outside of a link.
PUBLIC_HEADER = re.compile(r"(?<!\[)`(cbt/[\w/]+\.h)`(?!\])")
# Doxygen leaves the asterisks.
BOLD_CODE = re.compile(r"\*\*`([^`]+)`\*\*")
# Doxygen lists a friend operator, but does not write the target of the list's link.
FRIEND = re.compile(r"^(\s*)friend (?!class )")
COMMENT = re.compile(r"^(\s*)//(?!/)(.*)$")
# For clang-tidy, not for readers.
NOLINT = re.compile(r"\s*//\s*NOLINT\w*(\([^)]*\))?\s*$")
TRAILING = re.compile(r"^(\s*(?!//).*?\S)(\s+)//(?!/)\s?(.*)$")


def anchor_of(heading):
    """The anchor that GitHub gives a heading."""
    text = LINK.sub(r"\2", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def label_of(path, anchor=""):
    """Doxygen's labels share one name space; `path` is relative to the source tree."""
    name = "page_" + re.sub(r"\W", "_", path.with_suffix("").as_posix())
    return name + ("__" + re.sub(r"\W", "_", anchor) if anchor else "")


def link_for(page, match):
    image, text, target = match.groups()
    text = " ".join(text.split())  # a line's end in the text of a link ends Doxygen's list or section
    if image or re.match(r"[a-z]+:", target):
        return f"{image}[{text}]({target})"
    path, _, anchor = target.partition("#")
    found = (ROOT / page.parent / path).resolve().relative_to(ROOT) if path else page
    if found.suffix == ".md":
        label = "index" if found == MAIN_PAGE and not anchor else label_of(found, anchor)
        return f"[{text}](@ref {label})"
    return text  # a file that only the source tree has


def header_link(match):
    name = match.group(1)
    return f"[{name}](@ref {name})" if (ROOT / "include" / name).is_file() else match.group()


def prose(page, text, seen):
    """A part of a document between fenced code; links may span lines. `seen`: the anchors so
    far.
    """

    def heading(match):
        marks, words = match.groups()
        anchor = anchor_of(words) if len(marks) > 1 else ""
        seen[anchor] = seen.get(anchor, -1) + 1
        if seen[anchor]:
            anchor += f"-{seen[anchor]}"
        label = "mainpage" if page == MAIN_PAGE and not anchor else label_of(page, anchor)
        plain_words = LINK.sub(r"\2", words)
        return f"{marks} {plain_words} {{#{label}}}"

    text = LINK.sub(lambda match: link_for(page, match), HEADING.sub(heading, text))
    text = BOLD_CODE.sub(r"<b>`\1`</b>", text)
    return PUBLIC_HEADER.sub(header_link, text)


def markdown(page, text):
    seen = {}
    for part in re.split(FENCED, text):
        if not part.lstrip().startswith("```"):
            yield prose(page, part, seen)
        elif part.lstrip().startswith("```cpp"):
            yield part
        else:  # Doxygen highlights no other language, and warns about some
            yield re.sub(r"^(\s*```).*", r"\1", part, count=1)


def plain(text):
    """Prose in which Doxygen must not see tags, commands or references; code between backticks
    stays.
    """
    parts = text.split("`")
    parts[::2] = [re.sub(r"[\\<>@#&]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


class Header:
    """Turns // into ///, // after a member into ///<, and indented examples into code."""

    def __init__(self):
        self.code = False
        self.after_blank = True
        self.column = None  # the column of the comment after a member
        self.first = True

    def line(self, line):
        line = FRIEND.sub(r"\1", NOLINT.sub("", line))
        comment = COMMENT.match(line)
        if comment and self.column == len(comment.group(1)):
            return f"{comment.group(1)}///< {plain(comment.group(2).strip())}"
        self.column = None
        if comment:
            return self.comment(*comment.groups())
        end = self.end()
        self.after_blank = True
        trailing = TRAILING.match(line)
        if trailing and not line.lstrip().startswith("#") and '"' not in trailing.group(3):
            code, gap, words = trailing.groups()
            self.column = len(code) + len(gap)
            line = f"{code}{gap}///< {plain(words)}"
        return end + line

    def comment(self, indent, words):
        out = ""
        if self.first:
            out, self.first = f"{indent}/// @file\n", False
        blank = not words.strip()
        deep = words.startswith("  ")
        listed = re.match(r"\s*(?:[-*]|\d+\.)\s", words)
        if self.code and not blank and not deep:
            out += f"{indent}/// @endcode\n"
            self.code = False
        elif not self.code and deep and self.after_blank and not listed:
            out += f"{indent}/// @code\n"
            self.code = True
        self.after_blank = blank
        return f"{out}{indent}///{words if self.code else plain(words)}"

    def end(self):
        self.first = False
        if not self.code:
            return ""
        self.code = False
        return "/// @endcode\n"


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    text = path.read_text()
    if path.suffix == ".md":
        print("".join(markdown(path.relative_to(ROOT), text)), end="")
    else:
        header = Header()
        print("\n".join(map(header.line, text.splitlines())))


if __name__ == "__main__":
    main()
