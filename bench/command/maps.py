"""Rows of change maps, beside CRoaring's bitmaps through Python (pyroaring)."""

import os
import random
import subprocess
import sys

from turns import OURS, Program, run_all

BLOCK = 4096
BLOCKS = 1 << 28  # 1 TiB
DAYS = 30
HOURS = 1000

UNITE = """
import sys
from pyroaring import BitMap64
maps = [BitMap64.deserialize(open(path, "rb").read()) for path in sys.argv[2:]]
united = BitMap64.union(*maps)
united.run_optimize()
open(sys.argv[1], "wb").write(united.serialize())
"""

# The extents as text, as the command prints them; the loop is what a user would write.
LIST = """
import sys
from pyroaring import BitMap64
united = BitMap64.union(*[BitMap64.deserialize(open(path, "rb").read()) for path in sys.argv[1:]])
begin = end = None
out = []
for block in united:
    if block != end:
        if end is not None:
            out.append(f"{begin * 4096},{(end - begin) * 4096}\\n")
        begin = block
    end = block + 1
if end is not None:
    out.append(f"{begin * 4096},{(end - begin) * 4096}\\n")
sys.stdout.write("".join(out))
"""


class Maps:
    """Maps of a volume of 1 TiB: runs of blocks at random places, as *.cbm and as portable bytes."""

    def __init__(self, cbt, folder, python):
        self.cbt, self.folder = cbt, folder
        self.python = python
        done = subprocess.run([python, "-c", "import pyroaring as p; print(p.__version__, p.__croaring_version__)"], text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{python} has no pyroaring: pip install pyroaring, and name its Python with CBT_BENCH_PYTHON")
        ours, theirs = done.stdout.split()
        self.peer = f"pyroaring {ours} (CRoaring {theirs.removeprefix('v')})"
        self.generator = random.Random(1)

    def make(self, name, base, runs):
        """NAME.cbm and NAME.bin: so many runs of 1 to 31 blocks."""
        path = f"{self.folder}/{name}"
        extents = []
        at = 0
        for gap in sorted(self.generator.sample(range(BLOCKS // 32), runs)):
            at = gap * 32
            extents.append(f"{at * BLOCK},{self.generator.randrange(1, 32) * BLOCK}")
        with open(path + ".csv", "w", encoding="ascii") as file:
            file.write(f"byte_offset,size_bytes\ncapacity,{BLOCKS * BLOCK}\n" + "\n".join(extents) + f"\ncomplete,{len(extents)}\n")
        subprocess.run([self.cbt, "map", "convert", path + ".csv", "--from", "csv", "--as", "delta", "--base-name", base,
                        "--target-name", name, "--volume-name", "vol", "--output", path + ".cbm", "--quiet"], check=True)
        subprocess.run([self.cbt, "map", "convert", path + ".cbm", "--to", "roaring64", "--output", path + ".bin", "--quiet"], check=True)
        os.unlink(path + ".csv")
        return path

    def same(self, ours, theirs, what):
        with open(ours, "rb") as one, open(theirs, "rb") as other:
            if one.read() != other.read():
                sys.exit(f"{what}: the answers differ")

    def merge(self):
        paths = [self.make(f"day-{day}", f"day-{day - 1}", 40_000) for day in range(DAYS)]
        united = f"{self.folder}/united"
        ours = Program(OURS, [self.cbt, "map", "merge", *(path + ".cbm" for path in paths), "--output", united + ".cbm", "--quiet"])
        theirs = Program("roaring", [self.python, "-c", UNITE, united + ".theirs", *(path + ".bin" for path in paths)])
        run_all(ours, theirs)
        subprocess.run([self.cbt, "map", "convert", united + ".cbm", "--to", "roaring64", "--output", united + ".ours", "--quiet"],
                       check=True)
        self.same(united + ".ours", united + ".theirs", "merge")
        return f"`map merge` of {DAYS} days", [ours, theirs], {"roaring": self.peer}

    def chain(self):
        paths = [self.make(f"hour-{hour}", f"hour-{hour - 1}", 500) for hour in range(HOURS)]
        chain = f"{self.folder}/history.chain"
        subprocess.run([self.cbt, "chain", "create", chain, "--volume", "vol", "--snapshot", "hour--1", "--capacity", str(BLOCKS * BLOCK)],
                       check=True)
        subprocess.run([self.cbt, "chain", "append", chain, *(path + ".cbm" for path in paths), "--quiet"], check=True)
        out = {name: f"{self.folder}/{name}.csv" for name in ("ours", "theirs")}
        ours = Program(OURS, [self.cbt, "chain", "delta", chain, "hour-9", f"hour-{HOURS - 1}", "--format", "csv", "--quiet"], out["ours"])
        theirs = Program("roaring", [self.python, "-c", LIST, *(path + ".bin" for path in paths[10:])], out["theirs"])
        run_all(ours, theirs)
        with open(out["ours"], encoding="ascii") as file:
            rows = [line for line in file if line[0].isdigit()]
        with open(out["theirs"], encoding="ascii") as file:
            if file.readlines() != rows:
                sys.exit("chain: the answers differ")
        return f"`chain delta` over {HOURS - 10} of {HOURS} hours, {len(rows)} extents", [ours, theirs], {"roaring": self.peer}
