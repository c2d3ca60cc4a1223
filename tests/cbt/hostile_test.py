"""Hostile clients: what one of them may cost the others."""

import os
import select
import signal
import signal
import struct
import sys
import time
import zlib

import serve_test
import support

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "soak"))
import http2  # pylint: disable=wrong-import-position # noqa: E402

MIB = 1 << 20
ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
REQUEST = b"\x0a\x06vol1/a"  # snapshot_id: vol1/a
SANITIZED = bool(os.environ.get("CBT_TEST_SANITIZER"))  # sanitizers distort memory use
UNIMPLEMENTED, DEADLINE_EXCEEDED = 12, 4


def head(path, *more):
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
              (b":authority", b"localhost"), (b"te", b"trailers"),
              (b"content-type", b"application/grpc"), *more)
    return b"".join(http2.literal(*field) for field in fields)


class Attacker(http2.Connection):
    """Streams whose requests are sent as far as the server's windows allow."""

    def __init__(self, address, **options):
        super().__init__(address, **options)
        self.window = 65535
        self.initial = 65535
        self.windows = {}
        self.left = {}  # stream: bytes left to send
        self.ended = {}  # stream: grpc-status, or None for a reset
        self.inflater = http2.Inflater()

    def open(self, path, data, *fields, end=False):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.socket.sendall(http2.frame(http2.HEADERS, http2.END_HEADERS, stream,
                                        head(path, *fields)))
        self.windows[stream] = self.initial
        self.left[stream] = (data, end)
        self.pump()
        return stream

    def pump(self):
        for stream, (data, end) in list(self.left.items()):
            while data and min(self.window, self.windows[stream]) > 0:
                size = min(16384, self.window, self.windows[stream], len(data))
                last = end and size == len(data)
                self.socket.sendall(http2.frame(http2.DATA, http2.END_STREAM if last else 0, stream,
                                                bytes(data[:size])))
                data = data[size:]
                self.window -= size
                self.windows[stream] -= size
            self.left[stream] = (data, end)

    def take(self, kind, flags, stream, payload):
        if kind == http2.WINDOW_UPDATE:
            count = struct.unpack(">I", payload)[0]
            if stream == 0:
                self.window += count
            elif stream in self.windows:
                self.windows[stream] += count
        elif kind == http2.SETTINGS and not flags & http2.ACK:
            for i in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[i:i + 6])
                if key == 4:
                    for each in self.windows:
                        self.windows[each] += value - self.initial
                    self.initial = value
        elif kind == http2.RST_STREAM:
            self.ended.setdefault(stream, None)
            self.left.pop(stream, None)
        elif kind == http2.HEADERS:
            fields = dict(self.inflater.fields(payload))
            if flags & http2.END_STREAM:
                status = fields.get(b"grpc-status")
                self.ended[stream] = None if status is None else int(status)
                self.left.pop(stream, None)

    def run(self, until, seconds):
        """Processes frames until `until()` holds; returns whether it did."""
        limit = time.monotonic() + seconds
        while not until():
            self.pump()
            if not self.buffer and not select.select([self.socket], [], [], 0.05)[0]:
                if time.monotonic() > limit:
                    return False
                continue
            got = self.receive()
            if got is None:
                return until()
            self.take(*got)
        return True


class Hostile(serve_test.ServeTest):
    def setUp(self):
        super().setUp()
        self.image("vol1/a.img", bytes(MIB))

    def memory(self, server, field="VmHWM"):
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) << 10
        return None

    def attacker(self, server, **options):
        attacker = Attacker(server.address, **options)
        self.addCleanup(attacker.close)
        return attacker

    def serves(self, server):
        """Another client gets an answer."""
        self.ok("list", server.address, "--snapshot", "vol1/a")


class Compression(Hostile):
    def test_attack_l_a_compressed_request_is_refused_before_it_is_unpacked(self):
        server = self.start("--api", "csi,paged")
        self.serves(server)
        before = self.memory(server)
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = packer.compress(bytes(48 * MIB)) + packer.flush()
        self.assertLess(len(bomb), 60000)
        message = struct.pack(">BI", 1, len(bomb)) + bomb
        for path in (ALLOCATED, "/csi.v1.Controller/ListSnapshotDeltas",
                     "/csi.v1.Identity/Probe", "/grpc.health.v1.Health/Check",
                     "/grpc.health.v1.Health/Watch",
                     "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"):
            with self.subTest(path):
                attacker = self.attacker(server)
                stream = attacker.open(path, message, (b"grpc-encoding", b"gzip"), end=True)
                self.assertTrue(attacker.run(lambda: stream in attacker.ended, 30))
                self.assertEqual(attacker.ended[stream], UNIMPLEMENTED)
        if not SANITIZED:
            self.assertLess(self.memory(server) - before, 16 * MIB)
        self.serves(server)


class HalfRequests(Hostile):
    def test_attack_m_requests_that_never_come_whole_take_no_slots_and_end(self):
        server = self.start("--max-streams", "4", "--stall-time", "2")
        attacker = self.attacker(server)
        streams = [attacker.open(ALLOCATED, struct.pack(">BI", 0, 1000) + bytes(999))
                   for _ in range(10)]
        attacker.run(lambda: False, 0.2)
        self.serves(server)
        self.assertTrue(attacker.run(lambda: len(attacker.ended) == len(streams), 20))
        self.assertEqual(set(attacker.ended.values()), {DEADLINE_EXCEEDED})
        self.serves(server)

    def test_attack_m_requests_that_claim_much_are_bounded(self):
        server = self.start("--stall-time", "20")
        self.serves(server)
        before = self.memory(server)
        size = 4 * MIB
        data = memoryview(struct.pack(">BI", 0, size) + bytes(size - 1))
        attackers = [self.attacker(server) for _ in range(4)]
        for attacker in attackers:
            for _ in range(32):
                attacker.open(ALLOCATED, data)
        limit = time.monotonic() + 20
        for attacker in attackers:
            attacker.run(lambda: False, max(0.1, min(5, limit - time.monotonic())))
        print(f"half requests: {(self.memory(server) - before) >> 20} MiB", file=sys.stderr)
        if not SANITIZED:
            self.assertLess(self.memory(server) - before, 160 * MIB)


class Watches(Hostile):
    def test_attack_n_health_watches_are_counted(self):
        server = self.start()
        self.serves(server)
        before = self.memory(server)
        attackers = [self.attacker(server) for _ in range(4)]
        open_streams = 0
        for attacker in attackers:
            for _ in range(1000):
                attacker.open("/grpc.health.v1.Health/Watch", struct.pack(">BI", 0, 0), end=True)
            attacker.run(lambda: False, 3)
            open_streams += 1000 - len(attacker.ended)
        print(f"watches: {open_streams} open, {(self.memory(server) - before) >> 20} MiB",
              file=sys.stderr)
        self.assertLessEqual(open_streams, 256)
        self.serves(server)


class DeafReaders(Hostile):
    """Clients that open large windows, request much, and never read their socket."""

    def setUp(self):
        super().setUp()
        bits = self.write("bits", b"\x55" * (MIB // 4))
        self.ok("map", "convert", bits, "--from", "bitmap", "--as", "allocated", "--block-size", "4096", "--capacity",
                str(2 * MIB * 4096), "--volume-name", "vol1", "--target-name", "many", "--output",
                os.path.join(self.root, "vol1", "many.cbm"))

    def deaf(self, server, streams):
        sock = http2.Connection(server.address, window=(1 << 31) - 1)
        self.addCleanup(sock.close)
        sock.socket.sendall(http2.frame(http2.WINDOW_UPDATE, 0, 0,
                                        struct.pack(">I", (1 << 31) - 1 - 65535)))
        for _ in range(streams):
            sock.ask(ALLOCATED, b"\x0a\x09vol1/many")
        return sock

    def refused(self, server):
        return support.run("list", server.address, "--snapshot", "vol1/a").code != 0

    def until(self, condition, seconds):
        limit = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)

    def test_attack_o_a_peer_that_leaves_its_socket_unread_loses_its_slots(self):
        for listen in (None, "127.0.0.1:0"):
            with self.subTest(listen):
                server = self.start("--max-streams", "8", "--stall-time", "2", listen=listen)
                self.deaf(server, 8)
                self.until(lambda: self.refused(server), 20)
                self.until(lambda: not self.refused(server), 30)
                self.stop(server)

    def test_attack_o_a_peer_that_leaves_its_socket_unread_does_not_keep_a_drain(self):
        server = self.start("--max-streams", "8", "--grace", "1")
        self.deaf(server, 8)
        self.until(lambda: self.refused(server), 20)
        begin = time.monotonic()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(20), 0)
        self.assertLess(time.monotonic() - begin, 10)


if __name__ == "__main__":
    support.main()
