"""Rows of backups beside restic (bench/backup/backups.py runs them too), and of an RBD image beside
`rbd export-diff`, on a Ceph of one monitor and one OSD in memory."""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys

from turns import OURS, Program, Run, run_all, version

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "bench" / "backup"))
import backups  # noqa: E402  pylint: disable=wrong-import-position,import-error

MIB = 1 << 20


class Backups:
    def __init__(self, cbt, folder, mib, volume_gib):
        self.restic = os.environ.get("CBT_PEER_RESTIC") or shutil.which("restic")
        self.volume_gib, self.mib = volume_gib, mib
        options = argparse.Namespace(cbtctl=cbt, restic=self.restic, mib=mib, volume_gib=volume_gib, cold=False)
        self.bench = backups.Bench(options, folder)
        self.peer = "restic " + version(self.restic, "version")

    def programs(self, row):
        def adapt(function):
            def run():
                done = function()
                return Run(done.wall, done.cpu, done.peak_mib)
            return run
        return [Program(name, function=adapt(function)) for name, function in getattr(self.bench, row)().items()]

    def full(self):
        return f"`backup create`, {self.mib} MiB of random data", self.programs("full"), {"restic": self.peer}

    def increment(self):
        return (f"`backup create`, 0.2 % of a sparse {self.volume_gib} GiB changed", self.programs("increment"), {"restic": self.peer})

    def restore(self):
        return f"`backup restore` of {self.mib} MiB", self.programs("restore"), {"restic": self.peer}


class Ceph:
    """An image with two snapshots, of which the second changed one object in sixteen."""

    def __init__(self, cbt, folder, mib):
        self.cbt, self.folder, self.size = cbt, folder, mib * MIB
        self.server = None
        self.shell(f"configure_ceph none {4 * self.size}; start_ceph; ceph osd pool create rbd 8; ceph osd pool application enable rbd rbd")
        self.environment = {"CEPH_CONF": f"{folder}/ceph.conf"}
        self.make()

    def shell(self, script):
        whole = f"source {PROJECT}/tests/ceph/cluster.sh; export CEPH_CONF=$PWD/ceph.conf; {script}"
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", whole], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        if done.returncode != 0:
            sys.exit(f"Ceph: {done.stdout}")

    def make(self):
        generator = random.Random(1)
        with open(f"{self.folder}/mon.img", "wb") as file:
            for _ in range(self.size // MIB):
                file.write(generator.randbytes(MIB))
        shutil.copy(f"{self.folder}/mon.img", f"{self.folder}/tue.img")
        self.shell("rbd import --no-progress --object-size 1M mon.img vol; rbd snap create --no-progress vol@mon")
        with open(f"{self.folder}/tue.img", "r+b") as file:
            for at in range(0, self.size, 16 * MIB):
                data = generator.randbytes(MIB)
                file.seek(at)
                file.write(data)
                with open(f"{self.folder}/piece", "wb") as piece:
                    piece.write(data)
                self.shell(f"/usr/bin/python3 {PROJECT}/tests/ceph/image.py write vol {at} piece")
        self.shell("rbd snap create --no-progress vol@tue")
        self.socket = f"{self.folder}/nbd.sock"
        image = f"rbd:rbd/vol@tue:conf={self.folder}/ceph.conf"
        self.server = subprocess.Popen(["qemu-nbd", "-r", "-t", "-f", "raw", "-k", self.socket, image], stdin=subprocess.DEVNULL)

    def stop(self):
        if self.server:
            self.server.terminate()
            self.server.wait(30)
        self.shell("end_ceph")

    def export(self):
        script = (f"rbd diff --format json --from-snap mon vol@tue >diff.json && '{self.cbt}' export diff.json --from rbd-json "
                  f"--capacity {self.size} --data 'nbd+unix:///?socket={self.socket}' --backing mon.img --backing-format raw "
                  "--output ours.qcow2 --quiet")
        ours = Program(OURS, ["sh", "-c", f"cd {self.folder} && {script}"], environment=self.environment)
        script = "rm -f theirs.diff && rbd export-diff --no-progress --from-snap mon vol@tue theirs.diff"
        theirs = Program("rbd", ["sh", "-c", f"cd {self.folder} && {script}"], environment=self.environment)
        run_all(ours, theirs)
        subprocess.run(["qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", "tue.img", "ours.qcow2"], check=True, cwd=self.folder)
        listed = [subprocess.run([self.cbt, "delta", path, "--from", form, "--format", "csv", "--quiet", *more], check=True,
                                 capture_output=True, cwd=self.folder).stdout
                  for path, form, more in (("theirs.diff", "rbd-diff", []), ("diff.json", "rbd-json", ["--capacity", str(self.size)]))]
        if listed[0] != listed[1]:
            sys.exit("rbd: the increments differ")
        return (f"`rbd diff` and `export` of 1/16 of an RBD image of {self.size // MIB} MiB", [ours, theirs],
                {"rbd": "`rbd export-diff` " + version("rbd", "--version")})
