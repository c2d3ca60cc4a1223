"""Checks every #include under include/, src/ and programs/, and banned words, against layers.txt."""

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
MOST_FILES = 41
TOPS = ("include", "src", "programs")
BUILD_FILE = "CMakeLists.txt"


@dataclasses.dataclass
class Room:
    folder: str
    question: str
    rooms: set = dataclasses.field(default_factory=set)  # prefixes of those that it may use
    private: set = dataclasses.field(default_factory=set)  # those of them after `+`
    libraries: list = None  # None: its line `uses` is missing

    @property
    def prefix(self):
        """Of its headers, as included."""
        top, _, rest = self.folder.partition("/")
        name = self.folder if top == "programs" else rest
        return name if name.endswith(".h") else name + "/"

    @property
    def is_program(self):
        return self.folder.startswith("programs/")


class Table:
    def __init__(self, path):
        self.rooms, self.never, self.isa, self.bans, self.wrong = [], [], [], [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            kind, *rest = words
            if kind == "room" and len(rest) >= 2 and rest[-1].endswith("?"):
                self.rooms.append(Room(rest[0], " ".join(rest[1:])))
            elif kind == "uses" and ":" in rest and self.rooms and self.rooms[-1].libraries is None:
                colon = rest.index(":")
                plus = rest.index("+") if "+" in rest[:colon] else colon
                room = self.rooms[-1]
                room.private = {name + "/" for name in rest[plus + 1:colon]}
                room.rooms = {name + "/" for name in rest[:plus]} | room.private
                room.libraries = rest[colon + 1:]
            elif kind == "never" and len(rest) >= 3:
                self.never.append((rest[0], rest[1].split(","), " ".join(rest[2:])))
            elif kind == "isa" and len(rest) >= 2:
                self.isa.append((rest[0], rest[1:]))
            elif kind == "ban" and len(rest) >= 3:
                self.bans.append((rest[0], rest[1].split(","), " ".join(rest[2:])))
            else:
                raise SystemExit(f"{path}:{number}: not understood: {line}")
        # A room may only use rooms of earlier lines, so there is no cycle. Names that stand for
        # others are resolved once all are known.
        above = {}
        for room in self.rooms:
            if room.libraries is None:
                raise SystemExit(f"{path}: {room.folder} has no line `uses`")
            self.wrong += [f"layers.txt: {room.folder} may not use {name}: it stands on no line above"
                           for name in sorted(room.rooms - set(above))]
            for name in sorted(room.rooms & set(above)):
                is_private = above[name].folder.startswith("src/") and name != "base/"
                if name in room.private and not (room.is_program and is_private):
                    self.wrong.append(f"layers.txt: {room.folder}: {name} does not belong after +")
                if above[name].is_program and not room.is_program:
                    self.wrong.append(f"layers.txt: {room.folder} is a library and may not use {name}")
                if room.is_program and is_private and name not in room.private:
                    self.wrong.append(f"layers.txt: {room.folder}: {name} is private to src/: it belongs after +")
            above[room.prefix] = room
        # A library that one room names is closed to the others, even within `posix`.
        self.named = {name for room in self.rooms for name in room.libraries if name != "posix"}

    def room_of(self, path):
        folder = path.rpartition("/")[0]
        return next((room for place in (path, folder) for room in self.rooms if room.folder == place), None)

    def provider_of(self, header):
        named = [room for room in self.rooms if header.startswith(room.prefix)]
        return max(named, key=lambda room: len(room.prefix), default=None)


def allowed(header, libraries):
    return any(header == name or (name.endswith("/") and header.startswith(name))
               for name in libraries)


def may_include(table, room, header, angled):
    provider = table.provider_of(header)
    if provider is not None:
        return provider is room or provider.prefix in room.rooms
    if allowed(header, room.libraries):
        return True
    if not angled:
        return False
    return STANDARD.fullmatch(header) is not None or (
        "posix" in room.libraries and POSIX.fullmatch(header) is not None
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


def folders_without_room(root, table):
    """Rooms that are no folder, and folders whose files are no code and that no room has."""
    known = {room.folder for room in table.rooms}
    findings = [f"layers.txt: there is no {room.folder}" for room in table.rooms if not (root / room.folder).exists()]
    for path in common.tracked_files(root):
        name = path.relative_to(root)
        if name.parts[0] not in TOPS or path.suffix in (".cc", ".h") or path.name == BUILD_FILE:
            continue
        if not any(parent.as_posix() in known for parent in name.parents):
            findings.append(f"{name.as_posix()}: lies in no room of layers.txt")
    return findings


def check(arguments):
    root = pathlib.Path(arguments.root)
    table = Table(root / "tests/lint/layers.txt")
    texts = {name: common.without_comments(path.read_text())
             for path, name in files_below(root, TOPS)}
    findings = list(table.wrong) + folders_without_room(root, table)
    for name, text in texts.items():
        room = table.room_of(name)
        if room is None:
            findings.append(f"{name}: lies in no room of layers.txt")
            continue
        findings += [f"{name}:{line}: {room.folder} must not include {header}"
                     for line, header, angled in includes(text)
                     if not may_include(table, room, header, angled)]
        findings += [f"{name}:{line}: {header}: {reason}"
                     for line, header, _ in includes(text) for prefix, folders, reason in table.never
                     if header.startswith(prefix) and name.split("/")[0] in folders]
    for room in table.rooms:
        files = [name for name in texts if name.rpartition("/")[0] == room.folder]
        if len(files) > MOST_FILES:
            findings.append(f"{room.folder}: {len(files)} files, more than {MOST_FILES}: it answers more than one question")
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
        for room in Table(pathlib.Path(arguments.root) / "tests/lint/layers.txt").rooms:
            if not room.folder.endswith(".h") and room.folder != "src/rpc/transport":
                (root / room.folder).mkdir(parents=True, exist_ok=True)
        common.plant(root, {
            "tests/lint/layers.txt": table,
            # Valid files, which must not be reported.
            "include/cbt/good.h": '#include <vector>\n#include "absl/status/status.h"\n'
                                  '#include "cbt/good.h"\n',
            "include/cbt/rpc/good.h": '#include "cbt/good.h"\n',
            "include/cbt/bridge/roaring.h": '#include <roaring/roaring.h>\n#include "cbt/good.h"\n',
            "src/simd/good.h": "#include <cstdint>\n",
            "src/simd/good_inl.h": '#include <immintrin.h>\n#include <xsimd/xsimd.hpp>\n'
                                   '#include "simd/good.h"\n// bitwise_andnot is banned\n',
            "src/source/input/good.cc": '#include <unistd.h>\n#include <sys/stat.h>\n'
                                        '#include "cbt/good.h"\n// #include "rpc/server/x.h"\n',
            "src/rpc/grpc/good.cc": '#include <grpcpp/server.h>\n#include "cbt/rpc/good.h"\n',
            "programs/cbt/commands/good.cc": '#include <CLI/CLI.hpp>\n#include "programs/cbt/output/x.h"\n#include "base/x.h"\n',
            "programs/cbt/CMakeLists.txt": "\n",
            "programs/revisions/CMakeLists.txt": "\n",
            "src/proto/grpc/health/v1/health.proto": "\n",
            # Violations.
            "include/cbt/a.h": '#include "core/x.h"\n#include <unistd.h>\n'
                               '#include "cbt/rpc/client.h"\n#include "cbt/wire/message.h"\n',
            "include/cbt/aa.h": '#include <roaring/roaring.h>\n#include "cbt/bridge/roaring.h"\n#include "programs/cbt/help.h"\n',
            "include/cbt/rpc/b.h": '#include <grpcpp/server.h>\n#include "rpc/server/x.h"\n#include "cbt/source/image.h"\n',
            "src/simd/c.cc": '#include "absl/status/status.h"\n',
            "src/simd/isa_d.cc": '#include "simd/d_inl.h"\n#include <vector>\n',
            "src/simd/d_inl.h": '#include "simd/d.h"\n#include "cbt/simd.h"\n',
            "src/simd/d.h": '#include <span>\nauto x = bitwise_andnot(a, b);\n',
            "src/core/e.cc": '#include "wire/x.h"\n  #  include <immintrin.h>\n'
                             '#include <fcntl.h>\n#include "roaring/roaring.h"\n',
            "src/map/f.cc": '#include "map/tracker/x.h"\nx.remove_range(1, 2);\n',
            "src/source/nbd/g.cc": '#include "cbt/rpc/server.h"\n#include <immintrin.h>\n'
                                   '#include <google/protobuf/message.h>\n#include "beside.h"\n#include "source/ext/x.h"\n',
            "src/rpc/client/h.cc": '#include "programs/cbt/x.h"\n#include <CLI/CLI.hpp>\n#include "rpc/server/x.h"\n',
            "programs/sidecar/p.cc": '#include "ops/event_log.h"\n#include "programs/cluster/driver.h"\n#include "net/pem.h"\n'
                                     '#include "programs/driver/driver.h"\n',
            "programs/revisions/lost.txt": "\n",
            "src/lost.cc": "\n",
            "src/lost.txt": "\n",
            "src/source/lost.cc": "\n",
            "src/source/elsewhere/lost.cc": "\n",
            "bench/i.cc": "auto a = xsimd::dispatch(f); auto b = xsimd::available_architectures();\n",
            **{f"src/wire/file_{number}.cc": "\n" for number in range(MOST_FILES + 1)},
        })
        common.expect_findings(check(argparse.Namespace(root=root)), [
            "include/cbt/a.h:1: include/cbt must not include core/x.h",
            "include/cbt/a.h:2: include/cbt must not include unistd.h",
            "include/cbt/a.h:3: include/cbt must not include cbt/rpc/client.h",
            "include/cbt/a.h:4: include/cbt must not include cbt/wire/message.h",
            "include/cbt/aa.h:1: include/cbt must not include roaring/roaring.h",
            "include/cbt/aa.h:2: include/cbt must not include cbt/bridge/roaring.h",
            "include/cbt/aa.h:3: include/cbt must not include programs/cbt/help.h",
            "include/cbt/aa.h:3: programs/cbt/help.h: a library knows no program",
            "include/cbt/rpc/b.h:1: include/cbt/rpc must not include grpcpp/server.h",
            "include/cbt/rpc/b.h:2: include/cbt/rpc must not include rpc/server/x.h",
            "include/cbt/rpc/b.h:3: include/cbt/rpc must not include cbt/source/image.h",
            "src/simd/c.cc:1: src/simd must not include absl/status/status.h",
            "src/simd/isa_d.cc:2: code for one instruction set must not include vector",
            "src/simd/d_inl.h:2: code for one instruction set must not include cbt/simd.h",
            "src/simd/d.h:1: code for one instruction set must not include span",
            "src/simd/d.h:2: bitwise_andnot: ",
            "src/core/e.cc:1: src/core must not include wire/x.h",
            "src/core/e.cc:2: src/core must not include immintrin.h",
            "src/core/e.cc:3: src/core must not include fcntl.h",
            "src/core/e.cc:4: src/core must not include roaring/roaring.h",
            "src/map/f.cc:1: src/map must not include map/tracker/x.h",
            "src/map/f.cc:2: remove_range: ",
            "src/source/nbd/g.cc:1: src/source/nbd must not include cbt/rpc/server.h",
            "src/source/nbd/g.cc:2: src/source/nbd must not include immintrin.h",
            "src/source/nbd/g.cc:3: src/source/nbd must not include google/protobuf/message.h",
            "src/source/nbd/g.cc:4: src/source/nbd must not include beside.h",
            "src/source/nbd/g.cc:5: src/source/nbd must not include source/ext/x.h",
            "src/rpc/client/h.cc:1: src/rpc/client must not include programs/cbt/x.h",
            "src/rpc/client/h.cc:1: programs/cbt/x.h: a library knows no program",
            "programs/sidecar/p.cc:3: programs/sidecar must not include net/pem.h",
            "programs/sidecar/p.cc:4: programs/sidecar must not include programs/driver/driver.h",
            "layers.txt: there is no src/rpc/transport",
            "programs/revisions/lost.txt: lies in no room",
            "src/lost.txt: lies in no room",
            "src/rpc/client/h.cc:2: src/rpc/client must not include CLI/CLI.hpp",
            "src/rpc/client/h.cc:3: src/rpc/client must not include rpc/server/x.h",
            "src/lost.cc: lies in no room",
            "src/source/lost.cc: lies in no room",
            "src/source/elsewhere/lost.cc: lies in no room",
            f"src/wire: {MOST_FILES + 1} files, more than {MOST_FILES}",
            "bench/i.cc:1: xsimd::dispatch: ",
            "bench/i.cc:1: available_architectures: ",
        ])
        # A table whose rooms form a circle; private rooms that do not say so; a library on a program.
        for before, after, wanted in [
                ("  uses cbt : absl/ posix xxhash.h", "  uses cbt core : absl/ posix xxhash.h",
                 "src/base may not use core/: it stands on no line above"),
                ("base programs/cluster + ops : absl/ openssl/", "base programs/cluster ops : absl/ openssl/",
                 "programs/sidecar: ops/ is private to src/: it belongs after +"),
                ("  uses cbt cbt/source base + map/chain", "  uses cbt cbt/source + base map/chain",
                 "programs/volume: base/ does not belong after +"),
                ("# never PREFIX", "room src/above Why?\n  uses programs/cbt :\n\n# never PREFIX",
                 "src/above is a library and may not use programs/cbt/")]:
            wrong = table.replace(before, after)
            assert wrong != table, before
            (root / "tests/lint/layers.txt").write_text(wrong)
            findings = check(argparse.Namespace(root=root))
            assert f"layers.txt: {wanted}" in findings, findings


if __name__ == "__main__":
    common.main(check, self_test)
