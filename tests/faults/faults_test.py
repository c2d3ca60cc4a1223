"""Files of maps, chains and trackers while system calls fail, at every one of them.

faults_test.py CBT TRACKER_DRIVER SHIM
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CBT, DRIVER, SHIM = (os.path.abspath(path) for path in sys.argv[1:4])
del sys.argv[1:4]
KINDS = ("eio", "enospc", "short", "eintr", "kill", "killafter")
# What a caller must not notice.
HARMLESS = ("short", "eintr")
GRANULARITY = 4096


def execute(*command, env=None):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, env=env)


def ok(*command):
    done = execute(*command)
    assert done.returncode == 0, (command, done)
    return done.stdout.decode()


class Faults(unittest.TestCase):
    def _formatMessage(self, msg, standardMsg):
        return super()._formatMessage(msg, f"{standardMsg}\n{self.where}")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cbt-faults-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.below = os.path.join(self.folder, "below")
        self.pristine = os.path.join(self.folder, "pristine")
        self.fired = os.path.join(self.folder, "fired")
        self.count = 0
        self.where = ""
        os.mkdir(self.pristine)

    def map_file(self, name, blocks, base, target):
        raw = os.path.join(self.folder, "bits")
        with open(raw, "wb") as file:
            file.write(sum(1 << b for b in blocks).to_bytes(125, "little"))
        path = os.path.join(self.folder, name)
        ok(CBT, "map", "convert", raw, "--from", "bitmap", "--capacity", str(1000 * GRANULARITY),
           "--output", path, "--volume-name", "vol", "--base-name", base, "--target-name", target)
        return path

    def faults(self, *command):
        """Runs the command once for each fault at each call, on a fresh copy of the pristine folder;
        yields (kind, result) after each."""
        for kind in KINDS:
            at = 0
            while True:
                at += 1
                shutil.rmtree(self.below, ignore_errors=True)
                shutil.copytree(self.pristine, self.below)
                if os.path.exists(self.fired):
                    os.unlink(self.fired)
                environment = dict(os.environ, LD_PRELOAD=SHIM, FAULT_BELOW=self.below,
                                   FAULT_AT=str(at), FAULT_KIND=kind, FAULT_FIRED=self.fired)
                result = execute(*command, env=environment)
                if not os.path.exists(self.fired):
                    self.assertGreater(at, 3, f"no calls were counted: {result}")
                    self.assertEqual(result.returncode, 0, result)
                    break
                self.count += 1
                if kind in HARMLESS:
                    self.assertEqual(result.returncode, 0, (kind, at, result))
                if result.returncode == 3:
                    self.assertNotEqual(result.stderr, b"")
                self.where = f"{kind} at call {at}: {result}"
                yield kind, result

    def test_a_map_file_is_the_old_one_or_the_new_one(self):
        old = self.map_file("old.cbm", [1, 2], "a", "b")
        new = self.map_file("new.cbm", range(0, 900, 3), "a", "b")
        with open(old, "rb") as file:
            old_bytes = file.read()
        with open(new, "rb") as file:
            new_bytes = file.read()
        for existing in (True, False):
            if existing:
                shutil.copy(old, os.path.join(self.pristine, "m.cbm"))
            else:
                os.unlink(os.path.join(self.pristine, "m.cbm"))
            target = os.path.join(self.below, "m.cbm")
            for _, result in self.faults(CBT, "map", "merge", new, "--output", target):
                found = None
                if os.path.exists(target):
                    with open(target, "rb") as file:
                        found = file.read()
                self.assertIn(found, (old_bytes if existing else None, new_bytes))
                if result.returncode == 0:
                    self.assertEqual(found, new_bytes)
        self.assertGreater(self.count, 40)

    def snapshots(self, chain):
        lines = ok(CBT, "chain", "list", chain).splitlines()[1:]
        return [line.split('"')[3] for line in lines]

    def delta(self, chain, base, target):
        text = ok(CBT, "chain", "delta", chain, base, target, "--style", "blocks",
                  "--format", "csv")
        return {int(line.split(",")[0]) // GRANULARITY for line in text.splitlines()[1:]}

    def make_chain(self, days):
        chain = os.path.join(self.pristine, "c")
        ok(CBT, "chain", "create", chain, "--volume", "vol", "--snapshot", "s0",
           "--capacity", str(1000 * GRANULARITY))
        for day in range(1, days):
            ok(CBT, "chain", "append", chain,
               self.map_file("m.cbm", [day], f"s{day - 1}", f"s{day}"))
        return os.path.join(self.below, "c")

    def test_a_chain_has_a_snapshot_or_has_it_not(self):
        chain = self.make_chain(8)
        new = self.map_file("m.cbm", [8], "s7", "s8")
        for _, result in self.faults(CBT, "chain", "append", chain, new):
            ok(CBT, "chain", "verify", chain)
            found = self.snapshots(chain)
            self.assertIn(len(found), (8, 9))
            if result.returncode == 0:
                self.assertEqual(len(found), 9)
            self.assertEqual(self.delta(chain, "s1", found[-1]), set(range(2, len(found))))
            # And it goes on from there.
            if len(found) == 8:
                ok(CBT, "chain", "append", chain, new)
            self.assertEqual(self.delta(chain, "s0", "s8"), set(range(1, 9)))
            leftover = [n for n in os.listdir(chain) if n.endswith(".partial")]
            if len(found) == 8:
                self.assertEqual(leftover, [])
        self.assertGreater(self.count, 100)

    def test_removing_from_a_chain_loses_no_block(self):
        chain = self.make_chain(9)
        for _, result in self.faults(CBT, "chain", "remove", chain, "s4"):
            ok(CBT, "chain", "verify", chain)
            found = self.snapshots(chain)
            self.assertEqual("s4" in found, len(found) == 9)
            if result.returncode == 0:
                self.assertEqual(len(found), 8)
            self.assertEqual(self.delta(chain, "s3", "s5"), {4, 5})
            self.assertEqual(self.delta(chain, "s0", "s8"), set(range(1, 9)))
        self.assertGreater(self.count, 100)

    def test_a_tracker_never_under_reports(self):
        os.mkdir(os.path.join(self.pristine, "t"))
        directory = os.path.join(self.below, "t")
        shutil.rmtree(os.path.join(self.pristine, "t"))
        for kind, result in self.faults(DRIVER, "run", directory):
            # What was acknowledged, by epoch; a window's writes are in both.
            older, newer, closed, opened, window = set(), set(), None, False, False
            for line in result.stdout.decode().splitlines():
                word, *numbers = line.split()
                if word == "block":
                    newer.add(int(numbers[0]))
                    if window:
                        older.add(int(numbers[0]))
                elif word == "epoch":
                    older, newer, opened, window = newer, set(), True, True
                elif word == "map":
                    closed, window = set(map(int, numbers)), False
                    self.assertLessEqual(older, closed)
            recovered = execute(DRIVER, "recover", directory)
            if recovered.returncode != 0:
                # Nothing was begun, or it is told that nothing can be known.
                if recovered.returncode == 2:
                    self.assertEqual(older | newer, set())
                else:
                    self.assertNotEqual(recovered.stderr, b"")
                    self.assertNotIn(kind, HARMLESS + ("kill", "killafter"),
                                     (result, recovered))
                continue
            maps = [set(map(int, line.split()[1:])) for line in
                    recovered.stdout.decode().splitlines()]
            if len(maps) == 2 and not opened:
                # An epoch that was being opened; all there was is in the one before.
                self.assertLessEqual(newer, maps[0])
                continue
            self.assertLessEqual(newer, maps[-1])
            if closed is None:
                self.assertLessEqual(older, maps[0])
        self.assertGreater(self.count, 200)


if __name__ == "__main__":
    unittest.main()
