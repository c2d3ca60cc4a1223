"""Two images behind nbdkit's rate and delay filters, as files by nbdfuse: `cbtctl delta` beside dd and nbdcopy.

  python3 bench/source/filters.py CBTCTL [--mib N] [RATE,DELAY...]

RATE is MiB a second of each image, DELAY that of a read (5ms). Each command meets servers and files that have
just been started, so nothing is in the page cache. A FUSE mount has 12 reads in flight unless the limit is
raised in fusectl, which needs root; nbdfuse itself serves about eight at a time, so that with 5 ms no file of it
is faster than some 200 MiB/s. Prints a table in Markdown: what part of RATE a command reaches. A little above 1
is the filter's burst of 0.1 s.
"""

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import tempfile
import time

MIB = 1 << 20
FUSE = pathlib.Path("/sys/fs/fuse/connections")
READS = "128"  # in flight


def write_images(folder, mib):
    """Random data, of which every 1280th block differs."""
    page = random.Random(1).randbytes(MIB)
    with open(folder / "base", "wb") as base, open(folder / "target", "wb") as target:
        for number in range(mib):
            data = bytearray(page[number:] + page[:number])
            base.write(data)
            if number % 5 == 0:
                data[28672] ^= 1
            target.write(data)


def connections():
    return set(os.listdir(FUSE)) if FUSE.exists() else set()


def wait_for(path):
    late = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > late:
            raise SystemExit(f"{path}: does not appear")
        time.sleep(0.02)


@contextlib.contextmanager
def served(folder, rate, delay):
    """The paths of both images as files and the addresses of both exports, one list."""
    with tempfile.TemporaryDirectory(dir=folder) as place, contextlib.ExitStack() as stack:
        place = pathlib.Path(place)
        files, exports = [], []
        for name in ("base", "target"):
            socket, mount = place / f"{name}.sock", place / name
            mount.mkdir()
            server = subprocess.Popen(["nbdkit", "--foreground", "--unix", socket, "--threads", "64", "--filter=rate", "--filter=delay",
                                       "file", folder / name, f"rate={rate * 8}M", f"rdelay={delay}", "burstiness=0.1"],
                                      stdin=subprocess.DEVNULL)
            stack.callback(server.wait)
            stack.callback(server.terminate)
            wait_for(socket)
            before = connections()
            export = f"nbd+unix:///?socket={socket}"
            fuse = subprocess.Popen(["nbdfuse", "--readonly", "--connections", "16", mount / "disk", export])
            stack.callback(fuse.wait)
            stack.callback(subprocess.run, ["fusermount3", "-u", mount], check=False)
            wait_for(mount / "disk")
            for connection in connections() - before:
                for limit in ("max_background", "congestion_threshold"):
                    (FUSE / connection / limit).write_text(READS, encoding="ascii")
            files.append(str(mount / "disk"))
            exports.append(export)
        yield files, exports


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cbtctl")
    parser.add_argument("speeds", nargs="*", default=["100,5ms", "200,1ms", "400,1ms"])
    parser.add_argument("--mib", type=int, default=512, help="of each image")
    options = parser.parse_args()
    commands = {
        "`cbtctl delta`": lambda files, _: [[options.cbtctl, "delta", *files, "--quiet"]],
        "`dd`, one of each": lambda files, _: [["dd", f"if={file}", "of=/dev/null", "bs=1M", "status=none"] for file in files],
        "`nbdcopy` without files, one of each": lambda _, exports: [["nbdcopy", export, "null:"] for export in exports],
    }
    print("| rate, delay | command | s | of the rate |\n| --- | --- | --- | --- |")
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0 and not connections():
            subprocess.run(["mount", "-t", "fusectl", "none", FUSE], check=False)
            stack.callback(subprocess.run, ["umount", FUSE], check=False)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cbt-cold-", dir="/dev/shm")))
        write_images(folder, options.mib)
        for speed in options.speeds:
            rate, delay = speed.split(",")
            for name, of in commands.items():
                with served(folder, int(rate), delay) as (files, exports):
                    began = time.monotonic()
                    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in of(files, exports)]
                    if any([process.wait() for process in running]):
                        raise SystemExit(f"{name} failed")
                    seconds = time.monotonic() - began
                print(f"| {rate} MiB/s, {delay} | {name} | {seconds:.2f} | {options.mib / seconds / int(rate):.2f} |", flush=True)


if __name__ == "__main__":
    main()
