"""The cost of idle peers: connections without a call, and streams that are not read.

held.py CBT [--connections N] [--streams N] [--tls] [--judge]

Prints figures; with --judge, fails if one misses its target.
"""

import argparse
import os
import resource
import shutil
import struct
import tempfile
import time

import half_map
import http2
import report
import servers

ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
ARGUMENTS.add_argument("cbt")
ARGUMENTS.add_argument("--connections", type=int, default=5_900)
ARGUMENTS.add_argument("--streams", type=int, default=1000)
ARGUMENTS.add_argument("--tls", action="store_true", help="use TLS for the idle connections")
ARGUMENTS.add_argument("--judge", action="store_true", help="fail if a figure misses its target")
OPTIONS = ARGUMENTS.parse_args()
CBT = os.path.abspath(OPTIONS.cbt)

ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
STREAMS_A_CONNECTION = 100
CONNECTION_KIB = 200 * 1024 / 10_000
STREAM_KIB = 16  # besides its message
FEW_TUPLES = 1000  # messages of about 10 KiB


def request(max_results):
    """GetMetadataAllocatedRequest: snapshot_id "v/s", and max_results."""
    number, text = max_results, b"\x0a\x03v/s\x18"
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def whole_answer(peer):
    """A whole call."""
    stream = peer.ask(ALLOCATED, request(0))
    while True:
        kind, flags, number, payload = peer.receive()
        if kind == http2.DATA and payload:
            peer.more(stream, len(payload))
        if number == stream and flags & http2.END_STREAM:
            return


def settled(server):
    """Private resident memory in KiB, once it is stable."""
    before = -1
    for _ in range(100):
        now = server.resident("RssAnon")
        if abs(now - before) < 64:
            break
        before = now
        time.sleep(0.3)
    return now


def idle_connections(folder, root):
    tls, context = servers.tls_of(folder, "idle") if OPTIONS.tls else ([], None)
    server = servers.Server("idle", folder, None, [
        CBT, "serve", "--root", root, "--listen", f"unix://{folder}/idle", *tls])
    peers = []
    try:
        def connect():
            return http2.Connection(server.address, context=context)

        warm = connect()
        whole_answer(warm)
        before = settled(server)
        while len(peers) < OPTIONS.connections:
            peers.append(connect())
            # The server's SETTINGS and its acknowledgement of ours.
            peers[-1].receive()
        for peer in peers[::100]:
            whole_answer(peer)
        grown = (settled(server) - before) / OPTIONS.connections
        name = "tls_connection" if OPTIONS.tls else "connection"
        report.figure(f"held_{name}s", OPTIONS.connections)
        report.figure(f"held_{name}_kib", round(grown, 2))
        whole_answer(warm)
        for peer in peers:
            peer.close()
        return grown <= CONNECTION_KIB
    finally:
        server.stop()


def stalled_streams(folder, root, name, max_results):
    server = servers.Server(name, folder, None, [
        CBT, "serve", "--root", root, "--listen", f"unix://{folder}/{name}",
        "--max-streams", OPTIONS.streams + 20])
    peers = []
    try:
        warm = http2.Connection(server.address)
        whole_answer(warm)
        before = settled(server)
        # The first message of a stream that is read.
        probe = http2.Connection(server.address)
        probe.ask(ALLOCATED, request(max_results))
        kind, payload = None, b""
        while kind != http2.DATA:
            kind, _, _, payload = probe.receive()
        message = struct.unpack(">I", payload[1:5])[0] / 1024
        probe.close()
        for number in range(OPTIONS.streams):
            if number % STREAMS_A_CONNECTION == 0:
                peers.append(http2.Connection(server.address, window=0))
            peers[-1].ask(ALLOCATED, request(max_results))
        report.check(servers.settle(lambda: server.streams() == OPTIONS.streams, 60), "streams are missing")
        grown = (settled(server) - before) / OPTIONS.streams
        report.figure(f"held_{name}_message_kib", round(message, 1))
        report.figure(f"held_{name}_stream_kib", round(grown, 1))
        whole_answer(warm)
        for peer in peers:
            peer.close()
        return grown <= STREAM_KIB + message
    finally:
        server.stop()


def main():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = tempfile.mkdtemp(prefix="cbt-held-")
    try:
        root = half_map.make_root(CBT, folder)
        met = []
        if OPTIONS.connections:
            met.append(idle_connections(folder, root))
        if OPTIONS.streams:
            met.append(stalled_streams(folder, root, "few", FEW_TUPLES))
            met.append(stalled_streams(folder, root, "all", 0))
        report.check(all(met) or not OPTIONS.judge, "a figure misses its target")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
