"""Whatever a client asks of a served volume, nbdkit goes on serving it: a request that is not
understood, not offered or out of range is an error of that request."""

import contextlib
import itertools
import json
import os
import socket
import struct
import subprocess
import time
import unittest

import driver_parts as parts
from driver_parts import MIB
from nbd_client import NbdClient

SIZE = 8 * MIB
READ, WRITE, DISCONNECT, FLUSH, TRIM, CACHE, ZERO, BLOCK_STATUS, RESIZE = range(9)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO = 1, 2, 4, 8, 16
OFFERS_FAST_ZERO = 1 << 11
ENOTSUP = 95
STRUCTURED, META_CONTEXT, GO = 8, 10, 7
MOST = 64 * MIB  # what nbdkit takes as the payload of a write


class RawClient(NbdClient):
    """Sends any request; returns the error number of the answer. `structured`: with structured
    replies and base:allocation."""

    def __init__(self, path, structured):
        self.structured = structured
        if not structured:
            super().__init__(path)
            return
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.receive(18)
        self.socket.sendall(struct.pack(">I", 3))
        self.option(STRUCTURED, b"")
        name = b"base:allocation"
        self.option(META_CONTEXT, struct.pack(">III", 0, 1, len(name)) + name)
        self.option(GO, struct.pack(">IH", 0, 0))

    def option(self, option, data):
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", option, len(data)) + data)
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.receive(20))
            self.receive(length)
            if kind == 1 or kind >> 31:
                return kind

    def request(self, command, flags, offset, length):
        payload = bytes(length) if command == WRITE else b""
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset, length) +
                            payload)
        error = 0
        while True:
            magic = self.receive(4)
            if magic == b"\x67\x44\x66\x98":
                error, _ = struct.unpack(">IQ", self.receive(12))
                if error == 0 and command == READ:
                    self.receive(length)
                return error
            done, kind, _, size = struct.unpack(">HHQI", self.receive(16))
            data = self.receive(size)
            if kind >> 15:
                error = struct.unpack(">I", data[:4])[0]
            if done & 1:
                return error


class RequestsTest(parts.DriverTest):
    def serve(self, folder, *more):
        path = os.path.join(self.folder, "nbd.sock")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["nbdkit", "--foreground", "--unix", path, parts.PLUGIN, "directory=" + folder,
                 f"size={SIZE}", *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        while True:
            self.assertIsNone(self.process.poll(), self.logged())
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                return path
            time.sleep(0.01)

    def check_alive(self, path, what):
        try:
            client = NbdClient(path)
            client.write(0, b"alive")
            self.assertEqual(client.read(0, 5), b"alive")
            client.close()
        except OSError as error:
            self.fail(f"after {what}: {error}: {self.logged()[-500:]}")
        self.assertIsNone(self.process.poll())

    def client(self, path):
        client = RawClient(path, structured=False)
        self.addCleanup(client.close)
        return client

    def test_de_fast_zero_is_offered_and_meant(self):
        path = self.serve(os.path.join(self.folder, "volume"))
        client = self.client(path)
        self.assertTrue(client.flags & OFFERS_FAST_ZERO)
        client.write(MIB, b"\1" * MIB)
        for flags in (FAST_ZERO, FAST_ZERO | NO_HOLE, FAST_ZERO | FUA):
            client.write(MIB, b"\1" * MIB)
            error = client.request(ZERO, flags, MIB, MIB)
            # Either it is done, or nothing is.
            self.assertIn(error, (0, ENOTSUP))
            self.assertEqual(client.read(MIB, MIB), (b"\1" if error else b"\0") * MIB)
        self.check_alive(path, "fast zeroing")

    def test_de_where_the_file_system_cannot_zero_fast_the_request_fails_at_once(self):
        if os.geteuid() != 0:
            self.skipTest("not root")
        # tmpfs makes holes, and zeroes no range that is to stay allocated.
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", disk], check=True)
        path = self.serve(os.path.join(disk, "volume"))
        client = self.client(path)
        client.write(0, b"\1" * SIZE)
        self.assertEqual(client.request(ZERO, FAST_ZERO | NO_HOLE, 0, SIZE), ENOTSUP)
        self.assertEqual(client.read(0, SIZE), b"\1" * SIZE)
        self.assertEqual(client.request(ZERO, FAST_ZERO, 0, SIZE // 2), 0)
        self.assertEqual(client.request(ZERO, NO_HOLE, SIZE // 2, SIZE // 2), 0)
        self.assertEqual(client.read(0, SIZE), bytes(SIZE))

    def test_de_fast_zeroing_leaves_a_snapshot_that_is_being_copied_alone(self):
        folder, control = os.path.join(self.folder, "volume"), os.path.join(self.folder, "control")
        path = self.serve(folder, "copy=true", "control=" + control)
        client = self.client(path)
        client.write(0, b"\1" * SIZE)
        with socket.socket(socket.AF_UNIX) as asked, asked.makefile("rwb") as lines:
            asked.connect(control)
            lines.write(b'{"request": "snapshot", "id": "s"}\n')
            lines.flush()
            self.assertIn(b'"id":"s"', lines.readline().replace(b" ", b""))
            error = client.request(ZERO, FAST_ZERO, 0, SIZE)
            self.assertIn(error, (0, ENOTSUP))
            self.assertEqual(client.read(0, SIZE), (b"\1" if error else b"\0") * SIZE)
        copy = os.path.join(folder, "snapshots", "s")
        while not os.path.exists(copy):
            time.sleep(0.01)
        with open(copy, "rb") as file:
            self.assertEqual(file.read(), b"\1" * SIZE)

    def ask(self, control, request, **members):
        with socket.socket(socket.AF_UNIX) as asked, asked.makefile("rwb") as lines:
            asked.connect(control)
            lines.write(json.dumps({"request": request, **members}).encode() + b"\n")
            lines.flush()
            return json.loads(lines.readline())

    def test_mc_a_volume_goes_back_once_its_clients_are_gone(self):
        folder, control = os.path.join(self.folder, "volume"), os.path.join(self.folder, "control")
        path = self.serve(folder, "control=" + control)
        client = RawClient(path, structured=False)
        client.write(0, b"\1" * SIZE)
        self.assertTrue(self.ask(control, "snapshot", id="s")["ok"])
        client.write(MIB, b"\2" * MIB)
        while not self.ask(control, "find", id="s")["snapshots"][0]["ready"]:
            time.sleep(0.01)
        answer = self.ask(control, "revert", id="s")
        self.assertEqual((answer["ok"], answer.get("code")), (False, "FAILED_PRECONDITION"), answer)
        self.assertEqual(client.read(MIB, MIB), b"\2" * MIB)
        client.close()
        deadline = time.monotonic() + 60
        while not (answer := self.ask(control, "revert", id="s"))["ok"]:
            self.assertEqual(answer["code"], "FAILED_PRECONDITION", answer)
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(self.ask(control, "revert", id="t")["code"], "NOT_FOUND")
        self.assertEqual(self.client(path).read(0, SIZE), b"\1" * SIZE)
        self.assertEqual(self.ask(control, "status")["volume"]["changed_bytes"], MIB)

    def test_de_no_request_ends_the_server(self):
        path = self.serve(os.path.join(self.folder, "volume"))
        commands = (*range(READ, RESIZE + 1), 99)
        flag_sets = (0, FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, FAST_ZERO | NO_HOLE | FUA, 0x1f, 32,
                     0xffff)
        places = ((0, 0), (0, 1), (1, 511), (0, SIZE), (SIZE - 1, 1), (SIZE - 1, 2), (SIZE, 0),
                  (SIZE, 1), (SIZE + 1, 1), (0, SIZE + 1), (0, MOST + 1), (0, 2**31), (1, 2**32 - 1),
                  (2**63, 4096), (2**64 - 1, 1), (2**64 - 1, 2**32 - 1))
        tried = 0
        for structured in (False, True):
            client = None
            for command, flags, (offset, length) in itertools.product(commands, flag_sets, places):
                if command == DISCONNECT or (command == WRITE and length > MOST):
                    continue
                what = f"command {command}, flags {flags}, offset {offset}, length {length}"
                try:
                    client = client or RawClient(path, structured)
                    client.request(command, flags, offset, length)
                except ConnectionError:
                    # A server may give up a connection, but not itself.
                    if client is not None:
                        client.close()
                    client = None
                    self.check_alive(path, what)
                tried += 1
            client.close()
        self.check_alive(path, "all")
        print(tried, "requests", flush=True)

    def test_de_no_handshake_ends_the_server(self):
        path = self.serve(os.path.join(self.folder, "volume"))
        for flags, option, length, data in itertools.product(
                (0, 1, 3, 0xffffffff), (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 2**32 - 1),
                (0, 1, 4, 6, 4096, 65536, 2**32 - 1), (b"", b"\0" * 6, b"\xff" * 4096)):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                try:
                    client.sendall(struct.pack(">I8sII", flags, b"IHAVEOPT", option, length) + data)
                except ConnectionError:
                    continue
        self.check_alive(path, "handshakes")


if __name__ == "__main__":
    parts.main()
