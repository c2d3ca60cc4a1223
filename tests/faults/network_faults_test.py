"""The command as server, relay and client while calls on its sockets and files fail: a receiver
gets the exact ranges or an error, and a stream that was cut never looks complete.

network_faults_test.py CBT TRACKER_DRIVER SHIM

gRPC's own behaviour is included: where it ends the process (it aborts on some failures of epoll and
eventfd), the client gets no answer either, and the case is counted separately.
"""

import os
import shutil
import signal
import subprocess
import unittest

from injection import CBT, SCALE, FaultsTest, count, execute, figures, main, answer_in, sample

MIB = 1 << 20
KINDS = ("eio", "enomem", "emfile", "reset", "eintr", "short")
# About this many points per kind and role, of thousands. Past the first hundred no two runs have
# the same points, because threads wake up differently.
MOST = 6 if SCALE == 1 else 90


class NetworkFaults(FaultsTest):
    def setUp(self):
        super().setUp()
        figures.setdefault("r11_grpc_aborts", 0)
        volume = os.path.join(self.pristine, "root", "vol1")
        os.makedirs(volume)
        # Many tuples, so that a stream has several messages.
        with open(os.path.join(volume, "mon.img"), "wb") as file:
            file.truncate(16 * MIB)
        with open(os.path.join(volume, "tue.img"), "wb") as file:
            file.write((b"x" * 512 + bytes(512)) * (16 * MIB // 1024))
        self.fresh()
        self.root = os.path.join(self.below, "root")
        self.log = os.path.join(self.folder, "log")
        self.expected = None

    def start(self, name, *arguments, env=None, listen=None):
        """A server or relay; `address` is None if it ended before it was up."""
        reader, writer = os.pipe()
        path = os.path.join(self.below, name + ".sock")
        with open(self.log, "wb") as log:
            server = subprocess.Popen(
                [CBT, *arguments, "--listen", listen or f"unix://{path}", "--ready-fd", str(writer)],
                pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                env=env)
        os.close(writer)
        with os.fdopen(reader) as file:
            server.address = file.read().rstrip("\n") or None
        return server

    def serve(self, env=None, listen=None):
        return self.start("serve", "serve", "--root", self.root, "--block-size", "512", "--grace",
                          "1", env=env, listen=listen)

    def relay(self, plugin, env=None):
        return self.start("relay", "relay", "--plugin", plugin.address, "--api", "csi",
                          "--grace", "1", env=env)

    def stop(self, server):
        """Ends a server, which may have ended already. Returns its exit status."""
        server.send_signal(signal.SIGTERM)
        try:
            return server.wait(30)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGABRT)  # a core dump, if enabled, shows what it waits for
            server.wait()
            self.fail("the server did not exit")

    def list(self, address, env=None, *options):
        return execute(CBT, "list", address, "--snapshot", "vol1/tue", "--base", "vol1/mon",
                       "--timeout", "20", "--retry-for", "1", *options, env=env)

    def check(self, result, call=None):
        """The exact answer or an error; `call` is the one that failed in the server."""
        if result.returncode == 0:
            self.assertTrue(result.stdout == self.expected, "another answer with exit status 0")
        elif result.returncode in (-signal.SIGABRT, -signal.SIGSEGV):
            self.aborted(result.returncode, result.stderr, call)
        else:
            self.assertIn(result.returncode, (2, 3))
            self.assertRegex(result.stderr.decode(errors="replace"), r"cbtctl: [^\n]+: [^\n]+\n\Z")
            self.assertTrue(self.expected.startswith(answer_in(result.stdout)))

    def aborted(self, status, stderr, call):
        """gRPC ended the process, not our code."""
        self.assertEqual(status, -signal.SIGABRT)
        # Without an epoll it exits silently.
        if call != "epoll_create":
            self.assertRegex(stderr.decode(errors="replace"), r"\.(cc|h) ?: ?\d+\]")
        count("r11_grpc_aborts")

    def answer(self, server):
        result = self.list(server.address)
        self.assertEqual(result.returncode, 0, result)
        self.assertGreater(len(result.stdout), 100000)
        self.expected = result.stdout

    def points(self, role, number):
        count("r11_points")
        count(f"r11_points_{role}")
        return number

    def client(self, listen=None, *options):
        server = self.serve(listen=listen)
        try:
            self.answer(server)
            command = [CBT, "list", server.address, "--snapshot", "vol1/tue", "--base", "vol1/mon"]
            for kind in KINDS:
                number, _ = self.calls(command, kind, sockets=True)
                for at in sample(number, MOST):
                    result = self.list(server.address, self.environment(kind, at, True))
                    call = self.take_fired()
                    self.where = f"client, {kind} at call {at}, {call}: {result.stderr}"
                    self.points("client", at)
                    self.check(result, call)
        finally:
            self.assertEqual(self.stop(server), 0)

    def test_a_client(self):
        self.client()

    def test_a_client_over_tcp(self):
        self.client("127.0.0.1:0")

    def fail_each_call(self, role, start):
        """Every call of the program that `start(env)` starts, while a client sends requests."""
        counted = os.path.join(self.folder, "count")
        for kind in KINDS:
            server = start(self.environment(kind, 0, True, FAULT_COUNT=counted))
            self.answer(server)
            self.assertEqual(self.stop(server), 0)
            with open(counted) as file:
                number = int(file.read())
            for at in sample(number, MOST):
                self.where = f"{role}, {kind} at call {at}"
                server = start(self.environment(kind, at, True))
                try:
                    if server.address is not None:
                        self.check(self.list(server.address))
                        # It continues, unless it has ended.
                        if server.poll() is None:
                            self.check(self.list(server.address))
                finally:
                    status = self.stop(server)
                call = self.take_fired()
                with open(self.log, "rb") as file:
                    log = file.read()
                self.where += f", {call}: exit {status}, {log[-600:]}"
                self.points(role, at)
                if status == -signal.SIGABRT:
                    self.aborted(status, log, call)
                elif status == -signal.SIGTERM:
                    # Asked to end before it was up.
                    self.assertIsNone(server.address)
                elif status != 0:
                    self.assertIn(status, (2, 3))
                    self.assertRegex(log, rb"cbtctl: [^\n]+: [^\n]+\n")

    def test_a_server(self):
        self.fail_each_call("server", self.serve)

    @unittest.skipIf(shutil.which("openssl") is None, "no openssl here")
    def test_a_server_with_tls(self):
        key, pem = (os.path.join(self.pristine, name) for name in ("key.pem", "cert.pem"))
        made = execute("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                       "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", pem, "-days",
                       "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
        self.assertEqual(made.returncode, 0, made)
        self.fresh()
        here = [os.path.join(self.below, name) for name in ("cert.pem", "key.pem")]
        plain = self.list
        self.list = lambda address, env=None: plain(address, env, "--tls-ca", here[0])
        self.fail_each_call("server", lambda env: self.start(
            "serve", "serve", "--root", self.root, "--block-size", "512", "--grace", "1",
            "--tls-cert", here[0], "--tls-key", here[1], env=env, listen="127.0.0.1:0"))

    def test_a_relay(self):
        server = self.serve()
        try:
            self.fail_each_call("relay", lambda env: self.relay(server, env))
        finally:
            self.assertEqual(self.stop(server), 0)


if __name__ == "__main__":
    main()
