"""Backups into a directory, and restores, while each of their system calls fails.

backup_faults_test.py CBT TRACKER_DRIVER SHIM
"""

import json
import os
import random
import shutil
import signal
import subprocess

from injection import CBT, HARMLESS, SCALE, FaultsTest, count, execute, main

KINDS = ("eio", "enospc", "enomem", "emfile", "short", "eintr", "kill", "killafter")
KILLS = ("kill", "killafter")
# Calls that fail, for each kind: of some hundred.
POINTS = SCALE
PASSWORD = "the password of the test"
RESTIC = shutil.which("restic")
MIB = 1 << 20


class BackupFaults(FaultsTest):
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

    def setUp(self):
        super().setUp()
        self.random = random.Random()
        os.environ.update(RESTIC_PASSWORD=PASSWORD, HOME=self.folder)
        # Two volumes' worth: what is incompressible fills a pack.
        data = bytearray(self.random.randbytes(2 * MIB) + bytes(2 * MIB) + b"end")
        self.monday = self.image("monday.img", data)
        data[MIB + 5 : MIB + 9] = b"diff"
        self.tuesday = self.image("tuesday.img", data)
        repo = os.path.join(self.pristine, "repo")
        done = execute(CBT, "backup", "create", "vol", "--repo", repo, "--init", "--data", self.monday, "--handle", "mon")
        self.assertEqual(done.returncode, 0, done)
        self.repo = os.path.join(self.below, "repo")
        self.target = os.path.join(self.below, "target")

    def image(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def backup(self, *arguments):
        done = execute(CBT, "backup", *arguments, "--repo", self.repo)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def faults(self, *command):
        """Runs the command with faults at some of its calls; yields the kind and the result of each."""
        for kind in KINDS:
            self.fresh()
            points, result = self.calls(command, kind)
            self.assertEqual(result.returncode, 0, result)
            self.assertGreater(points, 3)
            for point in self.random.sample(range(1, points + 1), min(points, POINTS)):
                self.fresh()
                result = execute(*command, env=self.environment(kind, point))
                call = self.take_fired()
                self.where = f"{kind} at call {point}, {call}: {result}"
                if kind in HARMLESS or call is None:  # threads share the calls otherwise each time
                    self.assertEqual(result.returncode, 0)
                elif kind in KILLS:
                    self.assertEqual(result.returncode, -signal.SIGKILL)
                elif result.returncode != 0:
                    self.assertIn(result.returncode, (2, 3))
                    self.assertNotEqual(result.stderr, b"")
                self.assertNotIn(PASSWORD.encode(), result.stdout + result.stderr)
                count("r11_points")
                yield kind, result

    def restored(self, choice):
        self.backup("restore", choice, "--to", self.target)
        return self.read(self.target)

    def test_backups(self):
        wanted = {"mon": self.read(self.monday), "tue": self.read(self.tuesday)}
        create = ("backup", "create", "vol", "--data", self.tuesday, "--delta", self.monday, self.tuesday, "--delta-base",
                  "mon", "--handle", "tue")
        checked = 0
        for _, result in self.faults(CBT, *create, "--repo", self.repo):
            handles = [json.loads(line)["handle"] for line in self.backup("list", "--json").splitlines()]
            self.assertIn(handles, (["mon"], ["mon", "tue"]))
            if result.returncode == 0:
                self.assertEqual(handles, ["mon", "tue"])
            if handles == ["mon"]:
                self.backup(*create[1:], "--require-incremental")
            for handle, data in wanted.items():
                self.assertEqual(self.restored(f"vol@{handle}"), data)
            checked += 1
            if RESTIC is not None and checked % 8 == 0:
                subprocess.run([RESTIC, "--no-cache", "-q", "-r", self.repo, "unlock", "--remove-all"], check=True)
                done = subprocess.run([RESTIC, "--no-cache", "-q", "-r", self.repo, "check", "--read-data"], check=False,
                                      capture_output=True)
                self.assertEqual(done.returncode, 0, done)

    def test_restores(self):
        wanted, old = self.read(self.monday), b"what was there" * 1000
        for onto in (False, True):
            with open(os.path.join(self.pristine, "target"), "wb") as file:
                file.write(old)
            command = (CBT, "backup", "restore", "vol", "--repo", self.repo, "--to", self.target, "--no-lock")
            for _, result in self.faults(*command, *(["--onto"] if onto else [])):
                found = self.read(self.target)
                if result.returncode == 0:
                    self.assertEqual(found, wanted)
                elif not onto:
                    self.assertIn(found, (old, wanted))
                # Again, in place or anew, it is right.
                self.assertEqual(self.restored("vol"), wanted)


if __name__ == "__main__":
    main()
