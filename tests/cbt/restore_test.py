"""Restores of backups: round after round a volume is written, punched, resized and reverted, and a
backup only copies what the command reports as changed. The restored image must equal the source.
"""

import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess

import support
from support import parse_ndjson, run

MIB = 1 << 20
ROUNDS = 20 * max(int(os.environ.get("CBT_TEST_SCALE", "1")), 1)
# The library that makes the n-th system call below a folder the last one (tests/faults) crashes the
# command at a point that depends on the seed.
SHIM = os.environ.get("CBT_FAULT_SHIM")
KEPT = 6  # snapshots whose images are kept
LIBC = ctypes.CDLL(None, use_errno=True)
PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def punch(descriptor, at, size):
    """Makes a hole; returns false if the file system cannot."""
    return LIBC.fallocate(descriptor, PUNCH_HOLE, ctypes.c_int64(at), ctypes.c_int64(size)) == 0


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Restore(support.CbtTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CBT_TEST_SEED", "25"))
        print(f"seed {seed}, {ROUNDS} rounds", flush=True)
        self.rng = random.Random(seed)
        self.counts = dict.fromkeys(
            ("restores", "compared_by_qemu", "writes", "holes", "zeroed", "resizes", "reverts",
             "crashes"), 0)
        self.wrong = []
        self.where = ""
        for name in ("vol", "maps", "store"):
            os.mkdir(self.path(name))
        self.source = self.path("source.img")
        with open(self.source, "wb") as file:
            file.write(self.rng.randbytes(MIB + 77))
            file.truncate(3 * MIB + 333)

    def image(self, number):
        return self.path(f"vol/s{number}.img")

    def map(self, number):
        return self.path(f"maps/d{number}.cbm")

    # What happens to the volume between two snapshots.

    def mutate(self, oldest, newest):
        if newest > oldest and (newest % 8 == 5 or self.rng.random() < 0.1):
            # Reverted and written to: another history with the same beginning.
            shutil.copyfile(self.image(self.rng.randint(oldest, newest - 1)), self.source)
            self.counts["reverts"] += 1
        with open(self.source, "r+b") as file:
            for _ in range(self.rng.choice([0, 1, 3, 10, 40])):
                self.change(file)

    def change(self, file):
        size = os.fstat(file.fileno()).st_size
        unit = self.rng.choice([1, 1, 512, 4096, 65536])
        at = self.rng.randrange(size + 1) // unit * unit
        length = min(self.rng.choice([1, 511, 4096, 4097, 70_000]), max(size - at, 1))
        what = self.rng.random()
        if what < 0.12:
            new = self.rng.choice([size + self.rng.randrange(1, 300_000),
                                   max(size - self.rng.randrange(300_000), 1),
                                   -(-size // 4096) * 4096, size + 1, size - 1 or 1])
            if new < 6 * MIB:
                file.truncate(new)
                self.counts["resizes"] += 1
        elif what < 0.3:
            file.flush()
            if punch(file.fileno(), at, length):
                self.counts["holes"] += 1
        elif what < 0.4:
            file.seek(at)
            file.write(bytes(length))
            self.counts["zeroed"] += 1
        else:
            file.seek(at)
            file.write(self.rng.randbytes(length))
            self.counts["writes"] += 1
        file.flush()

    # What may go wrong with a restore.

    def check(self, restored, number, how):
        """Compares a restored image with its snapshot."""
        wanted = self.image(number)
        self.counts["restores"] += 1
        if digest(restored) != digest(wanted):
            self.wrong.append(f"{self.where}: {how}: s{number} is not what was restored")
        if self.rng.random() < 0.5 and shutil.which("qemu-img"):
            done = subprocess.run(
                ["qemu-img", "compare", "-q", "-f", "raw", "-F", "raw", restored, wanted],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.counts["compared_by_qemu"] += 1
            if done.returncode != 0:
                self.wrong.append(f"{self.where}: {how}: qemu-img compare: {done.stdout}")

    def crash(self, *command):
        """Runs a command that is killed midway, or completes if it is faster."""
        environment = dict(os.environ)
        if SHIM:
            environment.update(
                LD_PRELOAD=SHIM, FAULT_BELOW=self.folder, FAULT_AT=str(self.rng.randint(1, 30)),
                FAULT_KIND=self.rng.choice(["kill", "killafter"]), FAULT_FIRED=self.path("fired"))
        process = subprocess.Popen([support.CBT, *map(str, command)], env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        if not SHIM:
            process.kill()
        errors = process.communicate(timeout=60)[1]
        self.assertIn(process.returncode, (0, -signal.SIGKILL), (command, errors))
        self.counts["crashes"] += process.returncode != 0

    def surely(self, out, *command):
        """Runs a command that makes a file, sometimes again after a kill: the file must then be
        complete.
        """
        if self.rng.random() < 0.3:
            self.crash(*command)
        if not os.path.exists(out):
            self.ok(*command)

    def put(self, path, base, ranges, capacity, data):
        """The backup program's part: `base` with those ranges of the file `data`, at a capacity."""
        if base is None:
            open(path, "wb").close()
        elif base != path:
            shutil.copyfile(base, path)
        with open(path, "r+b") as file, open(data, "rb") as target:
            # A shorter file is extended with zeros, not with the data that was cut off.
            file.truncate(min(os.fstat(file.fileno()).st_size, capacity))
            file.truncate(capacity)
            for at, size in ranges:
                target.seek(at)
                piece = target.read(size)
                self.assertEqual(len(piece), size, self.where)
                file.seek(at)
                file.write(piece)
        return path

    def ranges(self, text):
        _, capacity, found = parse_ndjson(text)
        return found, capacity

    # The kinds of backups.

    def by_increments(self, number):
        """A store that sometimes takes a full backup, and otherwise the changes."""
        store = self.path("store/volume.img")
        full = number == 0 or self.rng.random() < 0.1
        if full:
            zeros = ["--skip-zeros"] if self.rng.random() < 0.5 else []
            text = self.ok("allocated", self.image(number), *zeros)
        else:
            text = self.ok("map", "convert", self.map(number), "--to", "ndjson")
        found, capacity = self.ranges(text)
        self.put(store, None if full else store, found, capacity, self.image(number))
        self.check(store, number, "increments")

    def by_apply(self, base, number):
        out = self.path("applied.img")
        if os.path.exists(out):
            os.unlink(out)
        size = self.rng.choice([512, 4096, 65536])
        self.surely(out, "apply", self.image(base), self.image(number), out, "--block-size", size)
        self.check(out, number, f"apply to s{base}")

    def by_chain(self, chain, base, number):
        found, capacity = self.ranges(
            self.ok("chain", "delta", chain, f"s{base}", f"s{number}"))
        out = self.put(self.path("chained.img"), self.image(base), found, capacity,
                       self.image(number))
        self.check(out, number, f"chain from s{base}")

    def by_merge(self, base, number):
        merged = self.path("merged.cbm")
        if os.path.exists(merged):
            os.unlink(merged)
        maps = [self.map(i) for i in range(base + 1, number + 1)]
        self.surely(merged, "map", "merge", *maps, "--output", merged)
        found, capacity = self.ranges(self.ok("map", "convert", merged, "--to", "ndjson"))
        out = self.put(self.path("from_map.img"), self.image(base), found, capacity,
                       self.image(number))
        self.check(out, number, f"{len(maps)} maps from s{base}")

    def append(self, chain, number):
        if self.rng.random() < 0.3:
            self.crash("chain", "append", chain, self.map(number))
            self.ok("chain", "verify", chain)
        lines = self.ok("chain", "list", chain).splitlines()[1:]
        if f"s{number}" not in [json.loads(line)["snapshot"] for line in lines]:
            self.ok("chain", "append", chain, self.map(number))

    def remove(self, chain, snapshot):
        if self.rng.random() < 0.3:
            self.crash("chain", "remove", chain, snapshot)
        result = run("chain", "remove", chain, snapshot)
        # It may be gone after a crash.
        self.assertIn(result.code, (0, 2), result)
        self.assertNotIn(f'"{snapshot}"', self.ok("chain", "list", chain))

    def round(self, chain, oldest, number):
        base = number - 1
        self.mutate(oldest, base)
        shutil.copyfile(self.source, self.image(number))
        self.assertEqual(digest(self.source), digest(self.image(number)))
        names = ["--volume-name", "vol", "--base-name", f"s{base}", "--target-name", f"s{number}"]
        # The chain's own granularity or a finer one, which it rounds outward.
        size = self.rng.choice([512, 4096, 4096])
        self.surely(self.map(number), "delta", self.image(base), self.image(number), "--block-size",
                    size, "--output", self.map(number), *names)
        self.append(chain, number)
        self.by_increments(number)
        self.by_apply(self.rng.randint(oldest, base), number)
        self.by_chain(chain, self.rng.randint(oldest, base), number)
        self.by_merge(self.rng.randint(oldest, base), number)

    def test_what_is_restored_is_the_source(self):
        chain = self.path("vol/history.chain")
        shutil.copyfile(self.source, self.image(0))
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "s0", "--capacity",
                os.path.getsize(self.source))
        self.by_increments(0)
        oldest = 0
        for number in range(1, ROUNDS + 1):
            self.where = f"round {number}"
            self.round(chain, oldest, number)
            if number - oldest >= KEPT:
                self.remove(chain, f"s{oldest}")
                os.unlink(self.image(oldest))
                oldest += 1
                os.unlink(self.map(oldest))
        print(f"figure: r25_rounds {ROUNDS}")
        for name, count in self.counts.items():
            print(f"figure: r25_{name} {count}")
        print(f"figure: r25_wrong {len(self.wrong)}", flush=True)
        self.assertEqual(self.wrong, [])
        for name, count in self.counts.items():
            if name not in ("compared_by_qemu", "holes"):
                self.assertGreater(count, 0, name)


if __name__ == "__main__":
    support.main()
