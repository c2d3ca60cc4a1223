"""Checks every #include under include/ and src/, and banned words, against layers.txt."""

import argparse
import dataclasses
import pathlib
import re
import tempfile

import common

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
STANDARD = re.compile(r"[a-z_]+")
POSIX = re.compile(r"((sys|linux|netinet|arpa|net)/)?[a-z0-9_]+\.h")
SOURCES = ("*.cc", "*.h")


@dataclasses.dataclass
class Layer:
    folder: str
    prefix: str
    libraries: list
    rank: int


class Table:
    def __init__(self, path):
        self.layers, self.isa, self.bans = [], [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            kind, *rest = words
            if kind == "layer" and len(rest) >= 2:
                self.layers.append(Layer(rest[0], rest[1], rest[2:], len(self.layers)))
            elif kind == "isa" and len(rest) >= 2:
                self.isa.append((rest[0], rest[1:]))
            elif kind == "ban" and len(rest) >= 3:
                self.bans.append((rest[0], rest[1].split(","), " ".join(rest[2:])))
            else:
                raise SystemExit(f"{path}:{number}: not understood: {line}")
        # A library that one layer names is nobody else's, `posix` or not.
        self.named = {name for layer in self.layers for name in layer.libraries if name != "posix"}

    def layer_of(self, path):
        inside = [layer for layer in self.layers if path.startswith(layer.folder + "/")]
        return max(inside, key=lambda layer: len(layer.folder), default=None)

    def provider_of(self, header):
        named = [layer for layer in self.layers if header.startswith(layer.prefix)]
        return max(named, key=lambda layer: len(layer.prefix), default=None)


def allowed(header, libraries):
    return any(header == name or (name.endswith("/") and header.startswith(name))
               for name in libraries)


def may_include(table, layer, header, angled):
    provider = table.provider_of(header)
    if provider is not None:
        if layer.folder.startswith("include/"):
            return provider.folder.startswith("include/") and provider.rank <= layer.rank
        return provider.rank <= layer.rank
    if allowed(header, layer.libraries):
        return True
    if not angled:
        return False
    return STANDARD.fullmatch(header) is not None or (
        "posix" in layer.libraries and POSIX.fullmatch(header) is not None
        and not allowed(header, table.named))


def includes(text):
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, match.group(1) or match.group(2), match.group(1) is not None


def files_below(root, folders):
    for folder in folders:
        for pattern in SOURCES:
            for path in sorted((root / folder).rglob(pattern)):
                yield path, path.relative_to(root).as_posix()


def check(arguments):
    root = pathlib.Path(arguments.root)
    table = Table(root / "tests/lint/layers.txt")
    texts = {name: common.without_comments(path.read_text())
             for path, name in files_below(root, ("include", "src"))}
    findings = []
    for name, text in texts.items():
        layer = table.layer_of(name)
        if layer is None:
            findings.append(f"{name}: lies in no layer of layers.txt")
            continue
        findings += [f"{name}:{line}: {layer.folder} must not include {header}"
                     for line, header, angled in includes(text)
                     if not may_include(table, layer, header, angled)]
    findings += check_isa(table, texts)
    for word, folders, reason in table.bans:
        for path, name in files_below(root, folders):
            text = texts.get(name) or common.without_comments(path.read_text())
            findings += [f"{name}:{number}: {word}: {reason}"
                         for number, line in enumerate(text.splitlines(), 1) if word in line]
    return findings


def check_isa(table, texts):
    findings = []
    for pattern, headers in table.isa:
        todo = [name for name in texts if pathlib.PurePath(name).match(pattern)]
        seen = set(todo)
        while todo:
            name = todo.pop()
            for line, header, _ in includes(texts[name]):
                ours = f"src/{header}"
                if not allowed(header, headers):
                    findings.append(f"{name}:{line}: code for one instruction set must not "
                                    f"include {header}")
                elif ours in texts and ours not in seen:
                    seen.add(ours)
                    todo.append(ours)
    return sorted(set(findings))


def self_test(arguments):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        table = (pathlib.Path(arguments.root) / "tests/lint/layers.txt").read_text()
        common.plant(root, {
            "tests/lint/layers.txt": table,
            # What is right stays unreported.
            "include/cbt/good.h": '#include <vector>\n#include "absl/status/status.h"\n'
                                  '#include "cbt/good.h"\n',
            "include/cbt/rpc/good.h": '#include "cbt/good.h"\n',
            "src/simd/good.h": "#include <cstdint>\n",
            "src/simd/good_inl.h": '#include <immintrin.h>\n#include <xsimd/xsimd.hpp>\n'
                                   '#include "simd/good.h"\n// bitwise_andnot is banned\n',
            "src/source/good.cc": '#include <unistd.h>\n#include <sys/stat.h>\n'
                                  '#include "cbt/good.h"\n// #include "rpc/x.h"\n',
            "src/rpc/good.cc": '#include <grpcpp/server.h>\n#include "cbt/rpc/good.h"\n',
            "src/cli/good.cc": '#include <CLI/CLI.hpp>\n#include "rpc/x.h"\n#include "core/x.h"\n',
            # What is wrong.
            "include/cbt/a.h": '#include "core/x.h"\n#include <unistd.h>\n'
                               '#include "cbt/rpc/client.h"\n',
            "include/cbt/rpc/b.h": '#include <grpcpp/server.h>\n#include "rpc/x.h"\n',
            "src/simd/c.cc": '#include "absl/status/status.h"\n',
            "src/simd/isa_d.cc": '#include "simd/d_inl.h"\n#include <vector>\n',
            "src/simd/d_inl.h": '#include "simd/d.h"\n#include "cbt/simd.h"\n',
            "src/simd/d.h": '#include <span>\nauto x = bitwise_andnot(a, b);\n',
            "src/core/e.cc": '#include "wire/x.h"\n  #  include <immintrin.h>\n'
                             '#include <fcntl.h>\n#include "roaring/roaring.h"\n',
            "src/map/f.cc": "x.remove_range(1, 2);\n",
            "src/source/g.cc": '#include "cbt/rpc/server.h"\n#include <immintrin.h>\n'
                               '#include <google/protobuf/message.h>\n#include "beside.h"\n',
            "src/rpc/h.cc": '#include "cli/x.h"\n#include <CLI/CLI.hpp>\n',
            "src/lost.cc": "\n",
            "bench/i.cc": "auto a = xsimd::dispatch(f); auto b = xsimd::available_architectures();\n",
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            "include/cbt/a.h:1: include/cbt must not include core/x.h",
            "include/cbt/a.h:2: include/cbt must not include unistd.h",
            "include/cbt/a.h:3: include/cbt must not include cbt/rpc/client.h",
            "include/cbt/rpc/b.h:1: include/cbt/rpc must not include grpcpp/server.h",
            "include/cbt/rpc/b.h:2: include/cbt/rpc must not include rpc/x.h",
            "src/simd/c.cc:1: src/simd must not include absl/status/status.h",
            "src/simd/isa_d.cc:2: code for one instruction set must not include vector",
            "src/simd/d_inl.h:2: code for one instruction set must not include cbt/simd.h",
            "src/simd/d.h:1: code for one instruction set must not include span",
            "src/simd/d.h:2: bitwise_andnot: ",
            "src/core/e.cc:1: src/core must not include wire/x.h",
            "src/core/e.cc:2: src/core must not include immintrin.h",
            "src/core/e.cc:3: src/core must not include fcntl.h",
            "src/core/e.cc:4: src/core must not include roaring/roaring.h",
            "src/map/f.cc:1: remove_range: ",
            "src/source/g.cc:1: src/source must not include cbt/rpc/server.h",
            "src/source/g.cc:2: src/source must not include immintrin.h",
            "src/source/g.cc:3: src/source must not include google/protobuf/message.h",
            "src/source/g.cc:4: src/source must not include beside.h",
            "src/rpc/h.cc:1: src/rpc must not include cli/x.h",
            "src/rpc/h.cc:2: src/rpc must not include CLI/CLI.hpp",
            "src/lost.cc: lies in no layer",
            "bench/i.cc:1: xsimd::dispatch: ",
            "bench/i.cc:1: available_architectures: ",
        ])


if __name__ == "__main__":
    common.main(check, self_test)
