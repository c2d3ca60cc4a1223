"""Daily use of the command: pipes, short options, suggestions, quiet, progress, tables."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import support
from support import run

MIB = 1 << 20


def drain(terminal):
    """The output on a terminal whose other end is closed."""
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end was closed
            return seen.decode()
        if not piece:
            return seen.decode()
        seen += piece


def on_terminal(*arguments):
    """stdout of a command that runs on a terminal, and its exit status."""
    main, other = pty.openpty()
    child = subprocess.Popen([support.CBT, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=other, stderr=subprocess.PIPE)
    os.close(other)
    text = drain(main)
    os.close(main)
    error = child.communicate(timeout=60)[1].decode()
    return child.returncode, text, error


class Pipes(support.CbtTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("vol"))
        self.base, self.target = self.write("vol/mon.img", b"a" * 9000), self.write("vol/tue.img", b"b" * 9000)
        self.map = self.path("map.cbm")
        self.ok("delta", self.base, self.target, "--output", self.map)
        with open(self.map, "rb") as file:
            self.bytes = file.read()

    def output(self, *arguments):
        done = subprocess.run([support.CBT, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout

    def test_output_to_stdout(self):
        names = ("--volume-name", "vol", "--base-name", "mon", "--target-name", "tue")
        for command in (("delta", self.base, self.target), ("map", "convert", self.map), ("map", "merge", self.map)):
            self.assertEqual(self.output(*command, "--output", "-"), self.bytes, command)
        self.assertEqual(self.output("map", "convert", self.map, "-o", "-", *names), self.bytes)
        for to in ("roaring64", "roaring32", "bitmap"):
            self.ok("map", "convert", self.map, "--to", to, "--output", self.path("file"))
            with open(self.path("file"), "rb") as file:
                self.assertEqual(self.output("map", "convert", self.map, "-t", to, "-o", "-"), file.read())
        self.assertEqual(self.output("map", "convert", self.map, "-t", "csv", "-o", "-"),
                         self.output("map", "convert", self.map, "-t", "csv"))
        self.assertFalse(os.path.exists("-"))
        # If stdout is a file, /dev/stdout must not be replaced by a new one.
        with open(self.path("stdout"), "wb") as file:
            file.write(b"before")
            file.flush()
            self.assertEqual(run("delta", self.base, self.target, "-o", "/dev/stdout", stdout=file).code, 0)
        with open(self.path("stdout"), "rb") as file:
            self.assertEqual(file.read(), b"before" + self.bytes)
        # Binary output must not go to a terminal.
        code, text, error = on_terminal("delta", self.base, self.target, "-o", "-")
        self.assertEqual((code, text), (2, ""))
        self.assertIn("--output -: stdout is a terminal", error)
        with open("/dev/full", "wb") as full:
            self.fails(3, "delta", self.base, self.target, "--output", "-", stdout=full)

    def test_a_pipe_whose_writer_comes_later(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        answer = self.ok("delta", self.base, self.target)
        for command in (("delta", fifo), ("delta", fifo, "--from", "ndjson"), ("map", "convert", fifo, "--as", "delta", "--to", "ndjson")):
            child = subprocess.Popen([support.CBT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            # Opening returns once the command has the pipe open: it was waiting.
            with open(fifo, "w", encoding="ascii") as writer:
                self.assertFalse(select.select([child.stdout], [], [], 0.1)[0])
                writer.write(answer)
            out, _ = child.communicate(timeout=60)
            self.assertEqual((child.returncode, out.decode()), (0, answer), command)
        # A pair needs random access: a pipe is refused without waiting for a writer.
        self.assertIn("is a pipe", self.fails(2, "delta", fifo, self.target))
        self.assertIn("is a pipe", self.fails(2, "delta", self.base, fifo))

    def test_a_closed_pipe_is_no_failure(self):
        for command in (("--help",), ("delta", "--help"), ("map", "info", self.map), ("map", "show", self.map),
                        ("delta", self.base, self.target), ("delta", self.base, self.target, "-o", "-")):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([support.CBT, *command], stdout=writer, stderr=subprocess.PIPE, check=False)
            os.close(writer)
            self.assertEqual((done.returncode, support.own(done.stderr.decode())), (0, ""), command)
        # verify's answer is its exit status, even if no one reads the text.
        other = self.path("other.cbm")
        self.ok("delta", self.base, self.base, "-o", other)
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([support.CBT, "verify", self.base, self.target, "--map", other], stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (1, b""))


class Words(support.CbtTest):
    def test_suggestions(self):
        for command, meant in ((["lst"], "'list'"), (["dleta"], "'delta'"), (["map", "inof"], "'info'"),
                               (["delta", "a", "b", "--form", "image"], "'--from'"), (["delta", "a", "--capacty=3"], "'--capacity'"),
                               (["list", "unix:///x", "--snapsot", "s"], "'--snapshot'")):
            self.assertIn(f"did you mean {meant}?", self.fails(2, *command), command)
        for command in (["frobnicate"], ["delta", "a", "--frobnicate"], ["delta", "a", "b", "c"]):
            self.assertNotIn("did you mean", self.fails(2, *command), command)

    def test_messages_name_options_of_the_command(self):
        text = self.write("list", b'[{"offset":0,"length":4096,"exists":"true"}]')
        self.assertIn("(--capacity)", self.fails(2, "delta", text, "--from", "rbd-json"))
        self.assertIn("(--from)", self.fails(2, "delta", self.write("odd.json", b'{"a":1}')))
        image = self.write("image", b"x" * 4096)
        self.assertIn("(--base-capacity)", self.fails(2, "delta", image, image, "--base-capacity", "1M"))
        for form, option in (("bitmap", "(--capacity)"), ("roaring64", "(--capacity)"), ("era-dump", "era-dump:since-era=N"),
                             ("era-invalidate", "(--capacity)")):
            self.assertIn(option, self.fails(2, "delta", text, "--from", form))
        self.assertIn("--by-extents", self.fails(2, "delta", text, "--from", "rbd-json", "--by-extents"))
        self.assertIn("(--as)", self.fails(2, "map", "info", text, "--from", "rbd-json", "--capacity", "1M"))

    def test_help_is_a_word_too(self):
        self.assertEqual(self.ok("help"), self.ok("--help"))
        self.assertEqual(self.ok("help", "map", "convert"), self.ok("map", "convert", "--help"))
        self.assertIn("'lsit' is unknown; did you mean 'list'?", self.fails(2, "help", "lsit"))
        self.assertIn("'nothing' is unknown", self.fails(2, "help", "map", "nothing"))

    def test_a_map_is_not_written_where_text_is_meant(self):
        base, target = self.write("mon.img", b"a" * 9000), self.write("tue.img", b"b" * 9000)
        for name in ("out.csv", "out.json", "out.ndjson", "out.txt"):
            path = self.path(name)
            for more in ((), ("--format", "csv")):
                self.assertIn("redirect stdout", self.fails(2, "delta", base, target, "--output", path, *more))
            self.assertFalse(os.path.exists(path))

    def test_too_many_of_a_kind(self):
        self.assertIn("IMAGE: at most 2 expected, got 3", self.fails(2, "verify", "a", "b", "c", "--map", "d"))

    def test_urls_are_no_addresses(self):
        for address in ("http://host:50051", "https://host:50051", "https://host"):
            for command in (["list"], ["conform"]):
                error = self.fails(2, *command, address, "--snapshot", "s")
                self.assertIn(f"'{address}': not a URL: give host:port", error)
        self.assertIn("--tls", self.fails(2, "list", "https://host", "--snapshot", "s"))

    def test_usage_lines(self):
        self.assertIn("cbtctl verify [OPTIONS] IMAGE [IMAGE]\n", self.ok("verify", "--help"))
        for command in (["delta"], ["list"], ["map", "convert"], ["verify"]):
            text = self.ok(*command, "--help")
            for noise in ("Excludes:", "Needs:", "(1x)", "TEXT", "REQUIRED"):
                self.assertNotIn(noise, text, command)

    def test_short_options(self):
        image = self.write("image", b"x" * 9000)
        pair = ["delta", self.write("old", b"y" * 9000), image]
        self.assertEqual(self.ok(*pair, "-b", "512", "-f", "csv"), self.ok(*pair, "--block-size", "512", "--format", "csv"))
        self.ok(*pair, "-o", self.path("x.cbm"))
        self.assertTrue(os.path.exists(self.path("x.cbm")))
        self.assertEqual(self.ok("-V"), self.ok("--version"))
        self.assertIn("address", self.fails(2, "list", "nowhere", "-s", "s", "-B", "b"))

    def test_quiet(self):
        answer = self.ok("delta", self.write("a", b"x" * 9000), self.write("b", b"y" * 9000)).encode()
        name = self.write("answer.ndjson", answer)
        self.assertIn("read as ndjson", run("delta", name).stderr)
        self.assertEqual(run("delta", name, "-q").stderr, "")
        self.assertRegex(self.fails(2, "delta", self.path("none"), "--quiet"), "No such file")


class Maps(support.CbtTest):
    def test_info_prints_what_it_can_and_fails(self):
        good = self.path("good.cbm")
        self.ok("delta", self.write("a", b"x" * 9000), self.write("b", b"y" * 9000), "-o", good)
        result = run("map", "info", good, self.path("missing"), good, "--json")
        self.assertEqual(result.code, 2)
        self.assertEqual([json.loads(line)["file"] for line in result.stdout.splitlines()], [good, good])
        self.assertRegex(result.stderr, r"\Acbtctl: map info: [^\n]*missing[^\n]*\n\Z")
        self.fails(2, "map", "info", self.path("missing"))

    def test_a_bitmap_keeps_its_blocks(self):
        bits = self.write("bits", bytes([0x11] * 64))
        out = self.path("out.cbm")
        convert = ["map", "convert", bits, "--from", "bitmap:granularity=512", "--as", "delta", "--base-name", "m",
                   "--capacity", "256K", "-o", out]
        self.ok(*convert)
        info = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((info["granularity_bytes"], info["changed_bytes"]), (512, 128 * 512))
        self.ok(*convert, "--block-size", "4K")
        info = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((info["granularity_bytes"], info["changed_bytes"]), (4096, 256 << 10))
        # A source without blocks of its own gets the default size.
        text = self.write("list", b'[{"offset":512,"length":512,"exists":"true"}]')
        self.ok("map", "convert", text, "--from", "rbd-json", "--as", "delta", "--base-name", "m", "--capacity", "1M", "-o", out)
        self.assertEqual(json.loads(self.ok("map", "info", "--json", out))["granularity_bytes"], 4096)

    def test_chain_list_is_a_table_on_a_terminal(self):
        chain = self.path("chain")
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "monday", "--capacity", "1G",
                "--time", "2026-03-01T12:00:00Z")
        code, text, _ = on_terminal("chain", "list", chain)
        self.assertEqual(code, 0)
        self.assertEqual(text.splitlines()[:2], ["SNAPSHOT       BYTES        SIZE  TAKEN (UTC)",
                                                 "monday    1073741824     1.0 GiB  2026-03-01 12:00"])
        self.assertIn("1 snapshots of vol, in blocks of 4.0 KiB", text)
        self.assertEqual(json.loads(self.ok("chain", "list", chain).splitlines()[1]),
                         {"snapshot": "monday", "capacity_bytes": 1 << 30, "taken": "2026-03-01T12:00:00Z"})
        self.fails(2, "chain", "create", self.path("c"), "--volume", "v", "--snapshot", "m", "--capacity", "1G",
                   "--time", "9999-01-01T00:00:00Z")


class Bar(support.CbtTest):
    def begin(self, *options):
        """Starts a slow stream with its stderr on a terminal."""
        with open(self.path("data"), "wb") as file:
            file.write((b"x" * 512 + bytes(512)) * (32 << 10))
        empty = self.write("empty", bytes(512))
        main, other = pty.openpty()
        child = subprocess.Popen([support.CBT, "delta", empty, self.path("data"), "-b", "512", *options],
                                 stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        self.addCleanup(os.close, main)
        self.addCleanup(child.kill)
        return child, main

    def until_bar(self, child, terminal):
        """Reads the stream slowly until a bar is drawn; returns the terminal's contents."""
        limit = time.monotonic() + 30
        while not select.select([terminal], [], [], 0.05)[0]:
            self.assertLess(time.monotonic(), limit)
            os.read(child.stdout.fileno(), 20000)
        return os.read(terminal, 65536).decode()

    def test_the_bar_has_a_rate_and_the_time_left(self):
        child, terminal = self.begin()
        text = self.until_bar(child, terminal)
        self.assertRegex(text, r"comparing \[#*-*\] +[0-9.]+ %  [0-9.]+ [KMG]?i?B/s  ETA \d+:\d\d\x1b\[K")
        child.stdout.close()
        self.assertEqual(child.wait(60), 0)

    def test_an_interrupt_leaves_a_clean_line(self):
        # Seconds of work without any output: the bar stays until the signal comes.
        bits = self.path("bits")
        with open(bits, "wb") as file:
            file.write(b"\x55" * (64 * MIB))
        main, other = pty.openpty()
        child = subprocess.Popen([support.CBT, "delta", bits, "--from", "bitmap:granularity=512", "--capacity", "256G",
                                  "--base-name", "m", "-o", self.path("out.cbm")], stderr=other)
        os.close(other)
        self.addCleanup(os.close, main)
        self.addCleanup(child.kill)
        text = os.read(main, 65536).decode()
        self.assertIn("reading [", text)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(60), -signal.SIGINT)
        self.assertTrue((text + drain(main)).endswith("\r\x1b[K"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["bits"])

    def test_an_interrupt_while_a_map_is_written(self):
        bits = self.path("bits")
        with open(bits, "wb") as file:
            file.write(b"\x55" * (8 * MIB))
        folder = self.path("maps")
        os.mkdir(folder)
        out = os.path.join(folder, "out.cbm")
        ended = 0
        for _ in range(20):
            child = subprocess.Popen([support.CBT, "map", "convert", bits, "--from", "bitmap:granularity=512", "--as", "delta",
                                      "--capacity", "32G", "--base-name", "m", "-o", out, "-q"])
            self.addCleanup(child.kill)
            while child.poll() is None and not any(name.endswith(".partial") for name in os.listdir(folder)):
                pass
            child.send_signal(signal.SIGINT)
            code = child.wait(60)
            # Without the end of a file's writing, its name is the old one or none.
            self.assertIn(code, (0, -signal.SIGINT))
            self.assertIn(os.listdir(folder), ([], ["out.cbm"]))
            ended += code != 0
            if ended == 1:
                break
        self.assertGreater(ended, 0)

    def test_no_bar_where_none_is_wanted(self):
        for option in ("--no-progress", "-q"):
            child, terminal = self.begin(option)
            while os.read(child.stdout.fileno(), 50000):
                time.sleep(0.01)
            child.stdout.close()
            self.assertEqual(child.wait(60), 0)
            self.assertEqual(drain(terminal), "")


if __name__ == "__main__":
    support.main()
