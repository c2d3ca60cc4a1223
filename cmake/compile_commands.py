#!/usr/bin/env python3
"""How each file is compiled by itself, although the build compiles several as one (CBT_UNITY).

compile_commands.py BUILD_TREE OUTPUT

Writes a compile_commands.json without unity files, precompiled headers and the compiler cache, for
clang-tidy and cppcheck.
"""

import json
import os
import re
import sys


def plain_commands(tree):
    """The entries of the tree's compile_commands.json, one for each file of the sources."""
    with open(os.path.join(tree, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    plain = []
    for entry in entries:
        command = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx|\S*/cmake -E env \S+ \S*ccache ", "",
                         entry["command"])
        if "cmake_pch.hxx" in entry["file"]:
            continue
        unity = re.search(r"-o (\S+?)/CMakeFiles/(\w+\.dir)/(Unity/unity_\S+\.o)", command)
        if not unity:
            plain.append(entry | {"command": command})
            continue
        with open(entry["file"], encoding="utf-8") as file:
            sources = re.findall(r'^#include "(.*)"', file.read(), re.MULTILINE)
        folder, target, object_file = unity.groups()
        for source in sources:
            inside = source.partition(f"/{folder}/")[2]
            alone = command.replace(f"{target}/{object_file}", f"{target}/{inside}.o").replace(entry["file"], source)
            plain.append(entry | {"command": alone, "file": source})
    return plain


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as output:
        json.dump(plain_commands(sys.argv[1]), output, indent=1)
