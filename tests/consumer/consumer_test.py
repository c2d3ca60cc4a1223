"""Builds strangers' projects against the installed library.

Run by ctest; `install` is the fixture of the others. Works in --scratch, which it may wipe.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

# What project/core.cc prints: its gap of one block is bridged, the long one is not.
CORE_OUTPUT = "0 8192\n81920 16384\n"
ALL_OUTPUT = "NOT_FOUND\n"
GRPC_OUTPUT = "NOT_FOUND\n"
# Nothing of these may reach who asked for core alone.
FOREIGN = re.compile(r"grpc|protobuf|protoc\b|upb|cares|re2", re.IGNORECASE)
GRPC = re.compile(r"\bgrpc|libgrpc|gRPC|libprotobuf")
# Nothing of these may reach anybody.
PRIVATE = re.compile(r"cbt_private_flags|-Werror|-Wconversion|[\s;\"]-m[a-z]|-fsanitize|xsimd|"
                     r"BUILD_INTERFACE")


def run(*command, expect_failure=False, **options):
    command = [str(word) for word in command]
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    if (done.returncode != 0) != expect_failure:
        sys.exit(f"{done.stdout}\nexit status {done.returncode}")
    return done.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def no_match(pattern, text, what):
    found = pattern.search(text)
    if found:
        line = next(line for line in text.splitlines() if pattern.search(line))
        sys.exit(f"FAILED: {what} mentions '{found.group()}': {line[:500]}")


class Consumer:
    def __init__(self, arguments):
        self.build = arguments.build
        self.project = arguments.source / "project"
        self.scratch = arguments.scratch
        self.cmake = arguments.cmake
        self.compiler = arguments.compiler
        self.version = arguments.version
        self.rpc = arguments.rpc == "ON"
        self.grpc_built = arguments.grpc == "ON"
        self.prefix = self.scratch / "prefix"
        self.name = arguments.check

    def only(self, pattern, root=None):
        found = sorted((root or self.prefix).rglob(pattern))
        expect(len(found) == 1, f"one {pattern} is installed, found {found}")
        return found[0]

    def configure(self, components, *extra, program="core", prefix=None, **options):
        tree = self.scratch / self.name
        shutil.rmtree(tree, ignore_errors=True)
        return tree, run(self.cmake, "-S", self.project, "-B", tree, "-G", "Ninja",
                         f"-DCMAKE_CXX_COMPILER={self.compiler}", "-DCMAKE_BUILD_TYPE=Release",
                         f"-DCMAKE_PREFIX_PATH={prefix or self.prefix}", f"-DPROGRAM={program}",
                         f"-DVERSION={self.version}", f"-DCOMPONENTS={';'.join(components)}", *extra, **options)

    def install(self):
        """Installs, moves what was installed to another place, and reads it for leaks."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        first = self.scratch / "first"
        run(self.cmake, "--install", self.build, "--prefix", first)
        # Whoever finds it in another place than it was installed to must not notice.
        first.rename(self.prefix)
        root = str(self.project.parents[2])
        for pattern in ("*.cmake", "*.pc"):
            for path in self.prefix.rglob(pattern):
                text = path.read_text()
                no_match(PRIVATE, text, path.name)
                expect(root not in text and str(self.build) not in text and str(first) not in text,
                       f"{path.name} is free of paths of the build")
        for pattern in ("cbt-core*", "cbt-source*"):
            for path in self.prefix.rglob(pattern):
                no_match(FOREIGN, path.read_text(), path.name)
        for header in ("cursor.h", "source/directory_provider.h") + (("rpc/server.h",) * self.rpc):
            expect((self.prefix / "include/cbt" / header).is_file(), f"{header} is installed")
        expect((self.prefix / "include/cbt/rpc").exists() == self.rpc, "rpc headers go with rpc")

    def core(self):
        """cbt::core alone: no other package is looked for, linked or loaded."""
        tree, _ = self.configure(["core"])
        no_match(FOREIGN, (tree / "CMakeCache.txt").read_text(), "the cache of a consumer of core")
        log = run(self.cmake, "--build", tree, "-v")
        expect("libcbt_core.a" in log, "the link line is in the log")
        no_match(FOREIGN, log, "the build of a consumer of core")
        no_match(PRIVATE, log, "the build of a consumer of core")
        no_match(FOREIGN, run("ldd", tree / "consumer"), "ldd")
        expect(run(tree / "consumer") == CORE_OUTPUT, "the consumer's output")

    def all(self):
        tree, _ = self.configure(["core", "source", "rpc"], program="all")
        run(self.cmake, "--build", tree)
        expect(run(tree / "consumer", cwd=self.scratch) == ALL_OUTPUT, "the consumer's output")
        # Without naming components, everything that is installed comes.
        _, log = self.configure([], "-DPROGRAM=core")
        expect(("gRPC_DIR" in (tree / "CMakeCache.txt").read_text()) == self.grpc_built,
               f"what is installed came by itself: {log}")

    def grpc(self):
        """cbt::rpc needs no gRPC; cbt::grpc is a service for a gRPC server of the program's own."""
        tree, _ = self.configure(["core", "source", "rpc"], program="all")
        expect("gRPC_DIR" not in (tree / "CMakeCache.txt").read_text(), "rpc looks for no gRPC")
        log = run(self.cmake, "--build", tree, "-v")
        no_match(GRPC, log, "the build of a consumer of rpc")
        no_match(GRPC, run("ldd", tree / "consumer"), "ldd")
        tree, _ = self.configure(["source", "grpc"], program="grpc")
        run(self.cmake, "--build", tree)
        expect(run(tree / "consumer", cwd=self.scratch) == GRPC_OUTPUT, "the consumer's output")

    def missing(self):
        """A component that can't be had: said clearly, and only who needs it fails."""
        _, log = self.configure(["core", "cloud"], expect_failure=True)
        expect("component cloud: there is no such component" in log, log)
        _, log = self.configure(["core"], "-DVERSION=99.0", expect_failure=True)
        expect("99.0" in log, log)
        lean = self.scratch / "without_rpc"
        shutil.rmtree(lean, ignore_errors=True)
        shutil.copytree(self.prefix, lean)
        for path in lean.rglob("cbt-rpc*"):
            path.unlink()
        _, log = self.configure(["rpc"], prefix=lean, expect_failure=True)
        expect("component rpc: it was not built into this installation" in log, log)
        _, log = self.configure(["core"], "-DOPTIONAL=rpc", prefix=lean)
        expect("cbt component rpc: FALSE" in log, log)
        self.configure([], prefix=lean)
        without_absl = "-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON"
        _, log = self.configure(["source"], without_absl, expect_failure=True)
        expect("component core: it needs absl" in log, log)
        if self.rpc:
            without_ssl = "-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON"
            _, log = self.configure(["rpc"], without_ssl, expect_failure=True)
            expect("component rpc: it needs OpenSSL" in log, log)
            _, log = self.configure(["core"], "-DOPTIONAL=rpc", without_ssl)
            expect("cbt component rpc: FALSE" in log, log)
        if self.grpc_built:
            _, log = self.configure(["grpc"], "-DCMAKE_DISABLE_FIND_PACKAGE_gRPC=ON", expect_failure=True)
            expect("component grpc: it needs gRPC" in log, log)

    def pkgconfig(self):
        """The same programs with a compiler and pkg-config, and every warning on."""
        directory = self.only("cbt-core.pc").parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(directory))

        def flags(*arguments):
            return run("pkg-config", *arguments, env=environment).split()

        expect(flags("--modversion", "cbt-core") == [self.version], "the version")
        expect(pathlib.Path(flags("--variable=prefix", "cbt-core")[0]).resolve()
               == self.prefix.resolve(), "the prefix follows the tree")
        programs = [("core", "cbt-core", CORE_OUTPUT)]
        if self.rpc:
            programs.append(("all", "cbt-source cbt-rpc", ALL_OUTPUT))
        if self.grpc_built:
            programs.append(("grpc", "cbt-source cbt-grpc", GRPC_OUTPUT))
        for program, packages, output in programs:
            for static in ([], ["--static"]):
                words = flags(*static, "--cflags", "--libs", *packages.split())
                if program == "core":
                    no_match(FOREIGN, " ".join(words), "pkg-config's answer for cbt-core")
                binary = self.scratch / f"pkgconfig_{program}"
                run(self.compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Wpedantic",
                    "-Wconversion", "-Werror", self.project / f"{program}.cc", "-o", binary, *words)
                expect(run(binary, cwd=self.scratch) == output, f"the output of {program}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=["install", "core", "all", "grpc", "missing", "pkgconfig"])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--rpc", choices=["ON", "OFF"], required=True)
    parser.add_argument("--grpc", choices=["ON", "OFF"], required=True)
    arguments = parser.parse_args()
    getattr(Consumer(arguments), arguments.check)()


main()
