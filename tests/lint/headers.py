"""Compiles every public header alone, as a consumer would: twice in one file, with every warning,
and with only the standard library and abseil available. Headers that bridge to another library may
use it, and are left out where it is not installed. Below C++20 each reports that first.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import common

FLAGS = ["-fsyntax-only", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
# Below a system include folder, these belong to the compiler and the C library; other subfolders
# belong to other libraries. Files directly in it are the C library's own.
SYSTEM = re.compile(r"(?:[a-z0-9_]+-linux-gnu\w*/)?"
                    r"(?:[^/]+|(?:c\+\+|bits|sys|gnu|asm|asm-generic|linux|sanitizer|absl)/.+)")
# The place of the kernel's asm/ on Debian 13, a link's target.
KERNEL = "/usr/lib/linux/uapi"


# The library that a folder or header bridges to: its headers, and its path if installed.
BRIDGES = {
    "cbt/grpc/": (re.compile(r"/include/(?:grpc|grpcpp|google/protobuf)/"), "/usr/include/grpcpp"),
    "cbt/bridge/roaring.h": (re.compile(r"/include/roaring/"), "/usr/include/roaring"),
}
TOO_OLD = "libcbt needs C++20"
# The C interface, for any C++ and for C11.
C_HEADERS = "cbt/c/"
C_FLAGS = ["-x", "c", "-std=c11", *(flag for flag in FLAGS if not flag.startswith("-std"))]


def foreign(dependency, include):
    path = pathlib.Path(os.path.normpath(dependency))
    if path.is_relative_to(include) or path.is_relative_to(KERNEL):
        return False
    inside = re.split(r"/include(?:-fixed)?/", str(path))
    return len(inside) < 2 or SYSTEM.fullmatch("/".join(inside[1:])) is None


def bridge(name):
    return next((library for place, library in BRIDGES.items() if name.startswith(place)), None)


def check_header(compiler, absl, include, header, scratch):
    name = header.relative_to(include).as_posix()
    source = scratch / (name.replace("/", "_") + ".cc")
    depends = source.with_suffix(".d")
    # C wants something after what a header of macros leaves.
    source.write_text(f'#include "{name}"\n#include "{name}"\nextern int something;\n')
    done = subprocess.run(
        [compiler, *FLAGS, f"-I{include}", *([f"-I{absl}"] if absl else []), "-MD", "-MF", depends,
         source], text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return [f"include/{name}: does not compile alone:\n{done.stderr}"]
    words = depends.read_text().replace("\\\n", " ").split()[2:]
    pulled = [f"include/{name}: pulls in {word}" for word in words
              if foreign(word, include) and not (bridge(name) and bridge(name)[0].search(word))]
    if name.startswith(C_HEADERS):
        for flags in (C_FLAGS, [*FLAGS, "-std=c++11"]):
            done = subprocess.run([compiler, *flags, f"-I{include}", source], text=True, stderr=subprocess.PIPE, check=False)
            if done.returncode != 0:
                return [f"include/{name}: does not compile alone with {' '.join(flags)}:\n{done.stderr}"]
        return pulled
    old = subprocess.run(
        [compiler, "-E", "-Wfatal-errors", "-std=c++17", f"-I{include}", *([f"-I{absl}"] if absl else []), "-o", os.devnull, source],
        text=True, stderr=subprocess.PIPE, check=False)
    errors = [line for line in old.stderr.splitlines() if "error:" in line]
    if not errors or TOO_OLD not in errors[0]:
        return [f"include/{name}: does not say in C++17 that it needs C++20"]
    return pulled


def check(arguments):
    include = (pathlib.Path(arguments.root) / "include").resolve()
    headers = sorted(include.rglob("*.h"))
    headers = [header for header in headers
               if (library := bridge(header.relative_to(include).as_posix())) is None or pathlib.Path(library[1]).is_dir()]
    if not headers:
        sys.exit(f"no headers below {include}")
    with tempfile.TemporaryDirectory() as scratch, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [finding for findings in pool.map(
            lambda header: check_header(arguments.compiler, arguments.absl, include, header,
                                        pathlib.Path(scratch)), headers) for finding in findings]


def self_test(arguments):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        modern = f'#if __cplusplus < 202002L\n#error "{TOO_OLD}"\n#endif\n'
        common.plant(root, {
            "include/cbt/good.h": "#pragma once\n" + modern + "#include <string>\n#include <unistd.h>\n"
                                  '#include "absl/status/status.h"\n'
                                  "inline std::string Good() { return {}; }\n",
            "include/cbt/needs_string.h": "#pragma once\n" + modern + "inline std::string Bad();\n",
            "include/cbt/no_guard.h": modern + "struct Twice {};\n",
            "include/cbt/warns.h": "#pragma once\n" + modern + "inline int Bad(long x) { return x; }\n",
            "include/cbt/any_standard.h": "#pragma once\n",
            "include/cbt/c/good.h": "#pragma once\n#include <stdint.h>\nint32_t good(void);\n",
            "include/cbt/c/macros.h": "#pragma once\n#define CBT_GOOD 1\n",
            "include/cbt/c/cpp_only.h": "#pragma once\nstruct S { int a; };\nvoid f(S s);\n",
            "usr/include/elsewhere/lib.h": "\n",
            "include/cbt/foreign.h": "#pragma once\n" + modern + f'#include "{root}/usr/include/elsewhere/lib.h"\n',
        })
        findings = check(argparse.Namespace(root=root, compiler=arguments.compiler,
                                            absl=arguments.absl))
        common.expect_findings([finding.splitlines()[0] for finding in findings], [
            "include/cbt/needs_string.h: does not compile alone",
            "include/cbt/no_guard.h: does not compile alone",
            "include/cbt/warns.h: does not compile alone",
            "include/cbt/any_standard.h: does not say in C++17",
            "include/cbt/c/cpp_only.h: does not compile alone with -x c -std=c11",
            "include/cbt/foreign.h: pulls in",
        ])


if __name__ == "__main__":
    common.main(check, self_test, compiler="c++", absl="")
