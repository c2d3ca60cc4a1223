"""A copy of the tree for planted faults, so that the original stays untouched."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(command, seconds=None, **more):
    """Runs a command; .stdout has its output as text."""
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=seconds, check=False, **more)


def demand(command):
    done = run(command)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}")


def build(folder, jobs, targets):
    """None, or the compiler's output."""
    done = run(["cmake", "--build", folder, "--parallel", jobs, "--target", *targets])
    return None if done.returncode == 0 else done.stdout[-4000:]


def add_arguments(parser):
    """The options of programs that plant a table's entries."""
    parser.add_argument("--only", default="", help="plant only those whose name contains this")
    parser.add_argument("--check", action="store_true", help="check that the table matches the tree, build nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)


def chosen(arguments, entries, wrong, name_of):
    """The entries to plant. Exits if the table is wrong or should only be checked."""
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(f"the table has {len(wrong)} errors")
    if arguments.check:
        print(f"{len(entries)} entries, each with its place")
        sys.exit(0)
    entries = [entry for entry in entries if arguments.only in name_of(entry)]
    if not entries:
        sys.exit(f"no name contains '{arguments.only}'")
    return entries


def check_place(entry, name, wrong):
    """Whether the text that the entry replaces is there."""
    try:
        Replacement(ROOT / entry["file"], entry["before"], entry["after"])
    except (OSError, ValueError) as error:
        wrong.append(f"{name}: {error}")


def copy_tree(folder):
    """Updates the copy in `folder`: what git knows or would add, and otherwise only build/."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout.split("\n")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in list(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] != "build" and path.is_file() and name.as_posix() not in names:
            path.unlink()
    for name in sorted(names):
        old, new = ROOT / name, folder / name
        if new.is_file() and new.read_bytes() == old.read_bytes():
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old, new)
        shutil.copymode(old, new)
    return folder


class Replacement:
    """`before` must be in the file exactly once; `after` replaces it from apply() to restore()."""

    def __init__(self, path, before, after):
        self.path = pathlib.Path(path)
        self.original = self.path.read_text()
        found = self.original.count(before)
        if found != 1:
            raise ValueError(f"{self.path}: found {found} times, not once: {before!r}")
        if before == after:
            raise ValueError(f"{self.path}: replaced by itself: {before!r}")
        self.planted = self.original.replace(before, after)

    def apply(self):
        self.path.write_text(self.planted)

    def restore(self):
        # A new modification time, so that objects built with the fault are rebuilt.
        self.path.write_text(self.original)

    def __enter__(self):
        self.apply()
        return self

    def __exit__(self, *_):
        self.restore()
