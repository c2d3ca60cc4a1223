"""Compares `cbtctl serve` with a plugin in another process (--provider) to the same data in its own.

  python3 -B bench/rpc/providers.py build/release [--tuples N] [--rounds N]

Every other block has changed. The plugin is Python's grpcio with messages that were made before, so
that the server's part shows: its processor seconds, and the client's wait. Rounds take turns. The
folder build/release/tests/interop has the messages (`make test-build`).
"""

import argparse
import array
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def used(pid):
    """Processor seconds of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--tuples", type=int, default=24_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sys.path[:0] = [str(arguments.build / "tests" / "interop"), str(PROJECT / "tests" / "interop")]
    import provider_support as support  # pylint: disable=import-outside-toplevel,import-error
    cbt, tuples = str(arguments.build / "bin" / "cbtctl"), arguments.tuples // 8 * 8
    support.service.CBT = cbt
    capacity, bits = 2 * tuples * 4096, b"\x55" * (tuples // 4)
    with tempfile.TemporaryDirectory(prefix="cbt-providers-") as folder:
        os.makedirs(f"{folder}/root")
        subprocess.run([cbt, "map", "convert", "-", "--output", f"{folder}/root/snap.cbm", "--from", "bitmap:granularity=4096",
                        "--as", "allocated", "--capacity", str(capacity), "--target-name", "snap"], input=bits, check=True)
        pathlib.Path(f"{folder}/root/.bits").write_bytes(bits)
        pathlib.Path(f"{folder}/root/bits.source").write_text(
            f"target bits\nfrom bitmap:granularity=4096\naddress .bits\ncapacity {capacity}\n", encoding="utf-8")

        def extents():
            for begin in range(0, tuples, 32768):
                numbers = range(begin, min(begin + 32768, tuples))
                offsets = array.array("Q", (number * 8192 for number in numbers))
                lengths = array.array("Q", [4096]) * len(offsets)
                # Packed fields of fixed64, as any encoder writes them.
                yield support.Answer(extents=support.Extents(offsets_bytes=offsets, lengths_bytes=lengths)).SerializeToString()

        made = list(extents())
        answers = {
            "bitmap": [support.head(capacity, support.BITMAP, granularity_bytes=4096),
                       *(support.bits(bits[at:at + (1 << 20)]) for at in range(0, len(bits), 1 << 20)), support.end(len(bits))],
            "extents": [support.head(capacity, support.EXTENTS, granularity_bytes=4096), *made, support.end(tuples)],
            "file": [support.head(0, support.FILE, file=support.File(path="snap.cbm", format="cbm")), support.end(0)],
        }
        plugin = support.Plugin(f"{folder}/plugin")
        plugin.answer = lambda request, context: iter(answers[request.target_snapshot_id])
        listen = f"unix://{folder}/csi"
        own = support.service.Server(f"{folder}/root", listen)
        other = support.Serve(f"unix://{folder}/plugin", f"{listen}2", "--provider-files", f"{folder}/root")
        rows = {("own map", own, "snap"): [], ("own bitmap", own, "bits"): [], ("plugin's file", other, "file"): [],
                ("plugin's bitmap", other, "bitmap"): [], ("plugin's extents", other, "extents"): []}
        for _ in range(arguments.rounds):
            for (name, server, snapshot), found in rows.items():
                before, start = used(server.process.pid), time.monotonic()
                subprocess.run([cbt, "list", server.address, "--snapshot", snapshot, "--format", "csv"], check=True,
                               stdout=subprocess.DEVNULL)
                found.append((used(server.process.pid) - before, time.monotonic() - start))
        base = statistics.median(cpu for cpu, _ in rows["own map", own, "snap"])
        for (name, _, _), found in rows.items():
            cpu, wall = (statistics.median(each) for each in zip(*found))
            low, high = min(cpu for cpu, _ in found), max(cpu for cpu, _ in found)
            print(f"{name:17} processor {cpu:.2f} s ({low:.2f} to {high:.2f}), {cpu / base:.2f} of the own map's; client {wall:.2f} s")
        other.stop()
        own.stop()
        plugin.stop()


if __name__ == "__main__":
    main()
