"""Compiles every public header alone, as a stranger would: twice in one file, with every warning, and
with nothing in reach but the standard library and abseil; those of cbt/grpc/ may take gRPC, and are left out where
it is not installed."""

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
# Below an include folder of the system, these belong to the compiler and the C library; everything
# else there is somebody's library. Files that lie directly in it are the C library's own.
SYSTEM = re.compile(r"(?:[a-z0-9_]+-linux-gnu\w*/)?"
                    r"(?:[^/]+|(?:c\+\+|bits|sys|gnu|asm|asm-generic|linux|sanitizer|absl)/.+)")
# Where Debian 13 keeps the kernel's asm/, behind a link.
KERNEL = "/usr/lib/linux/uapi"


# What one folder of headers is for.
GRPC_FOLDER = "cbt/grpc/"
GRPC = re.compile(r"/include/(?:grpc|grpcpp|google/protobuf)/")


def foreign(dependency, include):
    path = pathlib.Path(os.path.normpath(dependency))
    if path.is_relative_to(include) or path.is_relative_to(KERNEL):
        return False
    inside = re.split(r"/include(?:-fixed)?/", str(path))
    return len(inside) < 2 or SYSTEM.fullmatch("/".join(inside[1:])) is None


def check_header(compiler, absl, include, header, scratch):
    name = header.relative_to(include).as_posix()
    source = scratch / (name.replace("/", "_") + ".cc")
    depends = source.with_suffix(".d")
    source.write_text(f'#include "{name}"\n#include "{name}"\n')
    done = subprocess.run(
        [compiler, *FLAGS, f"-I{include}", *([f"-I{absl}"] if absl else []), "-MD", "-MF", depends,
         source], text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return [f"include/{name}: does not compile alone:\n{done.stderr}"]
    words = depends.read_text().replace("\\\n", " ").split()[2:]
    return [f"include/{name}: pulls in {word}" for word in words
            if foreign(word, include) and not (name.startswith(GRPC_FOLDER) and GRPC.search(word))]


def check(arguments):
    include = (pathlib.Path(arguments.root) / "include").resolve()
    headers = sorted(include.rglob("*.h"))
    if not pathlib.Path("/usr/include/grpcpp").is_dir():
        headers = [header for header in headers if GRPC_FOLDER not in header.as_posix()]
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
        common.plant(root, {
            "include/cbt/good.h": "#pragma once\n#include <string>\n#include <unistd.h>\n"
                                  '#include "absl/status/status.h"\n'
                                  "inline std::string Good() { return {}; }\n",
            "include/cbt/needs_string.h": "#pragma once\ninline std::string Bad();\n",
            "include/cbt/no_guard.h": "struct Twice {};\n",
            "include/cbt/warns.h": "#pragma once\ninline int Bad(long x) { return x; }\n",
            "usr/include/elsewhere/lib.h": "\n",
            "include/cbt/foreign.h": f'#pragma once\n#include "{root}/usr/include/elsewhere/lib.h"\n',
        })
        findings = check(argparse.Namespace(root=root, compiler=arguments.compiler,
                                            absl=arguments.absl))
        common.expect_findings([finding.splitlines()[0] for finding in findings], [
            "include/cbt/needs_string.h: does not compile alone",
            "include/cbt/no_guard.h: does not compile alone",
            "include/cbt/warns.h: does not compile alone",
            "include/cbt/foreign.h: pulls in",
        ])


if __name__ == "__main__":
    common.main(check, self_test, compiler="c++", absl="")
