"""Wrong usage, bad input and failing output: one line on stderr, the right exit status, and nothing
on stdout that looks like an answer.
"""

import os
import re
import signal
import subprocess
import time

import support


class Errors(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.base = self.write("base", b"a" * 10000)
        self.target = self.write("target", b"a" * 5000 + b"b" * 5000)

    def test_inputs_that_are_no_images(self):
        os.mkfifo(self.path("fifo"))
        os.symlink("nowhere", self.path("dangling"))
        for bad in ["missing", "missing/deep", "fifo", "dangling", ".", "base/x", "x" * 300]:
            path = self.path(bad)
            self.fails(2, "delta", path, self.target)
            self.fails(2, "delta", self.base, path)
            if bad != "fifo":  # a list may come from a pipe
                self.fails(2, "allocated", path)
            self.fails(2, "allocated", path, "--from", "image")
            self.fails(2, "apply", path, self.target, self.path("out"))
            self.fails(2, "apply", self.base, path, self.path("out"))
            self.assertFalse(os.path.exists(self.path("out")))
        self.fails(2, "delta", "", self.target)
        self.fails(2, "delta", "/dev/null", self.target)

    def test_forbidden_file(self):
        os.chmod(self.base, 0)
        options = {}
        if os.geteuid() == 0:  # root may read everything
            os.chmod(self.folder, 0o755)
            options["user"] = 65534
            try:
                support.run("--version", **options)
            except PermissionError:
                self.skipTest("another user cannot run the command where it is")
        self.assertIn("ermission", self.fails(2, "delta", self.base, self.target, **options))
        self.fails(2, "allocated", self.base, **options)

    def test_file_that_is_shorter_than_it_says(self):
        # Files of sysfs claim the size of a page and contain a line.
        liar = "/sys/kernel/mm/transparent_hugepage/enabled"
        if not os.path.exists(liar) or os.stat(liar).st_size < 4096:
            self.skipTest("no such file here")
        # Older than any other file, or a warning about the order comes first.
        os.utime(self.base, (0, 0))
        self.fails(3, "delta", self.base, liar)
        self.fails(3, "delta", liar, self.target)
        self.fails(3, "allocated", "--skip-zeros", liar)
        self.fails(3, "apply", self.base, liar, self.path("out"))
        self.fails(3, "apply", liar, self.target, self.path("out"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["base", "target"])

    def test_the_line_names_what_was_wrong(self):
        self.assertIn("missing", self.fails(2, "delta", self.path("missing"), self.target))
        self.assertIn("--block-size",
                      self.fails(2, "delta", self.base, self.target, "--block-size", "1000"))
        # File names may contain anything; the error stays on one line.
        self.fails(2, "delta", self.path("two\nlines\x1b[2J"), self.target)

    def test_block_sizes(self):
        bad = ["0", "1", "256", "1000", "128M", "-4096", "4096.0", "4k5", "", "x", "64KB", " 4096",
               "+4096", "18446744073709551616", "16777216T", "0x1000"]
        for size in bad:
            for command in (["delta", self.base, self.target], ["allocated", self.base],
                            ["apply", self.base, self.target, self.path("out")]):
                self.fails(2, *command, "--block-size", size)
        for size in ["512", "4K", "4KiB", "1M", "64M", "64MiB", "67108864"]:
            self.ok("delta", self.base, self.target, "--block-size", size)

    def test_starting_offsets(self):
        for command in (["delta", self.base, self.target], ["allocated", self.target]):
            for style in ["extents", "blocks"]:
                command = command + ["--style", style]
                text = self.ok(*command, "--starting-offset", "10000")
                self.assertEqual(support.parse_ndjson(text)[1:], (10000, []))
                for bad in ["10001", "-1", "-9223372036854775808", "9223372036854775807",
                            "9223372036854775808", "99999999999999999999", "1P", "", "x"]:
                    self.fails(2, *command, "--starting-offset", bad)
                command = command[:-2]

    def test_wrong_usage(self):
        pair = ["delta", self.base, self.target]
        for wrong in ([], ["frobnicate"], ["--frobnicate"], ["delta"], ["delta", self.base],
                      [*pair, self.base], [*pair, "--frobnicate"], [*pair, "-x"],
                      [*pair, "--format", "xml"], [*pair, "--format"], [*pair, "--style", "tiles"],
                      [*pair, "--max-results", "-1"], [*pair, "--max-results", "2147483648"],
                      [*pair, "--skip-zeros"], [*pair, "--block-size", "512", "--block-size", "1024"],
                      ["allocated"], ["apply", self.base, self.target],
                      ["apply", self.base, self.target, self.path("out"), "--style", "blocks"]):
            self.fails(2, *wrong)

    def test_every_subcommand_has_an_example(self):
        def subcommands(*names):
            text = self.ok(*names, "--help")
            if names:
                self.assertRegex(text, rf"Examples?:[^\0]*\n  .*\bcbt {' '.join(names)}\b", names)
            listed = re.search(r"\nSubcommands:\n((?:  .*\n)+)", text)
            found = re.findall(r"(?m)^  ([\w-]+)", listed[1]) if listed else []
            return 1 + sum(subcommands(*names, name) for name in found)

        self.assertGreaterEqual(subcommands(), 22)

    def test_help_has_an_example(self):
        self.assertIn("delta", self.ok("--help"))
        for subcommand in ["delta", "allocated", "apply"]:
            text = self.ok(subcommand, "--help")
            self.assertRegex(text, rf"(?s)Example.*\n  cbt {subcommand} ")

    def test_simd_request_that_cannot_be_honoured(self):
        for value in ["nonsense", "AVX2", "mmx"]:
            for command in (["delta", self.base, self.target], ["allocated", self.base],
                            ["--version"]):
                self.assertIn("CBT_SIMD", self.fails(2, *command, env={"CBT_SIMD": value}))

    def test_output_that_fails(self):
        commands = [["delta", self.base, self.target, "--format", form]
                    for form in ("ndjson", "json", "csv", "table")]
        commands += [["allocated", self.base], ["--version"], ["--help"], ["delta", "--help"],
                     ["apply", self.base, self.target, self.path("out")]]
        for command in commands:
            with open("/dev/full", "wb") as full:
                self.fails(3, *command, stdout=full)
            shell = 'exec "$@" >&-'
            done = subprocess.run(["sh", "-c", shell, "sh", support.CBT, *command],
                                  stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 3, command)
            self.assertRegex(done.stderr, rb"\Acbt: [^\n]+\n\Z")
        # A file opened meanwhile must not get stdout's descriptor.
        with open(self.path("out"), "rb") as out, open(self.target, "rb") as target:
            self.assertEqual(out.read(), target.read())

    def test_reader_that_goes_away(self):
        image = self.write("checkered", (b"x" * 512 + bytes(512)) * 20000)
        # An empty file is not an image unless its name or an option says so.
        command = [support.CBT, "delta", "/dev/stdin", image, "--from", "image"]
        command += ["--block-size", "512"]
        with open(self.write("empty", b""), "rb") as empty:
            child = subprocess.Popen(command, stdin=empty, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
        child.stdout.read(10)
        child.stdout.close()
        line = child.stderr.read()
        child.stderr.close()
        # As with `| head`: a reader that has seen enough is not a failure.
        self.assertEqual((child.wait(60), support.own(line.decode())), (0, ""))

    def test_table_only_on_a_terminal(self):
        text = self.ok("delta", self.base, self.target)
        self.assertTrue(text.startswith("{"))


class Apply(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.base = self.write("base", b"a" * 10000)
        self.target = self.write("target", b"a" * 5000 + b"b" * 7000)

    def contents(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_outputs_that_are_refused(self):
        os.mkfifo(self.path("fifo"))
        os.mkdir(self.path("folder"))
        os.link(self.base, self.path("hard"))
        os.symlink("target", self.path("soft"))
        os.symlink("nowhere", self.path("dangling"))
        before = sorted(os.listdir(self.folder))
        for out in ["base", "target", "hard", "soft", "folder", "fifo", "dangling", "missing/out",
                    "base/out", "./base", "new/"]:
            self.fails(2, "apply", self.base, self.target, self.path(out))
            self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.fails(2, "apply", self.base, self.target, "/dev/null")
        self.fails(2, "apply", self.base, self.target, "")
        for out in ("-", "/dev/stdout"):
            error = self.fails(2, "apply", self.base, self.target, out)
            self.assertIn(f"{out}: an image has no end marker", error)
        self.assertEqual(self.contents(self.base), b"a" * 10000)
        self.assertEqual(self.contents(self.target), b"a" * 5000 + b"b" * 7000)

    def test_failure_leaves_the_old_output(self):
        out = self.write("out", b"precious")
        # The limit allows a part of the base to be copied, not all of it.
        limit = 'ulimit -f 8; exec "$@"'
        done = subprocess.run(["bash", "-c", limit, "bash", support.CBT, "apply", self.base,
                               self.target, out], stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 3, done)
        self.assertRegex(support.own(done.stderr.decode()), r"\Acbt: apply: [^\n]+\n\Z")
        self.assertEqual(self.contents(out), b"precious")
        self.assertEqual(sorted(os.listdir(self.folder)), ["base", "out", "target"])

    def test_links_and_permissions_stay(self):
        out = self.write("out", b"old")
        os.chmod(out, 0o640)
        os.symlink("out", self.path("link"))
        self.ok("apply", self.base, self.target, self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.contents(out), self.contents(self.target))
        self.assertEqual(os.stat(out).st_mode & 0o777, 0o640)

    def test_relative_output(self):
        self.ok("apply", "base", "target", "out", cwd=self.folder)
        self.assertEqual(self.contents(self.path("out")), self.contents(self.target))

    def test_stays_sparse(self):
        for name, places in (("base", (0, 1 << 30)), ("target", (0, 3 << 30))):
            with open(self.path(name), "wb") as file:
                file.truncate(4 << 30)
                for place in places:
                    file.seek(place)
                    file.write(name.encode() * 1000)
        self.ok("apply", self.base, self.target, self.path("out"))
        self.ok("apply", self.target, self.path("out"), self.path("again"))
        for name in ("out", "again"):
            self.assertLess(os.stat(self.path(name)).st_blocks * 512, 1 << 20)
            self.assertEqual(os.stat(self.path(name)).st_size, 4 << 30)
        text = self.ok("delta", self.path("out"), self.target)
        self.assertEqual(support.parse_ndjson(text)[2], [])

    def test_signal_removes_the_temporary_file(self):
        # Large, so that the signal comes in the middle of copying.
        with open(self.path("base"), "wb") as file:
            for _ in range(300):
                file.write(os.urandom(1 << 20))
        out = self.write("out", b"precious")
        for number in (signal.SIGINT, signal.SIGTERM):
            child = subprocess.Popen([support.CBT, "apply", self.target, self.base, out],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            deadline = time.monotonic() + 30
            while child.poll() is None and time.monotonic() < deadline:
                if len(os.listdir(self.folder)) > 3:
                    break
            child.send_signal(number)
            child.stderr.read()
            child.stderr.close()
            code = child.wait(30)
            self.assertEqual(sorted(os.listdir(self.folder)), ["base", "out", "target"])
            if code == 0:  # it finished before the signal
                continue
            self.assertEqual(code, -number)
            self.assertEqual(self.contents(out), b"precious")


if __name__ == "__main__":
    support.main()
