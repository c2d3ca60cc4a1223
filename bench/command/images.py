"""Rows of images: two raw ones, two qcow2 ones, an increment, the start of a process."""

import json
import os
import random
import subprocess

from turns import OURS, Program, run_all, version

MIB = 1 << 20
BLOCK = 4096


def lines_of(path):
    """(offset, size) of the command's CSV."""
    with open(path, encoding="ascii") as file:
        rows = [line.strip().split(",") for line in file]
    return [(int(row[0]), int(row[1])) for row in rows if row[0].isdigit()]


def same(ours, theirs, what):
    if ours != theirs:
        raise SystemExit(f"{what}: the answers differ: {len(ours)} and {len(theirs)} of them")


def blocks_of(extents):
    return {block for offset, size in extents for block in range(offset // BLOCK, (offset + size + BLOCK - 1) // BLOCK)}


class Images:
    """Two images of random data, of which the second differs in one block in a hundred, and a copy of
    the first."""

    def __init__(self, cbt, folder, mib):
        self.cbt, self.folder, self.size = cbt, folder, mib * MIB
        self.before, self.after, self.copy = (f"{folder}/{name}.img" for name in ("before", "after", "copy"))
        generator = random.Random(1)
        with open(self.before, "wb") as before, open(self.after, "wb") as after:
            for _ in range(mib):
                data = bytearray(generator.randbytes(MIB))
                before.write(data)
                for block in generator.sample(range(MIB // BLOCK), MIB // BLOCK // 100):
                    at = block * BLOCK + generator.randrange(BLOCK)
                    data[at] ^= 1 + generator.randrange(255)
                after.write(data)
        subprocess.run(["cp", self.before, self.copy], check=True)
        self.qemu = version("qemu-img", "--version").removeprefix("1:")
        self.cmp = " " + version("cmp", "--version")
        self.out = lambda name: f"{folder}/{name}.out"

    def ours(self, *arguments, output=None):
        return Program(OURS, [self.cbt, *arguments], output or self.out("ours"))

    def changed(self):
        """Which bytes differ, and which ranges."""
        ours = self.ours("delta", self.before, self.after, "--from", "image", "--format", "csv", "--quiet")
        theirs = Program("cmp", ["cmp", "-l", self.before, self.after], self.out("cmp"), statuses=(1,))
        run_all(ours, theirs)
        with open(theirs.output, encoding="ascii") as file:
            found = {(int(line.split()[0]) - 1) // BLOCK for line in file}
        same(blocks_of(lines_of(ours.output)), found, "changed")
        return f"`delta` of two raw images of {self.size // MIB} MiB, 1 % of the blocks", [ours, theirs], {"cmp": "`cmp -l`" + self.cmp}

    def equal(self):
        """Two files with the same content: no program can stop early."""
        ours = self.ours("delta", self.before, self.copy, "--from", "image", "--format", "csv", "--quiet")
        programs = [ours, Program("cmp", ["cmp", self.before, self.copy]),
                    Program("qemu", ["qemu-img", "compare", "-f", "raw", "-F", "raw", self.before, self.copy])]
        run_all(*programs)
        same(lines_of(ours.output), [], "equal")
        return "the same, of equal ones", programs, {"cmp": "`cmp`" + self.cmp, "qemu": f"`qemu-img compare` {self.qemu}"}

    def overlay(self):
        """A qcow2 and its base: which clusters were written. They hold what was there, so that `compare` reads all."""
        base, path = self.before.replace(".img", ".qcow2"), f"{self.folder}/overlay.qcow2"
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", self.before, base], check=True)
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", path], check=True)
        with open(self.before, "rb") as file:
            self.rewrite(file, path)
        ours = self.ours("delta", base, path, "--from", "qcow2", "--format", "csv", "--quiet")
        mapped = Program("map", ["qemu-img", "map", "--output=json", path], self.out("map"))
        compare = Program("compare", ["qemu-img", "compare", base, path])
        run_all(ours, mapped, compare)
        with open(mapped.output, encoding="utf-8") as file:
            found = blocks_of((entry["start"], entry["length"]) for entry in json.load(file) if entry["depth"] == 0)
        same(blocks_of(lines_of(ours.output)), found, "overlay")
        return "`delta` of a qcow2 and its base", [ours, mapped, compare], {
            "map": f"`qemu-img map` {self.qemu}", "compare": f"`qemu-img compare` {self.qemu}, which says yes or no"}

    def rewrite(self, data, path):
        """Writes one cluster in a hundred, with the same bytes."""
        cluster = 64 << 10
        for at in range(0, self.size, 100 * cluster):
            data.seek(at)
            with open(f"{self.folder}/cluster", "wb") as file:
                file.write(data.read(cluster))
            subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"write -q -s {self.folder}/cluster {at} {cluster}", path], check=True)

    def map_qcow2(self):
        """A sparse image: each other MiB has data in half of its clusters."""
        raw, path = f"{self.folder}/sparse.img", f"{self.folder}/sparse.qcow2"
        with open(raw, "wb") as file:
            file.truncate(64 << 30)
            for at in range(0, 64 << 30, 4 * MIB):
                file.seek(at)
                file.write(b"\xff" * BLOCK)
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-S", "64k", raw, path], check=True)
        os.unlink(raw)
        ours = self.ours("allocated", path, "--format", "csv", "--quiet")
        theirs = Program("qemu", ["qemu-img", "map", "--output=json", path], self.out("map"))
        run_all(ours, theirs)
        with open(theirs.output, encoding="utf-8") as file:
            found = [(entry["start"], entry["length"]) for entry in json.load(file) if entry["data"]]
        same(lines_of(ours.output), found, "map_qcow2")
        return f"`allocated` of a qcow2 of 64 GiB, {len(found)} extents", [ours, theirs], {"qemu": f"`qemu-img map` {self.qemu}"}

    def export(self):
        """An increment above the base, from two raw images."""
        ours = self.ours("export", self.before, self.after, "--from", "image", "--output", f"{self.folder}/ours.qcow2",
                         "--backing-format", "raw", "--quiet")
        theirs = Program("qemu", ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-B", self.before, "-F", "raw", self.after,
                                  f"{self.folder}/theirs.qcow2"])
        for program, name in ((ours, "ours"), (theirs, "theirs")):
            program.run()
            subprocess.run(["qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", self.after, f"{self.folder}/{name}.qcow2"], check=True)
        return "`export` of that delta as qcow2", [ours, theirs], {"qemu": f"`qemu-img convert -B` {self.qemu}"}

    def start(self):
        """What is there before any work: an answer about two empty images."""
        empty = f"{self.folder}/empty"
        with open(empty, "wb"):
            pass
        programs = [self.ours("delta", empty, empty, "--from", "image", "--quiet"),
                    Program("qemu", ["qemu-img", "compare", "-f", "raw", "-F", "raw", empty, empty]),
                    Program("git", ["git", "diff", "--no-index", "--quiet", empty, empty])]
        return "start: two empty files", programs, {"qemu": f"`qemu-img compare` {self.qemu}",
                                                           "git": "`git diff` " + version("git", "--version")}
