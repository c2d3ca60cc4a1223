"""serve and list: the command as server and as client."""

import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest

import support
from support import parse_json, parse_ndjson

CHECKERED = (b"x" * 512 + bytes(512)) * 32768  # many tuples
MIB = 1 << 20
# Sanitizers make a stream of many messages ten times slower.
WHOLE_SECONDS = 600 if os.environ.get("CBT_TEST_SANITIZER") else 60


class ServeTest(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.root = self.path("root")
        os.makedirs(os.path.join(self.root, "vol1"))
        os.makedirs(os.path.join(self.root, "vol2"))
        self.address = f"unix://{self.path('sock')}"

    def image(self, name, data):
        return self.write(os.path.join("root", name), data)

    def start(self, *options, listen=None, **popen):
        return self.start_server("serve.log", "serve", "--root", self.root, "--listen",
                                 listen or self.address, *options, **popen)

    def stop(self, server, number=signal.SIGTERM):
        server.send_signal(number)
        self.assertEqual(server.wait(30), 0)


class Answers(ServeTest):
    def test_the_same_as_on_the_files(self):
        base = random.randbytes(300000)
        target = bytearray(base)
        for _ in range(30):
            place = random.randrange(len(target) - 100)
            target[place : place + 100] = random.randbytes(100)
        base, target = self.image("vol1/mon.img", base), self.image("vol1/tue.raw", bytes(target))
        pair = ["--base", "vol1/mon", "--snapshot", "vol1/tue"]
        for style in ["extents", "blocks"]:
            for block_size in [512, 4096, 65536]:
                decided = ["--style", style, "--block-size", block_size]
                server = self.start(*decided)
                for start in [0, 1, 4096, 299999, 300000, random.randrange(300001)]:
                    expected = self.ok("delta", base, target, *decided, "--starting-offset", start)
                    place = ["--starting-offset", start]
                    self.assertEqual(self.listed(self.address, *pair, *place), expected)
                    self.assertEqual(self.listed(self.address, *pair, *place, "--max-results",
                                             random.choice([1, 3, 1000])), expected)
                self.assertEqual(
                    self.listed(self.address, "--snapshot", "vol1/tue"),
                    self.ok("allocated", target, *decided))
                for form in ["json", "csv", "table"]:
                    self.assertEqual(
                        self.listed(self.address, *pair, "--format", form),
                        self.ok("delta", base, target, *decided, "--format", form))
                self.stop(server)

    def version_of(self, text):
        """The version of the data in the head of an answer, in any format; None without one."""
        found = re.search(r'"source_version":"([^"]+)"|(?m:^source_version,(.+)$)', text)
        return found and (found.group(1) or found.group(2))

    def test_ld_a_part_names_its_data_and_is_not_joined_with_another_ones(self):
        self.image("vol1/mon.img", bytes(300000))
        target = self.image("vol1/tue.img", b"t" * 300000)
        self.image("other", b"o" * 300000)
        server = self.start("--style", "blocks")
        pair = ["--base", "vol1/mon", "--snapshot", "vol1/tue"]
        versions = set()
        for form in (["ndjson"], ["json"], ["json", "--max-results", "7"], ["csv"]):
            text = self.ok("list", self.address, *pair, "--format", *form)
            heads = len(parse_json(text)[3]) if form[0] == "json" else 1
            for name, value in (("base", "vol1/mon"), ("snapshot", "vol1/tue")):
                expected = f"\n{name},{value}\n" if form[0] == "csv" else f'"{name}":"{value}"'
                self.assertEqual(text.count(expected), heads, text[:300])
            versions.add(self.version_of(text))
            self.assertIn("capacity", text.splitlines()[1 if form[0] == "csv" else 0])
        self.assertEqual(len(versions), 1, versions)
        version = versions.pop()
        # The first part of a script; the second one names the version that it continues.
        whole = self.ok("list", self.address, *pair, "--source-version", version)
        place = ["--starting-offset", 40 * 4096, "--source-version", version]
        rest = self.ok("list", self.address, *pair, *place)
        self.assertEqual(parse_ndjson(whole)[2], parse_ndjson(whole)[2][:40] + parse_ndjson(rest)[2])
        # Another snapshot, another base, and other data under the same name are refused.
        for options in ([*place[2:], "--snapshot", "vol1/mon"], ["--snapshot", "vol1/tue", *place]):
            self.assertIn("start again from 0", self.fails(3, "list", self.address, *options))
        os.rename(self.path("root/other"), target)
        for form in ("ndjson", "json", "csv", "table"):
            done = support.run("list", self.address, *pair, *place, "--format", form)
            self.assertEqual((done.code, done.stdout), (3, ""), done)
            self.assertIn("start again from 0", done.stderr)
        self.assertNotEqual(self.version_of(self.ok("list", self.address, *pair)), version)
        for options in (["--source-version", ""], ["--source-version", version, "--object"],
                        ["--source-version", version, "--fallback", "1M"]):
            self.fails(2, "list", self.address, *pair, *options)
        self.stop(server)

    @unittest.skipIf(shutil.which("qemu-nbd") is None, "not installed: qemu-nbd")
    def test_lc_what_is_known_by_its_address_alone_is_not_proven(self):
        image = self.image("vol1/.data", b"x" * 65536)
        place = self.path("nbd")
        with open(os.path.join(self.root, "vol1", "nbd.source"), "w", encoding="utf-8") as file:
            file.write(f"target tue\nfrom nbd\naddress nbd+unix:///?socket={place}\n")
        export = subprocess.Popen(["qemu-nbd", "-r", "-t", "-k", place, "-f", "raw", image],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(export.wait)
        self.addCleanup(export.kill)
        while not os.path.exists(place):
            self.assertIsNone(export.poll())
            time.sleep(0.01)
        server = self.start("--allow-source", place)
        relayed = self.start_server("relay.log", "relay", "--plugin", self.address, "--listen",
                                    f"unix://{self.path('relay')}", "--api", "csi")
        for address in (self.address, relayed.address):
            ask = ["list", address, "--snapshot", "vol1/tue"]
            text = self.ok(*ask)
            if "libnbd" in text:
                self.skipTest("built without libnbd")
            self.assertEqual(parse_ndjson(text)[2], [(0, 65536)])
            self.assertIsNone(self.version_of(text), text)
            done = support.run(*ask, "--prove")
            self.assertEqual((done.code, done.stdout), (2, ""), done)
            self.assertIn("serve an image file or a change map", done.stderr)
            # A version of another source is refused, too.
            self.fails(3, *ask, "--source-version", "0" * 32)
        self.stop(relayed)
        self.stop(server)

    def test_attack_q_sources_hold_no_thread_and_reach_nothing_outside(self):
        """A pipe named by a source blocked a thread of the service per stream: four streams blocked
        all of it.
        """
        self.image("vol1/mon.img", b"m" * 4096)
        self.image("vol1/tue.img", b"t" * 4096)
        pipe = os.path.join(self.root, "vol1", ".pipe")
        os.mkfifo(pipe)
        writer = os.open(pipe, os.O_RDWR)
        self.addCleanup(os.close, writer)
        outside = self.path("list.json")
        with open(outside, "w", encoding="utf-8") as file:
            file.write('[{"offset": 0, "length": 4096, "exists": "true"}]')
        os.mkdir(self.path("run"))
        servers = socket.socket(socket.AF_UNIX)
        self.addCleanup(servers.close)
        servers.bind(self.path("run/nbd"))
        servers.listen()
        for name, address, form in (("pipe", ".pipe", "from rbd-json\ncapacity 4096\n"),
                                    ("list", outside, "from rbd-json\ncapacity 4096\n"),
                                    ("nbd", "nbd+unix:///?socket=" + self.path("run/nbd"), "from nbd:depth=1\n")):
            with open(os.path.join(self.root, "vol1", name + ".source"), "w", encoding="utf-8") as file:
                file.write(f"base {name}0\ntarget {name}1\n{form}address {address}\n")

        def ask(name):
            return ("list", self.address, "--base", f"vol1/{name}0", "--snapshot", f"vol1/{name}1")

        server = self.start()
        for _ in range(40):
            self.assertIn("neither a regular file nor a block device", self.fails(2, *ask("pipe")))
        self.assertIn("--allow-source", self.fails(2, *ask("list")))
        self.assertIn("--allow-source", self.fails(2, *ask("nbd")))
        servers.setblocking(False)
        self.assertRaises(BlockingIOError, servers.accept)
        self.ok("list", self.address, "--base", "vol1/mon", "--snapshot", "vol1/tue")
        self.stop(server)
        # Once allowed, the list is read and the server is contacted; this one does not answer.
        server = self.start("--allow-source", outside, "--allow-source", self.path("run"), "--source-time", "0.2")
        self.assertEqual(parse_ndjson(self.ok(*ask("list"), "--format", "ndjson"))[2], [(0, 4096)])
        done = support.run(*ask("nbd"))
        self.assertNotIn("--allow-source", done.stderr)
        if "libnbd" not in done.stderr:
            self.assertEqual(done.code, 3, done)
            servers.accept()[0].close()
        self.stop(server)
        for options in (["--allow-source", "relative"], ["--source-time", "0"]):
            self.fails(2, "serve", "--root", self.root, "--listen", self.address, *options)

    def test_sg_a_source_that_is_being_read_does_not_hold_the_server(self):
        """After its client had left, and after SIGTERM, the server read on for --source-time, ten minutes."""
        with open(os.path.join(self.root, "vol1", ".sparse"), "wb") as file:
            file.write(b"rbd diff v2\nf" + (5).to_bytes(8, "little") + (1).to_bytes(4, "little") + b"a")
            file.truncate(8 << 40)  # empty records without end
        with open(os.path.join(self.root, "vol1", "x.source"), "w", encoding="utf-8") as file:
            file.write("base a\ntarget b\nfrom rbd-diff\naddress .sparse\n")
        for leaves in (False, True):
            server = self.start("--grace", "0.3")
            client = subprocess.Popen([support.CBT, "list", self.address, "--base", "vol1/a", "--snapshot", "vol1/b",
                                       "--retry-for", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.addCleanup(client.stderr.close)
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)

            def busy():  # in clock ticks
                with open(f"/proc/{server.pid}/stat", encoding="ascii") as file:
                    return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

            begin = busy()
            while busy() < begin + 20:  # it reads
                time.sleep(0.05)
            if leaves:
                client.kill()
            begin = time.monotonic()
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(60), 0)
            self.assertLess(time.monotonic() - begin, 10)

    def test_translation_on_the_client(self):
        base = self.image("vol1/a.img", bytes(4096))
        target = self.image("vol1/b.img", bytes(5000) + b"x" * 20000 + bytes(10000) + b"x")
        pair = ["--base", "vol1/a", "--snapshot", "vol1/b"]
        for style in ["extents", "blocks"]:
            server = self.start("--style", style, "--block-size", 512)
            for wanted in (["--style", "blocks", "--block-size", "512"],
                           ["--style", "blocks"],
                           ["--style", "blocks", "--block-size", "8K"],
                           ["--style", "extents", "--block-size", "8K"]):
                self.assertEqual(self.listed(self.address, *pair, *wanted),
                                 self.ok("delta", base, target, *wanted))
            # Only the requested size changes: the granularity stays the server's.
            self.assertEqual(
                self.listed(self.address, *pair, "--style", "extents"),
                self.ok("delta", base, target, "--block-size", "512"))
            # The style stays too if only the block size is given.
            self.assertEqual(
                self.listed(self.address, *pair, "--block-size", "8K"),
                self.ok("delta", base, target, "--style", style, "--block-size", "8K"))
            self.stop(server)

    def test_many_tuples(self):
        base, target = self.image("vol1/a.img", bytes(4096)), self.image("vol1/b.img", CHECKERED)
        self.start("--block-size", 512)
        pair = ["--base", "vol1/a", "--snapshot", "vol1/b"]
        expected = self.ok("delta", base, target, "--block-size", 512)
        self.assertEqual(self.listed(self.address, *pair), expected)
        groups = parse_json(self.ok("list", self.address, *pair, "--format", "json",
                                    "--max-results", 1000))
        self.assertEqual(groups[:3], parse_ndjson(expected))
        self.assertEqual(set(groups[3][:-1]), {1000})
        # The rest of a stream that its reader cut.
        lines = expected.splitlines()
        offset, size = parse_ndjson(expected)[2][5000]
        rest = self.listed(self.address, *pair, "--starting-offset", offset + size)
        rest = rest.splitlines()
        self.assertEqual(rest[:-1], [lines[0], *lines[5002:-1]])
        self.assertEqual(json.loads(rest[-1])["starting_offset"], offset + size)

    def test_ids(self):
        self.image("vol1/mon.img", b"x" * 5000)
        self.image("vol2/mon.img", b"x" * 5000)
        self.image("top.img", b"x" * 5000)
        self.image("vol1/soon.partial", b"x" * 5000)
        self.image("vol1/twice.img", b"x")
        self.image("vol1/twice.raw", b"x")
        self.image("vol1/.hidden.img", b"x")
        outside = self.write("outside.img", b"secret")
        os.symlink(outside, os.path.join(self.root, "vol1/out.img"))
        os.symlink("../outside.img", os.path.join(self.root, "up.img"))
        os.symlink(self.folder, os.path.join(self.root, "away"))
        os.symlink("mon.img", os.path.join(self.root, "vol1/link.img"))
        os.symlink("vol1", os.path.join(self.root, "alias"))
        self.start()
        for good in ["vol1/mon", "top", "vol1/link", "vol2/mon"]:
            text = self.ok("list", self.address, "--snapshot", good)
            self.assertEqual(parse_ndjson(text)[1], 5000, good)
        for bad in ["", "vol1", "vol1/", "vol1/tue", "vol1/mon.img", "/vol1/mon", "vol1//mon",
                    "./vol1/mon", "vol1/./mon", "vol1/../vol1/mon", "../outside", "..", ".",
                    "../../etc/passwd", "/etc/passwd", "vol1/out", "up", "away/outside",
                    "vol1/twice", "vol1/.hidden", "x" * 5000, "vol1/" + "x/" * 500, "a\nb"]:
            line = self.fails(2, "list", self.address, "--snapshot", bad)
            self.assertNotIn("secret", line)
            self.assertNotIn(self.folder, line)
            self.fails(2, "list", self.address, "--snapshot", "vol1/mon", "--base", bad)
        self.fails(2, "list", self.address, "--snapshot", "vol1/mon", "--base", "vol2/mon")
        self.fails(2, "list", self.address, "--snapshot", "vol1/mon", "--base", "top")
        self.fails(3, "list", self.address, "--snapshot", "vol1/soon")
        self.fails(2, "list", self.address, "--snapshot", "vol1/mon", "--starting-offset", 5001)
        for wrong in (["--starting-offset", "-1"], ["--max-results", "-1"], ["--block-size", "3"],
                      ["--timeout", "-1"], ["--timeout", "soon"], ["--tls-cert", self.path("x")],
                      ["--tls-ca", self.path("missing")], ["--format", "xml"], ["--frobnicate"]):
            self.fails(2, "list", self.address, "--snapshot", "vol1/mon", *wrong)
        self.fails(2, "list", self.address)
        self.fails(2, "list", "--snapshot", "vol1/mon")
        self.fails(2, "list", self.address, "--snapshot", "vol1/mon", env={"CBT_SIMD": "fast"})
        with open("/dev/full", "wb") as full:
            self.fails(3, "list", self.address, "--snapshot", "vol1/mon", stdout=full)

    def test_secrets_come_from_a_file_and_stay_there(self):
        self.image("vol1/mon.img", b"x" * 5000)
        self.start()
        listing = ["list", self.address, "--snapshot", "vol1/mon", "--secrets-file"]
        good = self.write("good", b"user=me\n\npassword=a=b\r\n")
        self.ok(*listing, good)
        for bad in [b"swordfish\n", b"=swordfish\n", b"a=1\nb=swordfish\na=swordfish\n",
                    b"a=" + b"swordfish" * 200000]:
            self.assertNotIn("swordfish", self.fails(2, *listing, self.write("bad", bad)))
        self.fails(2, *listing, self.path("missing"))


class Lifetime(ServeTest):
    def setUp(self):
        super().setUp()
        self.base = self.image("vol1/a.img", bytes(4096))
        self.target = self.image("vol1/b.img", b"x" * 5000)

    def test_tells_when_it_is_up(self):
        server = self.start(listen="127.0.0.1:0")
        self.assertRegex(server.address, r"\A127\.0\.0\.1:[1-9][0-9]*\Z")
        with open(self.path("serve.log"), encoding="utf-8") as log:
            self.assertEqual(log.read(), f"cbt: serving {self.root} on {server.address}\n")
        self.ok("list", server.address, "--snapshot", "vol1/a")
        self.fails(2, "serve", "--root", self.root, "--listen", server.address)
        self.stop(server)
        self.fails(3, "list", server.address, "--snapshot", "vol1/a")

    def test_socket_file(self):
        path = self.path("sock")
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        server = self.start()
        mode = os.stat(path).st_mode
        self.assertTrue(stat.S_ISSOCK(mode))
        self.assertEqual(stat.S_IMODE(mode), 0o660)
        self.fails(2, "serve", "--root", self.root, "--listen", self.address)
        self.ok("list", self.address, "--snapshot", "vol1/a")
        # Killed, it leaves a stale socket.
        server.kill()
        server.wait()
        self.assertTrue(os.path.exists(path))
        self.fails(3, "list", self.address, "--snapshot", "vol1/a")
        server = self.start()
        self.ok("list", self.address, "--snapshot", "vol1/a")
        self.stop(server)
        self.assertFalse(os.path.exists(path))
        self.fails(3, "list", self.address, "--snapshot", "vol1/a")

    def test_what_is_no_socket_is_left_alone(self):
        for name, make in (("file", lambda path: self.write("file", b"precious")),
                           ("folder", os.mkdir), ("fifo", os.mkfifo)):
            make(self.path(name))
            self.fails(2, "serve", "--root", self.root, "--listen", f"unix://{self.path(name)}")
        with open(self.path("file"), "rb") as file:
            self.assertEqual(file.read(), b"precious")
        self.assertTrue(os.path.isdir(self.path("folder")))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))

    def test_wrong_usage(self):
        good = {"--root": self.root, "--listen": self.address}

        def serve(*more, **changed):
            options = dict(good, **{f"--{key}": value for key, value in changed.items()})
            flat = [word for pair in options.items() if pair[1] is not None for word in pair]
            return self.fails(2, "serve", *flat, *more)

        serve(root=None)
        serve(listen=None)
        serve(root=self.path("missing"))
        serve(root=self.target)
        for listen in ["", "nonsense", "unix://", "127.0.0.1", "127.0.0.1:99999", ":x",
                       f"unix://{self.path('x' * 200)}", "ftp://127.0.0.1:1"]:
            serve(listen=listen)
        for more in (["--block-size", "1000"], ["--style", "tiles"], ["--grace", "-1"],
                     ["--ready-fd", "77"], ["--ready-fd", "-1"], ["--ready-fd", "x"],
                     ["--tls-cert", self.base], ["--tls-key", self.base],
                     ["--tls-client-ca", self.base], ["--plugin-name", "no name!"],
                     ["--tls-cert", self.path("no"), "--tls-key", self.path("no")],
                     ["--max-results", "5"]):
            serve(*more)
        self.fails(2, "serve", "--root", self.root, "--listen", self.address,
                   env={"CBT_SIMD": "fast"})
        for subcommand in ["serve", "list"]:
            self.assertRegex(self.ok(subcommand, "--help"), rf"(?s)Example.*\n  cbt {subcommand} ")

    def test_signals_without_streams(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.start("--grace", 60)
            begin = time.monotonic()
            self.stop(server, number)
            self.assertLess(time.monotonic() - begin, 10)
        # As shells start background jobs.
        server = self.start(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.stop(server, signal.SIGINT)


class OpenStreams(ServeTest):
    """What happens to a stream halfway: its reader has stopped, and the rest is larger than all
    buffers between it and the server.
    """

    OPTIONS = ["--style", "blocks", "--block-size", "512"]

    def setUp(self):
        super().setUp()
        self.base = self.image("vol1/a.img", bytes(4096))
        self.target = os.path.join(self.root, "vol1/b.img")
        with open(self.target, "wb") as file:
            for _ in range(128):
                file.write(b"x" * MIB)

    def hold(self):
        """A `list` that has printed its first byte."""
        # Few tuples per message need more bytes of buffers.
        client = subprocess.Popen([support.CBT, "list", self.address, "--base", "vol1/a",
                                   "--snapshot", "vol1/b", "--max-results", "2",
                                   "--retry-for", "2"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, bufsize=0)
        for action in (client.stderr.close, client.stdout.close, client.wait, client.kill):
            self.addCleanup(action)
        client.first = client.stdout.read(1)
        self.assertEqual(client.first, b"{")
        return client

    def finish(self, client):
        """(stdout, stderr) of a client that may run to its end."""
        stdout, stderr = client.communicate(timeout=WHOLE_SECONDS)
        return (client.first + stdout).decode(), stderr.decode()

    def check_broken(self, client):
        self.check_error(client, *self.finish(client))

    def check_error(self, client, text, stderr):
        self.assertEqual(client.returncode, 3, stderr)
        self.assertRegex(text.splitlines()[-1], r'\A\{"error":".*"\}\Z')
        self.assertRegex(stderr.splitlines()[-1], r"\Acbt: list: [^\n]+\Z")

    def check_whole(self, client, stderr_pattern):
        text, stderr = self.finish(client)
        self.assertEqual(client.returncode, 0, stderr)
        self.assertRegex(stderr, stderr_pattern)
        # Not assertEqual: its message would contain everything.
        expected = self.ok("delta", self.base, self.target, *self.OPTIONS)
        self.assertTrue(support.without_source(text) == expected, "the streams differ")

    def test_drain_lets_them_end(self):
        server = self.start(*self.OPTIONS, "--grace", WHOLE_SECONDS)
        client = self.hold()
        server.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertIsNone(server.poll())
        self.fails(3, "list", self.address, "--snapshot", "vol1/a")
        self.check_whole(client, r"\A\Z")
        self.assertEqual(server.wait(30), 0)

    def test_za_hangup_drains(self):
        server = self.start(*self.OPTIONS, "--grace", WHOLE_SECONDS)
        client = self.hold()
        server.send_signal(signal.SIGHUP)
        self.check_whole(client, r"\A\Z")
        self.assertEqual(server.wait(30), 0)

    def test_za_hangup_is_ignored_under_nohup(self):
        server = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        server.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(server.poll())
        self.ok("list", self.address, "--snapshot", "vol1/a")
        self.stop(server)

    def test_drain_ends_them_after_the_grace(self):
        server = self.start(*self.OPTIONS, "--grace", "0.3")
        client = self.hold()
        self.stop(server)
        self.check_broken(client)

    def test_second_signal_does_not_wait(self):
        server = self.start(*self.OPTIONS, "--grace", 60)
        self.hold()
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGTERM)  # at once: a repetition of the first
        time.sleep(0.5)
        self.assertIsNone(server.poll())
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(10), 3)

    def test_client_goes_on_at_a_new_server(self):
        server = self.start(*self.OPTIONS)
        client = self.hold()
        server.kill()
        server.wait()
        self.start(*self.OPTIONS)
        self.check_whole(client, r"\A(cbt: list: warning: [^\n]+\n)+\Z")

    def test_reader_that_goes_away(self):
        server = self.start(*self.OPTIONS)
        client = self.hold()
        client.stdout.close()
        self.assertEqual(client.wait(30), 0)
        self.assertEqual(support.own(client.stderr.read().decode()), "")
        self.stop(server)

    def test_image_that_gets_shorter(self):
        # Every second block, so that output starts while much is left to compare.
        with open(self.target, "wb") as file:
            for _ in range(128):
                file.write((b"x" * 512 + bytes(512)) * (MIB // 1024))
        expected = self.ok("delta", self.base, self.target, *self.OPTIONS)
        self.start(*self.OPTIONS)
        client = self.hold()
        os.truncate(self.target, 96 * MIB)
        text, stderr = self.finish(client)
        if client.returncode == 0:
            # The server had read all of it before.
            self.assertTrue(support.without_source(text) == expected, "short, but looks whole")
            return
        self.check_error(client, text, stderr)


class Connections(ServeTest):
    def test_nobody_there(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.fails(3, "list", f"127.0.0.1:{unused.getsockname()[1]}", "--snapshot", "a")
        self.fails(3, "list", f"unix://{self.path('nothing')}", "--snapshot", "a")
        for address in ["", "nonsense", "unix://"]:
            self.fails(2, "list", address, "--snapshot", "a")

    def test_somebody_silent(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            begin = time.monotonic()
            self.fails(3, "list", f"127.0.0.1:{silent.getsockname()[1]}", "--snapshot", "a",
                       "--timeout", "0.5")
            self.assertLess(time.monotonic() - begin, 10)

    def test_somebody_else(self):
        def answer(listener):
            with listener.accept()[0] as peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 400 \x1b[31mNo\r\nContent-Length: 0\r\n\r\n")

        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            thread = threading.Thread(target=answer, args=[other], daemon=True)
            thread.start()
            self.fails(3, "list", f"127.0.0.1:{other.getsockname()[1]}", "--snapshot", "a",
                       "--timeout", "5")

    def certificate(self, name, authority=None):
        """Makes NAME.pem and NAME.key, signed by that authority or by itself."""
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                   "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                   "-keyout", self.path(name + ".key"), "-out", self.path(name + ".pem")]
        if authority:
            request += ["-CA", self.path(authority + ".pem"), "-CAkey",
                        self.path(authority + ".key")]
        done = subprocess.run(request, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              check=False)
        if done.returncode != 0:
            self.skipTest(f"openssl can't: {done.stderr[-200:]}")

    def test_tls(self):
        if shutil.which("openssl") is None:
            self.skipTest("no openssl here")
        self.image("vol1/a.img", b"x" * 5000)
        for name, authority in (("ca", None), ("server", "ca"), ("client", "ca"), ("other", None)):
            self.certificate(name, authority)
        pem = {name: self.path(name + ".pem") for name in ("ca", "server", "client", "other")}
        key = {name: self.path(name + ".key") for name in pem}
        listing = ["--snapshot", "vol1/a", "--timeout", "10"]
        identity = ["--tls-cert", pem["server"], "--tls-key", key["server"]]

        server = self.start(*identity, listen="127.0.0.1:0")
        self.ok("list", server.address, *listing, "--tls-ca", pem["ca"])
        self.fails(3, "list", server.address, *listing, "--tls-ca", pem["other"])
        self.fails(3, "list", server.address, *listing, "--tls")
        self.fails(3, "list", server.address, *listing)
        self.stop(server)

        server = self.start(*identity, "--tls-client-ca", pem["ca"], listen="127.0.0.1:0")
        trust = ["--tls-ca", pem["ca"]]
        self.ok("list", server.address, *listing, *trust, "--tls-cert", pem["client"], "--tls-key",
                key["client"])
        self.fails(3, "list", server.address, *listing, *trust)
        self.fails(3, "list", server.address, *listing, *trust, "--tls-cert", pem["other"],
                   "--tls-key", key["other"])
        self.stop(server)
        self.fails(2, "serve", "--root", self.root, "--listen", "127.0.0.1:0", "--tls-cert",
                   pem["server"], "--tls-key", pem["server"])


if __name__ == "__main__":
    support.main()
