"""export and apply: increments as qcow2, judged by qemu's own tools where they are installed."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

import support
from support import run

MIB = 1 << 20
QEMU = unittest.skipUnless(shutil.which("qemu-img"), "not installed: qemu-img")


def qemu(*arguments):
    return subprocess.run(["qemu-img", *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=120)


class Export(support.CbtTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CBT_TEST_SEED", "46"))
        print(f"seed {seed}", flush=True)
        self.rng = random.Random(seed)

    def volume(self, size=5 * MIB + 512, grown=0):
        """Images of a volume before and after: changed in places, in part zero or cut out."""
        base = self.path("base.img")
        target = self.path("target.img")
        with open(base, "wb") as file:
            file.write(self.rng.randbytes(size))
        shutil.copyfile(base, target)
        with open(target, "r+b") as file:
            for _ in range(20):
                file.seek(self.rng.randrange(size - 70000))
                length = self.rng.randrange(1, 70000)
                file.write(self.rng.choice([bytes(length), self.rng.randbytes(length), b"x" * length]))
            file.truncate(size + grown)
        if shutil.which("fallocate"):
            subprocess.run(["fallocate", "-p", "-o", str(MIB), "-l", str(MIB), target], check=False)
        return base, target

    def restored(self, base, increment, name="restored.img"):
        self.ok("apply", base, increment, self.path(name), "--from", "qcow2")
        return self.read(self.path(name))

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def export(self, *arguments):
        path = self.path("inc.qcow2")
        result = run("export", *arguments, "-o", path)
        self.assertEqual(result.code, 0, result)
        return path

    def test_back_and_forth(self):
        for size, grown in [(5 * MIB, 0), (5 * MIB + 512, 0), (3 * MIB, MIB + 1024), (4 * MIB, -MIB)]:
            base, target = self.volume(size, grown)
            expected = self.read(target)
            for options in [[], ["--find-zeros"], ["--compress"], ["--compress=19", "--find-zeros"],
                            ["--cluster-size", "4K"], ["--cluster-size", "2M"]]:
                with self.subTest(size=size, grown=grown, options=options):
                    increment = self.export(base, target, *options)
                    self.assertEqual(self.restored(base, increment), expected)

    def test_a_pipe_gets_the_same(self):
        base, target = self.volume()
        increment = self.export(base, target, "--backing", "base.img")
        piped = subprocess.run([support.CBT, "export", base, target, "--backing", "base.img", "-o", "-"],
                               stdout=subprocess.PIPE, check=True)
        self.assertEqual(piped.stdout, self.read(increment))
        refused = run("export", base, target, "--compress", "-o", "-", stdout=subprocess.PIPE)
        self.assertEqual(refused.code, 2, refused)
        self.assertIn("pipe", refused.stderr)

    @QEMU
    def test_qemu_reads_it(self):
        base, target = self.volume(grown=MIB)
        for options in [[], ["--find-zeros"], ["--compress"], ["--cluster-size", "512"],
                        ["--cluster-size", "4K", "--compress"], ["--cluster-size", "2M"]]:
            with self.subTest(options=options):
                increment = self.export(base, target, *options)
                check = qemu("check", increment)
                self.assertEqual(check.returncode, 0, check.stdout)
                compare = qemu("compare", "-f", "raw", "-F", "qcow2", target, increment)
                self.assertEqual(compare.returncode, 0, compare.stdout)
                raw = self.path("converted.img")
                convert = qemu("convert", "-f", "qcow2", "-O", "raw", increment, raw)
                self.assertEqual(convert.returncode, 0, convert.stdout)
                self.assertEqual(self.read(raw), self.read(target))
                info = json.loads(qemu("info", "--output=json", increment).stdout)
                self.assertEqual(info["backing-filename"], base)
                self.assertEqual(info["backing-filename-format"], "raw")
                self.assertEqual(info["virtual-size"], os.path.getsize(target))

    @QEMU
    def test_a_relative_base_is_seen_from_the_increment(self):
        base, target = self.volume()
        os.makedirs(self.path("out/deep"))
        os.makedirs(self.path("in:side"))
        shutil.copyfile(base, self.path("in:side/b:ase.img"))
        for where, name, out, expected in [
                ("", "base.img", "inc.qcow2", "base.img"),
                ("", "base.img", "out/deep/inc.qcow2", "../../base.img"),
                ("out", "../base.img", "deep/inc.qcow2", "../../base.img"),
                ("in:side", "b:ase.img", "inc.qcow2", "./b:ase.img"),
                ("out", "../in:side/b:ase.img", "../inc.qcow2", "./in:side/b:ase.img")]:
            with self.subTest(name=name, out=out):
                result = run("export", name, target, "-o", out, cwd=self.path(where))
                self.assertEqual(result.code, 0, result)
                path = os.path.join(self.path(where), out)
                info = json.loads(qemu("info", "--output=json", path).stdout)
                self.assertEqual(info["backing-filename"], expected)
                compare = qemu("compare", "-f", "raw", "-F", "qcow2", target, path)
                self.assertEqual(compare.returncode, 0, compare.stdout)

    @QEMU
    def test_qemu_rebases_and_commits_it(self):
        base, target = self.volume()
        expected = self.read(target)
        increment = self.export(base, target)
        copy = self.path("moved.img")
        shutil.copyfile(base, copy)
        # Onto a whole copy of the base in another place.
        rebase = qemu("rebase", "-u", "-f", "qcow2", "-b", copy, "-F", "raw", increment)
        self.assertEqual(rebase.returncode, 0, rebase.stdout)
        commit = qemu("commit", "-f", "qcow2", increment)
        self.assertEqual(commit.returncode, 0, commit.stdout)
        self.assertEqual(self.read(copy), expected)

    @QEMU
    def test_chains_of_increments(self):
        base, target = self.volume()
        first = self.path("first.qcow2")
        self.ok("export", base, target, "-o", first)
        later = self.path("later.img")
        shutil.copyfile(target, later)
        with open(later, "r+b") as file:
            file.seek(2 * MIB + 77)
            file.write(self.rng.randbytes(300000))
        second = self.path("second.qcow2")
        self.ok("export", target, later, "--backing", "first.qcow2", "--backing-format", "qcow2", "-o",
                second)
        compare = qemu("compare", "-f", "raw", "-F", "qcow2", later, second)
        self.assertEqual(compare.returncode, 0, compare.stdout)
        self.ok("apply", base, first, self.path("one.img"), "--from", "qcow2")
        self.assertEqual(self.restored(self.path("one.img"), second), self.read(later))

    def test_a_base_that_is_no_raw_image_is_refused(self):
        base, target = self.volume()
        first = self.export(base, target)
        above = self.path("above.qcow2")
        later = self.path("later.img")
        shutil.copyfile(target, later)
        with open(later, "r+b") as file:
            file.write(self.rng.randbytes(300000))
        out = self.path("out.img")
        # The increment says that its base is qcow2: its file is not the volume.
        self.ok("export", target, later, "--backing", "inc.qcow2", "--backing-format", "qcow2", "-o",
                above)
        refused = run("apply", first, above, out, "--from", "qcow2")
        self.assertNotEqual(refused.code, 0, refused)
        self.assertIn("qemu-img convert", refused.stderr)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(self.restored(target, above), self.read(later))
        # It says that its base is raw: a volume may begin like anything.
        self.ok("export", target, later, "--backing", "inc.qcow2", "--backing-format", "raw", "-o",
                above)
        self.ok("apply", first, above, out, "--from", "qcow2")

    def test_data_of_qcow2_does_not_say_the_size_of_the_volume(self):
        base, target = self.volume()
        changes = self.write("changes.json", b'[{"offset":0,"length":65536,"exists":"true"}]')
        later = self.export(base, target)  # any image of qcow2
        out = self.path("out.qcow2")
        command = ["export", changes, "--from", "rbd-json", "--backing", "base.img", "-o", out, "--data"]
        size = os.path.getsize(later)
        for more, text in ([], "qemu-img convert"), (["--capacity", str(size - 512)], "another snapshot"):
            refused = run(*command, later, *more)
            self.assertEqual(refused.code, 2, refused)
            self.assertIn(text, refused.stderr)
            self.assertFalse(os.path.exists(out))
        self.ok(*command, target)
        # A volume may begin like anything.
        self.ok(*command, later, "--capacity", str(size))

    @QEMU
    def test_a_cut_pipe_is_no_increment(self):
        base, target = self.volume()
        whole = self.read(self.export(base, target))
        cut = self.path("cut.qcow2")
        for _ in range(12):
            with open(cut, "wb") as file:
                file.write(whole[: self.rng.randrange(len(whole) - 70000, len(whole) - 1)])
            check = qemu("check", "-U", cut)
            refused = run("apply", base, cut, self.path("out.img"), "--from", "qcow2")
            self.assertNotEqual(refused.code, 0, refused)
            self.assertFalse(os.path.exists(self.path("out.img")))
            # The last cluster ends in zeros, which qemu does not miss.
            if os.path.getsize(cut) < len(whole) - 65536:
                self.assertNotEqual(check.returncode, 0, check.stdout)

    def test_changes_from_a_list(self):
        base, target = self.volume()
        changes = self.path("delta.cbm")
        self.ok("delta", base, target, "-o", changes, "--target-name", "tue", "--base-name", "mon")
        for source in [[changes], [changes, "--from", "cbm"]]:
            increment = self.export(*source, "--data", target, "--backing", "base.img")
            self.assertEqual(self.restored(base, increment), self.read(target))
        for missing in [["--data", target], ["--backing", "base.img"]]:
            refused = run("export", changes, *missing, "-o", self.path("no.qcow2"))
            self.assertEqual(refused.code, 2, refused)
        # Data of another snapshot.
        other = self.write("other.img", bytes(MIB))
        refused = run("export", changes, "--data", other, "--backing", "b", "-o", self.path("no.qcow2"))
        self.assertEqual(refused.code, 2, refused)
        self.assertFalse(os.path.exists(self.path("no.qcow2")))

    def test_changes_from_a_service(self):
        base, target = self.volume()
        os.makedirs(self.path("root/vol1"))
        shutil.copyfile(base, self.path("root/vol1/mon.img"))
        shutil.copyfile(target, self.path("root/vol1/tue.img"))
        address = f"unix://{self.path('sock')}"
        self.start_server("serve.log", "serve", "--root", self.path("root"), "--listen", address)
        service = ["--service", address, "--snapshot", "vol1/tue", "--base", "vol1/mon"]
        increment = self.export(*service, "--data", target, "--backing", "base.img", "--prove")
        self.assertEqual(self.restored(base, increment), self.read(target))
        for wrong in [service[:4], [*service, base, target]]:
            refused = run("export", *wrong, "--data", target, "--backing", "b", "-o",
                          self.path("no.qcow2"))
            self.assertEqual(refused.code, 2, refused)
        service[5] = "vol1/sun"
        refused = run("export", *service, "--data", target, "--backing", "b", "-o",
                      self.path("no.qcow2"), "--retry-for", "0")
        self.assertNotEqual(refused.code, 0, refused)
        self.assertFalse(os.path.exists(self.path("no.qcow2")))

    def test_nothing_is_damaged(self):
        base, target = self.volume()
        for out in [base, target]:
            before = self.read(out)
            refused = run("export", base, target, "-o", out)
            self.assertEqual(refused.code, 2, refused)
            self.assertEqual(self.read(out), before)
        increment = self.export(base, target)
        # What begins like qcow2 may be the volume itself.
        refused = run("apply", base, increment, self.path("out.img"))
        self.assertEqual(refused.code, 2, refused)
        self.assertIn("--from", refused.stderr)
        self.ok("apply", base, increment, self.path("out.img"), "--from", "image")
        self.assertEqual(self.read(self.path("out.img")), self.read(increment))

    def test_killed_in_the_middle(self):
        base, target = self.volume(size=64 * MIB)
        with open(target, "r+b") as file:
            for place in range(0, 64 * MIB, 65536):
                file.seek(place)
                file.write(b"changed")
        finished = 0
        begun = time.monotonic()
        self.export(base, target)
        whole = time.monotonic() - begun
        for number in range(16):
            out = self.path(f"killed{number}.qcow2")
            with subprocess.Popen([support.CBT, "export", base, target, "-o", out],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                time.sleep(whole * number / 12)
                child.send_signal(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
            if os.path.exists(out):
                finished += 1
                self.assertEqual(self.restored(base, out), self.read(target))
            # What SIGKILL leaves has no header before all else is written.
            for name in os.listdir(self.path("")):
                if name.endswith(".partial"):
                    left = self.path(name)
                    if run("apply", base, left, self.path("p.img"), "--from", "qcow2").code == 0:
                        self.assertEqual(self.read(self.path("p.img")), self.read(target))
                    os.remove(left)
        print(f"{finished} of 16 finished")


if __name__ == "__main__":
    support.main()
