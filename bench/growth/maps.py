"""Rows of bitmaps, images, lists, maps and chains."""

import concurrent.futures
import os
import random
import shutil
import subprocess

import used

MIB = 1 << 20
BLOCK = 4096
MORE = 50  # maps of an append


class Maps:
    def __init__(self, build, folder):
        self.cbt, self.folder = build / "bin" / "cbtctl", folder
        self.random = random.Random(1)
        self.lists = {}
        self.chains = {}

    def stop(self):
        pass

    def run(self, *arguments):
        subprocess.run([self.cbt, *map(str, arguments)], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def bits(self, mib):
        """One bit in a hundred."""
        path = self.folder / "bits"
        piece = bytearray(MIB if mib else 0)
        for place in self.random.sample(range(8 * MIB), 8 * MIB // 100) if mib else ():
            piece[place // 8] |= 1 << place % 8
        path.write_bytes(piece * mib if mib else b"\0")
        capacity = 8 * BLOCK * max(mib * MIB, 1)
        return lambda: used.command(self.cbt, "delta", path, "--from", "bitmap:granularity=4096", "--capacity", capacity,
                                    "--base-name", "monday", "--output", self.folder / "bits.cbm", "--quiet")

    def images(self, mib):
        """One block in a hundred differs."""
        before, after = self.folder / "before", self.folder / "after"
        with open(before, "wb") as one, open(after, "wb") as other:
            for _ in range(mib):
                data = bytearray(self.random.randbytes(MIB))
                one.write(data)
                for block in self.random.sample(range(MIB // BLOCK), 3):
                    data[block * BLOCK] ^= 1
                other.write(data)
        return lambda: used.command(self.cbt, "delta", before, after, "--from", "image", "--format", "csv", "--quiet")

    def list(self, extents):
        """A list as CSV, and as a map."""
        if extents not in self.lists:
            path = self.folder / f"list-{extents}"
            with open(f"{path}.csv", "w", encoding="ascii") as file:
                file.write(f"byte_offset,size_bytes\ncapacity,{BLOCK * max(8 * extents, 1)}\n")
                file.writelines(f"{8 * BLOCK * i},{BLOCK * (1 + i % 7)}\n" for i in range(extents))
                file.write(f"complete,{extents}\n")
            self.run("map", "convert", f"{path}.csv", "--from", "csv", "--as", "allocated", "--output", f"{path}.cbm", "--quiet")
            self.lists[extents] = path
        return self.lists[extents]

    def print(self, extents):
        path = self.list(extents)
        return lambda: used.command(self.cbt, "map", "convert", f"{path}.cbm", "--to", "csv", "--quiet")

    def parse(self, extents):
        path = self.list(extents)
        return lambda: used.command(self.cbt, "map", "convert", f"{path}.csv", "--from", "csv", "--as", "allocated", "--output",
                                    self.folder / "parsed.cbm", "--quiet")

    def map(self, name, base, runs, blocks=1 << 26):
        path = self.folder / f"{name}.cbm"
        places = sorted(self.random.sample(range(blocks // 32), runs))
        text = "".join(f"{32 * BLOCK * place},{BLOCK * (1 + place % 31)}\n" for place in places)
        subprocess.run([self.cbt, "map", "convert", "-", "--from", "csv", "--as", "delta", "--base-name", base, "--target-name", name,
                        "--volume-name", "vol", "--output", path, "--quiet"], check=True,
                       input=f"byte_offset,size_bytes\ncapacity,{BLOCK * blocks}\n{text}complete,{runs}\n".encode())
        return path

    def merge(self, count):
        if not count:
            path = self.map("nothing", "day--1", 0)
            return lambda: used.command(self.cbt, "map", "merge", path, path, "--output", self.folder / "merged.cbm", "--quiet")
        paths = [self.map(f"day-{day}", f"day-{day - 1}", 20_000) for day in range(count)]
        return lambda: used.command(self.cbt, "map", "merge", *paths, "--output", self.folder / "merged.cbm", "--quiet")

    def chain(self, snapshots):
        """A chain of so many, and the maps of the next."""
        if snapshots not in self.chains:
            path = self.folder / f"{snapshots}.chain"
            self.run("chain", "create", path, "--volume", "vol", "--snapshot", "hour-0", "--capacity", BLOCK << 26)
            hours = range(1, snapshots + MORE + 1)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                maps = list(pool.map(lambda hour: self.map(f"hour-{hour}", f"hour-{hour - 1}", 20), hours))
            if snapshots:
                self.run("chain", "append", path, *maps[:snapshots], "--quiet")
            for each in maps[:snapshots]:
                each.unlink()
            self.chains[snapshots] = path, [each.rename(f"{path}-{each.name}") for each in maps[snapshots:]]
        return self.chains[snapshots]

    def copy_of(self, chain):
        """Its files are replaced, never written to."""
        copy = self.folder / "copy.chain"
        shutil.rmtree(copy, ignore_errors=True)
        return shutil.copytree(chain, copy, copy_function=os.link)

    def append(self, snapshots):
        chain, following = self.chain(snapshots)
        return lambda: used.command(self.cbt, "chain", "append", self.copy_of(chain), *following, "--quiet")

    def remove(self, snapshots):
        if not snapshots:
            return lambda: used.command(self.cbt, "chain", "list", self.chain(0)[0])
        chain, _ = self.chain(snapshots)
        return lambda: used.command(self.cbt, "chain", "remove", self.copy_of(chain), f"hour-{snapshots // 2}", "--quiet")

    def history(self, snapshots):
        chain, _ = self.chain(snapshots)
        return lambda: used.command(self.cbt, "chain", "delta", chain, "hour-0", f"hour-{snapshots}", "--format", "csv", "--quiet")
