"""Checks what libcbt.so.1 exports: the functions of src/c/libcbt.map, which are those that the
headers declare, and have.h and Debian's package list, and nothing else; and its stripped size, and
what it links."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include/cbt/c"
MAP = ROOT / "src/c/libcbt.map"
DEBIAN = ROOT / "debian/libcbt1.symbols"
MOST_BYTES = 3_000_000
# What the library links is the system's and stable; abseil, gRPC and protobuf are not.
LINKED = re.compile(r"lib(stdc\+\+|m|c|gcc_s|crypto|ssl|nghttp2|expat|nbd|ext2fs|com_err|blkid)\.so\.\d+"
                    r"|ld-linux[-\w]*\.so\.\d+")


def declared():
    names = []
    for header in sorted(HEADERS.glob("*.h")):
        text = re.sub(r"//.*", "", header.read_text())
        names += re.findall(r"\bCBT_API\b[^;]*?\b(cbt_\w+)\s*\(", text)
    return names


def mapped():
    return re.findall(r"^\s+(cbt_\w+);", MAP.read_text(), re.MULTILINE)


def have(names):
    lines = "".join(f"#define CBT_HAVE_{name} 1\n" for name in names)
    return ("// A macro for each function, for programs that compile with several versions of libcbt. Made\n"
            "// from src/c/libcbt.map by tests/c/symbols.py.\n"
            "#ifndef CBT_C_HAVE_H_\n#define CBT_C_HAVE_H_\n\n" + lines + "\n#endif  // CBT_C_HAVE_H_\n")


def exported(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    return [line.split()[-1] for line in listed.splitlines()]


def check(library, archive):
    findings = []
    names = sorted(mapped())
    listed = subprocess.run(["nm", "-g", "--defined-only", archive], check=True, text=True, stdout=subprocess.PIPE).stdout
    visible = {line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3}
    findings += [f"{name}: in one of libcbt.map and libcbt.a, but not in both" for name in sorted(visible ^ set(names))]
    for name in sorted(set(declared()) ^ set(names)):
        findings.append(f"{name}: in one of the headers and libcbt.map, but not in both")
    if (HEADERS / "have.h").read_text() != have(names):
        findings.append("have.h: differs from libcbt.map; run tests/c/symbols.py --write")
    packaged = re.findall(r"^ (cbt_\w+)@CBT_\d+\.\d+ \d", DEBIAN.read_text(), re.MULTILINE)
    for name in sorted(set(packaged) ^ set(names)):
        findings.append(f"{name}: in one of {DEBIAN.name} and libcbt.map, but not in both")
    found = exported(library)
    versions = {name for name in found if name.startswith("CBT_")}
    functions = {name.split("@")[0] for name in found if name not in versions}
    for name in sorted(functions ^ set(names)):
        findings.append(f"{name}: {'exported, but not in libcbt.map' if name in functions else 'not exported'}")
    for name in found:
        if name not in versions and "@@CBT_" not in name:
            findings.append(f"{name}: has no version")
    with tempfile.TemporaryDirectory() as scratch:
        stripped = pathlib.Path(scratch) / "libcbt.so"
        subprocess.run(["strip", "-o", stripped, library], check=True)
        size = stripped.stat().st_size
    print(f"{len(functions)} functions, {size:,} bytes stripped")
    if size > MOST_BYTES:
        findings.append(f"the stripped library has {size:,} bytes, more than {MOST_BYTES:,}")
    dynamic = subprocess.run(["readelf", "-d", library], check=True, text=True, stdout=subprocess.PIPE).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    print("links", " ".join(needed))
    findings += [f"links {name}" for name in needed if not LINKED.fullmatch(name)]
    if "[libcbt.so.1]" not in dynamic:
        findings.append("its soname is not libcbt.so.1")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--archive", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="write have.h")
    arguments = parser.parse_args()
    if arguments.write:
        (HEADERS / "have.h").write_text(have(sorted(mapped())))
        return 0
    findings = check(arguments.library, arguments.archive)
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
