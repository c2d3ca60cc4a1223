"""Compares relays as processes: what a client waits for, and the relay's own processor time.

  python3 bench/rpc/relays.py build/release [--tuples N] [--rounds N]

A plugin (`cbt serve`) streams blocks; `cbt list` reads them directly, through `cbt relay`, through
`cbt-cluster sidecar`, and through the Go sidecar if CBT_PEER_SIDECAR names its program. All relays speak TLS
and ask the same API server, which is a fake. They take turns, so that a machine that becomes slower
hits all. Prints the medians of: seconds that the client takes; processor seconds and page faults of
the relay; and their ratios to the Go sidecar's.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = "images.cbt.example.com"


def parts_of(build):
    sys.path[:0] = [str(pathlib.Path(build, "tests", "interop")),
                    str(PROJECT / "tests" / "sidecar")]
    import parts  # pylint: disable=import-outside-toplevel,import-error
    return parts


def used(pid):
    """Processor seconds and page faults of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7])


class World:
    """The plugin, the API server and the relays."""

    def __init__(self, build, folder, tuples):
        self.cbt = str(pathlib.Path(build, "bin", "cbt"))
        self.folder = folder
        self.processes = []
        self.parts = parts_of(build)
        self.api = self.parts.FakeApi()
        self.csi = f"unix://{folder}/csi.sock"
        os.makedirs(f"{folder}/volumes/ns")
        # Every other block, so that no two of them are one extent.
        subprocess.run([self.cbt, "map", "convert", "-", "--output", f"{folder}/volumes/ns/snap.cbm", "--from",
                        "bitmap:granularity=4096", "--as", "allocated", "--capacity", str(2 * tuples * 4096), "--target-name", "snap"],
                       input=b"\x55" * (tuples // 4), check=True)
        self.plugin = self.start("serve", "--root", f"{folder}/volumes", "--listen", self.csi)

    def start(self, *arguments):
        ready, child = os.pipe()
        process = subprocess.Popen([self.cbt, *arguments, "--ready-fd", str(child)],
                                   pass_fds=[child], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        os.close(child)
        self.processes.append(process)
        with os.fdopen(ready) as pipe:
            if not pipe.readline():
                raise SystemExit(f"cbt {arguments[0]} does not start")
        return process

    def certify(self):
        self.parts.make_certificate(self.folder, "ca")
        self.parts.make_certificate(self.folder, "tls", "ca")
        pathlib.Path(self.folder, "token").write_text("good-user", encoding="ascii")
        pathlib.Path(self.folder, "tokens").write_text("good-user bench ns\n", encoding="ascii")
        self.api.put(self.parts.service(name=DRIVER), self.parts.snapshot(),
                     self.parts.content(handle="ns/snap", driver=DRIVER),
                     self.parts.snapshot_class(driver=DRIVER))

    def relay(self):
        port = self.parts.free_port()
        return port, self.start("relay", "--plugin", self.csi, "--listen", f"127.0.0.1:{port}",
                                "--tls-cert", f"{self.folder}/tls.crt", "--tls-key",
                                f"{self.folder}/tls.key", "--tokens", f"{self.folder}/tokens")

    def sidecar(self, program):
        port, http = self.parts.free_port(), self.parts.free_port()
        process = subprocess.Popen(
            [*program, f"--csi-address={self.folder}/csi.sock", f"--port={port}",
             f"--tls-cert={self.folder}/tls.crt", f"--tls-key={self.folder}/tls.key",
             f"--http-endpoint=127.0.0.1:{http}", f"--kubeconfig={self.api.kubeconfig(self.folder)}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        peer = self.parts.Sidecar.__new__(self.parts.Sidecar)
        peer.http = http
        if not self.parts.wait_until(lambda: peer.health() == 200, 60):
            raise SystemExit(f"{program[0]} does not start")
        return port, process

    def read(self, port):
        """Reads the stream once, directly without a port, and returns the seconds."""
        if port is None:
            where = [self.csi, "--snapshot", "ns/snap"]
        else:
            where = [f"localhost:{port}", "--api", "kubernetes", "--namespace", "ns", "--snapshot",
                     "snap", "--token-file", f"{self.folder}/token", "--tls-ca",
                     f"{self.folder}/ca.crt"]
        began = time.monotonic()
        subprocess.run([self.cbt, "list", *where, "--format", "csv", "--retry-for", "0"], check=True,
                       stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)
        self.api.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--tuples", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World(arguments.build, folder, arguments.tuples)
        try:
            world.certify()
            ways = {"direct": (None, None), "cbt relay": world.relay(),
                    "cbt-cluster sidecar": world.sidecar([world.parts.cluster(world.cbt), "sidecar"])}
            if os.environ.get("CBT_PEER_SIDECAR"):
                ways["Go sidecar"] = world.sidecar([os.environ["CBT_PEER_SIDECAR"]])
            rows = {way: [] for way in ways}
            for _ in range(arguments.rounds):
                for way, (port, process) in ways.items():
                    before = used(process.pid) if process else (0, 0)
                    seconds = world.read(port)
                    after = used(process.pid) if process else (0, 0)
                    rows[way].append((seconds, after[0] - before[0], after[1] - before[1]))
        finally:
            world.stop()
    medians = {way: [statistics.median(column) for column in zip(*row)] for way, row in rows.items()}
    peer = medians.get("Go sidecar")
    print(f"{arguments.tuples} blocks, medians of {arguments.rounds} rounds")
    for way, (seconds, cpu, faults) in medians.items():
        text = f"{way:12} {seconds:7.2f} s"
        if ways[way][1]:
            text += f"  relay: {cpu:6.2f} s of processor, {faults:7.0f} page faults"
        if peer and way.startswith("cbt"):
            text += f"  Go / it: wall {peer[0] / seconds:.1f}, processor {peer[1] / max(cpu, 0.01):.1f}"
        print(text)


if __name__ == "__main__":
    main()
