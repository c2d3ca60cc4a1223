"""Compares nbdkit's plugin for tracked volumes with nbdkit's own plugin for files.

  python3 bench/volume/volumes.py build/release [--folder FOLDER] [--rounds N] [--seconds S]

The servers take turns, so that a machine that becomes slower hits both. Prints, for each workload,
the median throughput and the server's processor time per MiB of both, and the medians of their
ratios. FOLDER decides which disk is measured; /dev/shm leaves only the servers.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

SIZE = 1 << 28


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(build, folder, plugin, workload, seconds):
    """Bytes per second, and processor seconds of the server per MiB."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        socket = f"{scratch}/socket"
        if plugin == "file":
            with open(f"{scratch}/data", "wb") as data:
                data.truncate(SIZE)
            arguments = ["file", f"{scratch}/data"]
        else:
            arguments = [f"{build}/lib/nbdkit-cbt-plugin.so", f"directory={scratch}/volume",
                         f"size={SIZE}"]
        server = subprocess.Popen(["nbdkit", "-f", "-U", socket, *arguments])
        try:
            end = time.monotonic() + 60
            while not os.path.exists(socket):
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"nbdkit {arguments[0]} does not start")
                time.sleep(0.01)
            load = f"{build}/bin/nbd_load"
            # Everything is allocated and, in the tracker, marked: the state of a volume in use.
            subprocess.run([load, socket, "fill", "0"], check=True, capture_output=True)
            before = cpu_seconds(server.pid)
            output = subprocess.run([load, socket, workload, str(seconds)], check=True,
                                    capture_output=True, text=True).stdout
            rate = float(output)
            return rate, (cpu_seconds(server.pid) - before) / (rate * seconds / 2**20)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    for workload, name in [("random", "4 KiB random, 32 in flight"),
                           ("sequential", "1 MiB sequential")]:
        results = {"file": [], "cbt": []}
        for turn in range(options.rounds):
            for plugin in ("file", "cbt") if turn % 2 == 0 else ("cbt", "file"):
                results[plugin].append(
                    measure(options.build, options.folder, plugin, workload, options.seconds))
        for plugin, rows in results.items():
            rates = sorted(rate / 2**20 for rate, _ in rows)
            cpu = statistics.median(cpu for _, cpu in rows)
            print(f"{name:28} {plugin:5} {rates[0]:8.1f} {statistics.median(rates):8.1f} "
                  f"{rates[-1]:8.1f} MiB/s (min, median, max)  {cpu * 1e3:7.3f} ms of CPU per MiB")
        pairs = list(zip(results["cbt"], results["file"]))
        print(f"{name:28} ratio {statistics.median(c[0] / f[0] for c, f in pairs):.3f} of the "
              f"throughput, {statistics.median(c[1] / f[1] for c, f in pairs):.3f} of the CPU time",
              flush=True)


if __name__ == "__main__":
    main()
