"""Readers while each of their system calls fails: the right answer, or an error that names the
place and the reason; never a shorter answer that looks complete.

read_faults_test.py CBT TRACKER_DRIVER SHIM
"""

import filecmp
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import time
import unittest

from injection import CBT, HARMLESS, SCALE, FaultsTest, count, execute, main, ok, answer_in, sample

KINDS = ("eio", "enomem", "emfile", "short", "eintr")
SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "source", "samples")
MIB = 1 << 20
# About this many points per command and kind at the usual scale; all of them at a larger one.
MOST = 8 if SCALE == 1 else 10**9


def tool(*names):
    missing = [name for name in names if shutil.which(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def complaints(result):
    """Its stderr without the line about the detected format."""
    return re.sub(rb"\Acbtctl: read as [^\n]*\n", b"", result.stderr)


class ReadFaults(FaultsTest):
    missed = None  # how many points were not reached, where that is possible

    def setUp(self):
        super().setUp()
        self.random = random.Random(11)
        self.below = os.path.join(self.folder, "below")
        os.rename(self.pristine, self.below)

    def path(self, name):
        return os.path.join(self.below, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def image(self, name, size, changes=(), like=None):
        """A sparse image like `like`, with its own bytes at `changes`."""
        if like is not None:
            shutil.copy(like, self.path(name))
        with open(self.path(name), "r+b" if like is not None else "wb") as file:
            file.truncate(size)
            for offset in changes:
                file.seek(offset)
                file.write(self.random.randbytes(3000))
        return self.path(name)

    def check(self, *command, sockets=False, library=(), least=4, stdin=None):
        """Makes each call of `cbtctl command` fail. `library`: kinds that a library cannot survive."""
        command = [CBT, *map(str, command)]
        expected = execute(*command, stdin=stdin)
        self.assertEqual((expected.returncode, complaints(expected)), (0, b""), command)
        self.assertTrue(expected.stdout or "verify" in command, command)
        total = 0
        for kind in KINDS + (("reset",) if sockets else ()):
            number, _ = self.calls(command, kind, sockets=sockets, stdin=stdin)
            total += number
            for at in sample(number, MOST):
                for then in (False, True):
                    if then and (kind in HARMLESS or SCALE == 1 and at % 4 != 1):
                        continue
                    self.one(command, kind, at, then, sockets, library, expected.stdout, stdin)
        self.assertGreaterEqual(total, least, command)

    def one(self, command, kind, at, then, sockets, library, expected, stdin):
        self.where = f"{kind} at call {at}{' and later' if then else ''} of {command}"
        result = execute(*command, stdin=stdin, env=self.environment(
            kind, at, sockets, then, FAULT_STDIN=str(int(stdin is not None))))
        call = self.take_fired()
        if call is None and self.missed is not None:
            self.missed += 1
        elif call is None and not sockets:
            self.fail("not reached: the calls vary from run to run")
        self.where += f": {call}: {result}"
        count("r11_points")
        count("r11_points_read")
        if result.returncode == 0:
            self.assertEqual(result.stdout, expected)
            self.assertEqual(complaints(result), b"")
        else:
            self.assertIn(result.returncode, (2, 3))
            self.assertRegex(complaints(result).decode(), r"\Acbtctl: [^\n]+: [^\n]+\n\Z")
            self.assertTrue(expected.startswith(answer_in(result.stdout)))
            if kind not in library:
                self.assertNotIn(kind, HARMLESS)

    # ---- images and bitmap files

    def pair(self, size=9 * MIB - 700):
        old = self.image("a.img", size, [0, 5000, 3 * MIB, size - 3000])
        new = self.image("b.img", size, [5000, 4 * MIB, size - 3000], like=old)
        return old, new

    def test_images(self):
        old, new = self.pair()
        self.check("delta", old, new, "--block-size", 4096)
        self.check("delta", old, new, "--by-extents")
        self.check("allocated", new)
        self.check("allocated", new, "--zeros")

    def test_images_that_are_not_in_the_page_cache(self):
        """Read-ahead makes calls of its own; their number depends on which thread waits first."""
        os.environ["FAULT_COLD"] = "1"
        self.addCleanup(os.environ.pop, "FAULT_COLD")
        self.missed = 0
        old, new = self.pair()
        self.check("delta", old, new)
        self.check("allocated", new, "--zeros")
        self.assertLess(self.missed, 10)

    def test_E11_a_range_that_vanishes_between_two_seeks_ends_nothing(self):
        """SEEK_DATA finds a cached page of unwritten space; then the page is dropped, and SEEK_HOLE
        returns the offset it was asked about.
        """
        old = self.image("old.img", 64 * MIB)
        new = self.image("new.img", 64 * MIB, [MIB, 20 * MIB, 50 * MIB])
        empty, out = self.path("empty.cbm"), os.path.join(self.folder, "out.img")
        ok(CBT, "delta", old, old, "--output", empty)
        for command, status in ((("delta", old, new), 0), (("delta", old, new, "--by-extents"), 0), (("allocated", new), 0),
                                (("allocated", new, "--zeros"), 0), (("verify", "--map", empty, old, new), 1),
                                (("apply", old, new, out), 0)):
            command = [CBT, *command]
            number, expected = self.calls(command, "short")
            self.assertEqual(expected.returncode, status, expected)
            self.assertGreater(number, 2)
            for at in range(1, number + 1):
                result = execute(*command, env=self.environment("short", at))
                self.where = f"call {at} of {command}: {self.take_fired()}, {result}"
                self.assertEqual((result.returncode, result.stdout), (status, expected.stdout))
                if "apply" in command:
                    self.assertTrue(filecmp.cmp(out, new, shallow=False))

    def days(self, prepare):
        """Two folders in which `prepare(day)` made files. On some network file systems a file and
        its snapshots have the same inode number; a command's output must not depend on that.
        """
        for day in ("mon", "tue"):
            os.mkdir(self.path(day))
            prepare(day)

        def check(*command, status=0):
            command = [CBT, *map(str, command)]
            expected = execute(*command)
            self.assertEqual(expected.returncode, status, expected)
            self.where = str(command)
            found = execute(*command, env=self.environment("", 0, FAULT_INODES="1"))
            self.assertEqual((found.returncode, found.stdout), (status, expected.stdout), found)
            return found.stdout.decode()

        return check

    def test_E8_a_file_and_its_snapshot_with_one_inode_number(self):
        size = 3 * MIB - 700
        check = self.days(lambda day: self.image(f"{day}/disk.img", size, [5000, MIB + len(day)]))
        old, new = self.path("mon/disk.img"), self.path("tue/disk.img")
        out, empty = os.path.join(self.folder, "out.img"), self.path("empty.cbm")
        ok(CBT, "delta", old, old, "--output", empty)
        for more in ((), ("--by-extents",)):
            self.assertIn('"byte_offset":', check("delta", old, new, *more))
        self.assertIn("no: not reported", check("verify", "--map", empty, old, new, status=1))
        check("apply", old, new, out)
        self.assertTrue(filecmp.cmp(out, new, shallow=False))

    @tool("qemu-img", "qemu-io")
    def test_E8_qcow2_files_and_their_snapshots_with_one_inode_number(self):
        def prepare(day):
            base, image = self.path(f"{day}/base.qcow2"), self.path(f"{day}/vm.qcow2")
            ok("qemu-img", "create", "-q", "-f", "qcow2", base, 4 * MIB)
            ok("qemu-io", "-c", f"write -P {len(os.listdir(self.below))} 1M 128k", base)
            ok("qemu-img", "create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", image)

        check = self.days(prepare)
        # One file is modified in place, the other below an overlay that is not.
        for name in ("base.qcow2", "vm.qcow2"):
            found = check("delta", self.path(f"mon/{name}"), self.path(f"tue/{name}"))
            self.assertIn('{"byte_offset":1048576,"size_bytes":131072}', found)

    def test_dense_bitmaps(self):
        bits = self.write("a.bits", self.random.randbytes(90000))
        layout = ["--from", "bitmap:granularity=4096,order=msb", "--capacity", 90000 * 8 * 4096]
        self.check("delta", bits, *layout)
        self.check("allocated", "-", *layout, stdin=bits)

    # ---- maps and chains

    def map_file(self, name, blocks, base, target):
        bits = self.write("bits", sum(1 << b for b in blocks).to_bytes(125, "little"))
        path = self.path(name)
        ok(CBT, "map", "convert", bits, "--from", "bitmap", "--capacity", 1000 * 4096, "--block-size", 4096, "--output",
           path, "--volume-name", "vol", "--base-name", base, "--target-name", target)
        return path

    def test_maps(self):
        maps = [self.map_file(f"{i}.cbm", range(i, 900, 7), f"s{i}", f"s{i + 1}") for i in range(3)]
        self.check("delta", maps[0])
        # Of several it prints those it can read, one line each.
        self.check("map", "info", maps[0])
        self.check("map", "show", maps[1])
        self.check("map", "convert", maps[1], "--to", "csv")

    def test_chains(self):
        chain = self.path("c")
        ok(CBT, "chain", "create", chain, "--volume", "vol", "--snapshot", "s0", "--capacity",
           1000 * 4096)
        for day in range(1, 12):
            ok(CBT, "chain", "append", chain,
               self.map_file("m.cbm", [day, 500 + day], f"s{day - 1}", f"s{day}"))
        self.check("chain", "delta", chain, "s1", "s10")
        self.check("chain", "list", chain)
        self.check("chain", "verify", chain)

    # ---- output of storage systems' tools

    def test_lists(self):
        def sample_file(name):
            path = os.path.join(SAMPLES, name)
            if not name.endswith(".gz"):
                shutil.copy(path, self.path(name))
                return self.path(name)
            with gzip.open(path) as file:
                return self.write(name[:-3], file.read())

        capacity = ["--capacity", 64 * MIB]
        self.check("delta", sample_file("thin_delta.xml"), *capacity)
        self.check("delta", "-", *capacity, stdin=sample_file("thin_delta.xml"))
        self.check("allocated", sample_file("thin_dump.xml"), "--from", "thin-dump:device=1",
                   *capacity)
        self.check("delta", sample_file("era_invalidate.xml"), "--from",
                   "era-invalidate:block-size=64K", *capacity)
        self.check("delta", sample_file("era_dump.xml"), "--from", "era-dump:since-era=3")
        self.check("delta", sample_file("rbd_diff_v1_bluestore.bin"))
        rbd = [{"offset": i * MIB, "length": 65536, "exists": "true"} for i in range(0, 60, 2)]
        self.check("delta", self.write("rbd.json", json.dumps(rbd).encode()), *capacity)
        qemu = [{"start": i * MIB, "length": MIB, "depth": i % 2, "present": True, "zero": False,
                 "data": True, "offset": 0} for i in range(20)]
        self.check("delta", self.write("qemu.json", json.dumps(qemu).encode()))
        areas = {"startOffset": 0, "length": 64 * MIB,
                 "changedArea": [{"start": i * MIB, "length": 65536} for i in range(0, 60, 3)]}
        self.check("delta", self.write("areas.json", json.dumps(areas).encode()), *capacity)
        page = {"BlockSize": 524288, "VolumeSize": 1, "ExpiryTime": 0,
                "ChangedBlocks": [{"BlockIndex": i, "FirstBlockToken": "a",
                                   "SecondBlockToken": "b"} for i in range(0, 2000, 3)]}
        self.check("delta", self.write("ebs.json", json.dumps(page).encode()))

    # ---- images in formats of their own

    @tool("qemu-img", "qemu-io")
    def test_qcow2(self):
        base, image = self.path("base.qcow2"), self.path("vm.qcow2")
        ok("qemu-img", "create", "-q", "-f", "qcow2", base, 32 * MIB)
        ok("qemu-io", "-c", "write -P 1 0 128k", "-c", "write -P 2 20M 64k", base)
        ok("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", image)
        ok("qemu-io", "-c", "write -P 3 1M 128k", image)
        ok("qemu-img", "snapshot", "-c", "monday", image)
        ok("qemu-img", "bitmap", "--add", image, "since-monday")
        ok("qemu-io", "-c", "write -P 4 64k 4k", "-c", "write -P 5 5M 4k", image)
        self.check("allocated", image, "--from", "qcow2")
        self.check("delta", image, "--from", "qcow2:base-snapshot=monday")
        self.check("delta", image, "--from", "qcow2:bitmap=since-monday")
        self.check("delta", image, "--from", "qcow2:layer")

    @tool("mkfs.ext4")
    def test_ext(self):
        disk = self.image("disk.img", 40 * MIB)
        ok("mkfs.ext4", "-q", "-F", disk)
        self.check("allocated", disk, "--from", "ext", library=HARMLESS)

    @tool("qemu-img", "qemu-io", "qemu-nbd")
    def test_nbd(self):
        image, socket = self.path("disk.qcow2"), os.path.join(self.folder, "nbd.sock")
        ok("qemu-img", "create", "-q", "-f", "qcow2", image, 64 * MIB)
        ok("qemu-img", "bitmap", "--add", image, "b")
        ok("qemu-io", *[part for i in range(0, 60, 3) for part in ("-c", f"write {i}M 64k")], image)
        server = subprocess.Popen(
            ["qemu-nbd", "-r", "-t", "-e", "8", "-k", socket, "-A", "-B", "b", "-f", "qcow2", image],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        while not os.path.exists(socket):
            self.assertIsNone(server.poll())
            time.sleep(0.02)
        address = f"nbd+unix:///?socket={socket}"
        self.check("allocated", address, sockets=True, library=HARMLESS)
        self.check("delta", address, "--from", "nbd:bitmap=b", sockets=True, library=HARMLESS)


if __name__ == "__main__":
    main()
