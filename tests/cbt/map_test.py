"""`cbtctl map`, `cbtctl chain` and `--output`, against an oracle with its own parser of the formats."""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree

import oracle
import support
from roaring_bytes import random_blocks, read_roaring32, roaring32
from support import parse_ndjson, run

GRANULARITY = 4096


class Maps(support.CbtTest):
    def extents(self, path, *arguments):
        return parse_ndjson(self.ok("map", "convert", path, "--to", "ndjson", *arguments))

    def import_map(self, name, blocks, capacity, identity=("vol", "a", "b")):
        """A map file made from handmade roaring bytes."""
        raw = self.path(name + ".roaring")
        with open(raw, "wb") as file:
            file.write(roaring32(blocks, random.random() < 0.5))
        path = self.path(name + ".cbm")
        self.ok("map", "convert", raw, "--capacity", capacity, "--block-size", GRANULARITY,
                "--as", "delta" if identity[1] else "allocated", "--output", path,
                "--volume-name", identity[0], "--base-name", identity[1],
                "--target-name", identity[2])
        return path

    def test_what_bits_do_not_hold_is_asked_for(self):
        """Bits say neither how large their blocks are, nor where the volume ends, nor what they mean."""
        path = self.import_map("m", [1, 2, 70], 100 * GRANULARITY)
        geometry = {"--capacity": 100 * GRANULARITY, "--block-size": GRANULARITY}
        out, base, target = self.path("out.cbm"), self.write("a.img", bytes(8192)), self.write("b.img", b"x" * 8192)
        want = self.extents(path)
        for form in ("roaring64", "roaring32", "bitmap"):
            bits = self.path("bits")
            self.ok("map", "convert", path, "--to", form, "--output", bits)
            key = "granularity" if form == "bitmap" else "block-size"
            commands = [("map", "convert", bits, "--as", "delta", "--base-name", "a", "--output", out), ("delta", bits),
                        ("allocated", bits), ("map", "convert", bits, "--to", "ndjson"), ("map", "convert", "-", "--to", "ndjson"),
                        ("map", "merge", bits, "--as", "delta", "--base-name", "a", "--output", out),
                        ("verify", base, target, "--map", bits)]
            for command in commands:
                for missing in geometry:
                    given = [str(word) for option in geometry.items() if option[0] != missing for word in option]
                    with open(bits, "rb") as file:
                        done = subprocess.run([support.CBT, *command, "--from", form, *given], stdin=file, capture_output=True, check=False)
                    self.assertEqual((done.returncode, done.stdout), (2, b""), (command, given))
                    words = (missing, key + "=N") if missing == "--block-size" else (missing,)
                    self.assertTrue(any(word in done.stderr.decode() for word in words), done)
            given = [str(word) for option in geometry.items() for word in option]
            # What the blocks are is in the file forever.
            self.assertIn("--as", self.fails(2, "map", "convert", bits, "--from", form, *given, "--output", out))
            self.assertIn("--as", self.fails(2, "map", "merge", bits, "--from", form, *given, "--output", out))
            self.assertFalse(os.path.exists(out))
            self.ok("map", "convert", bits, "--from", form, *given, "--base-name", "a", "--output", out)
            self.assertEqual(self.extents(out), want)
            os.unlink(out)
            self.assertEqual(self.extents(bits, "--from", form, *given), want)
            self.assertEqual(parse_ndjson(self.ok("delta", bits, "--from", form, *given)), want)
            # As an option of the format it is the input's alone.
            large = [f"{form}:{key}={GRANULARITY}", "--capacity", 100 * GRANULARITY, "--block-size", 2 * GRANULARITY]
            self.assertEqual(parse_ndjson(self.ok("delta", bits, "--from", *large))[2],
                             oracle.tuples([0, 1, 35], 2 * GRANULARITY, 100 * GRANULARITY, "extents"))
            self.assertEqual(self.extents(bits, "--as", "delta", "--from", *large)[2],
                             oracle.tuples([0, 1, 35], 2 * GRANULARITY, 100 * GRANULARITY, "extents"))

    def test_what_is_assumed_is_said(self):
        path, bits = self.import_map("m", [1, 70], 100 * GRANULARITY), self.path("m.roaring")
        self.ok("map", "convert", path, "--to", "roaring64", "--output", bits)
        text = self.ok("map", "info", bits)
        self.assertEqual(text.count("assumed"), 2)
        self.assertIn("in the set", text)
        for known in (self.ok("map", "info", path),
                      self.ok("map", "info", bits, "--from", "roaring64", "--capacity", 100 * GRANULARITY, "--block-size", GRANULARITY)):
            self.assertNotIn("assumed", known)
        self.assertIn("changed ", self.ok("map", "info", path))
        allocated = self.import_map("n", [1, 70], 100 * GRANULARITY, ("vol", "", "b"))
        self.assertNotIn("changed ", self.ok("map", "info", allocated))
        self.assertIn("allocated ", self.ok("map", "info", allocated))
        # The bits alone, in another form.
        self.ok("map", "convert", bits, "--to", "roaring32", "--output", self.path("m32"))

    def test_conversions_keep_every_block(self):
        for _ in range(40):
            end = random.choice([1, 65536, 65537, 3 * 65536 + 11])
            capacity = end * GRANULARITY - random.choice([0, 1, 4095])
            blocks = random_blocks(end)
            path = self.import_map("m", blocks, capacity)
            want = oracle.tuples(blocks, GRANULARITY, capacity, "extents")
            self.assertEqual(self.extents(path), ("VARIABLE_LENGTH", capacity, want))
            out = self.path("out")
            self.ok("map", "convert", path, "--to", "roaring32", "--output", out)
            with open(out, "rb") as file:
                data32 = file.read()
            self.assertEqual(read_roaring32(data32), blocks)
            self.ok("map", "convert", path, "--to", "roaring64", "--output", out)
            with open(out, "rb") as file:
                data64 = file.read()
            # One group, or none.
            head = struct.pack("<QI", 1, 0) + data32 if blocks else struct.pack("<Q", 0)
            self.assertEqual(data64, head)
            again = self.path("again.cbm")
            names = ("--volume-name", "vol", "--base-name", "a", "--target-name", "b")
            self.ok("map", "convert", out, "--from", "roaring64", "--capacity", capacity, "--block-size", GRANULARITY, "--output", again,
                    *names)
            with open(path, "rb") as one, open(again, "rb") as two:
                self.assertEqual(one.read(), two.read())
            self.ok("map", "convert", path, "--to", "bitmap", "--output", out)
            with open(out, "rb") as file:
                bits = file.read()
            self.assertEqual(len(bits), (end + 7) // 8)
            number = int.from_bytes(bits, "little")
            self.assertEqual(number, sum(1 << b for b in blocks))
            self.ok("map", "convert", out, "--from", "bitmap", "--capacity", capacity,
                    "--block-size", GRANULARITY, "--output", again, *names)
            with open(path, "rb") as one, open(again, "rb") as two:
                self.assertEqual(one.read(), two.read())

    def test_merge_is_set_algebra(self):
        end = 3 * 65536
        capacity = end * GRANULARITY
        for _ in range(15):
            sets = [set(random_blocks(end)) for _ in range(3)]
            paths = [self.import_map(f"m{i}", s, capacity, ("vol", f"s{i}", f"s{i + 1}"))
                     for i, s in enumerate(sets)]
            out = self.path("out.cbm")
            for operation, want in (
                ("union", sets[0] | sets[1] | sets[2]),
                ("intersection", sets[0] & sets[1] & sets[2]),
                ("difference", sets[0] - sets[1] - sets[2]),
                ("symmetric-difference", sets[0] ^ sets[1] ^ sets[2]),
            ):
                names = ("s0", "s3")
                if operation != "union":
                    # These do not name a pair of snapshots.
                    names = ("s0", "")
                    merge = ("map", "merge", *paths, "--op", operation, "--output", out)
                    self.assertIn("--base-name", self.fails(2, *merge))
                    self.ok(*merge, "--base-name", "s0")
                else:
                    self.ok("map", "merge", *paths, "--output", out)
                self.assertEqual(
                    self.extents(out)[2],
                    oracle.tuples(sorted(want), GRANULARITY, capacity, "extents"), operation)
                info = json.loads(self.ok("map", "info", "--json", out))
                # Consecutive maps make one from the first to the last snapshot.
                self.assertEqual((info["base"], info["target"]), names)
                self.assertEqual(info["changed_blocks"], len(want))

    def test_merge_refuses_what_does_not_belong_together(self):
        a = self.import_map("a", [1], 10 * GRANULARITY, ("vol1", "a", "b"))
        b = self.import_map("b", [2], 10 * GRANULARITY, ("vol2", "b", "c"))
        out = self.path("out.cbm")
        self.assertIn("different volumes", self.fails(2, "map", "merge", a, b, "--output", out))
        self.assertFalse(os.path.exists(out))
        self.ok("map", "merge", a, b, "--output", out, "--volume-name", "vol")
        c = self.import_map("c", [2], 11 * GRANULARITY, ("vol1", "b", "c"))
        self.assertIn("don't combine",
                      self.fails(2, "map", "merge", a, c, "--op", "difference", "--output", out,
                                 "--base-name", "a"))
        # The volume grew from a to c: what the first map does not cover counts as changed.
        self.ok("map", "merge", a, c, "--output", out)
        self.assertEqual(self.extents(out)[1:],
                         (11 * GRANULARITY, [(GRANULARITY, 2 * GRANULARITY),
                                             (10 * GRANULARITY, GRANULARITY)]))

    def test_a_delta_is_never_written_as_what_is_allocated_or_the_other_way_round(self):
        os.makedirs(self.path("vol"))
        images = [self.path(f"vol/{name}.img") for name in ("mon", "tue")]
        for image in images:
            with open(image, "wb") as file:
                file.write(b"x" * 8192)
        delta, allocated, out = (self.path(f"{name}.cbm") for name in ("delta", "allocated", "out"))
        self.ok("delta", *images, "--output", delta)
        self.ok("allocated", images[1], "--output", allocated)
        for command in (
            ("delta", *images, "--base-name", ""),
            ("allocated", images[1], "--base-name", "mon"),
            ("map", "convert", delta, "--base-name", ""),
            ("map", "convert", delta, "--as", "allocated"),
            ("map", "convert", allocated, "--base-name", "mon"),
            ("map", "convert", allocated, "--as", "delta"),
            ("map", "merge", delta, allocated),
            ("map", "merge", delta, allocated, "--base-name", "mon"),
            ("map", "merge", delta, delta, "--base-name", ""),
            ("map", "merge", delta, delta, "--op", "intersection", "--base-name", ""),
        ):
            self.fails(2, *command, "--output", out)
            self.assertFalse(os.path.exists(out), command)
        self.ok("map", "convert", delta, "--base-name", "monday", "--output", out)
        self.assertEqual(json.loads(self.ok("map", "info", "--json", out))["base"], "monday")
        # For maps that are not consecutive, the user must name the result's base.
        other = self.import_map("other", [1], 8192, ("vol", "wed", "thu"))
        self.assertIn("wed", self.fails(2, "map", "merge", delta, other, "--output", self.path("no.cbm")))
        self.ok("map", "merge", delta, other, "--base-name", "mon", "--output", out)
        # What is allocated in the first snapshot, and what changed since.
        before = self.path("before.cbm")
        self.ok("allocated", images[0], "--output", before)
        self.ok("map", "merge", before, delta, "--output", out)
        output = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((output["base"], output["target"]), ("", "tue"))

    def test_names_that_paths_do_not_give_are_asked_for(self):
        """Two equal names, or wrong ones, make maps that look consecutive and are not."""
        days = []
        for day in (19, 20, 21, 22):
            days.append(self.path(f"vol-2026.11.{day}"))
            with open(days[-1], "wb") as file:
                file.write(bytes((day - 19) * 4096) + b"x" * 4096 + bytes(8 * 4096))
            os.truncate(days[-1], 8 * 4096)
        first, last, out = self.path("first.cbm"), self.path("last.cbm"), self.path("out.cbm")
        self.ok("delta", *days[:2], "--output", first)
        self.ok("delta", *days[2:], "--output", last)
        self.assertEqual(json.loads(self.ok("map", "info", "--json", first))["target"], "vol-2026.11.20")
        self.assertIn("don't follow each other", self.fails(2, "map", "merge", first, last, "--output", out))
        # Named as before, and as the user names them.
        one = [self.path("a.cbm"), self.path("b.cbm")]
        for source, to in zip((first, last), one):
            self.ok("map", "convert", source, "--base-name", "vol", "--target-name", "vol", "--output", to)
        self.assertIn("are both called", self.fails(2, "map", "merge", *one, "--output", out))
        self.ok("map", "merge", *one, "--base-name", "the 19th", "--output", out)
        os.remove(out)
        # Two snapshots with the same name.
        for name in ("disk.daily", "disk.weekly"):
            shutil.copyfile(days[0], self.path(name))
        self.assertIn('both paths name the snapshot "disk"', self.fails(2, "delta", self.path("disk.daily"), self.path("disk.weekly"), "--output", out))
        self.assertFalse(os.path.exists(out))
        self.ok("delta", self.path("disk.daily"), self.path("disk.weekly"), "--base-name", "d", "--output", out)
        # The same name in two folders.
        for folder in ("one", "other"):
            os.makedirs(self.path(folder))
            shutil.copyfile(days[0], self.path(folder + "/disk.img"))
        pair = [self.path("one/disk.img"), self.path("other/disk.img")]
        self.ok("delta", *pair, "--output", out)
        output = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((output["volume"], output["base"], output["target"]), ("", *pair))
        os.symlink("one", self.path("link"))
        self.ok("delta", self.path("link/disk.img"), self.path("one/disk.img"), "--output", out, "--base-name", "a")
        self.assertEqual(json.loads(self.ok("map", "info", "--json", out))["volume"], "one")
        # Arguments from unset variables.
        for command in (("delta", days[0], ""), ("delta", "", days[0]), ("allocated", ""), ("delta", *days[:2], "--output", "")):
            self.assertIn("is empty", self.fails(2, *command), command)

    def test_output_of_images_is_what_they_print(self):
        os.makedirs(self.path("vol7"))
        for _ in range(10):
            size = random.randrange(1, 200) * 1000
            base = bytes(random.choice([0, 1]) for _ in range(40)) * (size // 40)
            target = bytearray(base)
            for _ in range(5):
                target[random.randrange(len(target))] ^= 1
            self.write("vol7/mon.img", base)
            self.write("vol7/tue.img", bytes(target))
            images = self.path("vol7/mon.img"), self.path("vol7/tue.img")
            out = self.path("out.cbm")
            size = random.choice([512, 4096, 65536])
            self.ok("delta", *images, "--block-size", size, "--output", out)
            self.assertEqual(self.extents(out), parse_ndjson(
                self.ok("delta", *images, "--block-size", size)))
            info = json.loads(self.ok("map", "info", "--json", out))
            self.assertEqual(
                (info["volume"], info["base"], info["target"], info["granularity_bytes"]),
                ("vol7", "mon", "tue", size))
            self.ok("allocated", images[1], "--output", out, "--target-name", "x")
            info = json.loads(self.ok("map", "info", "--json", out))
            self.assertEqual((info["base"], info["target"]), ("", "x"))
            self.assertEqual(self.extents(out), parse_ndjson(self.ok("allocated", images[1])))

    def test_an_output_is_whole_or_not_there(self):
        image = self.write("a.img", b"x" * 9000)
        out = self.path("out.cbm")
        for option in (["--starting-offset", 4096], ["--style", "blocks"], ["--format", "csv"]):
            self.assertIn("excludes", self.fails(2, "delta", image, image, "--output", out, *option))
        self.fails(2, "delta", image, self.path("none"), "--output", out)
        self.fails(2, "delta", image, image, "--output", self.path("none/out.cbm"))
        self.fails(2, "delta", image, image, "--volume-name", "v")
        self.assertFalse(os.path.exists(out))

    def test_what_is_no_regular_file_is_not_replaced(self):
        image, other = self.write("a.img", b"x" * 9000), self.write("b.img", b"y" * 9000)
        path, chain = self.import_map("m", [1, 2], 100 * GRANULARITY, ("vol", "s0", "s1")), self.path("chain")
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "s0", "--capacity", 100 * GRANULARITY)
        self.ok("chain", "append", chain, path)
        commands = [["delta", image, other, "--output"], ["allocated", image, "--output"],
                    ["chain", "delta", chain, "s0", "s1", "--output"], ["map", "merge", path, path, "--output"],
                    ["map", "show", path, "--svg"]]
        commands += [["map", "convert", path, "--to", to, "--output"] for to in ("cbm", "roaring64", "roaring32", "bitmap")]
        pipe, folder, nothing = self.path("pipe"), self.path("folder"), self.path("nothing")
        os.mkfifo(pipe)
        os.mkdir(folder)
        os.symlink("gone", nothing)
        link_to_pipe = self.path("link-to-pipe")
        os.symlink("pipe", link_to_pipe)
        places = [(pipe, "is not a regular file"), (link_to_pipe, "is not a regular file"), (folder, "is a directory"),
                  (nothing, "No such file")]
        file, link = self.path("folder/file"), self.path("link")
        os.symlink("folder/file", link)
        for command in commands:
            for place, why in places:
                mode = os.lstat(place).st_mode
                self.assertIn(why, self.fails(2, *command, place), command)
                self.assertEqual(os.lstat(place).st_mode, mode)
            # If the output is a link, its target is replaced and the link stays.
            self.ok(*command, self.path("straight"))
            with open(file, "wb") as old:
                old.write(b"old")
            self.ok(*command, link)
            self.assertEqual(os.readlink(link), "folder/file")
            with open(file, "rb") as a, open(self.path("straight"), "rb") as b:
                self.assertEqual(a.read(), b.read(), command)

    def test_an_input_is_not_replaced(self):
        image, other = self.write("image", os.urandom(3 * 4096)), self.write("other", os.urandom(3 * 4096))
        path, second = (self.import_map(name, blocks, 100 * GRANULARITY, ("vol", "s0", "s1"))
                        for name, blocks in (("map", [1, 5, 9]), ("second", [2])))
        chain = self.path("chain")
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "s0", "--capacity", 100 * GRANULARITY)
        self.ok("chain", "append", chain, path)
        commands = [(["delta", image, other, "--output"], (image, other)), (["allocated", image, "--output"], (image,)),
                    (["map", "merge", path, second, "--output"], (path, second)), (["map", "show", path, "--svg"], (path,))]
        commands += [(["map", "convert", path, "--to", to, "--output"], (path,))
                     for to in ("cbm", "roaring64", "roaring32", "bitmap")]
        for command, inputs in commands:
            self.assertTrue(inputs)
            for place in inputs:
                with open(place, "rb") as file:
                    before = file.read()
                link = self.path("link")
                os.symlink(place, link)
                for name in (place, link, os.path.relpath(place, self.folder)):
                    output = self.fails(2, *command, name, cwd=self.folder)
                    self.assertIn(f"{name}: is one of the inputs", output)
                os.remove(link)
                with open(place, "rb") as file:
                    self.assertEqual(file.read(), before)
        # Nor can a command put files into a chain from outside.
        in_chain = [os.path.join(chain, name) for name in (*sorted(os.listdir(chain)), "new")]
        def contents():
            found = {}
            for name in os.listdir(chain):
                with open(os.path.join(chain, name), "rb") as file:
                    found[name] = file.read()
            return found

        before = contents()
        self.assertTrue(before)
        for place in in_chain:
            output = self.fails(2, "chain", "delta", chain, "s0", "s1", "--output", place)
            self.assertIn(f"{place}: lies in a directory that is an input", output)
        self.assertEqual(contents(), before)
        # Also if it is the standard input.
        listed = self.path("listed.json")
        with open(listed, "w", encoding="ascii") as file:
            file.write('[{"offset":0,"length":4096,"exists":"true"}]\n')
        with open(listed, "rb") as file:
            done = subprocess.run([support.CBT, "map", "convert", "-", "--from", "rbd-json", "--capacity", "1M", "--as", "allocated",
                                   "--output", listed], stdin=file, capture_output=True, check=False)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"is one of the inputs", done.stderr)

    def test_a_map_comes_through_a_pipe(self):
        size = 70000 * GRANULARITY - 7
        path = self.import_map("m", [1, 2, 65536, 69999], size)
        nameless = self.import_map("n", [5], size, ("", "", ""))
        roaring, bitmap = self.path("m.roaring"), self.path("m.bits")
        self.ok("map", "convert", path, "--to", "roaring64", "--output", roaring)
        self.ok("map", "convert", path, "--to", "bitmap", "--output", bitmap)
        unnamed = ("--from", "roaring64", "--capacity", size, "--block-size", GRANULARITY)
        dense = ("--from", "bitmap", "--capacity", size, "--block-size", GRANULARITY)
        for source, arguments in ((path, ()), (path, ("--from", "cbm")), (nameless, ()), (roaring, unnamed),
                                  (bitmap, dense)):
            expected = self.ok("map", "convert", source, "--to", "ndjson", *arguments)
            with open(source, "rb") as file:
                content = file.read()
            done = subprocess.run([support.CBT, "map", "convert", "-", "--to", "ndjson", *map(str, arguments)],
                                  input=content, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout.decode()), (0, expected), done)
            fifo = self.path("fifo")
            os.mkfifo(fifo)
            with subprocess.Popen(["cp", source, fifo]) as writer:
                self.assertEqual(self.ok("map", "convert", fifo, "--to", "ndjson", *arguments), expected)
            self.assertEqual(writer.returncode, 0)
            os.unlink(fifo)
        with open(path, "rb") as file:
            content = file.read()

        def convert(data, **environment):
            return subprocess.run([support.CBT, "map", "info", "-"], input=data, capture_output=True, check=False,
                                  env={**os.environ, **environment})

        self.assertEqual(convert(content).stdout, self.ok("map", "info", path).replace(path, "-").encode())
        for cut in (len(content) // 2, len(content) - 1):
            done = convert(content[:cut])
            self.assertEqual((done.returncode, done.stdout), (2, b""), done)
            self.assertIn(b"standard input", done.stderr)
        for byte in range(0, len(content), 5):
            done = convert(content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :])
            self.assertEqual((done.returncode, done.stdout), (2, b""), (byte, done))
        done = convert(content, TMPDIR=self.path("gone"))
        self.assertEqual((done.returncode, done.stdout), (2, b""), done)
        self.assertIn(b"gone: ", done.stderr)
        convert(content, TMPDIR=self.folder)
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("cbt-")])

    def test_show_draws_where_changes_lie(self):
        blocks = list(range(64, 96)) + [640]
        path = self.import_map("m", blocks, 1024 * GRANULARITY)
        svg = self.path("m.svg")
        utf8 = {"LC_ALL": "C.UTF-8"}
        text = self.ok("map", "show", path, "--rows", 1, "--svg", svg, env=utf8)
        # 16 blocks per cell: two full ones, and a sixteenth of another.
        row = "".join("█" if c in (4, 5) else "▅" if c == 40 else "·" for c in range(64))
        self.assertIn(f"[{row}]", text)
        with open(svg, encoding="utf-8") as file:
            self.assertEqual(self.ok("map", "show", path, "--rows", 1, "--svg", "-"), file.read())
        self.assertIn("132.0 KiB of 4.0 MiB in 2 extents; one cell is 64.0 KiB", text)
        tree = xml.etree.ElementTree.parse(svg)
        titles = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles, ["256.0 KiB: 100.00 %", "320.0 KiB: 100.00 %",
                                  "2.5 MiB: 6.25 %"])
        # One scale and one legend: under a table, too.
        legend = text.splitlines()[-1]
        self.assertEqual(legend, "of a cell at most: · none  ▁ 0.1 %  ▂ 1 %  ▃ 5 %  ▅ 20 %  ▆ 50 %  █ 100 %")
        table = self.ok("delta", path, "--format", "table", "--quiet", env=utf8).splitlines()
        self.assertEqual(table[-2:], [f"[{row}]", legend])
        plain = text.translate(str.maketrans("·▁▂▃▅▆█", ".:-=+*#"))
        self.assertEqual(self.ok("map", "show", path, "--rows", 1, env={"LC_ALL": "", "LANG": "C"}), plain)
        self.assertEqual(self.ok("map", "show", path, "--rows", 16).count("["), 16)
        # Where 3 % changed evenly and others less or more, the difference must be visible.
        sparse = set(range(10 * 1024, 65536, 33)) | set(range(1024 * 30, 1024 * 31)) | {1024 * 5}
        text = self.ok("map", "show", self.import_map("s", sparse, 65536 * GRANULARITY), "--rows", 1, env=utf8)
        for shade in "·▁▃█":
            self.assertIn(shade, text.split("\n\n")[1], text)
        # The row labels of a large volume are exact.
        text = self.ok("map", "show", self.import_map("l", [1], (1 << 40) + GRANULARITY), "--rows", 16)
        labels = re.findall(r"(?m)^ *(\d+ \w+) \[", text)
        self.assertEqual(len(set(labels)), len(labels))
        self.assertEqual(labels[:3], ["0 GiB", "128 GiB", "256 GiB"])
        # An empty volume, and one of a single byte.
        for capacity in (0, 1):
            self.ok("map", "show", self.import_map("e", [], capacity), "--svg", svg)
            xml.etree.ElementTree.parse(svg)
        # Names are untrusted text.
        odd = self.import_map("odd", [1], 99999, ('<"&>\x1b[31m', "a\nb", "c"))
        self.assertNotIn("\x1b", self.ok("map", "show", odd, "--svg", svg))
        xml.etree.ElementTree.parse(svg)

    def test_bad_files_are_named_with_place_and_reason(self):
        path = self.import_map("m", [1, 2, 3], 100 * GRANULARITY)
        with open(path, "rb") as file:
            data = file.read()
        damaged = self.path("bad.cbm")
        for at in range(0, len(data), 3):
            with open(damaged, "wb") as file:
                file.write(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
            for command in (["info"], ["show"], ["convert", "--to", "csv"]):
                result = run("map", *command, damaged)
                self.assertIn(result.code, (2, 3), result)
                self.assertIn("bad.cbm", result.stderr)
                self.assertEqual(result.stdout, "")
        self.fails(2, "map", "info", self.path("none"))
        self.fails(2, "map", "info", self.folder)
        self.fails(2, "map", "convert", path)
        self.fails(2, "map", "convert", path, "--to", "xml")
        self.fails(2, "map")
        text = self.write("text", b"some text that is no map of any kind, surely\n" * 9)
        self.fails(2, "map", "info", text)
        for size in (100000, 102400):
            image = self.write("image", b"\xff" * size)
            self.assertIn("--from image", self.fails(2, "map", "info", image))
            self.assertEqual(json.loads(self.ok("map", "info", "--json", image, "--from", "image"))["capacity_bytes"], size)
        self.fails(2, "map", "convert", text, "--from", "bitmap", "--output", damaged)

    def test_attack_g_a_volume_is_not_taken_for_a_map_that_was_written_to_it(self):
        none = self.import_map("none", [], 100 * GRANULARITY)
        with open(none, "rb") as file:
            data = file.read()
        base, target = self.write("base.img", bytes(8192)), self.write("target.img", b"x" * 8192)
        sectors = next((n for n in range(4000) if len(roaring32(range(0, 2 * n, 2), False)) % 512 == 0))
        bits = roaring32(range(0, 2 * sectors, 2), False)
        contents = {"roaring32": bits}
        # A map that is valid and consists of whole sectors.
        short = next((n for n in range(4000) if len(roaring32(range(0, 2 * n, 2), False)) % 512 == 500))
        contents["roaring64"] = struct.pack("<QI", 1, 0) + roaring32(range(0, 2 * short, 2), False)
        if len(data) % 512 == 0:
            contents["cbm"] = data
        for name, text in contents.items():
            self.assertEqual(len(text) % 512, 0)
            volume = self.write("vol.img", text)
            out = self.path("out.cbm")
            for command in (("map", "convert", volume, "--to", "ndjson"), ("map", "convert", volume, "--output", out),
                            ("map", "info", volume), ("verify", base, target, "--map", volume)):
                self.assertIn("could be a raw volume", self.fails(2, *command))
            self.assertFalse(os.path.exists(out))
            size = () if name == "cbm" else ("--capacity", "1G", "--block-size", GRANULARITY)
            self.ok("map", "convert", volume, "--from", name, "--to", "ndjson", *size)
            named = self.write("vol." + ("cbm" if name == "cbm" else "roaring"), text)
            self.ok("map", "convert", named, "--to", "ndjson", *size)

    def test_chains(self):
        chain = self.path("history.chain")
        end = 200
        capacity = end * GRANULARITY
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "s0",
                "--capacity", capacity)
        days = [set()]
        for day in range(1, 20):
            days.append({random.randrange(end) for _ in range(3)})
            path = self.import_map("m", days[day], capacity, ("vol", f"s{day - 1}", f"s{day}"))
            if day % 3 == 0:
                self.ok("chain", "append", chain, path)
                continue
            # From a pipe, nothing but a whole map.
            with open(path, "rb") as file:
                content = file.read()
            fifo = self.path("fifo")
            for data, code in ((content[: len(content) // 2], 2), (content[:-1], 2), (b"", 2), (content, 0)):
                if day % 3 == 1:
                    done = subprocess.run([support.CBT, "chain", "append", chain, "-"], input=data, capture_output=True, check=False)
                    self.assertEqual(done.returncode, code, done)
                    continue
                os.mkfifo(fifo)
                with subprocess.Popen(["cp", self.write("piped", data), fifo]):
                    self.assertEqual(support.run("chain", "append", chain, fifo).code, code)
                os.unlink(fifo)
        self.assertIn("newest", self.fails(2, "chain", "append", chain, path))
        image = self.write("no-map", bytes(4096))
        self.fails(2, "chain", "append", chain, image)

        def check(base, target):
            want = sorted(set().union(*days[base + 1 : target + 1]))
            got = parse_ndjson(self.ok("chain", "delta", chain, f"s{base}", f"s{target}"))
            self.assertEqual(got[2], oracle.tuples(want, GRANULARITY, capacity, "extents"))

        for _ in range(20):
            check(*sorted(random.sample(range(20), 2)))
        self.ok("chain", "remove", chain, "s7")
        self.ok("chain", "remove", chain, "--oldest")
        check(6, 8)
        check(1, 19)
        self.fails(2, "chain", "delta", chain, "s0", "s3")
        self.fails(2, "chain", "delta", chain, "s5", "s3")
        self.fails(2, "chain", "remove", chain)
        lines = [json.loads(line) for line in self.ok("chain", "list", chain).splitlines()]
        self.assertEqual([line["snapshot"] for line in lines[1:]],
                         [f"s{day}" for day in range(1, 20) if day != 7])
        self.ok("chain", "verify", chain)
        out = self.path("out.cbm")
        self.ok("chain", "delta", chain, "s1", "s19", "--output", out)
        info = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((info["volume"], info["base"], info["target"]), ("vol", "s1", "s19"))
        victim = next(n for n in sorted(os.listdir(chain)) if n.startswith("map-"))
        with open(os.path.join(chain, victim), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        self.assertIn(victim, self.fails(2, "chain", "verify", chain))


if __name__ == "__main__":
    support.main()
