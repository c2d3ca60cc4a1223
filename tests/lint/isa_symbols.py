"""Checks the objects compiled for one instruction set: the linker must not be able to use any of
their symbols for the rest of the program.

An inline function in two objects is one weak symbol, and the linker keeps any of the copies. If
that is the AVX-512 one, the program crashes on older processors, far away from any kernel. So every
symbol that such an object exports must name its level: as our namespace of the level, or as the
xsimd architecture of a template instance.
"""

import argparse
import pathlib
import re
import subprocess
import tempfile

import common

# The address of the exception personality, emitted with position-independent code: data, equal in
# every copy.
HARMLESS = {"DW.ref.__gxx_personality_v0"}
LEVEL = re.compile(r"CBT_ISA_LEVEL\(k(\w+),")


def levels(build):
    """The levels of this build, as written by cmake/CbtIsa.cmake."""
    text = (build / "generated/isa_levels.inc").read_text()
    return [name.lower() for name in LEVEL.findall(text)]


def tokens(source):
    """The namespace and the architecture of an isa_<level>.cc in a mangled name."""
    text = source.read_text()
    namespace = re.search(r"#define CBT_ISA_NAMESPACE (\w+)", text).group(1)
    architecture = re.search(r"#define CBT_ISA_ARCH (\S+)", text).group(1).split("::")[-1]
    return [f"{len(name)}{name}" for name in (namespace, architecture)]


def symbols(nm, path):
    """(type, mangled name) of the object's exported symbols."""
    for line in subprocess.run([nm, "--defined-only", "--extern-only", path], text=True, check=True,
                               stdout=subprocess.PIPE).stdout.splitlines():
        words = line.split()
        if len(words) == 3:
            yield words[1], words[2]


def check(arguments):
    build = pathlib.Path(arguments.build)
    source = pathlib.Path(arguments.root) / "src/simd"
    findings = []
    present = levels(build)
    for level in present:
        objects = sorted((build / "src").rglob(f"isa_{level}.cc.o"))
        if not objects:
            findings.append(f"isa_{level}.cc: no object in {build}")
            continue
        marks = [re.compile(rf"(?<!\d){re.escape(mark)}")
                 for mark in tokens(source / f"isa_{level}.cc")]
        for path in objects:
            found = list(symbols(arguments.nm, path))
            if not found:
                findings.append(f"isa_{level}.cc: its object gives out nothing")
            findings += [f"isa_{level}.cc: gives out a symbol that others share: {kind} {name}"
                         for kind, name in found
                         if name not in HARMLESS and not any(mark.search(name) for mark in marks)]
    if not present:
        print("no instruction-set level in this build")
    return findings


def self_test(arguments):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        head = "#define CBT_ISA_NAMESPACE good\n#define CBT_ISA_ARCH ::xsimd::arch\n"
        body = ("namespace xsimd { struct arch {};\n"
                "template <class A> __attribute__((noinline)) int Kernel() { return 1; } }\n"
                "namespace cbt::simd::good { int Use() { return xsimd::Kernel<xsimd::arch>(); } }\n")
        shared = ("__attribute__((noinline)) inline int Shared() { return 2; }\n"
                  "int Other() { return Shared(); }\n")
        common.plant(root, {
            "build/generated/isa_levels.inc": "CBT_ISA_LEVEL(kGood, true)\nCBT_ISA_LEVEL(kBad, true)\n"
                                              "CBT_ISA_LEVEL(kGone, true)\n",
            "src/simd/isa_good.cc": head + body,
            "src/simd/isa_bad.cc": head.replace("good", "bad") + body.replace("good", "bad") + shared,
            "src/simd/isa_gone.cc": head,
        })
        (root / "build/src").mkdir()
        for level in ("good", "bad"):
            subprocess.run([arguments.compiler, "-O1", "-std=c++20", "-c",
                            root / f"src/simd/isa_{level}.cc", "-o",
                            root / f"build/src/isa_{level}.cc.o"], check=True)
        common.expect_findings(
            check(argparse.Namespace(root=root, build=root / "build", nm=arguments.nm)), [
                "isa_bad.cc: gives out a symbol that others share: W _Z6Sharedv",
                "isa_bad.cc: gives out a symbol that others share: T _Z5Otherv",
                "isa_gone.cc: no object",
            ])


if __name__ == "__main__":
    common.main(check, self_test, build="", nm="nm", compiler="c++")
