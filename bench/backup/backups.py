"""Compares backups, restores and exports of whole processes with restic and with bare loops.

  python3 bench/backup/backups.py CBTCTL [--folder FOLDER] [--restic PROGRAM] [--mib N]
                                  [--volume-gib N] [--rounds N] [--only ROW...] [--cold]

The programs take turns, so that a machine that becomes slower hits all. Prints for each row the wall
clock and the processor time of each program (minimum, median, maximum), its peak memory, and the
medians of the ratios to ours. FOLDER decides which disk is measured; /dev/shm leaves only the
programs. --cold drops the input from the page cache before each run.

  full       a volume of random data into an empty repository
  increment  a sparse volume of which 0.2 % changed, in 32 clusters; restic reads all of it
  dense      the same of a volume without zeros, which nbdkit computes (dense_volume.c); both read it over
             NBD, restic as `nbdcopy VOLUME - | restic backup --stdin`; processor time is the programs' own.
             Takes minutes: only where --only names it
  restore    the random data to a new file, both from our repository; restic does not sync, so `sync`
             of its file counts as well
  export     the random data as an increment to /dev/null, against `dd` of the same
  pipe       the same into a pipe that `cat` reads
  file       the same to a file, against `dd` to a file; both wait for the disk
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CLUSTERS = 32
VOLUME = str(pathlib.Path(__file__).resolve().with_name("dense_volume.c"))


# The peak of a process begins with the memory of the one that it was forked from: a small one.
RUNNER = """
import os, sys, time
report_to = int(sys.argv[1])
os.set_inheritable(report_to, False)
begin = time.monotonic()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
wall = time.monotonic() - begin
os.write(report_to, b"%d %f %f %d" % (os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss))
"""


class Run:
    def __init__(self, wall, cpu, peak_mib, output):
        self.wall, self.cpu, self.peak_mib, self.output = wall, cpu, peak_mib, output


def measure(command, environment, output=subprocess.DEVNULL, stdin=os.devnull):
    """Runs a command to its end; `output` as in subprocess, `stdin` is a path or a descriptor."""
    outcome, report_to = os.pipe()
    with open(stdin, "rb", closefd=isinstance(stdin, str)) as source, open(outcome, encoding="ascii") as figures:
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", RUNNER, str(report_to), *command], pass_fds=[report_to],
                                   env={**os.environ, **environment}, stdin=source, stdout=output, stderr=subprocess.PIPE)
        os.close(report_to)
        text = process.stdout.read() if output == subprocess.PIPE else b""
        said = process.stderr.read()
        process.wait()
        status, wall, cpu, peak = figures.read().split()
    if status != "0":
        sys.exit(f"{command}: status {status}: {said.decode()}")
    return Run(float(wall), float(cpu), int(peak) / 1024, text)


def fill(path, size, holes_between=0):
    """Random data; with holes, one MiB of it and then so many of nothing."""
    with open(path, "wb") as file:
        file.truncate(size)
        for at in range(0, size, MIB * (1 + holes_between)):
            file.seek(at)
            file.write(random.randbytes(min(MIB, size - at)))
        os.fsync(file.fileno())


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.servers = options, folder, []
        self.environment = {"RESTIC_PASSWORD": "bench", "HOME": folder}
        self.size = options.mib * MIB
        self.image = f"{folder}/image"
        fill(self.image, self.size)

    def cbt(self, *arguments, repository="ours", **options):
        return measure([self.options.cbtctl, *arguments], {**self.environment, "RESTIC_REPOSITORY": f"{self.folder}/{repository}"},
                       **options)

    def restic(self, *arguments, repository, **options):
        return measure([self.options.restic, "--no-cache", "-q", *arguments],
                       {**self.environment, "RESTIC_REPOSITORY": f"{self.folder}/{repository}"}, **options)

    def empty(self, repository):
        shutil.rmtree(f"{self.folder}/{repository}", ignore_errors=True)
        self.restic("init", repository=repository)

    def forget(self, path):
        """Drops a file from the page cache."""
        if not self.options.cold:
            return
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    # Each row: what is done once before, and a function for each program.

    def full(self):
        def ours():
            self.empty("ours")
            self.forget(self.image)
            return self.cbt("backup", "create", "vol", "--data", self.image, "--handle", "one")

        def restic():
            self.empty("theirs")
            self.forget(self.image)
            return self.restic("backup", self.image, repository="theirs")

        return {"cbt": ours, "restic": restic}

    def increment(self):
        size = self.options.volume_gib << 30
        volumes = [f"{self.folder}/before", f"{self.folder}/after"]
        fill(volumes[0], size, holes_between=63)
        subprocess.run(["cp", "--sparse=always", *volumes], check=True)
        changed = size // 500 // CLUSTERS
        with open(volumes[1], "r+b") as file:
            for i in range(CLUSTERS):
                file.seek(i * (size // CLUSTERS) + MIB // 2)
                file.write(random.randbytes(changed))
        delta = f"{self.folder}/delta.cbm"
        self.cbt("delta", *volumes, "--from", "image", "--output", delta, "--base-name", "one", "--target-name", "two")
        self.empty("ours-base")
        self.cbt("backup", "create", "vol", "--data", volumes[0], "--handle", "one", repository="ours-base")
        self.empty("theirs-base")
        self.restic("backup", "--stdin", "--stdin-filename", "vol", repository="theirs-base", stdin=volumes[0])
        expected = CLUSTERS * (changed + 2 * MIB)

        def again(repository):
            shutil.rmtree(f"{self.folder}/{repository}", ignore_errors=True)
            shutil.copytree(f"{self.folder}/{repository}-base", f"{self.folder}/{repository}")

        def ours():
            again("ours")
            run = self.cbt("backup", "create", "vol", "--json", "--data", volumes[1], "--delta", delta, "--handle", "two",
                           "--require-incremental", output=subprocess.PIPE)
            read = json.loads(run.output.splitlines()[-1])["bytes_read"]
            if read > expected:
                sys.exit(f"read {read} bytes of {expected} in touched blobs")
            return run

        def restic():
            again("theirs")
            return self.restic("backup", "--stdin", "--stdin-filename", "vol", repository="theirs", stdin=volumes[1])

        return {"cbt": ours, "restic": restic}

    def dense(self):
        size = self.options.volume_gib << 30

        def volume(state):
            name = f"{self.folder}/{state}.socket"
            if not os.path.exists(name):
                self.servers.append(subprocess.Popen(["nbdkit", "-f", "-r", "-U", name, "cc", VOLUME, "EXTRA_CFLAGS=-O2",
                                                      f"size={size}", f"changed={state}"]))
                while not os.path.exists(name):
                    time.sleep(0.01)
            return f"nbd+unix:///?socket={name}"

        changed = size // 500 // CLUSTERS // 4096 * 4096
        extents = [{"offset": i * (size // CLUSTERS) + MIB // 2, "length": changed, "exists": "true"} for i in range(CLUSTERS)]
        delta = pathlib.Path(f"{self.folder}/dense.json")
        delta.write_text(json.dumps(extents), encoding="ascii")

        states = {"ours": 0, "theirs": 0}

        def ours(*arguments):
            run = self.cbt("backup", "create", "vol", "--json", "--data", volume(states["ours"]),
                           "--handle", str(states["ours"]), *arguments, output=subprocess.PIPE)
            states["ours"] += 1
            return run

        def theirs():
            with subprocess.Popen(["nbdcopy", volume(states["theirs"]), "-"], stdout=subprocess.PIPE) as copy:
                run = self.restic("backup", "--stdin", "--stdin-filename", "vol", repository="theirs", stdin=copy.stdout.fileno())
            states["theirs"] += 1
            return run

        def increment():
            run = ours("--delta", str(delta), "--capacity", str(size), "--delta-base", str(states["ours"] - 1),
                       "--require-incremental")
            read = json.loads(run.output.splitlines()[-1])["bytes_read"]
            if read > CLUSTERS * (changed + 2 * MIB):
                sys.exit(f"read {read} bytes, more than the touched blobs")
            return run

        for name, repository, backup in (("cbt", "ours", ours), ("restic", "theirs", theirs)):
            self.empty(repository)
            run = backup()
            print(f"dense     {name:8}full backup: wall {run.wall:.1f} s, cpu {run.cpu:.1f} s", flush=True)
        return {"cbt": increment, "restic": theirs}

    def restore(self):
        self.empty("kept")
        self.cbt("backup", "create", "vol", "--data", self.image, "--handle", "one", repository="kept")
        target = f"{self.folder}/target"

        def clean():
            shutil.rmtree(target, ignore_errors=True)
            os.mkdir(target)

        def ours():
            clean()
            return self.cbt("backup", "restore", "vol", "--to", f"{target}/vol", repository="kept")

        def restic():
            clean()
            run = self.restic("restore", "latest", "--target", target, repository="kept")
            sync = measure(["sync", f"{target}/vol"], {})
            return Run(run.wall + sync.wall, run.cpu + sync.cpu, run.peak_mib, b"")

        return {"cbt": ours, "restic": restic}

    def everything(self):
        """A map that says that all of the image changed."""
        pathlib.Path(f"{self.folder}/nothing").write_bytes(b"")
        os.truncate(f"{self.folder}/nothing", self.size)
        delta = f"{self.folder}/all.cbm"
        self.cbt("delta", f"{self.folder}/nothing", self.image, "--from", "image", "--output", delta)
        return ("export", delta, "--data", self.image, "--backing", "base.img", "--output")

    def export(self):
        command = self.everything()

        def ours():
            self.forget(self.image)
            return self.cbt(*command, "-")

        def limit():
            self.forget(self.image)
            return measure(["dd", f"if={self.image}", "of=/dev/null", "bs=1M"], {})

        return {"cbt": ours, "limit": limit}

    def pipe(self):
        command = self.everything()

        def read_by_cat(run):
            self.forget(self.image)
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
                return run(reader.stdin)

        return {"cbt": lambda: read_by_cat(lambda out: self.cbt(*command, "-", output=out)),
                "limit": lambda: read_by_cat(lambda out: measure(["dd", f"if={self.image}", "bs=1M"], {}, output=out))}

    def file(self):
        command = self.everything()
        target = f"{self.folder}/increment.qcow2"

        def ours():
            pathlib.Path(target).unlink(missing_ok=True)
            self.forget(self.image)
            return self.cbt(*command, target)

        def limit():
            pathlib.Path(target).unlink(missing_ok=True)
            self.forget(self.image)
            return measure(["dd", f"if={self.image}", f"of={target}", "bs=1M", "conv=fdatasync"], {})

        return {"cbt": ours, "limit": limit}


ROWS = ("full", "increment", "restore", "export", "pipe", "file")
LONG_ROWS = ("dense",)


def spread(values):
    return f"{min(values):8.3f} {statistics.median(values):8.3f} {max(values):8.3f}"


def report(row, runs):
    for name, some in runs.items():
        print(f"{row:10}{name:8} wall {spread([run.wall for run in some])} s   cpu {spread([run.cpu for run in some])} s   "
              f"peak {max(run.peak_mib for run in some):5.0f} MiB")
    for name, some in runs.items():
        if name == "cbt":
            continue
        pairs = list(zip(some, runs["cbt"]))
        print(f"{row:10}ratio to {name}: wall {statistics.median(a.wall / b.wall for a, b in pairs):.2f}, "
              f"cpu {statistics.median(a.cpu / b.cpu for a, b in pairs):.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cbtctl")
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--restic", default=shutil.which("restic"))
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--volume-gib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=ROWS + LONG_ROWS, default=ROWS)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    if options.restic is None:
        sys.exit("restic is not installed: --restic names one")
    print(subprocess.run([options.restic, "version"], check=True, capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options, folder)
        try:
            for row in options.only:
                programs = getattr(bench, row)()
                runs = {name: [] for name in programs}
                for turn in range(options.rounds):
                    for name in programs if turn % 2 == 0 else reversed(programs):
                        runs[name].append(programs[name]())
                report(row, runs)
        finally:
            for server in bench.servers:
                server.kill()
                server.wait()


if __name__ == "__main__":
    main()
