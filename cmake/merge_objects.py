"""Links objects and archives into one relocatable object in which only listed functions are global.

    merge_objects.py --output X.o --exported LIST --stdcxx libstdc++.so --ld LD --objcopy OBJCOPY
                     --readelf READELF --cc CC OBJECTS... -- ARCHIVES...

The object can go into a shared library even where an archive was compiled for programs only, as
Debian's abseil is. Such code addresses variables of other libraries (tables of C++ classes) as if
they lay beside it. In a program the linker sees to that with copies of the variables; here a
constructor makes the same copies, before any other code of the object runs.
"""

import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

# Relocations that must end within the library; a function's calls go through its own table.
NEAR = re.compile(r"R_X86_64_(PC32|PC64)|R_AARCH64_(ADR_PREL_PG_HI21(_NC)?|ADR_PREL_LO21|PREL32)")
# Sections that stay apart, so that a library leaves out what it does not reach (--gc-sections).
APART = [f"--unique={name}" for kind in (".text", ".rodata", ".data", ".bss", ".gcc_except_table")
         for name in (kind, f"{kind}.*")]
# What the linker itself defines in every library, or takes from the compiler's own archive.
LINKERS = {"__dso_handle", "_GLOBAL_OFFSET_TABLE_", "__cpu_model", "__cpu_features2"}


def run(*command):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(str(word) for word in command)}")
    return done.stdout


def far_variables(readelf, merged):
    undefined = set()
    for line in run(readelf, "-sW", merged).splitlines():
        words = line.split()
        if len(words) >= 8 and words[6] == "UND":
            undefined.add(words[7])
    found = set()
    for line in run(readelf, "-rW", merged).splitlines():
        words = line.split()
        if len(words) >= 5 and NEAR.fullmatch(words[2]) and words[4] in undefined:
            found.add(words[4])
    return sorted(found - LINKERS)


def sizes(readelf, library):
    found = {}
    for line in run(readelf, "-W", "--dyn-syms", library).splitlines():
        words = line.split()
        if len(words) >= 8 and words[3] == "OBJECT" and words[6] != "UND":
            found[words[7].split("@")[0]] = int(words[2], 0)
    return found


def copies(names, size_of):
    lines = ["#include <string.h>"]
    for place, name in enumerate(names):
        if name not in size_of:
            sys.exit(f"merge_objects.py: {name} is addressed as part of the library, but is not in libstdc++")
        lines.append(f'extern const char from{place}[] __asm__("{name}");')
        lines.append(f'_Alignas(32) char to{place}[{size_of[name]}] __asm__("cbt_copy_{name}");')
    lines.append("__attribute__((constructor(101))) static void copy_variables(void) {")
    lines += [f"  memcpy(to{place}, from{place}, sizeof(to{place}));" for place in range(len(names))]
    return "\n".join(lines) + "\n}\n"


def make_unique_global(path):
    """objcopy leaves symbols of GNU's own binding `unique` (variables of inline functions) visible."""
    data = bytearray(path.read_bytes())
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"merge_objects.py: {path} is no little-endian ELF file of 64 bits")
    sections, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # Of a file with many sections the first one has their number.
    count = count or struct.unpack_from("<Q", data, sections + 0x20)[0]
    for place in range(count):
        kind, = struct.unpack_from("<I", data, sections + place * size + 4)
        if kind != 2:  # SHT_SYMTAB
            continue
        start, length = struct.unpack_from("<QQ", data, sections + place * size + 0x18)
        for at in range(start + 4, start + length, 24):
            if data[at] >> 4 == 10:  # STB_GNU_UNIQUE
                data[at] = 1 << 4 | data[at] & 15  # STB_GLOBAL
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("output", "exported", "stdcxx", "ld", "objcopy", "readelf", "cc"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("files", nargs="*")
    # argparse would take a lone -- for itself.
    words = ["@archives" if word == "--" else word for word in sys.argv[1:]]
    arguments = parser.parse_args(words)
    middle = arguments.files.index("@archives")
    objects, archives = arguments.files[:middle], arguments.files[middle + 1:]
    with tempfile.TemporaryDirectory(dir=pathlib.Path(arguments.output).parent) as scratch:
        scratch = pathlib.Path(scratch)
        merged = scratch / "merged.o"
        run(arguments.ld, "-r", "--force-group-allocation", *APART, "-o", merged, *objects,
            "--start-group", *archives, "--end-group")
        names = far_variables(arguments.readelf, merged)
        if names:
            (scratch / "copies.c").write_text(copies(names, sizes(arguments.readelf, arguments.stdcxx)))
            run(arguments.cc, "-x", "c", "-std=gnu11", "-O2", "-fPIC", "-c", scratch / "copies.c", "-o", scratch / "copies.o")
            (scratch / "renamed.txt").write_text("".join(f"{name} cbt_copy_{name}\n" for name in names))
            run(arguments.objcopy, f"--redefine-syms={scratch / 'renamed.txt'}", merged, scratch / "renamed.o")
            run(arguments.ld, "-r", *APART, "-o", merged, scratch / "renamed.o", scratch / "copies.o")
        make_unique_global(merged)
        run(arguments.objcopy, f"--keep-global-symbols={arguments.exported}", merged, arguments.output)


if __name__ == "__main__":
    main()
