"""Rows of repositories."""

import os
import random
import shutil

import used

MIB = 1 << 20


class Stores:
    def __init__(self, build, folder):
        self.cbt, self.folder = build / "bin" / "cbtctl", folder
        self.random = random.Random(1)
        self.environment = {"RESTIC_PASSWORD": "growth", "HOME": str(folder)}
        self.made = {}

    def stop(self):
        pass

    def backup(self, *arguments):
        return used.command(self.cbt, "backup", *arguments, environment=self.environment)

    def world(self, mib):
        """An image of random data, and a repository that has it as "first"."""
        if mib not in self.made:
            for image, repository in self.made.values():
                image.unlink()
                shutil.rmtree(repository)
            self.made.clear()
            image, repository = self.folder / f"image-{mib}", self.folder / f"repository-{mib}"
            with open(image, "wb") as file:
                for _ in range(mib):
                    file.write(self.random.randbytes(MIB))
                if not mib:
                    file.truncate(MIB)  # a hole
            self.backup("create", "vol", "--init", "--repo", repository, "--data", image, "--handle", "first")
            self.made[mib] = image, repository
        return self.made[mib]

    def full(self, mib):
        image, _ = self.world(mib)
        other = self.folder / "other"

        def run():
            shutil.rmtree(other, ignore_errors=True)
            return self.backup("create", "vol", "--init", "--repo", other, "--data", image, "--handle", "first")
        return run

    def restore(self, mib):
        _, repository = self.world(mib)
        target = self.folder / "target"

        def run():
            target.unlink(missing_ok=True)
            return self.backup("restore", "vol", "--repo", repository, "--to", target)
        return run

    def increment(self, mib):
        """One block; the index is read whole."""
        image, repository = self.world(mib)
        delta = self.folder / "delta.csv"
        delta.write_text(f"byte_offset,size_bytes\ncapacity,{max(mib, 1) * MIB}\n0,4096\ncomplete,1\n", encoding="ascii")
        handles = iter(range(1000))

        def run():
            with open(image, "r+b") as file:
                file.write(os.urandom(4096))
            kept = self.folder / "kept"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(repository, kept, copy_function=os.link)
            return self.backup("create", "vol", "--repo", kept, "--data", image, "--delta", delta, "--from", "csv",
                               "--delta-base", "first", "--handle", f"next-{next(handles)}", "--require-incremental")
        return run
