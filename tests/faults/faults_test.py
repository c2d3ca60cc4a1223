"""Map, chain and tracker files while each of their system calls fails.

faults_test.py CBT TRACKER_DRIVER SHIM
"""

import os
import random
import shutil
import signal

from injection import CBT, DRIVER, HARMLESS, SCALE, FaultsTest, count, execute, main, ok

KINDS = ("eio", "enospc", "enomem", "emfile", "short", "eintr", "kill", "killafter")
KILLS = ("kill", "killafter")
# Kills at random times, per command.
RANDOM_KILLS = 10 if SCALE == 1 else 400
GRANULARITY = 4096


class Faults(FaultsTest):
    # Syncing needs no disk here; power_loss_test.cc tests what survives.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

    def setUp(self):
        super().setUp()
        self.count = 0
        self.random = random.Random(12)
        self.longest = 15  # logarithm of microseconds
        count("r12_torn", 0)

    def map_file(self, name, blocks, base, target):
        raw = os.path.join(self.folder, "bits")
        with open(raw, "wb") as file:
            file.write(sum(1 << b for b in blocks).to_bytes(125, "little"))
        path = os.path.join(self.folder, name)
        ok(CBT, "map", "convert", raw, "--from", "bitmap", "--capacity", str(1000 * GRANULARITY),
           "--block-size", str(GRANULARITY), "--output", path, "--volume-name", "vol", "--base-name", base,
           "--target-name", target)
        return path

    def faults(self, *command, random_kills=RANDOM_KILLS):
        """Runs the command on a fresh copy of the pristine folder, once per fault and call and with
        kills at random times; yields (kind, result) after each.
        """
        for kind in KINDS:
            number = 0
            while True:
                number += 1
                self.fresh()
                result = execute(*command, env=self.environment(kind, number))
                call = self.take_fired()
                if call is None:
                    self.assertGreater(number, 1, f"no calls were counted: {result}")
                    self.assertEqual(result.returncode, 0, result)
                    break
                self.where = f"{kind} at call {number}, {call}: {result}"
                if kind in HARMLESS:
                    self.assertEqual(result.returncode, 0)
                if result.returncode == 3:
                    self.assertNotEqual(result.stderr, b"")
                self.count += 1
                count("r11_points")
                count("r11_points_write")
                self.wrong = "r11_wrong"
                if kind in KILLS:
                    self.assertEqual(result.returncode, -signal.SIGKILL)
                    count("r12_kills")
                    self.wrong = "r12_torn"
                yield kind, result
        number = 0
        while number < random_kills:
            microseconds = int(2 ** self.random.uniform(3, self.longest))
            self.fresh()
            result = execute(*command, env=self.environment("killat", microseconds))
            self.where = f"killed after {microseconds} us: {result}"
            if result.returncode == 0:
                # The command had finished by then: kill earlier from now on.
                self.longest = max(8, self.longest - 0.1)
            else:
                self.assertEqual(result.returncode, -signal.SIGKILL)
                number += 1
                count("r12_kills")
                count("r12_kills_at_random_times")
                self.wrong = "r12_torn"
            yield "killat", result

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
        *rows, end = text.splitlines()[4:]  # behind the head: capacity, base, snapshot
        self.assertEqual(end, f"complete,{len(rows)}")
        return {int(row.split(",")[0]) // GRANULARITY for row in rows}

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
            # And it continues from there.
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

    def applied(self, *options):
        old, new = (os.path.join(self.folder, name) for name in ("a.img", "b.img"))
        content = bytearray(self.random.randbytes(3 << 20))
        with open(old, "wb") as file:
            file.write(content)
        content[70000:80000] = bytes(10000)
        content[2 << 20:(2 << 20) + 5000] = self.random.randbytes(5000)
        with open(new, "wb") as file:
            file.write(content)
        target = os.path.join(self.below, "out.img")
        for _, result in self.faults(CBT, "apply", old, new, target, *options):
            if os.path.exists(target):
                with open(target, "rb") as file:
                    self.assertTrue(file.read() == content)
            else:
                self.assertNotEqual(result.returncode, 0)

    def test_an_image_that_is_restored_is_whole_or_not_there(self):
        self.applied()
        self.assertGreater(self.count, 40)

    def acknowledged(self, lines):
        """The acknowledged blocks, by epoch; a window's writes are in both."""
        known = {"older": set(), "newer": set(), "tried": set(), "closed": None, "opened": False}
        window = False
        for line in lines.splitlines():
            word, *numbers = line.split()
            if word == "try":
                known["tried"].add(int(numbers[0]))
            elif word == "block":
                known["newer"].add(int(numbers[0]))
                if window:
                    known["older"].add(int(numbers[0]))
            elif word == "epoch":
                known.update(older=known["newer"], newer=set(), opened=True)
                window = True
            elif word == "map":
                known["closed"], window = set(map(int, numbers)), False
                self.assertLessEqual(known["older"], known["closed"])
        return known

    def check_recovered(self, recovered, known):
        maps, exact = [], False
        for line in recovered.stdout.decode().splitlines():
            if line == "exact":
                exact = True
                continue
            maps.append(set(map(int, line.split()[1:])))
            # An inexact map must not be reported as exact.
            if exact:
                self.assertLessEqual(maps[-1], known["tried"])
            exact = False
        if len(maps) == 2 and not known["opened"]:
            # The epoch was still being opened; everything is in the one before.
            self.assertLessEqual(known["newer"], maps[0])
            return
        self.assertLessEqual(known["newer"], maps[-1])
        if known["closed"] is None:
            self.assertLessEqual(known["older"], maps[0])

    def test_a_tracker_never_under_reports(self):
        directory = os.path.join(self.below, "t")
        for kind, result in self.faults(DRIVER, "run", directory):
            known = self.acknowledged(result.stdout.decode())
            recovered = execute(DRIVER, "recover", directory)
            if recovered.returncode == 0:
                self.check_recovered(recovered, known)
            elif recovered.returncode == 2:
                # Nothing had begun.
                self.assertEqual(known["older"] | known["newer"], set())
            else:
                # The error must say that nothing is known.
                self.assertNotEqual(recovered.stderr, b"")
                self.assertNotIn(kind, HARMLESS + KILLS + ("killat",), (result, recovered))
        self.assertGreater(self.count, 200)

    def test_a_tracker_that_is_recovered_loses_nothing(self):
        directory = os.path.join(self.below, "t")
        self.fresh()
        number, _ = self.calls((DRIVER, "run", directory), "kill")
        # Within a snapshot's window, between checkpoints, and closed.
        for at in (number // 2, number * 3 // 4, number + 1):
            shutil.rmtree(self.below, ignore_errors=True)
            os.mkdir(self.below)
            made = execute(DRIVER, "run", directory, env=self.environment("kill", at))
            self.take_fired()
            known = self.acknowledged(made.stdout.decode())
            shutil.rmtree(self.pristine)
            os.rename(self.below, self.pristine)
            for kind, result in self.faults(DRIVER, "recover", directory,
                                            random_kills=RANDOM_KILLS // 3):
                if result.returncode == 0:
                    self.check_recovered(result, known)
                recovered = execute(DRIVER, "recover", directory)
                self.assertEqual(recovered.returncode, 0, recovered)
                self.check_recovered(recovered, known)
        self.assertGreater(self.count, 200)


if __name__ == "__main__":
    main()
