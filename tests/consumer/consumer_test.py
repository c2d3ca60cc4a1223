"""Builds third-party projects against the installed library.

Run by ctest; `install` is the others' fixture. Works in --scratch, which it may wipe.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lint"))
import links  # noqa: E402
from compile_commands import plain_commands  # noqa: E402

# The output of project/core.cc: its gap of one block is bridged, the long one is not.
CORE_OUTPUT = "0 8192\n81920 16384\n"
ALL_OUTPUT = "NOT_FOUND\n"
GRPC_OUTPUT = "NOT_FOUND\n"
ROARING_OUTPUT = "3 blocks\n"
KUBE_OUTPUT = '{"kind":"ConfigMap","extra":[1.5],"data":{"key":"value"}}\nUNAVAILABLE\n'
# Flags that cgo accepts from any package.
CGO = re.compile(r"-I/.+|-L/.+|-l[\w+.-]+|-pthread|/.+/libcbt\.a")
GO_PROGRAM = """package main

// #cgo pkg-config: PACKAGE
// #include <cbt/c/cbt.h>
import "C"
import "fmt"

func main() { fmt.Println(C.GoString(C.cbt_version_string())) }
"""
# None of these may reach a project that only asks for core.
FOREIGN = re.compile(r"grpc|protobuf|protoc\b|upb|cares|re2", re.IGNORECASE)
# Loaded when they are needed, not linked.
LOADED = re.compile(r"libnbd|libcurl|\bcurl\b")
GRPC = re.compile(r"\bgrpc|libgrpc|gRPC|libprotobuf")
# None of these may reach any consumer.
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
        self.embedder = arguments.source / "embedded"
        self.root = arguments.source.parents[1]
        self.scratch = arguments.scratch
        self.cmake = arguments.cmake
        self.compiler = arguments.compiler
        self.version = arguments.version
        self.rpc = arguments.rpc == "ON"
        self.grpc_built = arguments.grpc == "ON"
        self.roaring_built = arguments.roaring == "ON"
        self.kube_built = arguments.kube == "ON"
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
        """Installs, moves the result elsewhere, and scans it for leaks."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        first = self.scratch / "first"
        run(self.cmake, "--install", self.build, "--prefix", first)
        # The installed tree must be relocatable.
        first.rename(self.prefix)
        root = str(self.root)
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
        expect((self.prefix / "include/cbt/kube").exists() == self.kube_built, "kube headers go with kube")
        expect((self.prefix / "include/cbt/bridge/roaring.h").exists() == self.roaring_built, "roaring.h goes with roaring")
        # Where the shells look for them below /usr/local.
        for place in ("bash-completion/completions/cbtctl", "zsh/site-functions/_cbtctl", "fish/vendor_completions.d/cbtctl.fish"):
            expect((self.prefix / "share" / place).is_file(), f"{place} is installed")
        self.documents()
        self.contracts()

    def documents(self):
        """Documents are installed with all that they link, and examples can be built from there."""
        root = self.only("CHANGELOG.md").parent
        pages = links.documents(root)
        expect(len(pages) > 30, f"the documents are installed: {pages}")
        found = links.check(argparse.Namespace(root=root))
        expect(not found, "\n".join(found))
        expect((root / "examples/plugin/CMakeLists.txt").is_file(), "the examples are installed")
        expect((root / "deploy/kubernetes/sidecar/kustomization.yaml").is_file(), "the manifests are installed")

    def contracts(self):
        """Each .proto file compiles where it is installed; the package knows that place."""
        folder = self.only("csi.proto", self.prefix / "share/cbt").parent
        names = sorted(path.name for path in folder.rglob("*"))
        expect(names == sorted(path.name for path in (self.root / "src/proto").glob("*.proto")),
               f"the contracts are installed: {names}")
        if self.rpc:
            run("protoc", f"--proto_path={folder}", "--descriptor_set_out=/dev/null", *names)
        _, log = self.configure(["core"])
        expect(f"cbt protos: {folder}\n" in log, log)

    def core(self):
        """cbt::core alone: no other package is searched, linked or loaded."""
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
        # Without components, everything installed is found.
        _, log = self.configure([], "-DPROGRAM=core")
        expect(("gRPC_DIR" in (tree / "CMakeCache.txt").read_text()) == self.grpc_built,
               f"what is installed came by itself: {log}")

    def grpc(self):
        """cbt::rpc needs no gRPC; cbt::grpc is a service for the program's own gRPC server."""
        tree, _ = self.configure(["core", "source", "rpc"], program="all")
        expect("gRPC_DIR" not in (tree / "CMakeCache.txt").read_text(), "rpc looks for no gRPC")
        log = run(self.cmake, "--build", tree, "-v")
        no_match(GRPC, log, "the build of a consumer of rpc")
        no_match(GRPC, run("ldd", tree / "consumer"), "ldd")
        no_match(LOADED, run("ldd", tree / "consumer"), "ldd")
        tree, _ = self.configure(["source", "grpc"], program="grpc")
        run(self.cmake, "--build", tree)
        expect(run(tree / "consumer", cwd=self.scratch) == GRPC_OUTPUT, "the consumer's output")

    def kube(self):
        """cbt::kube needs no gRPC, and its headers none of the libraries that it is made of."""
        tree, _ = self.configure(["kube"], program="kube")
        expect("gRPC_DIR" not in (tree / "CMakeCache.txt").read_text(), "kube looks for no gRPC")
        run(self.cmake, "--build", tree)
        no_match(LOADED, run("ldd", tree / "consumer"), "ldd")
        expect(run(tree / "consumer") == KUBE_OUTPUT, "the consumer's output")

    def roaring(self):
        """cbt::roaring links CRoaring, which core does not need; a program may bring its own."""
        tree, _ = self.configure(["roaring"], program="roaring")
        run(self.cmake, "--build", tree)
        expect("roaring" in run("ldd", tree / "consumer"), "CRoaring is linked")
        expect(run(tree / "consumer") == ROARING_OUTPUT, "the consumer's output")
        hidden = ["-DCBT_ROARING_INCLUDE_DIR="]  # as if it were not installed
        _, log = self.configure(["core"], "-DOPTIONAL=roaring", *hidden)
        expect("cbt component roaring: FALSE" in log, log)
        _, log = self.configure(["roaring"], *hidden, program="roaring", expect_failure=True)
        expect("component roaring: it needs CRoaring" in log, log)

    def embedded(self):
        """The source tree as a subfolder of another project, and through FetchContent.

        The compile commands of core are compared with this build's, and a few files are recompiled; the
        project then links the library of this build. Make can build a target without its dependencies,
        ninja cannot.
        """
        tree = self.scratch / self.name
        shutil.rmtree(tree, ignore_errors=True)
        built = self.only("libcbt_core.a", self.build / "lib")
        every = ["core", "source"] + ["rpc", "ops"] * self.rpc + ["grpc"] * self.grpc_built + ["roaring"] * self.roaring_built + ["kube"] * self.kube_built
        for how in ("subdirectory", "fetch"):
            # Without a build type, like many projects.
            run(self.cmake, "-S", self.embedder, "-B", tree, "-G", "Unix Makefiles", f"-DHOW={how}",
                f"-DCMAKE_CXX_COMPILER={self.compiler}", "-DCMAKE_CXX_FLAGS=-O0", "-DCBT_WERROR=ON",
                f"-DCBT_SOURCE={self.root}",
                f"-DCBT_WITH_RPC={'ON' if self.rpc else 'OFF'}",
                f"-DCBT_WITH_GRPC={'ON' if self.grpc_built else 'OFF'}",
                f"-DCBT_WITH_ROARING={'ON' if self.roaring_built else 'OFF'}",
                f"-DPROJECT_SOURCES={self.project}",
                f"-DEVERY={';'.join('cbt::' + name for name in every)}")
            library = next(tree.rglob("cbt_core.dir")).parents[2] / "lib" / built.name
            library.parent.mkdir(exist_ok=True)
            library.touch()  # a dry run builds none, and stops where one is missing
            plan = run("make", "-n", "-C", tree, "embedder")
            targets = set(re.findall(r"Building CXX object \S*CMakeFiles/(\w+)\.dir/", plan))
            expect(targets - {"embedder"} == {"cbt_core"}, f"only what is linked is built: {targets}")
            if how == "subdirectory":
                ours, theirs = self.words_of_core(self.build, self.build), self.words_of_core(tree, library.parents[1])
                other = [(name, words, theirs.get(name)) for name, words in ours.items() if words != theirs.get(name)]
                expect(len(ours) > 20 and set(ours) == set(theirs) and not other,
                       f"core is compiled alike: {other[:2]}")
                for name in sorted(ours)[::len(ours) // 4]:
                    run("make", "-C", library.parents[1] / "src", f"{name}.o")
                shutil.copy(built, library)
            (tree / "embedder").unlink(missing_ok=True)
            run("make", "-C", tree, "embedder/fast")
            expect(run(tree / "embedder") == CORE_OUTPUT, f"the output by way of {how}")

    def words_of_core(self, tree, binary):
        """For each file of core: include paths, definitions and instruction-set flags."""
        found = {}
        for entry in plain_commands(tree):
            words = entry["command"].split()
            output = words[words.index("-o") + 1]
            if "/cbt_core.dir/" in output and output.endswith(".cc.o"):
                name = output.partition("/cbt_core.dir/")[2].removesuffix(".o")
                text = entry["command"].replace(str(binary), "BINARY")
                found[name] = re.findall(r"(?<!\S)(?:-isystem \S+|-(?:I|D(?!NDEBUG)|m|std=)\S+)", text)
        return found

    def c(self):
        """The C interface, as C and cgo use it: pkg-config alone, the shared library and the archive."""
        folder = self.scratch / self.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        where = self.only("cbt-c.pc").parent
        environment = {**os.environ, "PKG_CONFIG_PATH": str(where), "LD_LIBRARY_PATH": str(where.parent)}
        example = self.root / "examples/from-c/plugin.c"
        shown = re.search(r"\$ ./plugin\n(.*?)```", (self.root / "docs/tutorials/from-c.md").read_text(), re.DOTALL)[1]
        strict = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]
        run("cc", *strict, "-c", self.root / "tests/consumer/snippets/c.c", "-o", folder / "snippets.o",
            *run("pkg-config", "--cflags", "cbt-c", env=environment).split())
        for package in ("cbt-c", "cbt-c-static"):
            flags = run("pkg-config", "--cflags", "--libs", package, env=environment).split()
            expect(not [flag for flag in flags if not CGO.fullmatch(flag)], f"cgo accepts {flags}")
            program = folder / package
            run("cc", *strict, example, "-o", program, *flags)
            expect(run(program, env=environment) == shown, f"{package}: the output is the one of the tutorial")
            linked = run("ldd", program, env=environment)
            expect(("libcbt.so.1" in linked) == (package == "cbt-c"), f"{package} is linked: {linked}")
            expect("absl" not in linked and "protobuf" not in linked, f"{package}: {linked}")
        # As a component of the CMake package, in a project without C++; core's packages are not looked for.
        tree = folder / "cmake"
        run(self.cmake, "-S", self.project.parent / "c", "-B", tree, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DVERSION={self.version}", f"-DPROGRAM={example}", "-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON")
        run(self.cmake, "--build", tree)
        expect(run(tree / "consumer") == shown, "cbt::c: the output is the one of the tutorial")
        # As part of another shared library, such as a module of Python.
        run("cc", *strict, "-shared", "-fPIC", example, "-o", folder / "module.so", "-Wl,-z,defs",
            *run("pkg-config", "--cflags", "--libs", "cbt-c-static", env=environment).split())
        if shutil.which("go"):
            (folder / "go.mod").write_text("module example.com/c\n\ngo 1.20\n")
            (folder / "main.go").write_text(GO_PROGRAM)
            for package in ("cbt-c", "cbt-c-static"):
                (folder / "main.go").write_text(GO_PROGRAM.replace("PACKAGE", package))
                expect(run("go", "run", ".", cwd=folder, env={**environment, "CGO_ENABLED": "1"}) == f"{self.version}\n",
                       "the output of a Go program")

    def missing(self):
        """A component that is not available gives a clear error, and only its user fails."""
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

    def lifetime(self):
        """What would leave a cursor without its bytes does not compile, and says why."""
        directory = self.only("cbt-core.pc").parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(directory))
        words = run("pkg-config", "--cflags", "cbt-core", env=environment).split()
        source = self.project / "dangling.cc"
        cases = [int(number) for number in re.findall(r"CASE == (\d+)", source.read_text())]
        expect(cases == list(range(12)), f"every case is tried: {cases}")
        for number in cases:
            log = run(self.compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-DCASE={number}", source,
                      *words, expect_failure=number > 0)
            expect(number == 0 or re.search("deleted|no matching function|could not convert|cannot convert", log),
                   f"case {number} fails for its reason: {log}")

    def pkgconfig(self):
        """The same programs with a compiler and pkg-config, with all warnings."""
        directory = self.only("cbt-core.pc").parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(directory))

        def flags(*arguments):
            return run("pkg-config", *arguments, env=environment).split()

        expect(flags("--modversion", "cbt-core") == [self.version], "the version")
        expect(pathlib.Path(flags("--variable=prefix", "cbt-core")[0]).resolve()
               == self.prefix.resolve(), "the prefix follows the tree")
        standard, = flags("--variable=cxx_standard", "cbt-core")
        programs = [("core", "cbt-core", CORE_OUTPUT)]
        if self.roaring_built:
            programs.append(("roaring", "cbt-roaring", ROARING_OUTPUT))
        if self.kube_built:
            programs.append(("kube", "cbt-kube", KUBE_OUTPUT))
        if self.rpc:
            programs.append(("all", "cbt-source cbt-rpc", ALL_OUTPUT))
        if self.grpc_built:
            programs.append(("grpc", "cbt-source cbt-grpc", GRPC_OUTPUT))
        for program, packages, output in programs:
            for static in ([], ["--static"]):
                words = flags(*static, "--cflags", "--libs", *packages.split())
                no_match(LOADED, " ".join(words), f"pkg-config's answer for {packages}")
                if program == "core":
                    no_match(FOREIGN, " ".join(words), "pkg-config's answer for cbt-core")
                binary = self.scratch / f"pkgconfig_{program}"
                run(self.compiler, f"-std=c++{standard}", "-O1", "-Wall", "-Wextra", "-Wpedantic",
                    "-Wconversion", "-Werror", self.project / f"{program}.cc", "-o", binary, *words)
                expect(run(binary, cwd=self.scratch) == output, f"the output of {program}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=["install", "core", "all", "grpc", "roaring", "kube", "missing", "pkgconfig", "lifetime",
                                          "embedded", "c"])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--rpc", choices=["ON", "OFF"], required=True)
    parser.add_argument("--grpc", choices=["ON", "OFF"], required=True)
    parser.add_argument("--roaring", choices=["ON", "OFF"], required=True)
    parser.add_argument("--kube", choices=["ON", "OFF"], required=True)
    arguments = parser.parse_args()
    getattr(Consumer(arguments), arguments.check)()


main()
