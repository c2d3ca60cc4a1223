"""Rows 14 and 15 of the scorecard: the cost of readers that are slow, stop, or leave silently.

load.py CBT FOLDER_OF_CSI_PB2 SLOW_READERS [--streams N] [--cycles N]

Fails on what does not depend on the machine's speed: slots, descriptors, answers. Memory and speed
are printed as figures.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
ARGUMENTS.add_argument("cbt")
ARGUMENTS.add_argument("messages")
ARGUMENTS.add_argument("slow_readers", help="path of the slow_readers program")
ARGUMENTS.add_argument("--streams", type=int, default=1000, help="slow readers; 0 skips row 14")
ARGUMENTS.add_argument("--rounds", type=int, default=5, help="rounds of row 14")
ARGUMENTS.add_argument("--seconds", type=float, default=10, help="duration of reading, and again after they stopped")
ARGUMENTS.add_argument("--cycles", type=int, default=10_000, help="cycles of row 15; 0 skips it")
ARGUMENTS.add_argument("--stalled", type=int, default=200, help="stalled readers that the server must disconnect")
ARGUMENTS.add_argument("--seed", type=int, default=1)
OPTIONS = ARGUMENTS.parse_args()
CBT = os.path.abspath(OPTIONS.cbt)
sys.path.insert(0, OPTIONS.messages)

# pylint: disable=wrong-import-position
import csi_pb2  # noqa: E402
import half_map  # noqa: E402
import http2  # noqa: E402
import report  # noqa: E402
import servers  # noqa: E402
from slow_readers import SlowReaders  # noqa: E402

ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
# What slow readers request: messages of a thousand tuples (about 10 KiB), or as large as the server
# makes them (128 KiB).
FEW_TUPLES, ALL_TUPLES = 1000, 0
STALL_SECONDS = 2
TRIM_SECONDS = 10  # how often a server returns free memory
KEEPALIVE_SECONDS = 90  # by then a server has noticed every lost connection


def request(max_results=0):
    return csi_pb2.GetMetadataAllocatedRequest(
        snapshot_id="v/s", max_results=max_results).SerializeToString()


def fast_client(server):
    """Gets the whole answer through `cbtctl list`; it must be right."""
    done = subprocess.run([CBT, "list", server.address, "--snapshot", "v/s", "--format", "csv",
                           "--prove"], stdout=subprocess.PIPE, check=True)
    report.check(done.stdout.count(b"\n") == half_map.TUPLES + 5, "a fast client did not get all tuples")


def lists_a_second(server, seconds):
    """Whole answers per second that a fast client gets."""
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        fast_client(server)
        count += 1
    return count / (time.monotonic() - begin)


def steady(server):
    """Resident memory in KiB once it is stable: private, and with mapped files."""
    before = server.resident()
    for _ in range(100):
        time.sleep(0.3)
        now = server.resident()
        if abs(now - before) < 256:
            break
        before = now
    return server.resident("RssAnon"), now


def slow_round(server, before, max_results):
    """One round of row 14: the slow readers' cost in KiB, (private, with mapped files), and the
    speed of others while the readers (read, have stopped), relative to their speed alone.
    """
    alone = [lists_a_second(server, OPTIONS.seconds / 2)]
    readers = SlowReaders(OPTIONS.slow_readers, server, "v/s", OPTIONS.streams, max_results)
    beside = [lists_a_second(server, OPTIONS.seconds)]
    slow = server.resident("RssAnon"), server.resident()
    rate = readers.stop()
    stopped = steady(server)
    report.check(server.streams() == OPTIONS.streams, "a slow reader lost its stream")
    beside.append(lists_a_second(server, OPTIONS.seconds))
    readers.close()
    report.check(servers.settle(lambda: server.streams() == 0, 30), "slots are not given back")
    # The machine's own speed varies meanwhile.
    alone.append(lists_a_second(server, OPTIONS.seconds / 2))
    growth = [max(pair) - was for *pair, was in zip(slow, stopped, before)]
    return {"growth": growth, "speeds": [speed / statistics.mean(alone) for speed in beside],
            "size": readers.size, "rate": rate, "stopped": stopped[1]}


def slow_rounds(server, before, name, max_results):
    """The figures of the rounds with one kind of readers."""
    rounds = [slow_round(server, before, max_results) for _ in range(OPTIONS.rounds)]
    report.figure(f"r14_{name}_message_kib", round(rounds[0]["size"] / 1024))
    report.figure(f"r14_{name}_messages_a_second", round(min(one["rate"] for one in rounds)))
    # Memory: the worst round counts. Speed varies: the median, and all values.
    for kind, text in enumerate(["", "_with_mapped_files"]):
        growth = max(one["growth"][kind] for one in rounds) / OPTIONS.streams
        report.figure(f"r14_{name}_growth{text}_kib_per_stream", round(growth, 1))
    for kind, text in enumerate(["reading", "stopped"]):
        speeds = [round(100 * one["speeds"][kind]) for one in rounds]
        print(f"speeds of others in percent, beside readers that are {text}:", *speeds)
        report.figure(f"r14_{name}_others_{text}_percent", round(statistics.median(speeds)))
    report.figure(f"r14_{name}_rss_stopped_kib", rounds[0]["stopped"])


def row_14(folder, root):
    server = servers.Server("serve", folder, None, [
        CBT, "serve", "--root", root, "--listen", f"unix://{folder}/slow",
        "--max-streams", OPTIONS.streams + 20])
    try:
        report.figure("r14_streams", OPTIONS.streams)
        # Once: what a round leaves counts in the next one.
        fast_client(server)
        before = steady(server)
        report.figure("r14_rss_before_kib", before[1])
        slow_rounds(server, before, "few", FEW_TUPLES)
        slow_rounds(server, before, "all", ALL_TUPLES)
        time.sleep(TRIM_SECONDS + 1)
        report.figure("r14_rss_after_kib", steady(server)[1])
    finally:
        server.stop()


def cycle(rng, server):
    """A client that connects and leaves in one of many ways."""
    connection = http2.Connection(server.address)
    how = rng.randrange(6)
    try:
        if how == 0:
            return
        if how == 1:
            connection.socket.sendall(rng.randbytes(rng.randrange(1, 100)))
            return
        stream = connection.ask(ALLOCATED, request(rng.choice([0, 1, 1000])))
        if how == 2:
            return
        for _ in range(rng.randrange(1, 8)):
            if connection.receive() is None:
                break
        if how == 3:
            connection.reset(stream)
    except (BrokenPipeError, ConnectionResetError):
        pass  # what it sent was not HTTP/2
    finally:
        connection.close(linger=rng.random() < 0.5)


def few(before, now):
    """Whether descriptors were released. A leak would be one per client, hundreds in all; one extra
    descriptor in ten thousand clients only shows in the figure.
    """
    return all(b - a <= 2 for a, b in zip(before, now))


def row_15(folder, root):
    plugin = servers.Server("plugin", folder, None, [
        CBT, "serve", "--root", root, "--listen", f"unix://{folder}/plugin", "--max-streams", 500,
        "--stall-time", STALL_SECONDS])
    relay = servers.Server("relay", folder, None, [
        CBT, "relay", "--plugin", plugin.address, "--listen", "127.0.0.1:0", "--max-streams", 500,
        "--api", "csi", "--stall-time", STALL_SECONDS])
    both = (plugin, relay)
    rng = random.Random(OPTIONS.seed)

    def cycles(count):
        for number in range(count):
            cycle(rng, both[number % 2])

    def idle(most=None):
        """(memory, descriptors) of both without clients, and the remaining streams. Waits for the
        number of descriptors to return to `before`, if given.
        """
        for number, server in enumerate(both):
            servers.settle(lambda s=server: s.streams() == 0, 30)
            if most:
                servers.settle(lambda s=server, n=number: s.descriptors() <= most[n], KEEPALIVE_SECONDS)
        slots = sum(server.streams() for server in both)
        # Sockets of disconnected clients are closed a moment later.
        counts = [server.descriptors() for server in both]
        for _ in range(30):
            time.sleep(0.1)
            counts = [min(a, s.descriptors()) for a, s in zip(counts, both)]
        time.sleep(TRIM_SECONDS + 1)
        return [steady(server)[1] for server in both], counts, slots

    try:
        # The first cycles fill what a server keeps: caches, and the layout of its heap.
        cycles(OPTIONS.cycles)
        for server in both:
            fast_client(server)
        memory, descriptors, _ = idle()
        cycles(OPTIONS.cycles)
        later, now, slots = idle(descriptors)
        report.figure("r15_cycles", OPTIONS.cycles)
        change = max((b - a) * 100 / a for a, b in zip(memory, later))
        report.figure("r15_rss_change_percent", round(change, 2))
        report.figure("r15_rss_before_kib", "/".join(map(str, memory)))
        report.figure("r15_rss_after_kib", "/".join(map(str, later)))
        report.figure("r15_descriptors_change", max(b - a for a, b in zip(descriptors, now)))
        report.figure("r15_slots_left", slots)
        report.check(slots == 0, f"{slots} streams are still open")
        report.check(few(descriptors, now), f"descriptors: {descriptors}, then {now}")

        # Readers that hold their connection and take nothing: the server disconnects them.
        silent = []
        for number in range(OPTIONS.stalled):
            silent.append(http2.Connection(both[number % 2].address))
            stream = silent[-1].ask(ALLOCATED, request())
            while silent[-1].receive()[0] != http2.DATA:
                pass
            report.check(stream == 1, "the first stream of a connection")
        begin = time.monotonic()
        report.check(servers.settle(lambda: not any(s.streams() for s in both), STALL_SECONDS + 60),
              "stalled streams are never given up")
        report.figure("r15_stalled", OPTIONS.stalled)
        report.figure("r15_stalled_given_up_seconds", round(time.monotonic() - begin, 1))
        report.figure("r15_stall_time_seconds", STALL_SECONDS)
        for connection in silent:
            connection.close()
        memory, now, slots = idle(descriptors)
        report.figure("r15_rss_after_stalled_kib", "/".join(map(str, memory)))
        report.check(slots == 0 and few(descriptors, now),
              f"after stalls {slots} streams, {now} descriptors")
        for server in both:
            fast_client(server)
    finally:
        for server in reversed(both):
            server.stop()


def main():
    print(f"load: seed {OPTIONS.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="cbt-load-")
    try:
        root = half_map.make_root(CBT, folder)
        if OPTIONS.streams:
            row_14(folder, root)
        if OPTIONS.cycles:
            row_15(folder, root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
