"""serve with every contract, relay, verify, conform, token: the command between services."""

import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import stat
import subprocess
import threading
import time
import urllib.request

import support
from support import parse_ndjson

MIB = 1 << 20


class ServicesTest(support.CbtTest):
    """Two snapshots of a volume in namespace ns, served by a server and a relay of all
    contracts.
    """

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("root/ns"))
        data = bytearray(random.randbytes(2 * MIB + 1000))
        self.base = self.write("root/ns/mon.img", bytes(data))
        for _ in range(40):
            data[random.randrange(len(data))] ^= 1
        self.target = self.write("root/ns/tue.img", bytes(data))
        self.data = bytes(data)
        token, session = (self.ok("token").strip() for _ in range(2))
        self.token, self.session = token, session
        self.file("tokens", f"# who may ask\n{token} operator ns\n")
        self.file("sessions", f"{session} ns mon,tue -\n")
        self.file("token", token + "\n")
        self.file("session", session + "\n")
        self.file("secrets", "user=canary-user\n")
        self.all = ["--api", "csi,kubernetes,session,paged", "--tokens", self.path("tokens"),
                    "--sessions", self.path("sessions"), "--storage-secrets", self.path("secrets"),
                    "--log-level", "debug"]

    def log(self):
        with open(self.path("log"), encoding="utf-8") as file:
            return file.read()

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, *command):
        return self.start_server("log", *command)

    def serve(self, *options):
        return self.start("serve", "--root", self.path("root"), "--listen",
                          f"unix://{self.path('plugin')}", *self.all, *options)

    def relay(self, plugin, *options):
        return self.start("relay", "--plugin", plugin.address, "--listen",
                          f"unix://{self.path('relay')}", *self.all, *options)

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)

    def pair(self, api, delta=True):
        """The options that name the pair in a contract."""
        named = api in ("kubernetes", "session")
        options = ["--api", api, "--snapshot", "tue" if named else "ns/tue"]
        if delta:
            options += ["--base", "mon" if api == "session" else "ns/mon"]
        if api == "kubernetes":
            options += ["--token-file", self.path("token"), "--namespace", "ns"]
        if api == "session":
            options += ["--token-file", self.path("session")]
        return options


class Contracts(ServicesTest):
    def test_one_answer_through_every_contract_and_the_relay(self):
        server = self.serve()
        relay = self.relay(server)
        for delta in [True, False]:
            expected = self.ok(*(["delta", self.base] if delta else ["allocated"]), self.target)
            for address in [server.address, relay.address]:
                for api in ["csi", "kubernetes", "session", "paged"]:
                    pair = self.pair(api, delta)
                    self.assertEqual(self.listed(address, *pair), expected, (address, api))
                    self.assertEqual(self.listed(address, *pair, "--max-results", 3), expected)
                    if api != "paged":
                        self.ok("list", address, *pair, "--prove")
        # Pages carry no proof.
        result = support.run("list", server.address, *self.pair("paged"), "--prove")
        self.assertEqual(result.code, 2, result)
        self.assertIn("no proof", result.stderr)
        # An unproven answer does not become a map, nor does part of a volume.
        for options in [[*self.pair("paged"), "--prove"], [*self.pair("csi"), "--length", "4096"]]:
            self.fails(2, "list", server.address, *options, "--output", self.path("no.cbm"))
            self.assertFalse(os.path.exists(self.path("no.cbm")))
        self.ok("list", server.address, *self.pair("csi"), "--prove", "--output",
                self.path("proven.cbm"))
        self.stop(relay)
        self.stop(server)
        log = self.log()
        self.assertIn('event="stream closed"', log)
        for secret in [self.token, self.session, "canary"]:
            self.assertNotIn(secret, log)

    def test_who_may_not_ask(self):
        server = self.serve()
        relay = self.relay(server)
        self.file("token", self.session)
        for address in [server.address, relay.address]:
            line = self.fails(2, "list", address, *self.pair("kubernetes"))
            other = self.pair("kubernetes")
            other[other.index("--snapshot") + 1] = "missing"
            self.assertEqual(self.fails(2, "list", address, *other), line)
            self.assertNotIn(self.session, line)
        # The files are read again.
        self.file("tokens", f"{self.session} operator *\n")
        deadline = time.monotonic() + 20
        while support.run("list", relay.address, *self.pair("kubernetes")).code != 0:
            self.assertLess(time.monotonic(), deadline)
        self.fails(2, "list", server.address, "--api", "kubernetes", "--snapshot", "tue")
        self.fails(2, "list", server.address, "--api", "session", "--snapshot", "tue")

    def test_names_from_a_file(self):
        self.file("names", "prod monday ns/mon\nprod tuesday ns/tue\nprod later -\n")
        self.file("tokens", f"{self.token} operator prod\n")
        server = self.serve("--snapshots", self.path("names"), "--base-is-name")
        ask = ["list", server.address, "--api", "kubernetes", "--token-file", self.path("token"),
               "--namespace", "prod"]
        self.assertEqual(
            support.without_source(self.ok(*ask, "--snapshot", "tuesday", "--base", "monday")),
            self.ok("delta", self.base, self.target))
        self.fails(3, *ask, "--snapshot", "later")
        self.fails(2, *ask, "--snapshot", "ns/tue")

    def test_relay_before_a_plugin_that_comes_later(self):
        relay = self.start("relay", "--plugin", f"unix://{self.path('plugin')}", "--listen",
                           f"unix://{self.path('relay')}", "--tokens", self.path("tokens"))
        # Without options of a log too, the reason is where the relay's operator looks.
        line = self.fails(3, "list", relay.address, *self.pair("kubernetes"), "--retry-for", "0")
        number = re.search(r"\(error (\w+) in the relay's log\)", line)[1]
        record = next(record for record in self.log().splitlines() if number in record)
        self.assertIn("can't connect to unix://", record)
        self.assertIn("No such file", record)
        self.assertNotIn("stream closed", self.log())
        self.assertIn("--api csi", self.fails(3, "list", relay.address, *self.pair("csi")))
        server = self.serve()
        deadline = time.monotonic() + 20
        while support.run("list", relay.address, *self.pair("kubernetes")).code != 0:
            self.assertLess(time.monotonic(), deadline)
        self.stop(server)
        self.stop(relay)

    def test_what_time_seldom_mends_is_not_waited_for_long(self):
        def answer_as_http_1(listener):
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=answer_as_http_1, args=(listener,), daemon=True)
            thread.start()
            for address, why in ((f"127.0.0.1:{listener.getsockname()[1]}", "HTTP/2"), ("no..where:1", "can't connect to no..where:1: ")):
                began = time.monotonic()
                result = support.run("list", address, "--snapshot", "s", "--retry-for", "300")
                self.assertEqual(result.code, 3, result)
                self.assertIn(why, result.stderr)
                self.assertIn("trying again after", result.stderr)
                self.assertLess(time.monotonic() - began, 100)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()

    def test_ff_a_mistyped_socket_is_named_at_once(self):
        """What may still come is waited for, and the first attempt says so."""
        address = f"unix://{self.path('mistyped')}"
        waiting = subprocess.Popen([support.CBT, "list", address, "--snapshot", "s"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        try:
            line = waiting.stderr.readline()
            self.assertIsNone(waiting.poll())
        finally:
            waiting.kill()
            waiting.wait()
            waiting.stderr.close()
        for words in (f"can't connect to {address}: No such file", "for at most 300 s", "--retry-for"):
            self.assertIn(words, line)
        # What can't come is not waited for, whatever the time.
        with open(self.path("file"), "wb"):
            pass
        for path, why in (("no/folder", "its directory does not exist"),
                          ("file", "the file is not a socket")):
            began = time.monotonic()
            result = support.run("list", f"unix://{self.path(path)}", "--snapshot", "s",
                                 "--retry-for", "300")
            self.assertEqual(result.code, 3, result)
            self.assertIn(why, result.stderr)
            self.assertLess(time.monotonic() - began, 100)

    def test_ff_conform_stops_where_the_server_has_ended(self):
        server = self.serve()
        checker = subprocess.Popen([support.CBT, "conform", server.address, *self.pair("csi"), "--json"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        rules = []
        for line in checker.stdout:
            rules.append(json.loads(line))
            if len(rules) == 1:
                server.kill()
        checker.stdout.close()
        self.assertEqual(checker.wait(), 1)
        self.assertEqual((rules[-1]["id"], rules[-1]["result"]), ("stays-up", "fail"))
        self.assertIn(f'"{rules[-2]["id"]}"', rules[-1]["evidence"])

    def test_metrics(self):
        server = self.serve("--metrics", "127.0.0.1:0")
        url = re.search(r"metrics on (http://127.0.0.1:[1-9]\d*/metrics)\n", self.log())[1]
        self.ok("list", server.address, *self.pair("csi"))
        with urllib.request.urlopen(url) as page:
            text = page.read().decode()
        self.assertIn('cbt_streams_total{api="csi",code="OK",method="delta"} 1', text)
        self.assertNotIn("tue", text)

    def test_limits_of_connections(self):
        """Each option reaches the server: its log shows it."""
        for command in ("serve", "relay"):
            shown = self.ok(command, "--help")
            for option in ("--max-connections", "--memory", "--handshake-time", "--idle-time",
                           "--connection-age", "--max-streams", "--stall-time", "--stream-time"):
                self.assertIn(option, shown)
        for options, event in ((["--max-connections", "1"], "connection_replaced"),
                               (["--memory", "1"], "connection_replaced"),
                               (["--handshake-time", "0.05"], "handshake_failed"),
                               (["--idle-time", "0.05"], "connection_idle"),
                               (["--connection-age", "0.05"], "connection_aged")):
            server = self.serve(*options)
            with contextlib.ExitStack() as stack:
                for _ in range(2):
                    client = stack.enter_context(socket.socket(socket.AF_UNIX))
                    client.connect(self.path("plugin"))
                    if event != "handshake_failed":
                        # The preface and SETTINGS. A full server may have closed the connection.
                        with contextlib.suppress(OSError):
                            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                limit = time.monotonic() + 20
                while event not in self.log() and time.monotonic() < limit:
                    time.sleep(0.01)
                self.assertIn(f"what={event}", self.log())
            self.stop(server)

    def test_wrong_options(self):
        serve = ["serve", "--root", self.path("root"), "--listen", f"unix://{self.path('s')}"]
        for options in (["--api", "soap"], ["--api", "csi,csi"], ["--api", "kubernetes"],
                        ["--api", "session"], ["--tokens", self.path("missing")],
                        ["--tokens", self.file("bad", "one-word\n")],
                        ["--page-key", self.file("short", "x")], ["--log-level", "loud"],
                        ["--metrics", "nowhere"], ["--stream-time", "never"],
                        ["--max-connections", "0"], ["--max-connections", "many"],
                        ["--memory", "0"], ["--memory", "lots"], ["--handshake-time", "never"],
                        ["--idle-time", "-1"], ["--connection-age", "old"]):
            line = self.fails(2, *serve, *options)
            self.assertIn(options[0].strip("-"), line)
        self.fails(2, "relay", "--listen", f"unix://{self.path('s')}", "--plugin", "nowhere",
                   "--tokens", self.path("tokens"))


class Process(ServicesTest):
    """Behaviour of the process, the same for serve and relay."""

    def test_as_many_descriptors_as_may_be(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        try:
            server = self.serve()
            relay = self.relay(server)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if hard <= 256:
            self.skipTest("there is nothing to raise")
        for process in [server, relay]:
            self.assertEqual(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), (hard, hard))

    def wait_until(self, what):
        end = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), end, self.log())
            time.sleep(0.01)

    def test_sg_a_drain_ends_a_read_that_never_gets_an_answer(self):
        if "libnbd" not in self.ok("--version"):
            self.skipTest("built without libnbd")
        # A storage server that accepts connections and stays silent.
        storage = socket.socket(socket.AF_UNIX)
        self.addCleanup(storage.close)
        storage.bind(self.path("storage"))
        storage.listen()
        storage.settimeout(60)
        self.file("root/ns/late.source", f"target late\nfrom nbd:timeout=600\naddress nbd+unix:///?socket={self.path('storage')}\n")
        server = self.serve("--grace", "0.1", "--allow-source", self.path("storage"))
        client = subprocess.Popen(
            [support.CBT, "list", server.address, "--api", "csi", "--snapshot", "ns/late"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        self.addCleanup(storage.accept()[0].close)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0, self.log())
        self.assertNotIn("second signal", self.log())

    def test_second_signal_ends_a_drain(self):
        os.makedirs(self.path("root/big"))
        for name in "ab":
            with open(self.path(f"root/big/{name}.img"), "wb") as file:
                for _ in range(128):
                    file.write(name.encode() * (1 << 20))
        server = self.serve("--grace", "600", "--style", "blocks", "--block-size", "512")
        # A client that reads one byte of it.
        client = subprocess.Popen(
            [support.CBT, "list", server.address, "--api", "csi", "--base", "big/a", "--snapshot",
             "big/b", "--max-results", "2"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        for action in (client.stdout.close, client.wait, client.kill):
            self.addCleanup(action)
        self.assertEqual(client.stdout.read(1), b"{")
        server.send_signal(signal.SIGTERM)
        # A second signal at once counts as a repetition of the first.
        time.sleep(2)
        self.assertIsNone(server.poll())
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 3, self.log())
        self.assertIn("\ncbt: serve: second signal: cancelling open streams\n", self.log())


class Pages(ServicesTest):
    def test_objects(self):
        server = self.serve()
        changed = parse_ndjson(self.ok("delta", self.base, self.target, "--style", "blocks"))[2]
        blocks = [offset // 4096 for offset, _ in changed]
        got, start = [], 0
        while True:
            thing = json.loads(self.ok("list", server.address, *self.pair("csi"), "--object",
                                       "--limit", 7, "--starting-offset", start * 4096))
            self.assertEqual(thing["kind"], "VolumeSnapshotDelta")
            self.assertEqual(thing["apiVersion"], "cbt.storage.k8s.io/v1alpha1")
            self.assertEqual(thing["spec"]["baseVolumeSnapshotName"], "ns/mon")
            self.assertEqual(thing["spec"]["targetVolumeSnapshotName"], "ns/tue")
            status = thing["status"]
            self.assertEqual((status["limit"], status["offset"]), (7, start))
            page = [entry["offset"] for entry in status["changedBlockDeltas"]]
            self.assertLessEqual(len(page), 7)
            self.assertTrue(all(entry["blockSizeBytes"] == 4096
                                for entry in status["changedBlockDeltas"]))
            got += page
            if status["state"] == 0:
                break
            self.assertEqual(status["state"], 1)
            start = status["continue"]
        self.assertEqual(got, blocks)
        failed = support.run("list", server.address, "--snapshot", "ns/missing", "--object")
        self.assertEqual(failed.code, 2)
        status = json.loads(failed.stdout)["status"]
        self.assertEqual(status["state"], 2)
        self.assertIn("NOT_FOUND", status["error"])

    def test_an_output_that_is_no_regular_file_is_not_replaced(self):
        server = self.serve()
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.assertIn("is not a regular file", self.fails(2, "list", server.address, *self.pair("csi"), "--output", pipe))
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))

    def test_objects_of_streams_that_fail(self):
        server = self.serve()
        listing = ("list", server.address, *self.pair("csi"), "--object")
        failed = support.run(*listing, "--starting-offset", "1G")
        status = json.loads(failed.stdout)["status"]
        self.assertEqual((failed.code, status["state"], status["changedBlockDeltas"]), (2, 2, []))
        self.assertIn("OUT_OF_RANGE", status["error"])
        self.assertRegex(failed.stderr, r"\Acbt: list: [^\n]*past the last block\n\Z")
        out = self.path("object.cbm")
        for other in (("--output", out), ("--format", "json"), ("--style", "blocks"), ("--length", "1M"), ("--gap", "64K"),
                      ("--fallback", "1M")):
            self.assertIn("excludes", self.fails(2, *listing, *other))
        self.assertFalse(os.path.exists(out))
        self.assertIn("requires", self.fails(2, "list", server.address, *self.pair("csi"), "--limit", 7))


class Comforts(ServicesTest):
    def test_windows_gaps_and_fallbacks(self):
        server = self.serve()
        whole = parse_ndjson(self.ok("delta", self.base, self.target))[2]
        result = support.run("list", server.address, *self.pair("csi"), "--starting-offset", 5000,
                             "--length", MIB, "--gap", 65536)
        self.assertEqual(result.code, 0, result)
        window = parse_ndjson(result.stdout)[2]
        got, real = set(), set()
        for offset, size in window:
            self.assertGreaterEqual(offset, 5000)
            self.assertLessEqual(offset + size, 5000 + MIB)
            got.update(range(offset, offset + size))
        for offset, size in whole:
            real.update(range(max(offset, 5000), min(offset + size, 5000 + MIB)))
        self.assertLessEqual(real, got)
        for (a, b), (c, _) in zip(window, window[1:]):
            self.assertGreater(c - a - b, 65536)
        numbers = [int(n) for n in re.findall(r"\d+", result.stderr)]
        self.assertEqual(numbers, [len(got), len(got) - len(real)])

        fallback = support.run("list", server.address, "--snapshot", "ns/tue", "--base", "ns/gone",
                               "--fallback", len(self.data))
        self.assertEqual(fallback.code, 0)
        self.assertIn("tier: allocated", fallback.stderr)
        self.assertEqual(support.without_source(fallback.stdout),
                         self.ok("allocated", self.target))
        # A delta up to an offset and a lower tier from there are neither of the two.
        for part in ((), ("--length", MIB), ("--gap", 65536)):
            result = support.run("list", server.address, "--snapshot", "ns/tue", "--base", "ns/gone",
                                 "--fallback", len(self.data), "--starting-offset", 4096, *part)
            self.assertEqual((result.code, result.stdout), (2, ""), result)
            self.assertRegex(result.stderr, r"\Acbt: list: [^\n]*start from offset 0\n\Z")
        # A part does not show what the proof covers.
        self.fails(2, "list", server.address, "--snapshot", "ns/tue", "--prove", "--length", "1M")
        self.fails(2, "list", server.address, "--snapshot", "ns/tue", "--prove", "--object")
        # E11: data that the base has and the target lacks is in no lower tier.
        out = self.path("tier.cbm")
        lower = ("list", server.address, "--snapshot", "ns/tue", "--base", "ns/gone", "--fallback", len(self.data),
                 "--output", out)
        result = support.run(*lower, "--base-name", "gone")
        self.assertEqual((result.code, os.path.exists(out)), (2, False), result)
        self.assertEqual(support.run(*lower).code, 0)
        names = json.loads(self.ok("map", "info", "--json", out))
        self.assertEqual((names["base"], names["target"]), ("", "tue"))
        self.fails(2, "delta", out)


class Verify(ServicesTest):
    def test_services_and_maps(self):
        server = self.serve()
        relay = self.relay(server)
        for address, api in [(server.address, "csi"), (relay.address, "kubernetes"),
                             (relay.address, "paged")]:
            report = json.loads(self.ok("verify", self.base, self.target, "--service", address,
                                      *self.pair(api), "--json"))
            self.assertTrue(report["verified"])
            self.assertGreater(report["over_reported_bytes"], 0)
            self.ok("verify", self.target, "--service", address, *self.pair(api, False))
        # The pair does not match the images: something is missing, and the output names it.
        self.write("root/ns/mon2.img", self.data)
        result = support.run("verify", self.base, self.target, "--service", server.address,
                             "--snapshot", "ns/tue", "--base", "ns/mon2", "--json")
        self.assertEqual(result.code, 1, result)
        missing = json.loads(result.stdout)["first_missing"]
        with open(self.base, "rb") as file:
            base = file.read()
        first = next(i for i in range(len(self.data)) if base[i] != self.data[i])
        self.assertEqual(missing["byte_offset"], first)
        text = support.run("verify", self.base, self.target, "--service", server.address,
                           "--snapshot", "ns/tue", "--base", "ns/mon2")
        self.assertIn(f"byte_offset {first}", text.stdout)

        good = self.path("good.cbm")
        self.ok("delta", self.base, self.target, "--output", good)
        self.ok("verify", self.base, self.target, "--map", good)
        same = self.path("same.cbm")
        self.ok("delta", self.base, self.base, "--output", same)
        self.assertEqual(support.run("verify", self.base, self.target, "--map", same).code, 1)
        # Another capacity is another volume.
        other = self.write("other.img", bytes(4096))
        self.assertEqual(support.run("verify", self.base, other, "--map", good).code, 1)
        self.fails(2, "verify", self.base, self.target)
        self.fails(2, "verify", self.base, self.target, "--map", good, "--service", "unix:///x",
                   "--snapshot", "s")
        self.fails(2, "verify", self.target, "--service", server.address, *self.pair("csi"))
        self.fails(2, "verify", self.base, self.path("missing"), "--map", good)


class KubeAddresses(ServicesTest):
    """What is wrong before any cluster is asked; tests/sidecar has the rest."""

    def test_options_that_do_not_fit(self):
        for option in (["--snapshot", "s"], ["--api", "session"], ["--token-file", "x"],
                       ["--namespace", "ns"], ["--volume", "v"], ["--tls"], ["--tls-ca", "x"],
                       ["--tls-cert", "x", "--tls-key", "y"], ["--secrets-file", "x"]):
            for command in (["list", "k8s:ns/s"], ["conform", "k8s:ns/s"],
                            ["verify", self.target, "--service", "k8s:ns/s"]):
                self.assertIn(option[0], self.fails(2, *command, *option))
        for option in (["--base-handle", "h"], ["--kubeconfig", "x"],
                       ["--service-account", "a/b"], ["--token-expiry", "900"]):
            line = self.fails(2, "list", "unix:///none", "--snapshot", "s", *option)
            self.assertIn(f"{option[0]}: only with k8s:", line)
        self.fails(2, "list", "k8s:ns/s", "--base", "b", "--base-handle", "h")
        for command in (["list", "unix:///none"], ["conform", "unix:///none"],
                        ["verify", self.target, "--service", "unix:///none"]):
            self.assertIn("--snapshot is required", self.fails(2, *command))

    def has_kube(self):
        """Otherwise the command must say so."""
        return "not in this build" not in support.run("list", "k8s:ns/s").stderr

    def test_addresses_and_values_that_are_none(self):
        if not self.has_kube():
            return
        for address in ("k8s:", "k8s:ns", "k8s:ns/", "k8s:/s", "k8s:a/b/c"):
            self.assertIn("k8s:NAMESPACE/SNAPSHOT", self.fails(2, "list", address))
        for account in ("a", "/a", "a/", "a/b/c"):
            self.assertIn("NAMESPACE/NAME",
                          self.fails(2, "list", "k8s:ns/s", "--service-account", account))
        for seconds in ("599", "0", "-1", "x", "4294967296"):
            self.assertIn("--token-expiry",
                          self.fails(2, "list", "k8s:ns/s", "--token-expiry", seconds))
        absent = self.path("absent")
        self.assertIn(absent, self.fails(2, "list", "k8s:ns/s", "--kubeconfig", absent))

    def test_a_cluster_that_is_away(self):
        if not self.has_kube():
            return
        config = self.file("kubeconfig", json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))
        for command in (["list", "k8s:ns/s"], ["conform", "k8s:ns/s"],
                        ["verify", self.target, "--service", "k8s:ns/s"]):
            line = self.fails(3, *command, "--kubeconfig", config,
                              "--timeout", "2")
            self.assertIn("k8s:ns/s: ", line)


class Conform(ServicesTest):
    def test_our_own_servers_keep_the_contract(self):
        server = self.serve()
        relay = self.relay(server)
        for address in [server.address, relay.address]:
            for api in ["csi", "kubernetes", "session", "paged"]:
                result = support.run("conform", address, *self.pair(api), "--json")
                rows = [json.loads(line) for line in result.stdout.splitlines()]
                self.assertGreater(len(rows), 20)
                self.assertEqual([row for row in rows if row["result"] == "fail"], [])
                self.assertEqual(result.code, 0, result)
        text = self.ok("conform", server.address, *self.pair("csi"))
        self.assertRegex(text, r"(?m)^\d+ passed, 0 failed, \d+ not applicable\n\Z")
        self.assertNotRegex(text, "(?m)^pass ")
        self.assertRegex(self.ok("conform", server.address, *self.pair("csi"), "-v"), "(?m)^pass ")

    def test_failures_come_last(self):
        server = self.serve()
        pair = list(self.pair("csi"))
        pair[pair.index("--snapshot") + 1] = "ns/none"
        result = support.run("conform", server.address, *pair, "-v")
        self.assertEqual(result.code, 1, result)
        marks = re.findall("(?m)^(pass|n/a |FAIL)  ", result.stdout)
        self.assertIn("FAIL", marks)
        self.assertEqual(sorted(marks, key=lambda mark: mark == "FAIL"), marks)

    def test_a_server_that_is_not_there(self):
        self.fails(3, "conform", f"unix://{self.path('absent')}", "--snapshot", "s")
        self.fails(2, "conform", "nowhere", "--snapshot", "s")


if __name__ == "__main__":
    support.main()
