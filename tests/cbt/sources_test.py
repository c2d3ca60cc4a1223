"""`cbt delta`, `allocated`, `map convert` and `verify` on the output of storage systems' own tools,
against oracles that do not parse it. Missing tools skip their tests by name.
"""

import base64
import gzip
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import unittest
import xml.etree.ElementTree

import support
from support import parse_ndjson, run

BLOCK = 65536


def tool(*names):
    missing = [name for name in names if shutil.which(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def sh(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, **options).stdout


def runs_of(units, size, capacity):
    """Maximal (offset, length) of a set of unit numbers, cut at the capacity."""
    found = []
    for unit in sorted(units):
        if found and found[-1][1] == unit * size:
            found[-1][1] = (unit + 1) * size
        else:
            found.append([unit * size, (unit + 1) * size])
    return [(b, min(e, capacity) - b) for b, e in found if b < capacity]


def units_of(tuples, size):
    found = set()
    for offset, length in tuples:
        found.update(range(offset // size, (offset + length + size - 1) // size))
    return found


def differing(base, target, size):
    """Numbers of the blocks in which two byte strings differ; the shorter one is padded with
    zeros.
    """
    base = base.ljust(len(target), b"\0")
    return {i for i in range((len(target) + size - 1) // size)
            if base[i * size:(i + 1) * size][:len(target) - i * size] != target[i * size:(i + 1) * size]}


class Sources(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(20)

    def write(self, name, content):
        with open(self.path(name), "wb" if isinstance(content, bytes) else "w") as file:
            file.write(content)
        return self.path(name)

    def tuples(self, *arguments):
        done = run(*arguments, "--format", "ndjson")
        self.assertEqual(done.code, 0, (arguments, done))
        _, capacity, found = parse_ndjson(done.stdout)
        return capacity, found

    def refused(self, code, *arguments):
        done = run(*arguments)
        self.assertEqual(done.code, code, (arguments, done))
        errors = [line for line in done.stderr.splitlines() if not line.startswith("cbt: read as ")]
        self.assertEqual(len(errors), 1, done)
        self.assertEqual(done.stdout, "", done)
        return errors[0]

    def piped(self, text, *arguments):
        """The output of cbt with `text` on its standard input."""
        done = subprocess.run([support.CBT, *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 0, done)
        _, capacity, found = parse_ndjson(done.stdout.decode())
        return capacity, found

    # ---- LVM thin and era

    @tool("thin_restore", "thin_delta", "thin_dump")
    def test_thin_pools(self):
        for _ in range(6):
            blocks = 300
            devices, free = [], list(range(2000))
            self.random.shuffle(free)
            first = {b: free.pop() for b in range(blocks) if self.random.random() < 0.4}
            # A snapshot shares everything; then blocks are written, discarded and added.
            second = dict(first)
            for b in range(blocks):
                dice = self.random.random()
                if dice < 0.1:
                    second[b] = free.pop()
                elif dice < 0.2:
                    second.pop(b, None)
            devices = {1: first, 2: second}
            text = '<superblock uuid="" time="1" transaction="1" data_block_size="128" nr_data_blocks="4096">\n'
            for number, mapping in devices.items():
                text += (f'<device dev_id="{number}" mapped_blocks="{len(mapping)}" transaction="0" creation_time="0" '
                        f'snap_time="0">\n')
                for origin, data in sorted(mapping.items()):
                    text += f'<single_mapping origin_block="{origin}" data_block="{data}" time="0"/>\n'
                text += "</device>\n"
            source = self.write("in.xml", text + "</superblock>\n")
            metadata = self.path("meta.bin")
            with open(metadata, "wb") as file:
                file.truncate(4 << 20)
            sh("thin_restore", "-i", source, "-o", metadata)
            capacity = blocks * BLOCK - 1000
            changed = {b for b in range(blocks) if first.get(b) != second.get(b)}
            for verbose in ([], ["--verbose"]):
                text = sh("thin_delta", *verbose, "--snap1", 1, "--snap2", 2, metadata)
                delta = self.write("delta.xml", text)
                self.assertEqual(self.tuples("delta", delta, "--capacity", capacity),
                                 (capacity, runs_of(changed, BLOCK, capacity)))
                self.assertEqual(self.piped(text, "delta", "-", "--capacity", str(capacity)),
                                 (capacity, runs_of(changed, BLOCK, capacity)))
            dump = self.write("dump.xml", sh("thin_dump", metadata))
            for number, mapping in devices.items():
                self.assertEqual(
                    self.tuples("allocated", dump, "--from", f"thin-dump:device={number}", "--capacity", capacity),
                    (capacity, runs_of(mapping, BLOCK, capacity)))
            self.refused(2, "allocated", dump, "--capacity", str(capacity))
            self.refused(2, "delta", delta)
            # Too small a capacity would lose changes.
            self.refused(2, "delta", delta, "--capacity", str(min(changed) * BLOCK))

    @tool("era_restore", "era_invalidate", "era_dump")
    def test_era_devices(self):
        blocks = 250
        eras = [self.random.randrange(3) for _ in range(blocks)]
        sets = {era: {b for b in range(blocks) if self.random.random() < 0.1} for era in (3, 4, 5, 6)}
        # Tools since 1.0 require the writeset of the current era, which the kernel writes at
        # shutdown.
        text = f'<superblock uuid="" block_size="128" nr_blocks="{blocks}" current_era="6">\n'
        for era, bits in sets.items():
            text += f'<writeset era="{era}" nr_bits="{blocks}">\n'
            text += "".join(f'<bit block="{b}" value="true"/>\n' for b in sorted(bits)) + "</writeset>\n"
        text += "<era_array>\n" + "".join(f'<era block="{b}" era="{e}"/>\n' for b, e in enumerate(eras))
        source = self.write("in.xml", text + "</era_array>\n</superblock>\n")
        metadata = self.path("era.bin")
        with open(metadata, "wb") as file:
            file.truncate(4 << 20)
        sh("era_restore", "-i", source, "-o", metadata)
        dump = self.write("dump.xml", sh("era_dump", metadata))
        for since in range(7):
            changed = {b for b in range(blocks) if eras[b] >= since}
            changed.update(*(bits for era, bits in sets.items() if era >= since))
            listed = self.write("inv.xml", sh("era_invalidate", "--written-since", since, metadata))
            expected = (blocks * BLOCK, runs_of(changed, BLOCK, blocks * BLOCK))
            self.assertEqual(self.tuples("delta", listed, "--from", "era-invalidate:block-size=64K,empty=unwritten", "--capacity",
                                         blocks * BLOCK), expected)
            self.assertEqual(self.tuples("delta", dump, "--from", f"era-dump:since-era={since}"), expected)

    # Written by a Linux kernel, not by the tools.
    @tool("thin_dump", "thin_delta", "era_dump", "era_invalidate")
    def test_metadata_of_a_kernel(self):
        samples = os.path.join(os.path.dirname(__file__), "..", "source", "samples")

        def sample(name):
            with gzip.open(os.path.join(samples, name + ".gz")) as file:
                return self.write(name, file.read())

        metadata = sample("thin_meta_kernel61.bin")
        dump = sh("thin_dump", metadata)
        root = xml.etree.ElementTree.fromstring(dump)
        size = int(root.get("data_block_size")) * 512
        # Tools since 1.0 list once what several devices share.
        shared = {part.get("name"): list(part) for part in root.iter("def")}
        mappings = {}
        for device in root.iter("device"):
            mapping = mappings[int(device.get("dev_id"))] = {}
            for entry in (own for child in device for own in shared.get(child.get("name"), [child])):
                if entry.tag == "single_mapping":
                    mapping[int(entry.get("origin_block"))] = int(entry.get("data_block"))
                else:
                    for i in range(int(entry.get("length"))):
                        mapping[int(entry.get("origin_begin")) + i] = int(entry.get("data_begin")) + i
        capacity = 32768 * 512
        self.assertEqual(len(mappings), 3)
        for number, mapping in mappings.items():
            self.assertEqual(self.piped(dump, "allocated", "-", "--from", f"thin-dump:device={number}", "--capacity",
                                        str(capacity)), (capacity, runs_of(mapping, size, capacity)))
        for a, b in ((0, 1), (1, 2), (0, 2), (2, 1)):
            changed = {n for n in set(mappings[a]) | set(mappings[b]) if mappings[a].get(n) != mappings[b].get(n)}
            delta = sh("thin_delta", "--snap1", a, "--snap2", b, metadata)
            self.assertEqual(self.piped(delta, "delta", "-", "--capacity", str(capacity)),
                             (capacity, runs_of(changed, size, capacity)))
        metadata = sample("era_meta_kernel61.bin")
        dump = sh("era_dump", metadata)
        root = xml.etree.ElementTree.fromstring(dump)
        size = int(root.get("block_size")) * 512
        capacity = int(root.get("nr_blocks")) * size
        for since in range(1, int(root.get("current_era")) + 1):
            listed = sh("era_invalidate", "--written-since", since, metadata)
            expected = set()
            for entry in xml.etree.ElementTree.fromstring(listed):
                first = int(entry.get("block") or entry.get("begin"))
                expected.update(range(first, int(entry.get("end") or first + 1)))
            for text, spec in ((listed, f"era-invalidate:block-size={size},empty=unwritten"), (dump, f"era-dump:since-era={since}")):
                self.assertEqual(self.piped(text, "delta", "-", "--from", spec, "--capacity", str(capacity)),
                                 (capacity, runs_of(expected, size, capacity)), (since, spec))

    # ---- QEMU

    def qemu_pair(self):
        """A raw file, a qcow2 image of it, an overlay with changes, and the bytes of both."""
        size = 4 << 20
        base, overlay = self.path("base.qcow2"), self.path("overlay.qcow2")
        sh("qemu-img", "create", "-q", "-f", "qcow2", base, size)
        commands = []
        for _ in range(20):
            commands += ["-c", f"write -P {self.random.randrange(1, 255)} {self.random.randrange(900) * 4096} 4096"]
        sh("qemu-io", *commands, base)
        sh("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", overlay)
        commands = ["-c", "write -z 1M 64k", "-c", "discard 2M 128k"]
        for _ in range(6):
            commands += ["-c", f"write -P {self.random.randrange(1, 255)} {self.random.randrange(900) * 4096} 4096"]
        sh("qemu-io", *commands, overlay)
        contents = []
        for image in (base, overlay):
            raw = image + ".raw"
            sh("qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, raw)
            with open(raw, "rb") as file:
                contents.append(file.read())
        return base, overlay, contents

    @tool("qemu-img", "qemu-io")
    def test_qemu_images_and_maps(self):
        base, overlay, (old, new) = self.qemu_pair()
        changed = differing(old, new, 4096)
        text = sh("qemu-img", "map", "--output=json", overlay)
        # The overlay's own data, in clusters.
        layer = set()
        for entry in json.loads(text):
            if entry["depth"] == 0 and entry["present"]:
                layer |= units_of([(entry["start"], entry["length"])], 4096)
        self.assertLessEqual(changed, layer)
        listed = self.write("map.json", text)
        capacity, found = self.tuples("delta", listed)
        self.assertEqual(units_of(found, 4096), layer)
        alone = self.write("alone.json", sh("qemu-img", "map", "--output=json", base))
        self.assertIn("nothing comes from a backing file", self.refused(2, "delta", alone))
        capacity, found = self.tuples("delta", overlay, "--from", "qcow2:layer")
        self.assertEqual((capacity, units_of(found, 4096)), (len(new), layer))
        # Zeros over data that reads as zeros are no change.
        capacity, found = self.tuples("delta", base, overlay)
        self.assertEqual(capacity, len(new))
        self.assertLessEqual(changed, units_of(found, 4096))
        self.assertLessEqual(units_of(found, 4096), layer)
        allocated = {i for i in range(len(new) // 4096) if new[i * 4096:(i + 1) * 4096].strip(b"\0")}
        capacity, found = self.tuples("allocated", overlay)
        self.assertLessEqual(allocated, units_of(found, 4096))
        self.assertEqual((capacity, found), self.tuples("allocated", listed))
        # A map of it is verified against the bytes.
        out = self.path("out.cbm")
        self.assertIn("--base-name", self.refused(2, "map", "convert", listed, "--as", "delta", "--output", out))
        self.assertEqual(run("map", "convert", listed, "--as", "delta", "--base-name", "b", "--output", out).code, 0)
        self.assertEqual(run("verify", base + ".raw", overlay + ".raw", "--map", out).code, 0)
        self.assertEqual(run("verify", base + ".raw", overlay + ".raw", "--map", listed, "--as", "delta").code, 0)
        self.refused(2, "delta", overlay)
        # The backing file was read as well: no output may replace it.
        with open(base, "rb") as file:
            backing = file.read()
        for command in (("allocated", overlay), ("map", "convert", overlay, "--as", "allocated"),
                        ("map", "convert", overlay, "--as", "allocated", "--to", "bitmap"),
                        ("map", "merge", overlay, overlay, "--as", "allocated")):
            done = run(*command, "--output", base)
            self.assertEqual((done.code, done.stdout), (2, ""), done)
            self.assertIn("base.qcow2: is one of the inputs", done.stderr)
        with open(base, "rb") as file:
            self.assertEqual(file.read(), backing)
        # With the format raw, the file is its own bytes.
        self.assertEqual(self.tuples("allocated", overlay, "--from", "image")[0], os.path.getsize(overlay))

    @tool("qemu-img", "qemu-io")
    def test_qemu_snapshots_and_bitmaps(self):
        image = self.path("a.qcow2")
        sh("qemu-img", "create", "-q", "-f", "qcow2", image, 8 << 20)
        sh("qemu-io", "-c", "write -P 1 0 128k", image)
        sh("qemu-img", "snapshot", "-c", "monday", image)
        sh("qemu-img", "bitmap", "--add", image, "since-monday")
        sh("qemu-io", "-c", "write -P 2 64k 4k", "-c", "write -P 3 5M 4k", image)
        expected = [(65536, 65536), (5 << 20, 65536)]
        for spec in ("base-snapshot=monday", "bitmap=since-monday"):
            self.assertEqual(self.tuples("delta", image, "--from", "qcow2:" + spec), (8 << 20, expected), spec)
        self.assertEqual(self.tuples("allocated", image, "--from", "qcow2:snapshot=monday"), (8 << 20, [(0, 131072)]))
        self.assertIn("tuesday", self.refused(2, "delta", image, "--from", "qcow2:base-snapshot=tuesday"))
        self.assertIn("nothing", self.refused(2, "delta", image, "--from", "qcow2:bitmap=nothing"))
        # Two bases, or two targets: the bitmap alone may be less than the user meant.
        for other in ("base-snapshot=monday", "snapshot=monday", "layer"):
            self.assertIn(other.partition("=")[0] + ", not both",
                          self.refused(2, "delta", image, "--from", "qcow2:bitmap=since-monday," + other), other)
        # A map of a snapshot inside the image is not a map of the image.
        out = self.path("out.cbm")
        sh("qemu-img", "snapshot", "-c", "tuesday", image)
        self.assertIn("--target-name", self.refused(2, "allocated", image, "--from", "qcow2:snapshot=monday", "--output", out))
        states = ("delta", image, image, "--from", "qcow2:base-snapshot=monday,snapshot=tuesday", "--output", out)
        self.assertIn("--target-name", self.refused(2, *states))
        self.assertIn("--base-name", self.refused(2, *states, "--target-name", "tuesday"))
        self.assertFalse(os.path.exists(out))
        self.assertEqual(run(*states, "--target-name", "tuesday", "--base-name", "monday").code, 0)
        for option in ("bitmap=since-monday", "layer"):
            self.assertIn("not to two", self.refused(2, "delta", image, image, "--from", "qcow2:" + option), option)

    @tool("qemu-img", "qemu-io", "qemu-nbd")
    def test_nbd_servers(self):
        base, overlay, (old, new) = self.qemu_pair()
        sh("qemu-img", "bitmap", "--add", overlay, "b")
        sh("qemu-io", "-c", "write -P 9 3M 4k", overlay)
        socket = self.path("s")
        server = subprocess.Popen(["qemu-nbd", "-r", "-t", "-k", socket, "-A", "-B", "b", "-f", "qcow2", overlay],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                self.assertIsNone(server.poll())
                time.sleep(0.01)
            address = f"nbd+unix:///?socket={socket}"
            # The server knows holes within clusters.
            found = units_of(self.tuples("allocated", address)[1], 4096)
            self.assertLessEqual(found, units_of(self.tuples("allocated", overlay)[1], 4096))
            self.assertLessEqual({i for i in range(len(new) // 4096) if new[i * 4096:][:4096].strip(b"\0")}, found)
            self.assertEqual(self.tuples("delta", address, "--from", "nbd:bitmap=b"), (len(new), [(3 << 20, 65536)]))
            self.assertEqual(self.tuples("delta", address, "--from", "nbd:depth=1"), self.tuples("delta", overlay, "--from", "qcow2:layer"))
            # A map over the bitmap means the opposite of what it looks like.
            turned = sh("qemu-img", "map", "--output=json", "--image-opts",
                        f"driver=nbd,server.type=unix,server.path={socket},x-dirty-bitmap=qemu:dirty-bitmap:b")
            self.assertIn("x-dirty-bitmap", self.refused(2, "delta", self.write("turned.json", turned)))
            self.refused(2, "delta", address)
            self.assertEqual(run("map", "convert", address, "--from", "nbd:bitmap=b", "--as", "delta", "--base-name", "m",
                                 "--output", self.path("x.cbm")).code, 0)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
        self.refused(3, "allocated", address)

    # ---- bitmaps and file systems

    @tool("mke2fs", "partclone.ext4")
    def test_partclone_and_the_file_system_agree(self):
        image, clone = self.path("fs.img"), self.path("fs.pc")
        folder = self.path("files")
        os.mkdir(folder)
        for i in range(30):
            with open(os.path.join(folder, str(i)), "wb") as file:
                file.write(self.random.randbytes(self.random.randrange(200_000)))
        sh("mke2fs", "-q", "-t", "ext4", "-b", 4096, "-d", folder, image, "20M")
        sh("partclone.ext4", "-c", "-s", image, "-o", clone, "-L", self.path("log"))
        with open(clone, "rb") as file:
            head = file.read(110)
        # Version 0002: magic and versions, then the file system (size, block count, used, ...),
        # then the image's options.
        self.assertEqual(head[:15], b"partclone-image")
        self.assertEqual(head[30:34], b"0002")
        device_size, total, _, _, block_size = struct.unpack_from("<QQQQI", head, 52)
        self.assertEqual((device_size, block_size), (20 << 20, 4096))
        layout = f"bitmap:granularity={block_size},header=110"
        found = self.tuples("allocated", clone, "--from", layout, "--capacity", total * block_size)
        self.assertEqual(found, self.tuples("allocated", image, "--from", "ext"))
        self.assertEqual(self.tuples("allocated", clone, "--from", "partclone"), found)
        with open(clone, "rb") as file:
            self.assertEqual(self.piped(file.read(), "allocated", "-"), found)
        self.assertEqual(run("verify", image, "--map", clone, "--from", layout, "--capacity", total * block_size, "--as",
                             "allocated").code, 0)

    @tool("mke2fs", "partclone.ext4")
    def test_sb_the_recipe_for_other_blocks_leaves_nothing_out(self):
        image, clone = self.path("fs.img"), self.path("fs.pc")
        sh("mke2fs", "-q", "-t", "ext4", "-b", 1024, image, "20M")
        sh("partclone.ext4", "-c", "-s", image, "-o", clone, "-L", self.path("log"))
        layout = "bitmap:granularity=4096,header=110"
        self.assertIn("--from partclone", self.refused(2, "allocated", clone, "--from", layout, "--capacity", "20M"))
        self.assertEqual(self.tuples("allocated", clone, "--from", "partclone", "--block-size", 1024),
                         self.tuples("allocated", image, "--from", "ext", "--block-size", 1024))

    @tool("mke2fs")
    def test_sa_a_superblock_from_before_the_partitions_is_refused(self):
        image = self.path("disk.img")
        sh("mke2fs", "-q", "-t", "ext4", image, "64M")
        whole = self.tuples("allocated", image, "--from", "ext")
        with open(image, "r+b") as file:  # one partition, from sector 2048 on
            file.seek(446)
            file.write(struct.pack("<B3sB3sII", 0, b"\0\2\0", 0x83, b"\xff\xff\xff", 2048, 100_000))
            file.seek(510)
            file.write(b"\x55\xaa")
        self.assertIn("dos at offset 510", self.refused(2, "allocated", image, "--from", "ext"))
        self.assertEqual(self.tuples("allocated", image, "--from", "ext:other-signatures=ignore"), whole)

    def test_sc_a_damaged_image_under_a_telling_name_is_refused(self):
        for file in [self.write(name, bytes([1]) * 8192) for name in ("vm.qcow2", "a.cbm", "a.diff", "a.roaring")]:
            self.assertIn("--from image", self.refused(2, "allocated", file))
            self.assertEqual(self.tuples("allocated", file, "--from", "image"), (8192, [(0, 8192)]))

    def test_bitmaps_of_any_layout(self):
        bits = 1000
        changed = {b for b in range(bits) if self.random.random() < 0.2}
        expected = (bits * BLOCK, runs_of(changed, BLOCK, bits * BLOCK))

        def packed(msb=False, word=1, inverted=False):
            data = bytearray((bits + 8 * word - 1) // (8 * word) * word)
            for b in range(bits):
                if (b in changed) != inverted:
                    data[b // 8 ^ (word - 1)] |= 0x80 >> b % 8 if msb else 1 << b % 8
            return bytes(data)

        for options, content in (("", packed()), (",order=msb", packed(msb=True)), (",set=same", packed(inverted=True)),
                                 (",reversed-words=4", packed(word=4)), (",header=9", b"123456789" + packed()),
                                 (",order=msb,base64", base64.b64encode(packed(msb=True)))):
            file = self.write("bits", content)
            spec = "bitmap:granularity=64K" + options
            self.assertEqual(self.tuples("delta", file, "--from", spec, "--capacity", bits * BLOCK), expected, options)
            if "base64" in options:
                self.assertEqual(self.piped(content, "delta", "-", "--from", spec, "--capacity", str(bits * BLOCK)), expected)
            self.refused(2, "delta", file, "--from", spec, "--capacity", bits * BLOCK * 8)
        self.refused(2, "delta", file, "--from", "bitmap")
        self.assertIn("order", self.refused(2, "delta", file, "--from", "bitmap:order=middle", "--capacity", "64K"))
        self.assertIn("colour", self.refused(2, "delta", file, "--from", "bitmap:colour=red"))

    # ---- lists

    def test_recorded_pages(self):
        pages = [{"BlockSize": 524288, "VolumeSize": 1, "ChangedBlocks": [{"BlockIndex": i} for i in (1, 2, 7)], "NextToken": "a"},
                 {"BlockSize": 524288, "VolumeSize": 1, "ChangedBlocks": [], "NextToken": "b"},
                 {"BlockSize": 524288, "VolumeSize": 1, "ChangedBlocks": [{"BlockIndex": 2047}]}]
        text = "\n".join(map(json.dumps, pages))
        expected = (1 << 30, runs_of({1, 2, 7, 2047}, 524288, 1 << 30))
        self.assertEqual(self.tuples("delta", self.write("pages.json", text)), expected)
        self.assertEqual(self.piped(text.encode(), "delta", "-"), expected)
        self.assertIn("missing", self.refused(2, "delta", self.write("part.json", "\n".join(map(json.dumps, pages[:2])))))
        self.refused(2, "allocated", self.path("pages.json"))
        areas = [{"startOffset": 0, "length": 1 << 20, "changedArea": [{"start": 65536, "length": 4096}]},
                 {"startOffset": 1 << 20, "length": 1 << 20, "changedArea": []}]
        file = self.write("areas.json", json.dumps(areas))
        self.assertEqual(self.tuples("delta", file, "--capacity", "2M"), (2 << 20, [(65536, 4096)]))
        self.refused(2, "delta", file, "--capacity", "3M")
        self.refused(2, "delta", self.write("odd.json", '{"a": 1}'))
        self.refused(2, "delta", self.write("empty.json", "[]"))
        self.assertEqual(self.tuples("delta", self.path("empty.json"), "--from", "rbd-json", "--capacity", "1M"), (1 << 20, []))

    def test_lists_in_other_encodings_are_refused(self):
        """A list that was emptied, truncated or re-encoded is not recognised as one. It was taken
        for a small raw image, and its changes were missing from the delta.
        """
        def blocks(*numbers):
            return json.dumps({"BlockSize": 524288, "VolumeSize": 1, "Blocks": [{"BlockIndex": n} for n in numbers]})

        old, new = blocks(1, 2, 3), self.write("new.json", blocks(1, 9))
        whole = self.write("whole.json", old)
        self.assertEqual(self.tuples("allocated", whole), (1 << 30, runs_of({1, 2, 3}, 524288, 1 << 30)))
        # The same as volumes of whole sectors, all text.
        sectors = [text.ljust(-len(text) % 512 + len(text)) for text in ("[", "{", "<", old[:40], "")] + [" " * 512]
        texts = [b"", b"[", b"{", b"<", b" ", b"\n\t ", *(text.encode() for text in sectors)]
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
            texts += [old.encode(encoding), "[".encode(encoding), (" \n" + old).encode(encoding),
                      old.ljust(512).encode(encoding)[:512]]
        texts += [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xfe\xff" + old.encode("utf-16-be")]
        for text in texts:
            cut = self.write("cut.json", text)
            for command in (["delta", cut, new], ["delta", whole, cut], ["delta", cut, cut], ["allocated", cut]):
                with self.subTest(text=text[:40], command=command):
                    self.refused(2, *command)
        self.assertIn("name the format (--from", self.refused(2, "allocated", self.write("empty.json", "")))
        # If the user names the format, it is an image.
        for text in (b"", b"[", old.encode("utf-16")):
            cut = self.write("cut.json", text)
            self.assertEqual(self.tuples("allocated", cut, "--from", "image"), (len(text), [(0, len(text))] if text else []))
        # An image is a volume, whatever it begins with, except beside a list.
        for begin in (b"[", b"{", b"<", b" [", b"\xef\xbb\xbf[", b"\xff\xfe[\0", b"[\0"):
            image = self.write("volume.img", begin.ljust(4096, b"\1"))
            self.assertEqual(self.tuples("allocated", image), (4096, [(0, 4096)]))
            self.assertEqual(self.tuples("delta", image, image), (4096, []))
            self.assertIn("volume.img (image)", self.refused(2, "delta", image, new))
            self.assertIn("volume.img (image)", self.refused(2, "delta", whole, image))

    def test_attack_r_a_volume_is_no_list_whatever_is_written_to_it(self):
        """A raw volume that is also a complete RBD diff had no changes, with exit status 0 and no
        message.
        """
        size = 1 << 20
        name = struct.pack("<QI", 5, 1)
        volume = b"rbd diff v2\nf" + name + b"at" + name + b"bs" + struct.pack("<QQ", 8, size)
        volume += b"?" + struct.pack("<Q", size - len(volume) - 10)
        volume = volume.ljust(size - 1, b"v") + b"e"
        image = self.write("volume.img", volume)
        for command in (["delta", image], ["delta", image, image], ["allocated", image],
                        ["map", "convert", image, "--as", "delta", "--output", self.path("out.cbm")]):
            self.assertIn("could be a raw volume", self.refused(2, *command), command)
        self.assertEqual(self.tuples("allocated", image, "--from", "image"), (size, [(0, size)]))
        self.assertEqual(self.tuples("delta", image, "--from", "rbd-diff"), (size, []))
        # With a diff's name it is a diff, and so is a pipe, which cannot be a volume.
        note = "cbt: read as rbd-diff: rbd export-diff, or rbd export --export-format 2 (--from image "
        named = run("delta", self.write("volume.diff", volume))
        piped = subprocess.run([support.CBT, "delta", "-"], input=volume, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        for code, stderr in ((named.code, named.stderr), (piped.returncode, piped.stderr.decode())):
            self.assertEqual((code, stderr.startswith(note), len(stderr.splitlines())), (0, True, 1), stderr)
        self.assertEqual(run("delta", image, "--from", "rbd-diff").stderr, "")
        # Every format that is recognised by its content is reported.
        for text, known in ((json.dumps([{"offset": 0, "length": 4096, "exists": "true"}]), "rbd-json"),
                            (json.dumps({"BlockSize": 524288, "VolumeSize": 1, "ChangedBlocks": []}), "ebs"),
                            (json.dumps({"startOffset": 0, "length": 1 << 30, "changedArea": []}), "vmware")):
            done = run("delta", self.write("list.json", text), "--capacity", "1G")
            self.assertEqual((done.code, done.stderr.split(":")[1]), (0, f" read as {known}"), done)

    @tool("mke2fs", "partclone.ext4")
    def test_attack_h_two_allocations_make_no_delta(self):
        """Differences in a file system's free blocks were missing from the union of two
        allocations.
        """
        old, new = self.path("old.img"), self.path("new.img")
        sh("mke2fs", "-q", "-t", "ext4", "-b", 4096, old, "20M")
        hole = next(offset + length for offset, length in self.tuples("allocated", old, "--from", "ext")[1])
        self.assertLess(hole, 20 << 20)
        shutil.copyfile(old, new)
        with open(new, "r+b") as file:
            file.seek(hole)
            file.write(b"x" * 4096)
        self.assertEqual(self.tuples("delta", old, new)[1], [(hole, 4096)])
        out = self.path("delta.cbm")
        for more in ([], ["--output", out]):
            self.assertIn("compare the images' bytes (--from image)", self.refused(2, "delta", old, new, "--from", "ext", *more))
        self.assertFalse(os.path.exists(out))
        self.assertIn("not what changed", self.refused(2, "delta", new, "--from", "ext"))
        self.assertIn("not what changed", self.refused(2, "map", "convert", new, "--from", "ext", "--as", "delta", "--output", out))
        clones = []
        for image in (old, new):
            clones.append(image + ".pc")
            sh("partclone.ext4", "-c", "-s", image, "-o", clones[-1], "-L", self.path("log"))
        layout = ("--from", "bitmap:granularity=4096,header=110", "--capacity", "20M")
        self.assertIn("does not show what changed", self.refused(2, "delta", *clones, *layout))
        self.assertIn("not what changed", self.refused(2, "delta", clones[0], *layout))
        # Through maps.
        maps = []
        for name in ("old", "new"):
            maps.append(self.path(name + ".cbm"))
            self.assertEqual(run("allocated", self.path(name + ".img"), "--from", "ext", "--output", maps[-1]).code, 0)
        self.assertIn("does not show what changed", self.refused(2, "delta", *maps))
        self.assertIn("--base-name", self.refused(2, "map", "merge", *maps, "--base-name", "old", "--output", out))

    def test_attack_h_no_list_makes_a_delta_of_two(self):
        old = self.write("old.json", json.dumps([{"offset": 0, "length": 4096, "exists": "true"}]))
        new = self.write("new.json", json.dumps([{"offset": 8192, "length": 100, "exists": "true"}]))
        self.assertIn("does not show what changed", self.refused(2, "delta", old, new, "--capacity", "1M"))

    def test_options_without_an_effect_are_refused(self):
        file = self.write("list.json", json.dumps([{"offset": 0, "length": 4096, "exists": "true"}]))
        image = self.write("image", bytes(8192))
        self.assertIn("raw images", self.refused(2, "allocated", file, "--capacity", "1M", "--zeros"))
        self.assertIn("raw images", self.refused(2, "delta", file, "--capacity", "1M", "--by-extents"))
        self.assertIn("raw images", self.refused(2, "delta", image, file, "--capacity", "1M", "--by-extents"))
        self.assertIn("two images", self.refused(2, "delta", image, "--by-extents"))
        # A target's own list is not cut if the base was larger.
        self.refused(2, "delta", file, self.write("far.json", '[{"offset": 2097152, "length": 1, "exists": "true"}]'),
                     "--capacity", "1M", "--base-capacity", "4M")

    def test_resuming_a_list(self):
        entries = [{"offset": i * 65536, "length": 5000, "exists": "true"} for i in range(0, 200, 2)]
        file = self.write("list.json", json.dumps(entries))
        whole = self.tuples("delta", file, "--capacity", "16M")[1]
        for offset in (1, 5000, 8192, 131072 * 7 + 1, 16 << 20):
            rest = self.tuples("delta", file, "--capacity", "16M", "--starting-offset", offset)[1]
            begin = offset // 4096 * 4096
            self.assertEqual(rest, [(max(o, begin), o + n - max(o, begin)) for o, n in whole if o + n > begin])

    def test_a_large_list_takes_little_memory(self):
        # 60 MB of text; the address space would not hold it.
        path = self.path("large.json")
        with open(path, "w") as file:
            file.write("[")
            for i in range(0, 1_000_000, 100):
                file.write(",\n".join(f'{{"offset": {k * 131072}, "length": 4096, "exists": "true"}}'
                                      for k in range(i, i + 100)))
                file.write(",\n" if i + 100 < 1_000_000 else "]")
        self.assertGreater(os.path.getsize(path), 50_000_000)
        with open(self.path("out"), "wb") as out:
            child = subprocess.Popen([support.CBT, "map", "info", path, "--as", "delta", "--capacity", "1T", "--json"],
                                     stdin=subprocess.DEVNULL, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        with open(self.path("out")) as out:
            self.assertEqual(json.load(out)["changed_blocks"], 1_000_000)
        if not os.environ.get("CBT_TEST_SANITIZER"):
            self.assertLess(usage.ru_maxrss, 40_000)  # KiB; less than the text


if __name__ == "__main__":
    support.main()
