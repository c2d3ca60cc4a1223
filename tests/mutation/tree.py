"""A copy of the tree in which faults are planted, so that the one that is edited stays as it is."""

import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def copy_tree(folder):
    """Brings the copy in `folder` up to date: what git knows or would add, and nothing else but build/."""
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
    """`before` stands in the file exactly once, and `after` in its place from apply() to restore()."""

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
        # A new modification time, so that what was built from the fault is built again.
        self.path.write_text(self.original)

    def __enter__(self):
        self.apply()
        return self

    def __exit__(self, *_):
        self.restore()
