"""Times `cbtctl` as whole processes beside what a user would pick.

  python3 bench/command/commands.py build/release [--folder FOLDER] [--rounds N] [--only ROW...]

The programs of a row take turns, and their answers are compared before. Prints a table of medians:
wall clock, processor time and peak memory of ours, and how many times as much each peer took.
FOLDER decides which disk is measured; /dev/shm leaves only the programs.

Peers that are not in a distribution are named by variables: CBT_PEER_SIDECAR and CBT_PEER_LISTER
(external-snapshot-metadata), CBT_PEER_RESTIC, and CBT_BENCH_PYTHON for a Python that has pyroaring. Rows
without their peer are left out, and the output says so. With --json, rows that are not run stay in
the file and in the table, so that a run can be done in parts.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

import turns

ROWS = {  # row: (group, method)
    "start": ("images", "start"),
    "changed": ("images", "changed"),
    "equal": ("images", "equal"),
    "overlay": ("images", "overlay"),
    "qcow2-map": ("images", "map_qcow2"),
    "export": ("images", "export"),
    "merge": ("maps", "merge"),
    "chain": ("maps", "chain"),
    "list": ("services", "list"),
    "sidecar": ("services", "relay"),
    "relay": ("services", "relay_command"),
    "full": ("backups", "full"),
    "increment": ("backups", "increment"),
    "restore": ("backups", "restore"),
    "rbd": ("ceph", "export"),
}


def missing(group, row):
    """What a row's peer needs and is not here."""
    programs = {"images": ["cmp", "git", "qemu-img", "qemu-io"],
                "ceph": ["ceph-mon", "ceph-osd", "rbd", "qemu-img", "qemu-nbd"]}.get(group, [])
    absent = [program for program in programs if not shutil.which(program)]
    variables = {"list": "CBT_PEER_LISTER", "sidecar": "CBT_PEER_SIDECAR", "relay": "CBT_PEER_SIDECAR"}
    if row in variables and not os.environ.get(variables[row]):
        absent.append(variables[row])
    if group == "maps" and not os.environ.get("CBT_BENCH_PYTHON"):
        absent.append("CBT_BENCH_PYTHON")
    if group == "backups" and not (os.environ.get("CBT_PEER_RESTIC") or shutil.which("restic")):
        absent.append("CBT_PEER_RESTIC")
    return absent


def make(group, options, folder):
    cbt = str(pathlib.Path(options.build, "bin", "cbtctl").resolve())
    # pylint: disable=import-outside-toplevel
    if group == "images":
        import images
        return images.Images(cbt, folder, options.mib)
    if group == "maps":
        import maps
        return maps.Maps(cbt, folder, os.environ["CBT_BENCH_PYTHON"])
    if group == "services":
        import services
        return services.Services(options.build, folder, options.tuples)
    import stores
    if group == "backups":
        return stores.Backups(cbt, folder, options.mib, options.volume_gib)
    return stores.Ceph(cbt, folder, options.mib)


def save(path, text):
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024, help="of an image")
    parser.add_argument("--volume-gib", type=int, default=16, help="of the volume of an increment")
    parser.add_argument("--tuples", type=int, default=8_000_000, help="of a stream")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--json", type=pathlib.Path, help="a file for all figures")
    parser.add_argument("--markdown", type=pathlib.Path, help="a file for the table")
    options = parser.parse_args()
    rows = turns.read_rows(options.json)
    for group in dict.fromkeys(ROWS[row][0] for row in options.only):
        names = [row for row in options.only if ROWS[row][0] == group]
        for row in [row for row in names if missing(group, row)]:
            print(f"{row}: left out, no {', '.join(missing(group, row))}", file=sys.stderr)
            names.remove(row)
        if not names:
            continue
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder, prefix="cbt-command-"))
            world = make(group, options, folder)
            if hasattr(world, "stop"):
                stack.callback(world.stop)
            for row in names:
                what, programs, texts = getattr(world, ROWS[row][1])()
                # A start takes milliseconds.
                rounds = 10 * options.rounds if row == "start" else options.rounds
                rows[row] = turns.Row(what, texts, turns.take_turns(programs, rounds))
                save(options.json, turns.as_json(rows))
                print(f"{row}: done", file=sys.stderr, flush=True)
    table = turns.table([rows[row] for row in ROWS if row in rows])
    print(table, end="")
    save(options.markdown, table)


if __name__ == "__main__":
    main()
