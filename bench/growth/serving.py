"""Rows of `cbtctl serve`: its processor time, and its memory where it grows."""

import pathlib
import subprocess
import sys

import used

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests" / "soak"))
import http2  # noqa: E402  pylint: disable=wrong-import-position,import-error
import servers as soak  # noqa: E402  pylint: disable=wrong-import-position,import-error

BLOCK = 4096
CSI = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
KUBERNETES = "/snapshotmetadata.SnapshotMetadata/GetMetadataAllocated"


def field(number, data):
    """Bytes of a message."""
    return bytes([number << 3 | 2, len(data)]) + data


def answer(peer, path, request):
    """Waits for the end of a stream, which must have a message."""
    stream, size = peer.ask(path, request), 0
    while True:
        kind, flags, of, payload = peer.receive()
        if kind == http2.DATA and payload:
            size += len(payload)
            peer.more(of, len(payload))
        if of == stream and kind in (http2.HEADERS, http2.DATA) and flags & http2.END_STREAM:
            break
    if not size:
        sys.exit(f"{path}: the stream is empty")


class Servers:
    def __init__(self, build, folder):
        self.cbt, self.folder = build / "bin" / "cbtctl", folder
        self.server = None
        self.count = 0
        self.peers = []

    def stop(self):
        for peer in self.peers:
            peer.close()
        self.peers.clear()
        if self.server:
            self.server.stop()
            self.server = None

    def serve(self, root, *options):
        """Starts a server anew."""
        self.stop()
        self.count += 1
        name = f"server-{self.count}"
        self.server = soak.Server(name, self.folder, None, [self.cbt, "serve", "--root", root, "--listen",
                                                            f"unix://{self.folder}/{name}", *options])
        return self.server

    def root(self, blocks, files=1):
        """A directory with a volume: so many blocks that are no neighbours, and more files."""
        root = self.folder / f"root-{blocks}-{files}"
        volume = root / "v"
        if not root.exists():
            volume.mkdir(parents=True)
            subprocess.run([self.cbt, "map", "convert", "-", "--output", volume / "s.cbm", "--from", "bitmap:granularity=4096", "--as",
                            "allocated", "--capacity", str(2 * max(blocks, 4) * BLOCK), "--target-name", "s"],
                           input=(b"\x55" if blocks else b"\0") * (max(blocks, 4) // 4), check=True)
            for number in range(files - 1):
                (volume / f"s{number}.img").touch()
        return root

    def cost(self, work):
        before = used.clock(self.server.pid)
        work()
        return used.clock(self.server.pid) - before

    def client(self):
        return used.command(self.cbt, "list", self.server.address, "--snapshot", "v/s", "--format", "csv", "--retry-for", "0")

    def listed(self, blocks):
        self.serve(self.root(blocks))
        return lambda: (self.cost(self.client), 0)

    def list(self, blocks):
        self.serve(self.root(blocks))
        return self.client

    def opens(self, streams):
        if not streams:
            return None
        self.serve(self.root(4))
        peer = http2.Connection(self.server.address)
        self.peers.append(peer)

        def ask():
            for _ in range(streams):
                answer(peer, CSI, field(1, b"v/s"))
        return lambda: (self.cost(ask), 0)

    def connections(self, count):
        """Each one is greeted. In memory: what all hold."""
        if not count:
            return None

        def run():
            self.serve(self.root(4), "--max-connections", "10000")
            answer(http2.Connection(self.server.address), CSI, field(1, b"v/s"))
            before = used.held_mib(self.server.pid)

            def connect():
                for _ in range(count):
                    self.peers.append(http2.Connection(self.server.address))
                    self.peers[-1].receive()
            return self.cost(connect), max(used.held_mib(self.server.pid) - before, 0.01)
        return run

    def tenants(self, count):
        """Each token has one stream."""
        if not count:
            return None
        tokens = self.folder / "tokens"
        tokens.write_text("".join(f"a-token-of-client-{number:08} client-{number} v\n" for number in range(count)), encoding="ascii")
        self.serve(self.root(4), "--api", "kubernetes", "--tokens", tokens)
        peer = http2.Connection(self.server.address)
        self.peers.append(peer)

        def ask():
            for number in range(count):
                answer(peer, KUBERNETES, field(1, f"a-token-of-client-{number:08}".encode()) + field(2, b"v") + field(3, b"s"))
        return lambda: (self.cost(ask), 0)

    def files(self, count):
        if not count:
            return None
        self.serve(self.root(4, count))
        peer = http2.Connection(self.server.address)
        self.peers.append(peer)

        def ask():
            for _ in range(100):
                answer(peer, CSI, field(1, b"v/s"))
        return lambda: (self.cost(ask), 0)
