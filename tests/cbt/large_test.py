"""Large and sparse images: time and memory; images that change while they are read; terminals."""

import json
import os
import pty
import random
import select
import subprocess
import sys
import time

import oracle
import support

MIB = 1 << 20
# Sanitizers use memory and time of their own.
LIMITS = not os.environ.get("CBT_TEST_SANITIZER")


# A process's peak includes its memory before exec(), which for a direct child would be a copy of
# this process. So a small process in between starts and measures the command.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


class Measured(support.CbtTest):
    def measure(self, *arguments):
        """(stdout, seconds, peak resident bytes) of a run that must succeed."""
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", MEASURE, support.CBT, *map(str, arguments)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        return done.stdout.decode(), time.monotonic() - start, int(done.stderr)

    def check_limit(self, value, limit):
        if LIMITS:
            self.assertLess(value, limit)

    def sparse_pair(self, size, places):
        """Two images of `size` that differ in 4 KiB at each of `places` and are equal elsewhere."""
        paths = self.path("base"), self.path("target")
        for index, path in enumerate(paths):
            with open(path, "wb", buffering=0) as file:
                file.truncate(size)
                for k, place in enumerate(places):
                    same = k % 4 == 0
                    os.pwrite(file.fileno(), bytes([1 if same else index + 1]) * 4096, place)
        changed = sorted(place // 4096 for k, place in enumerate(places) if k % 4 != 0)
        return paths, changed


class Large(Measured):
    def test_16_tib_with_few_data(self):
        size = (16 << 40) - 4096  # ext4's limit
        places = sorted({random.randrange(size // 4096) * 4096 for _ in range(1000)} | {size - 4096})
        try:
            paths, changed = self.sparse_pair(size, places)
        except OSError as error:
            self.skipTest(f"no such file here: {error}")
        text, seconds, resident = self.measure("delta", *paths)
        expected = oracle.tuples(changed, 4096, size, "extents")
        self.assertEqual(support.parse_ndjson(text), ("VARIABLE_LENGTH", size, expected))
        self.check_limit(seconds, 20)
        self.check_limit(resident, 64 * MIB)
        start = places[len(places) // 2]
        text, seconds, _ = self.measure("delta", *paths, "--starting-offset", start,
                                        "--style", "blocks", "--block-size", "4096")
        self.assertEqual(support.parse_ndjson(text)[2],
                         oracle.tuples(changed, 4096, size, "blocks", start))
        self.check_limit(seconds, 20)

    def test_64_gib_in_bounded_memory(self):
        size = 64 << 30
        places = sorted({random.randrange(size // 4096) * 4096 for _ in range(16384)})
        paths, changed = self.sparse_pair(size, places)
        text, seconds, resident = self.measure("delta", *paths)
        expected = oracle.tuples(changed, 4096, size, "extents")
        self.assertEqual(support.parse_ndjson(text), ("VARIABLE_LENGTH", size, expected))
        self.check_limit(seconds, 30)
        self.check_limit(resident, 64 * MIB)
        text, seconds, resident = self.measure("allocated", paths[1])
        self.assertEqual(support.parse_ndjson(text)[2],
                         oracle.tuples(oracle.data_blocks(paths[1], 4096), 4096, size, "extents"))
        self.check_limit(resident, 64 * MIB)


class Changing(support.CbtTest):
    """A full pipe stops the command in the middle of its output, then an image changes."""

    SIZE = 64 * MIB

    def broken(self, form, change, base_data=False, subcommand="delta"):
        data, empty = self.path("data"), self.path("empty")
        with open(data, "wb") as file:
            # Every second block, so that output starts while much is left to compare.
            file.write((b"x" * 512 + bytes(512)) * (self.SIZE // 1024))
        with open(empty, "wb") as file:
            file.truncate(self.SIZE)
        images = [data, empty] if base_data else [empty, data]
        arguments = ["delta", *images]
        if subcommand == "allocated":
            arguments = ["allocated", "--zeros", data]
        child = subprocess.Popen(
            [support.CBT, *arguments, "--block-size", "512", "--style", "blocks",
             "--format", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        # Something was printed: the command runs, and will soon block.
        child.stdout.read(1)
        change(data)
        stdout, stderr = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 3, (form, stdout[-200:], stderr))
        self.assertRegex(stderr, rb"\Acbt: [^\n]+: [^\n]+\n\Z")
        return stdout.decode().splitlines()

    def test_truncated_image(self):
        def cut(path):
            os.truncate(path, self.SIZE // 2)

        for options in ({}, {"base_data": True}, {"subcommand": "allocated"}):
            lines = self.broken("ndjson", cut, **options)
            self.assertEqual(list(json.loads(lines[-1])), ["error"], options)
            self.assertGreater(len(lines), 100)
        self.assertRegex(self.broken("csv", cut)[-1], "^error,.")
        self.assertRegex(self.broken("table", cut)[-1], "^INCOMPLETE")
        with self.assertRaises(json.JSONDecodeError):
            json.loads("\n".join(self.broken("json", cut)))

    def test_written_image(self):
        def overwrite(path):
            # File systems store times no finer than a tick.
            time.sleep(0.02)
            with open(path, "r+b") as file:
                file.write(b"y")

        lines = self.broken("ndjson", overwrite)
        self.assertEqual(list(json.loads(lines[-1])), ["error"])


class Terminals(support.CbtTest):
    def drain(self, descriptor, until=None):
        """The output on a terminal, to its end or until nothing has come for `until` seconds."""
        seen = b""
        while until is None or select.select([descriptor], [], [], until)[0]:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:  # the other end was closed
                break
            if not piece:
                break
            seen += piece
        return seen

    def test_table_is_the_default_there(self):
        base, target = self.write("base", b"a" * 100000), self.write("target", b"b" * 5000)
        main, other = pty.openpty()
        self.assertEqual(support.run("delta", base, target, stdout=other, env={"LC_ALL": "C.UTF-8"}).code, 0)
        os.close(other)
        text = self.drain(main).decode()
        os.close(main)
        self.assertIn("OFFSET", text)
        self.assertIn("1 extent, 4.9 KiB of 4.9 KiB changed (100.00 %)", text)
        self.assertIn("█" * 10, text)

    def test_progress_bar(self):
        with open(self.path("data"), "wb") as file:
            file.write(b"x" * 16 * MIB)
        empty = self.write("empty", bytes(512))
        command = [support.CBT, "delta", empty, self.path("data"), "--block-size", "512",
                   "--style", "blocks"]
        main, other = pty.openpty()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        lines = 0
        for piece in iter(lambda: child.stdout.read(200000), b""):
            lines += piece.count(b"\n")
            time.sleep(0.04)  # a slow consumer prolongs the run
        child.stdout.close()
        self.assertEqual(child.wait(60), 0)
        text = self.drain(main).decode()
        os.close(main)
        self.assertEqual(lines, 16 * MIB // 512 + 2)
        self.assertRegex(text, r"comparing \[#*-*\] +[0-9.]+ %")
        self.assertTrue(text.endswith("\r\x1b[K"), text[-100:])
        self.assertNotIn("\n", text)


if __name__ == "__main__":
    support.main()
