"""The end marker of printed answers: present exactly if the answer is complete, and required by
everything that reads answers.
"""

import os
import re
import signal
import subprocess

import support
from support import run

FORMATS = {"ndjson": ["ndjson"], "json": ["json"], "groups": ["json", "--max-results", "7"], "csv": ["csv"]}
MIB = 1 << 20


def marked(text):
    """Whether a reader finds an end marker in `text`."""
    return re.search(r'"complete":true|(?m:^complete,)', text) is not None


class Killed(support.CbtTest):
    """Streams of many blocks that pause in the middle: their pipe is full."""

    SIZE = 32 * MIB

    def setUp(self):
        super().setUp()
        self.empty, self.data = self.path("empty"), self.path("data")
        with open(self.empty, "wb") as file:
            file.truncate(self.SIZE)

    def begin(self, form):
        """A stream whose first byte has arrived."""
        if not os.path.exists(self.data) or os.stat(self.data).st_size != self.SIZE:
            with open(self.data, "wb") as file:
                # Every second block: one long run would be known before its first block is printed.
                file.write((b"x" * 512 + bytes(512)) * (self.SIZE // 1024))
        command = ["delta", self.empty, self.data, "--from", "image", "--block-size", "512",
                   "--style", "blocks", "--format", *FORMATS[form]]
        child = subprocess.Popen([support.CBT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, child.stdout.read(1).decode()

    def refused(self, form, text):
        name = self.path("answer." + FORMATS[form][0])
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        self.fails(2, "map", "convert", name, "--from", FORMATS[form][0], "--as", "allocated",
                   "--capacity", str(self.SIZE), "--output", self.path("out.cbm"))
        self.assertFalse(os.path.exists(self.path("out.cbm")))

    def test_whole_streams_have_the_marker(self):
        for form in FORMATS:
            child, first = self.begin(form)
            out, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, err), (0, b""))
            parse = {"ndjson": support.parse_ndjson, "csv": support.parse_csv}.get(form, support.parse_json)
            parse(first + out.decode())

    def test_killed_streams_have_none(self):
        for form in FORMATS:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
                with self.subTest(form=form, signal=number):
                    child, text = self.begin(form)
                    child.send_signal(number)
                    text += child.communicate(timeout=60)[0].decode()
                    self.assertEqual(child.returncode, -number)
                    self.assertGreater(len(text), 1000)
                    self.assertFalse(marked(text))
            self.refused(form, text)

    def test_failed_streams_have_none(self):
        for form in FORMATS:
            child, text = self.begin(form)
            os.truncate(self.data, self.SIZE // 2)
            text += child.communicate(timeout=60)[0].decode()
            self.assertEqual(child.returncode, 3, (form, len(text), text[-200:]))
            self.assertFalse(marked(text))
            last = text.splitlines()[-1]
            if form == "ndjson":
                self.assertRegex(last, r'\A\{"error":"[^"]+"\}\Z')
            elif form == "csv":
                self.assertRegex(last, r"\Aerror,.")
            self.refused(form, text)

    def test_streams_whose_reader_goes_have_none(self):
        for form in FORMATS:
            child, text = self.begin(form)
            text += child.stdout.read(100000).decode()
            child.stdout.close()
            child.stderr.read()
            child.stderr.close()
            child.wait(60)
            self.assertFalse(marked(text))
            self.refused(form, text)

    def test_sigpipe_ends_no_stream(self):
        child, text = self.begin("ndjson")
        child.send_signal(signal.SIGPIPE)
        support.parse_ndjson(text + child.communicate(timeout=60)[0].decode())
        self.assertEqual(child.returncode, 0)


class ReadBack(support.CbtTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("vol"))
        self.base = self.write("vol/mon.img", b"a" * 300000)
        data = bytearray(b"a" * 300000)
        for at in range(0, 300000, 30000):
            data[at] = ord("b")
        data[-1] = ord("b")
        self.target = self.write("vol/tue.img", bytes(data))
        self.pair = ["delta", self.base, self.target, "--from", "image"]
        self.names = ["--as", "delta", "--volume-name", "vol", "--base-name", "mon", "--target-name", "tue"]

    def answer(self, form, *more):
        return self.ok(*self.pair, *more, "--format", *FORMATS[form])

    def convert(self, form, *more):
        """The arguments that read a file of that format."""
        capacity = ["--capacity", "300000"] if form == "csv" else []
        return [*more, "--from", FORMATS[form][0], *capacity]

    def test_an_answer_is_the_map_that_it_was_made_from(self):
        for style in ("extents", "blocks"):
            whole = self.path("whole.cbm")
            self.ok(*self.pair, "--output", whole)
            for form in FORMATS:
                text = self.answer(form, "--style", style).encode()
                name, again = self.write("answer", text), self.path("again.cbm")
                self.ok("map", "convert", *self.convert(form, name), *self.names, "--output", again)
                with open(whole, "rb") as one, open(again, "rb") as two:
                    self.assertEqual(one.read(), two.read(), (form, style))
                output = self.ok("verify", self.base, self.target, "--map", *self.convert(form, name), "--as", "delta")
                self.assertTrue(output.startswith("yes"), output)
                piped = subprocess.run([support.CBT, "delta", "-", *self.convert(form)], input=text, capture_output=True, check=False)
                self.assertEqual(piped.stdout.decode(), self.answer("ndjson"), piped)

    def test_no_beginning_of_an_answer_is_read(self):
        for form in FORMATS:
            text = self.answer(form)
            lines = text.splitlines(keepends=True)
            # Remove each line, and each of the last bytes but the newline, which json does not
            # need.
            cuts = ["".join(lines[:count]) for count in range(len(lines))]
            cuts += [text[:-size] for size in range(2, 30)]
            for cut in cuts:
                name, out = self.write("cut." + FORMATS[form][0], cut.encode()), self.path("out.cbm")
                self.fails(2, "map", "convert", *self.convert(form, name), *self.names, "--output", out)
                self.assertFalse(os.path.exists(out))
            self.fails(2, "verify", self.base, self.target, "--map", *self.convert(form, name), "--as", "delta")

    def test_a_resumed_answer_is_complete_for_its_reader_and_not_for_a_map(self):
        for form in FORMATS:
            text = self.answer(form, "--starting-offset", "65536")
            self.assertTrue(marked(text))
            self.assertIn("starting_offset", text)
            name = self.write("rest", text.encode())
            output = self.fails(2, "map", "convert", *self.convert(form, name), *self.names, "--output", self.path("out.cbm"))
            self.assertIn("only a part of the volume", output)

    def test_every_command_that_prints_an_answer_marks_it(self):
        whole = self.path("whole.cbm")
        self.ok(*self.pair, "--output", whole)
        chain = self.path("chain")
        self.ok("chain", "create", chain, "--volume", "vol", "--snapshot", "mon", "--capacity", "300000")
        self.ok("chain", "append", chain, whole)
        for command in (["delta", self.base, self.target, "--format"], ["allocated", self.target, "--format"],
                        ["map", "convert", whole, "--to"], ["chain", "delta", chain, "mon", "tue", "--format"]):
            for form, parse in (("ndjson", support.parse_ndjson), ("json", support.parse_json), ("csv", support.parse_csv)):
                parse(self.ok(*command, form))

    def test_the_help_says_so(self):
        for command in (["delta"], ["allocated"], ["list"], ["chain", "delta"], ["map", "convert"]):
            self.assertIn('"complete":true', self.ok(*command, "--help"), command)


if __name__ == "__main__":
    support.main()
