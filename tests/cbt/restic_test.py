"""restic and `cbtctl backup` on each other's repositories, of both formats.

CBT_TEST_RESTIC names another restic than the installed one.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import unittest

import support

MIB = 1 << 20
RESTIC = os.environ.get("CBT_TEST_RESTIC") or shutil.which("restic")
FORMATS = ("1", "2")


def noise(size):
    return random.randbytes(size)


@unittest.skipIf(RESTIC is None, "restic is not installed")
class Restic(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.image = bytearray(noise(9 * MIB) + bytes(3 * MIB) + b"text " * 300_000 + b"end" * 171)
        self.environment = {"RESTIC_PASSWORD": "of both", "HOME": self.folder}

    def begin(self, version):
        """An empty repository of a format."""
        self.environment["RESTIC_REPOSITORY"] = self.path(f"repository{version}")
        self.restic("init", "--repository-version", version)

    def restic(self, *arguments, **options):
        done = subprocess.run([RESTIC, "--no-cache", "-q", *arguments], env={**os.environ, **self.environment},
                              check=False, capture_output=True, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done}")
        return done.stdout

    def backup(self, *arguments):
        done = support.run("backup", *arguments, env=self.environment)
        self.assertEqual(done.code, 0, f"{arguments}: {done}")
        return done.stdout

    def create(self, handle, *arguments):
        """Backs the image up as it is now."""
        path = self.write(handle, bytes(self.image))
        line = self.backup("create", "vol1", "--json", "--data", path, "--handle", handle, *arguments).splitlines()[-1]
        return json.loads(line)

    def increment(self, base, handle):
        summary = self.create(handle, "--delta", self.path(base), self.path(handle), "--delta-base", base,
                              "--require-incremental")
        self.assertLess(summary["bytes_read"], len(self.image) / 2)

    def change(self, offset, data):
        self.image[offset : offset + len(data)] = data

    def restored(self, choice):
        self.backup("restore", choice, "--to", self.path("restored"))
        return pathlib.Path(self.path("restored")).read_bytes()

    def ids(self, volume="vol1"):
        return [json.loads(line)["snapshot_id"] for line in self.backup("list", volume, "--json").splitlines()]

    def history(self):
        """Three snapshots by cbtctl. Returns what each holds."""
        states = []
        self.create("one")
        states.append(bytes(self.image))
        for base, handle, offset in (("one", "two", 5 * MIB - 3), ("two", "three", 10 * MIB)):
            self.change(offset, noise(700_000))
            self.write(handle, bytes(self.image))
            self.increment(base, handle)
            states.append(bytes(self.image))
        return states

    def test_what_we_wrote(self):
        for version in FORMATS:
            with self.subTest(version=version):
                self.begin(version)
                states = self.history()
                self.restic("check")
                self.restic("check", "--read-data")
                ids = self.ids()
                for one, state in zip(ids, states):
                    self.assertEqual(self.restic("dump", one, "/vol1"), state)
                target = self.path(f"target{version}")
                self.restic("restore", ids[1], "--target", target, "--verify")
                self.assertEqual(pathlib.Path(target, "vol1").read_bytes(), states[1])
                # Packs and indexes that restic writes anew.
                self.restic("forget", "--keep-last", "2", "--prune")
                self.restic("prune", "--max-unused", "0")
                self.restic("rebuild-index")
                self.restic("check", "--read-data")
                self.assertEqual(self.ids(), ids[1:])
                for one, state in zip(ids[1:], states[1:]):
                    self.assertEqual(self.restored(f"vol1@{one[:8]}"), state)
                # We go on from there.
                self.change(0, b"four")
                self.write("four", bytes(self.image))
                self.increment("three", "four")
                self.restic("check", "--read-data")
                self.assertEqual(self.restic("dump", "latest", "/vol1"), bytes(self.image))
                self.copied(version)

    def copied(self, version):
        """Into a repository of the other format, by `restic copy`."""
        other = {"1": "2", "2": "1"}[version]
        source = self.environment["RESTIC_REPOSITORY"]
        self.environment["RESTIC_REPOSITORY"] = self.path(f"copy{other}")
        self.restic("init", "--repository-version", other)
        password = self.write("password", self.environment["RESTIC_PASSWORD"].encode())
        self.restic("copy", "--from-repo", source, "--from-password-file", password)
        self.assertEqual(len(self.ids()), 3)
        self.assertEqual(self.restored("vol1@latest"), bytes(self.image))

    def test_what_restic_wrote(self):
        for version in FORMATS:
            with self.subTest(version=version):
                self.begin(version)
                state = bytes(self.image)
                for compression in ("auto", "max", "off") if version == "2" else ("auto",):
                    self.restic("backup", "--compression", compression, "--stdin", "--stdin-filename", "vol1", input=state)
                self.assertEqual(self.restored("vol1"), state)
                data = self.write("data", state)
                self.assertEqual(self.backup("verify", "vol1", "--data", data)[:4], "yes:")
                # Its blobs are cut elsewhere, so the first snapshot of ours reads everything.
                self.create("one")
                self.change(3 * MIB, b"two")
                self.write("two", bytes(self.image))
                self.increment("one", "two")
                ids = self.ids()
                self.restic("tag", "--add", "kept", ids[-1])
                # A tag makes a new snapshot.
                self.assertEqual(self.restored("vol1@two"), bytes(self.image))
                self.restic("forget", "--prune", *ids[:-1])
                self.restic("check", "--read-data")
                self.assertEqual(self.restored("vol1"), bytes(self.image))
                self.assertEqual(self.restored(f"vol1@{self.ids()[0]}"), bytes(self.image))

    def test_mount(self):
        if shutil.which("fusermount3") is None:
            self.skipTest("fusermount3 is not installed")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse can't be opened")
        self.begin("2")
        states = self.history()
        folder = self.path("mount")
        os.mkdir(folder)
        with open(self.path("log"), "wb") as log:
            mount = subprocess.Popen([RESTIC, "--no-cache", "mount", folder], stdout=log, stderr=log,
                                     env={**os.environ, **self.environment})
        try:
            end = time.monotonic() + 60
            while not os.path.ismount(folder):
                self.assertIsNone(mount.poll(), pathlib.Path(self.path("log")).read_bytes())
                self.assertLess(time.monotonic(), end, "restic mounts nothing")
                time.sleep(0.05)
            for one, state in zip(self.ids(), states):
                self.assertEqual(pathlib.Path(folder, "ids", one[:8], "vol1").read_bytes(), state)
        finally:
            mount.send_signal(signal.SIGINT)
            mount.wait(60)
        self.assertFalse(os.path.ismount(folder))


if __name__ == "__main__":
    if RESTIC is not None:
        print(subprocess.run([RESTIC, "version"], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
    support.main()
