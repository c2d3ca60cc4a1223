"""Hostile peers and their cost to a server: memory, the speed of other clients' streams, and the
time to shut down.

attacks.py CBT [--seconds N] [--connections N] [--attack NAME ...] [--judge]

Prints a table of figures. Wrong answers, servers that do not shut down, and memory beyond the
server's own limit always fail; the targets for memory, speed and shutdown only with --judge.

The attackers run on the same machine. To separate their cost from the server's, the speed of another
client is measured beside the attack, and beside the same attack on a second server ("elsewhere"),
both in percent of the undisturbed speed. The first is judged by the second.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

import half_map
import http2
import servers

ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
ARGUMENTS.add_argument("cbt")
ARGUMENTS.add_argument("--seconds", type=float, default=60, help="for each attack")
ARGUMENTS.add_argument("--connections", type=int, default=8, help="number of attacking connections")
ARGUMENTS.add_argument("--attack", action="append", help="only this one; repeatable")
ARGUMENTS.add_argument("--judge", action="store_true", help="fail if a time or a speed misses its target")
OPTIONS = ARGUMENTS.parse_args()
CBT = os.path.abspath(OPTIONS.cbt)

ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
REQUEST = b"\x0a\x03v/s"  # snapshot_id: "v/s"
GRACE_SECONDS, STALL_SECONDS = 2, 5
GROWTH_KIB = (64 if OPTIONS.judge else 128) << 10
SPEED_PERCENT = 70
DESCRIPTORS = 200  # the limit of a server that should run out of them
# Many strangers, each of whom takes little: their number, and the quota that they use up.
CROWD, QUOTA = 8_000, "48M"
CONTINUATION, MAX_FRAME_SIZE = 9, 5
HUGE_WINDOW = 0x7fffffff


# ---- the attackers: each function makes one connection and uses it until the server ends it

def head(stream, flags=http2.END_HEADERS, path=ALLOCATED, fields=()):
    block = b"".join(http2.literal(*field) for field in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
        (b":authority", b"localhost"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"), *fields))
    return http2.frame(http2.HEADERS, flags, stream, block)


def body(stream):
    return http2.frame(http2.DATA, http2.END_STREAM, stream, struct.pack(">BI", 0, len(REQUEST)) + REQUEST)


def window(stream, count):
    return http2.frame(http2.WINDOW_UPDATE, 0, stream, struct.pack(">I", count))


def cancel(stream):
    return http2.frame(http2.RST_STREAM, 0, stream, struct.pack(">I", http2.CANCEL))


def flood(address, make):
    """Sends make(0), make(1), ... as fast as the server accepts it, and reads nothing."""
    peer = http2.Connection(address, timeout=5)
    try:
        for number in range(1 << 20):
            peer.socket.sendall(make(number))
    finally:
        peer.close()


def rapid_reset(address):
    def pairs(number):
        first = 1 + 200 * number
        return b"".join(head(stream) + body(stream) + cancel(stream) for stream in range(first, first + 200, 2))
    flood(address, pairs)


def provoked_reset(address):
    def pairs(number):
        first = 1 + 200 * number
        return b"".join(head(stream) + window(stream, 0) for stream in range(first, first + 200, 2))
    flood(address, pairs)


def continuation(address):
    more = http2.frame(CONTINUATION, 0, 1, http2.literal(b"x", b"y" * 16000)) * 4
    flood(address, lambda number: more if number else head(1, flags=0))


def settings(address):
    flood(address, lambda number: http2.frame(http2.SETTINGS, 0, 0, struct.pack(">HI", 4, number)) * 1000)


def pings(address):
    flood(address, lambda number: http2.frame(http2.PING, 0, 0, b"12345678") * 1000)


def pings_beside_a_stream(address):
    """Sent data resets the limit on a client's pings."""
    peer = http2.Connection(address, timeout=5)
    try:
        stream = peer.ask(ALLOCATED, REQUEST)
        while True:
            peer.socket.sendall(http2.frame(http2.PING, 0, 0, b"12345678") * 1000)
            peer.more(stream, 1000)
            peer.socket.recv(1 << 16)
    finally:
        peer.close()


def windows(address):
    """Window updates of one byte each."""
    flood(address, lambda number: window(1, 1) * 1000 if number else
          http2.frame(http2.SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + head(1) + body(1))


def empty_data(address):
    flood(address, lambda number: http2.frame(http2.DATA, 0, 1) * 1000 if number else head(1))


def unknown_frames(address):
    flood(address, lambda number: http2.frame(200, 0, 0) * 1000)


def never_reads(address):
    peer = http2.Connection(address, timeout=60, window=HUGE_WINDOW)
    try:
        peer.socket.sendall(window(0, HUGE_WINDOW - 65535))
        for _ in range(20):
            peer.ask(ALLOCATED, REQUEST)
        while True:  # until the server disconnects
            time.sleep(0.2)
            peer.socket.sendall(http2.frame(200, 0, 0))
    finally:
        peer.close()


def half_requests(address):
    """As many calls as the server allows, whose requests never arrive."""
    peer = http2.Connection(address, timeout=2)
    try:
        for number in range(1100):
            stream = 1 + 2 * number
            peer.socket.sendall(head(stream) + http2.frame(http2.DATA, 0, stream, struct.pack(">BI", 0, 60000) + b"x" * 500))
        while peer.receive() is not None:
            pass
    except TimeoutError:
        time.sleep(5)
    finally:
        peer.close()


def dribble(address):
    """One byte at a time, in both directions."""
    peer = http2.Connection(address, timeout=60, window=HUGE_WINDOW)
    try:
        for byte in head(1) + body(1):
            peer.socket.sendall(bytes([byte]))
            time.sleep(0.01)
        while peer.socket.recv(1):
            time.sleep(0.05)
    finally:
        peer.close()


def descriptors(address):
    """More connections than the server can accept."""
    peers = []
    try:
        for _ in range(100):
            peers.append(http2.Connection(address, timeout=5))
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.05)
    finally:
        for peer in peers:
            peer.close()


def hpack_bomb(address):
    """A 4 KiB header in the table that a single byte repeats."""
    entry = b"\x40\x01x\x7f" + bytes([(3900 - 127) & 127 | 128, (3900 - 127) >> 7]) + b"y" * 3900
    bomb = b"\xbe" * 16000

    def bombs(number):
        stream = 1 + 2 * number
        if number == 0:
            return head(1)[:9].replace(head(1)[:3], struct.pack(">I", len(head(1)) - 9 + len(entry))[1:]) + head(1)[9:] + entry
        block = head(stream)[9:] + bomb
        return http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block[:16384])
    flood(address, bombs)


def churn(address):
    """Short-lived connections, some with a call."""
    for number in range(100):
        peer = http2.Connection(address, timeout=5)
        if number % 2:
            peer.ask(ALLOCATED, REQUEST)
        peer.close(linger=number % 4 < 2)


def crowd(address, greet):
    """This attacker's share of the crowd: greet(socket) begins each connection; they stay for seconds."""
    peers = []
    try:
        for _ in range(CROWD // OPTIONS.connections):
            peers.append(http2.connect(address, 5))
            greet(peers[-1])
        time.sleep(3)
    finally:
        for peer in peers:
            peer.close()


OPENING = http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0)


def crowd_of_hellos(address):
    """TLS handshakes that announce 131,000 bytes and send 68."""
    hello = struct.pack(">BHHB", 22, 0x301, 63, 1) + (131_000).to_bytes(3, "big") + b"x" * 59
    crowd(address, lambda peer: peer.sendall(hello))


def crowd_of_handshakes(address):
    """TLS handshakes that are fit, and stay half sent."""
    hello = struct.pack(">BHHB", 22, 0x301, 500, 1) + (496).to_bytes(3, "big") + b"x" * 59
    crowd(address, lambda peer: peer.sendall(hello))


def crowd_of_idlers(address):
    crowd(address, lambda peer: peer.sendall(OPENING))


def crowd_of_halves(address):
    """Half requests of 50 KiB."""
    half = OPENING + head(1) + b"".join(
        http2.frame(http2.DATA, 0, 1, piece) for piece in [struct.pack(">BI", 0, 60_000), *[b"x" * 10_000] * 5])
    crowd(address, lambda peer: peer.sendall(half))


def crowd_of_streams(address):
    """200 requests each that never arrive."""
    many = OPENING + b"".join(head(stream) for stream in range(1, 400, 2))
    crowd(address, lambda peer: peer.sendall(many))


CROWDS = {attack.__name__: attack for attack in (
    crowd_of_hellos, crowd_of_handshakes, crowd_of_idlers, crowd_of_halves, crowd_of_streams)}
TLS_CROWDS = ("crowd_of_hellos", "crowd_of_handshakes")
ATTACKS = {attack.__name__: attack for attack in (
    rapid_reset, provoked_reset, continuation, settings, pings, pings_beside_a_stream, windows,
    empty_data, unknown_frames, never_reads, half_requests, dribble, descriptors, hpack_bomb, churn)} | CROWDS


def attack_for_ever(name, address, count, number):
    """An attacker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            ATTACKS[name](address)
        except OSError:
            pass
        count[number] += 1
        # A network round trip.
        time.sleep(0.05)


class Attackers:
    """One process per connection, of low priority."""

    def __init__(self, name, address):
        # Without a lock, which a killed process could hold.
        self.count = multiprocessing.RawArray("l", OPTIONS.connections)
        self.processes = [multiprocessing.Process(target=self.run, args=(name, address, number), daemon=True)
                          for number in range(OPTIONS.connections)]
        for process in self.processes:
            process.start()

    def run(self, name, address, number):
        os.nice(10)
        attack_for_ever(name, address, self.count, number)

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        return sum(self.count)


# ---- a client that must not suffer

class Client:
    """Lists whole streams one after another, each on its own connection or all on one."""

    def __init__(self, server, one_connection):
        self.server, self.one_connection = server, one_connection
        self.peer, self.inflater = None, None
        self.failed = []
        self.size = None

    def stream(self):
        """Reads a stream and returns its bytes."""
        if self.peer is None or not self.one_connection:
            self.peer = http2.Connection(self.server.address, timeout=60, window=1 << 20,
                                         context=self.server.context)
            self.inflater = http2.Inflater()
            self.peer.socket.sendall(window(0, 1 << 30) + http2.frame(
                http2.SETTINGS, 0, 0, struct.pack(">HI", MAX_FRAME_SIZE, 1 << 18)))
        number = self.peer.ask(ALLOCATED, REQUEST)
        size, unread, fields = 0, 0, {}
        while True:
            frame = self.peer.receive()
            if frame is None:
                raise OSError("the connection has ended")
            kind, flags, stream, payload = frame
            if kind == http2.HEADERS:
                fields |= dict(self.inflater.fields(payload))
            if stream != number:
                continue
            if kind == http2.RST_STREAM:
                raise OSError("the stream was reset")
            if kind == http2.DATA:
                size += len(payload)
                unread += len(payload)
                if unread > 1 << 18:
                    self.peer.more(number, unread)
                    unread = 0
            if flags & http2.END_STREAM:
                break
        if fields.get(b"grpc-status") != b"0":
            raise OSError(f"the stream ended with {fields}")
        if not self.one_connection:
            self.peer.close()
        elif unread > 0:
            # Otherwise the connection's window is used up after thousands of streams.
            self.peer.socket.sendall(window(0, unread))
        return size

    def speed(self, seconds):
        """Bytes per second."""
        begin, total = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            try:
                size = self.stream()
            except OSError as error:
                self.failed.append(str(error))
                self.peer = None
                continue
            self.size = self.size or size
            if size != self.size:
                self.failed.append(f"{size} bytes instead of {self.size}")
            total += size
        return total / (time.monotonic() - begin)


class Peak:
    """The largest resident memory of a server while watched, in KiB."""

    def __init__(self, server):
        self.server, self.most, self.over = server, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, self.server.resident() or 0)

    def stop(self):
        self.over.set()
        self.thread.join()
        return self.most


def start(name, attack, folder, root):
    tls, context = servers.tls_of(folder, name) if attack in TLS_CROWDS else ([], None)
    server = servers.Server(name, folder, None, [
        *(["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"] if attack == "descriptors" else []),
        CBT, "serve", "--root", root, "--listen", f"unix://{folder}/{name}",
        "--grace", GRACE_SECONDS, "--stall-time", STALL_SECONDS, *tls,
        *(["--memory", QUOTA] if attack in CROWDS else [])])
    server.context = context
    return server


def speed_elsewhere(name, client, folder, root):
    """The speed of the client's streams while a server of its own is attacked."""
    other = start(f"{name}-elsewhere", name, folder, root)
    attackers = Attackers(name, other.address)
    try:
        return client.speed(OPTIONS.seconds / 4)
    finally:
        attackers.stop()
        other.process.kill()
        other.process.wait()


def measure(name, folder, root):
    """A row of the table, and its failures."""
    server = start(name, name, folder, root)
    attackers = None
    try:
        client = Client(server, name == "descriptors")
        client.speed(OPTIONS.seconds / 20)
        alone = client.speed(OPTIONS.seconds / 4)
        elsewhere = speed_elsewhere(name, client, folder, root)
        before, processor = server.resident(), server.processor()
        peak = Peak(server)
        attackers = Attackers(name, server.address)
        beside = client.speed(OPTIONS.seconds)
        growth = peak.stop() - before
        processor = server.processor() - processor
        begin = time.monotonic()
        status = server.stop(timeout=GRACE_SECONDS + 60)
        took = time.monotonic() - begin
    except BaseException:
        server.process.kill()
        raise
    finally:
        rounds = attackers.stop() if attackers else 0
    percent, machine = 100 * beside / alone, 100 * elsewhere / alone
    print(f"{name:22} {growth / 1024:8.1f} {percent:8.0f} {machine:12.0f} {len(client.failed):7} {took:8.2f} "
          f"{rounds:10} {processor:8.1f}", flush=True)
    wrong = [f"{name}: a stream failed: {text}" for text in client.failed[:3]]
    if growth > GROWTH_KIB:
        wrong.append(f"{name}: grew by {growth} KiB")
    if status != 0:
        wrong.append(f"{name}: the server ended with {status}")
    if OPTIONS.judge and percent < SPEED_PERCENT * min(1, machine / 100):
        wrong.append(f"{name}: others had {percent:.0f}% of their speed, {machine:.0f}% beside an attack elsewhere")
    if OPTIONS.judge and took > GRACE_SECONDS + 1:
        wrong.append(f"{name}: the server took {took:.1f} s to end")
    return wrong


def main():
    # For the attackers' own descriptors.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    socket.setdefaulttimeout(60)
    folder = tempfile.mkdtemp(prefix="cbt-attacks-")
    wrong = []
    try:
        root = half_map.make_root(CBT, folder)
        print(f"{'attack':22} {'MiB more':>8} {'speed, %':>8} {'elsewhere, %':>12} {'failed':>7} {'end, s':>8} {'rounds':>10} {'CPU, s':>8}")
        for name in OPTIONS.attack or ATTACKS:
            wrong += measure(name, folder, root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if wrong:
        sys.exit("attacks: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
