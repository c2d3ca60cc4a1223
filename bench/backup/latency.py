"""Backups and restores in a bucket each of whose requests takes a while.

  python3 bench/backup/latency.py CBTCTL [--folder FOLDER] [--restic PROGRAM] [--mib N] [--milliseconds N...]
                                  [--connections N...] [--rounds N]

The bucket is the one that CBT_TEST_S3 names, as tests/bucket/radosgw.sh sets it ("ENDPOINT BUCKET
ACCESS_KEY SECRET_KEY"; `tests/bucket/radosgw.sh python3 bench/backup/latency.py ...`), or else
tests/bucket/s3_double.py in memory, which restic can't use. A proxy in front holds back the first
byte of each answer; there is no limit on bandwidth but the machine's. A row is a full backup of random
data, an increment of 2 % in 32 clusters, or a restore to a new file; its figures are the wall clock
(minimum, median, maximum), the requests that were made, and the most memory.
"""

import argparse
import os
import pathlib
import random
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from backups import CLUSTERS, MIB, fill, measure

STORE = os.environ.get("CBT_TEST_S3", "")
DOUBLE = pathlib.Path(__file__).resolve().parents[2] / "tests/bucket/s3_double.py"


class Proxy:
    """Passes connections on; `delay` seconds go by before an answer's first byte."""

    def __init__(self, behind):
        self.behind, self.delay, self.requests = behind, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        with client, socket.create_connection(self.behind) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = False
            try:
                while True:
                    for end in select.select([client, server], [], [])[0]:
                        data = end.recv(MIB)
                        if not data:
                            return
                        # A client asks again only once it has the whole answer.
                        if end is server and asked and not data.startswith(b"HTTP/1.1 100"):
                            asked = False
                            self.requests += 1
                            time.sleep(self.delay)
                        elif end is client:
                            asked = True
                        (server if end is client else client).sendall(data)
            except OSError:
                return


class Bench:
    def __init__(self, options, folder, proxy, bucket, access, secret):
        self.options, self.folder, self.proxy = options, folder, proxy
        self.bucket, self.access, self.secret, self.number = bucket, access, secret, 0
        self.image, self.changed = f"{folder}/before", f"{folder}/after"
        size = options.mib * MIB
        fill(self.image, size)
        shutil.copyfile(self.image, self.changed)
        with open(self.changed, "r+b") as file:
            for i in range(CLUSTERS):
                file.seek(i * (size // CLUSTERS))
                file.write(random.randbytes(size // 50 // CLUSTERS))
        self.delta = f"{folder}/delta.cbm"
        subprocess.run([options.cbtctl, "delta", self.image, self.changed, "--from", "image", "--output", self.delta,
                        "--base-name", "one", "--target-name", "two"], check=True)

    def run(self, command, delay):
        self.proxy.delay, self.proxy.requests = delay, 0
        environment = {"RESTIC_PASSWORD": "bench", "HOME": self.folder, "AWS_ACCESS_KEY_ID": self.access,
                       "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_DEFAULT_REGION": "us-east-1",
                       "RESTIC_REPOSITORY": f"s3:http://127.0.0.1:{self.proxy.port}/{self.bucket}/{self.number}"}
        run = measure(command, environment)
        return run.wall, self.proxy.requests, run.peak_mib

    def ours(self, connections, delay):
        def cbt(*arguments):
            return self.run([self.options.cbtctl, "backup", *arguments, "--connections", str(connections)], delay)

        target = f"{self.folder}/target"
        yield "full", cbt("create", "vol", "--data", self.image, "--handle", "one")
        yield "increment", cbt("create", "vol", "--data", self.changed, "--delta", self.delta, "--handle", "two",
                               "--require-incremental")
        pathlib.Path(target).unlink(missing_ok=True)
        yield "restore", cbt("restore", "vol", "--to", target)
        subprocess.run(["cmp", self.changed, target], check=True)

    def restic(self, connections, delay):
        def restic(*arguments):
            return self.run([self.options.restic, "--no-cache", "-q", "-o", f"s3.connections={connections}", *arguments],
                            delay)

        target = f"{self.folder}/restored"
        yield "full", restic("backup", self.image)
        yield "increment", restic("backup", self.changed)
        shutil.rmtree(target, ignore_errors=True)
        yield "restore", restic("restore", "latest", "--target", target)

    def row(self, delay, name, programs, connections):
        rows = {}
        for _ in range(self.options.rounds):
            self.number += 1
            # Makes the repository.
            self.run([self.options.cbtctl, "backup", "create", "first", "--init", "--data", self.delta], 0)
            for row, result in programs(connections, delay):
                rows.setdefault(row, []).append(result)
        for row, results in rows.items():
            walls = [wall for wall, _, _ in results]
            peak = max(peak for _, _, peak in results)
            print(f"{delay * 1000:4.0f} ms  {name:7} {connections:3} connections  {row:10} {min(walls):7.2f} "
                  f"{statistics.median(walls):7.2f} {max(walls):7.2f} s   {results[-1][1]:5} requests   {peak:4.0f} MiB",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cbtctl")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--restic", default=shutil.which("restic"))
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--milliseconds", type=int, nargs="+", default=[0, 20, 100])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    server = None
    if STORE:
        endpoint, *store = STORE.split()
        host, port = endpoint.removeprefix("http://").split(":")
    else:
        store = ["bench", "AKIDBENCH", "secretsecretsecret"]
        server = subprocess.Popen([sys.executable, "-B", DOUBLE, *store[1:], "", store[0]], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        host, port = "127.0.0.1", server.stdout.readline()
    try:
        proxy = Proxy((host, int(port)))
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            bench = Bench(options, folder, proxy, *store)
            for delay in (milliseconds / 1000 for milliseconds in options.milliseconds):
                for connections in options.connections:
                    bench.row(delay, "cbt", bench.ours, connections)
                if STORE and options.restic is not None:
                    bench.row(delay, "restic", bench.restic, options.connections[-1])
    finally:
        if server is not None:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
