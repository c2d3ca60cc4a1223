"""`cbtctl chain show`: pictures of a volume's history, compared with its maps."""

import fcntl
import os
import pty
import re
import struct
import termios
import xml.etree.ElementTree

import support
from map_test import GRANULARITY, roaring32
from support import CbtTest, run

BLOCKS = 64
MARK = '<b a="1">&amp;'  # a volume with mark-up in its name


class HistoryTest(CbtTest):
    def make(self, days, volume="vol", capacity=BLOCKS * GRANULARITY, times=None):
        """A chain of s0, s1, ...: the map to each snapshot but the first has the blocks of a
        day. `times`: when each was taken.
        """
        chain = self.path("history.chain")
        self.ok("chain", "create", chain, "--volume", volume, "--snapshot", "s0", "--capacity", capacity,
                *(["--time", times[0]] if times else []))
        paths = []
        for day, blocks in enumerate(days, 1):
            raw, path = self.path("raw.roaring"), self.path(f"{day}.cbm")
            with open(raw, "wb") as file:
                file.write(roaring32(sorted(blocks), False))
            self.ok("map", "convert", raw, "--capacity", capacity, "--block-size", GRANULARITY, "--output", path,
                    "--volume-name", volume, "--base-name", f"s{day - 1}", "--target-name", f"s{day}")
            paths.append(path)
        if times:
            for path, time in zip(paths, times[1:]):
                self.ok("chain", "append", chain, path, "--time", time)
        elif paths:
            self.ok("chain", "append", chain, *paths)
        return chain

    @staticmethod
    def rows(text):
        """{snapshot: (when, bytes, cells)} of a text picture."""
        found = {}
        for line in text.splitlines():
            match = re.fullmatch(r"(-|\d{4}-\d\d-\d\d \d\d:\d\d) +(s\d+) +(\S+ [KMG]?i?B|oldest)(?:  (.*))?", line)
            if match:
                found[match[2]] = (match[1], match[3], match[4])
        return found

    def test_a_row_for_each_snapshot(self):
        chain = self.make([{0, 1, 63}, set(), set(range(BLOCKS))],
                          times=["2025-12-31T00:00:00Z", "2026-01-01T01:00:00+01:00",
                                 "2026-01-02T00:00:00.25Z", "2026-01-03T00:01:00Z"])
        rows = self.rows(self.ok("chain", "show", chain))
        self.assertEqual(rows, {
            "s0": ("2025-12-31 00:00", "oldest", None),
            "s1": ("2026-01-01 00:00", "12.0 KiB", "##" + "." * 61 + "#"),
            "s2": ("2026-01-02 00:00", "0 B", "." * 64),
            "s3": ("2026-01-03 00:01", "256.0 KiB", "#" * 64),
        })

    def test_a_small_change_is_never_drawn_as_none(self):
        blocks = 64 * 4096
        rows = self.rows(self.ok("chain", "show", self.make([{5}, {blocks - 1}], capacity=blocks * GRANULARITY)))
        self.assertEqual(rows["s1"][2], ":" + "." * 63)
        self.assertEqual(rows["s2"][2], "." * 63 + ":")

    def test_few_rows_hold_every_change(self):
        chain = self.make([{day, 40} for day in range(20)])
        text = self.ok("chain", "show", chain, "--rows", 3)
        self.assertIn("up to 7 snapshots in one row", text)
        rows = self.rows(text)
        self.assertEqual(list(rows), ["s0", "s6", "s13", "s20"])
        for base, target in ((0, 6), (6, 13), (13, 20)):
            want = {*range(base, target), 40}
            cells = "".join("#" if block in want else "." for block in range(BLOCKS))
            self.assertEqual(rows[f"s{target}"][1:], (f"{4.0 * len(want)} KiB", cells))

    def test_the_locale_says_which_characters(self):
        chain = self.make([{0}, {5}, set(range(BLOCKS))])
        plain = self.ok("chain", "show", chain)
        text = self.ok("chain", "show", chain, env={"LC_ALL": "", "LC_CTYPE": "C.UTF-8"})
        self.assertEqual(self.rows(text)["s2"][2], "·" * 5 + "█" + "·" * 58)
        self.assertIn("of a cell at most: · none  ▁ 0.1 %  ▂ 1 %  ▃ 5 %  ▅ 20 %  ▆ 50 %  █ 100 %\n", text)
        self.assertEqual([len(line) for line in text.splitlines()], [len(line) for line in plain.splitlines()])

    def test_one_snapshot_alone(self):
        self.assertEqual(list(self.rows(self.ok("chain", "show", self.make([])))), ["s0"])

    def test_colour_on_a_terminal_only(self):
        chain = self.make([{1, 2}])
        plain = self.ok("chain", "show", chain)
        self.assertTrue(plain.isascii() and "\x1b" not in plain)
        colour = self.ok("chain", "show", chain, "--color", "always")
        self.assertEqual(re.sub(r"\x1b\[[0-9;]*m", "", colour), plain, "colour changes no character")

        def on_terminal(env, *options):
            ours, theirs = pty.openpty()
            self.assertEqual(run("chain", "show", chain, *options, stdout=theirs, env=env).code, 0)
            os.close(theirs)
            got = b""
            try:
                while piece := os.read(ours, 4096):
                    got += piece
            except OSError:  # Linux reports a closed terminal this way
                pass
            os.close(ours)
            return got.decode().replace("\r\n", "\n")

        self.assertEqual(on_terminal({"NO_COLOR": ""}), colour)
        self.assertEqual(on_terminal({"NO_COLOR": "1"}), plain)
        self.assertEqual(on_terminal({}, "--color", "never"), plain)

    def test_rows_fit_the_terminal(self):
        chain = self.make([{0, 1}, {62}])

        def on_terminal(columns):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            self.assertEqual(run("chain", "show", chain, "--color", "never", stdout=theirs).code, 0)
            os.close(theirs)
            got = b""
            try:
                while piece := os.read(ours, 4096):
                    got += piece
            except OSError:  # how Linux ends it
                pass
            os.close(ours)
            return got.decode().replace("\r\n", "\n")

        self.assertEqual(on_terminal(200), self.ok("chain", "show", chain))
        for columns, cells in ((103, 32), (80, 32), (72, 32), (71, 16), (56, 16), (55, 8), (48, 8), (10, 8)):
            text = on_terminal(columns)
            rows = self.rows(text)
            self.assertEqual({len(rows[name][2]) for name in ("s1", "s2")}, {cells}, columns)
            # No change is lost with the cells.
            self.assertEqual(rows["s1"][2], "#" + "." * (cells - 1) if cells == 32 else rows["s1"][2])
            self.assertTrue(rows["s1"][2][0] != "." and rows["s2"][2][-1] != ".", text)
            if columns >= 80:
                self.assertLessEqual(max(map(len, text.splitlines())), columns)

    def test_svg(self):
        chain, path = self.make([{0}, {10, 11}], volume=MARK), self.path("out.svg")
        self.ok("chain", "show", chain, "--svg", path)
        root = xml.etree.ElementTree.parse(path).getroot()
        space = {"s": "http://www.w3.org/2000/svg"}
        self.assertIn(MARK, [text.text for text in root.iterfind(".//s:text", space)])
        titles = [re.sub(r", \d{4}-\S+ \S+:", ":", title.text, count=1) for title in root.iterfind(".//s:title", space)]
        self.assertEqual(titles, [
            "s0 to s1: 4.0 KiB of 4.0 KiB at 0 B",
            "s1 to s2: 4.0 KiB of 4.0 KiB at 40.0 KiB",
            "s1 to s2: 4.0 KiB of 4.0 KiB at 44.0 KiB",
        ])

    def test_no_picture_of_a_damaged_chain(self):
        chain, path = self.make([{0}, {1}]), self.path("out.svg")
        name = sorted(n for n in os.listdir(chain) if n.startswith("map-"))[-1]
        with open(os.path.join(chain, name), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        self.assertNotEqual(run("chain", "show", chain, "--svg", path).code, 0)
        self.assertFalse(os.path.exists(path))

    def test_pictures_stay_out_of_the_chain(self):
        chain = self.make([{0}])
        self.fails(2, "chain", "show", chain, "--svg", os.path.join(chain, "CHAIN"))
        self.fails(2, "chain", "show", chain, "--rows", 0)
        self.fails(2, "chain", "show", self.path("none"))
        self.ok("chain", "verify", chain)


if __name__ == "__main__":
    support.main()
