"""delta, allocated and apply on random images of every awkward size, against the oracle."""

import os
import random

import oracle
import support
from support import parse_csv, parse_json, parse_ndjson

PAIRS = int(os.environ.get("CBT_TEST_PAIRS", 1200))
KIND = {"extents": "VARIABLE_LENGTH", "blocks": "FIXED_LENGTH"}
# Bytes that may be part of a text; any non-ASCII byte may belong to a letter.
TEXT = b"\t\n\r" + bytes(byte for byte in range(0x20, 0x100) if byte != 0x7F)


def random_size(block_size):
    blocks = random.choice([0, 0, 1, 2, 3, random.randrange(40)])
    size = blocks * block_size + random.choice([0, 0, 1, -1, block_size // 2, 511, 4096])
    return min(max(size, 0), 1 << 20)


def random_image(size, block_size):
    """Runs of zeros, of one byte and of noise, with borders on and off block borders."""
    image = bytearray()
    while len(image) < size:
        unit = random.choice([1, 512, 4096, block_size])
        length = unit * random.randrange(1, 9)
        image += random.choice([bytes(length), b"\xff" * length, random.randbytes(length)])
    return bytes(image[:size])


def random_change(base, size, block_size):
    """An image of `size` bytes that shares much with `base`."""
    image = bytearray(base[:size].ljust(size, b"\0"))
    for _ in range(random.choice([0, 1, 2, 5, 20])):
        if size == 0:
            break
        begin = random.choice([random.randrange(size), size - 1])
        begin -= random.choice([0, begin % block_size])
        length = min(random.choice([1, 2, 511, 4096, block_size, 3 * block_size]), size - begin)
        image[begin : begin + length] = random.choice([bytes(length), random.randbytes(length)])
    return bytes(image)


def random_start(answer, block_size, capacity):
    """A starting offset from a resuming or an awkward consumer."""
    places = [0, 1, capacity, capacity - 1, capacity // 2, block_size, block_size - 1]
    for offset, size in random.sample(answer, min(3, len(answer))):
        places += [offset, offset + 1, offset + size, offset + size - 1, offset + size + 1]
    place = random.choice(places + [random.randrange(capacity + 1)])
    return min(max(place, 0), capacity)


def as_images(*images):
    """Options for `cbt` to accept these as images. Otherwise lists are possible: empty files,
    partial sectors, and files in which every byte may be text (a bracket and 0xff up to the end of
    the sector).
    """
    if any(len(image) % 512 or not image.translate(None, TEXT) for image in images):
        return ["--from", "image"]
    return random.choice([[], ["--from", "image"]])


class Images(support.CbtTest):
    def check(self, arguments, blocks, block_size, capacity):
        """Runs a subcommand in a random format and compares the answer with `blocks`."""
        style = random.choice(["extents", "blocks"])
        whole = oracle.tuples(blocks, block_size, capacity, style)
        start = random.choice([0, random_start(whole, block_size, capacity)])
        form = random.choice(["ndjson", "json", "csv", "table"])
        group = random.choice([0, 0, 1, 2, 7, 2**31 - 1])
        command = [*arguments, "--block-size", block_size, "--style", style, "--format", form]
        command += ["--starting-offset", start, "--max-results", group]
        text = self.ok(*command)
        expected = oracle.tuples(blocks, block_size, capacity, style, start)
        context = f"cbt {' '.join(map(str, command))}, capacity {capacity}"
        if form == "ndjson":
            self.assertEqual(parse_ndjson(text), (KIND[style], capacity, expected), context)
        elif form == "json":
            kind, found_capacity, found, groups = parse_json(text)
            self.assertEqual((kind, found_capacity), (KIND[style], capacity), context)
            self.assertEqual(found, expected, context)
            if group == 0 or not expected:
                self.assertEqual(len(groups), 1, context)
            else:
                self.assertEqual(groups[:-1], [group] * ((len(expected) - 1) // group), context)
        elif form == "csv":
            self.assertEqual(parse_csv(text), expected, context)
        else:
            rows = text.split("\n\n")[0].splitlines()[1:]
            found = [tuple(map(int, row.split()[:2])) for row in rows]
            self.assertEqual(found, expected, context)

    def test_delta_of_random_pairs(self):
        for _ in range(PAIRS):
            block_size = 1 << random.randrange(9, 17)
            base = random_image(random_size(block_size), block_size)
            size = random.choice([len(base), random_size(block_size)])
            target = random_change(base, size, block_size)
            paths = self.write("base", base), self.write("target", target)
            blocks = oracle.changed_blocks(base, target, block_size)
            self.check(["delta", *paths, *as_images(base, target)], blocks, block_size, len(target))

    def test_images_that_may_be_lists_have_to_be_named(self):
        """About one random pair in thousands contained one of these."""
        target = bytes(512)
        for begin in (b"[", b"\n{", b"<\t"):
            base = begin.ljust(512, b"\xff")
            paths = self.write("base", base), self.write("target", target)
            self.assertIn("name the format (--from)", self.fails(2, "delta", *paths, "--block-size", 512))
            self.assertEqual(as_images(base, target), ["--from", "image"])
            text = self.ok("delta", *paths, "--block-size", 512, *as_images(base, target))
            self.assertEqual(parse_ndjson(text)[2], [(0, 512)])

    def test_every_form_of_one_answer_is_the_same(self):
        for _ in range(PAIRS // 40):
            block_size = 1 << random.randrange(9, 15)
            base = random_image(random_size(block_size), block_size)
            target = random_change(base, random_size(block_size), block_size)
            command = ["delta", self.write("base", base), self.write("target", target)]
            command += ["--block-size", block_size, *as_images(base, target)]
            kind, capacity, found = parse_ndjson(self.ok(*command))
            self.assertEqual(parse_json(self.ok(*command, "--format", "json"))[:3],
                             (kind, capacity, found))
            self.assertEqual(parse_csv(self.ok(*command, "--format", "csv")), found)

    def test_every_offset_of_a_small_pair(self):
        block_size = 512
        base = random_image(2500, block_size)
        target = random_change(base, 2500, block_size)
        paths = self.write("base", base), self.write("target", target)
        blocks = oracle.changed_blocks(base, target, block_size)
        offsets = {0, 1, 2499, 2500}
        offsets |= {k * block_size + d for k in range(1, 5) for d in (-1, 0, 1)}
        for start in sorted(offsets):
            for style in KIND:
                text = self.ok("delta", *paths, "--block-size", block_size, "--style", style,
                               "--starting-offset", start, *as_images(base, target))
                self.assertEqual(parse_ndjson(text)[2],
                                 oracle.tuples(blocks, block_size, 2500, style, start), start)

    def test_allocated_of_random_images(self):
        for _ in range(PAIRS // 4):
            block_size = 1 << random.randrange(9, 17)
            image = random_image(random_size(block_size), block_size)
            path = self.write("image", image)
            if random.random() < 0.5:
                self.check(["allocated", path, *as_images(image)],
                           oracle.data_blocks(path, block_size), block_size, len(image))
            else:
                self.check(["allocated", path, "--skip-zeros", *as_images(image)],
                           oracle.nonzero_blocks(image, block_size), block_size, len(image))

    def test_ff_a_base_that_was_written_after_its_target_is_named(self):
        """The ranges are right either way, but what is copied is the wrong one of the two."""
        old, new = self.write("old", b"a" * 8192), self.write("new", b"b" * 8192)
        os.utime(old, (1_000_000, 1_000_000))
        os.utime(new, (2_000_000, 2_000_000))
        service = ["--service", "unix:///none", "--retry-for", 0, "--base", "a", "--snapshot", "b"]
        for command in (["delta", "{}", "{}", "--from", "image"], ["apply", "{}", "{}", self.path("out")],
                        ["verify", "{}", "{}", *service]):
            for first, second, swapped in ((old, new, False), (new, old, True), (old, old, False)):
                paths = iter((first, second))
                result = support.run(*(next(paths) if part == "{}" else part for part in command))
                self.assertEqual("are the two swapped?" in result.stderr, swapped, result)
        self.assertEqual(support.run("delta", new, old, "--from", "image", "--quiet").stderr, "")

    def test_apply_gives_the_target(self):
        for _ in range(PAIRS // 4):
            block_size = 1 << random.randrange(9, 17)
            base = random_image(random_size(block_size), block_size)
            size = random.choice([len(base), random_size(block_size)])
            target = random_change(base, size, block_size)
            paths = self.write("base", base), self.write("target", target)
            out = self.path("out")
            if random.random() < 0.5:
                self.write("out", random_image(random_size(block_size), block_size))
            command = ["apply", *paths, out, "--block-size", block_size]
            text = self.ok(*command)
            ranges = len(oracle.tuples(oracle.changed_blocks(base, target, block_size), block_size,
                                       size, "extents"))
            self.assertRegex(text, rf"\Acopied .* of .* in {ranges} ranges?\n\Z")
            with open(out, "rb") as file:
                self.assertEqual(file.read(), target, f"{command}")
            self.assertEqual(sorted(os.listdir(self.folder)), ["base", "out", "target"])
            os.unlink(out)

    def test_simd_levels_agree(self):
        version = self.ok("--version")
        available = [line for line in version.splitlines() if "available" in line][0]
        levels = available.split(":")[1].split()
        self.assertIn("scalar", levels)
        for _ in range(10):
            block_size = 1 << random.randrange(9, 14)
            base = random_image(300000, block_size)
            target = random_change(base, 300000, block_size)
            command = ["delta", self.write("base", base), self.write("target", target)]
            command += ["--block-size", block_size, *as_images(base, target)]
            answers = {self.ok(*command, env={"CBT_SIMD": level}) for level in levels}
            self.assertEqual(len(answers), 1, levels)
        for level in levels:
            active = self.ok("--version", env={"CBT_SIMD": level})
            self.assertIn(f"active: {level}\n", active)


if __name__ == "__main__":
    support.main()
