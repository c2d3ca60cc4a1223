"""Runs Python tests as unittest does, and lists skipped tests in the file that CBT_SKIPS names."""

import os
import pathlib
import sys
import unittest


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        path = os.environ.get("CBT_SKIPS")
        if path:
            tests = pathlib.Path(__file__).resolve().parent.parent
            room = pathlib.Path(sys.argv[0]).resolve().relative_to(tests).with_suffix("")
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{room}\t{test.id().removeprefix('__main__.')}\t{' '.join(reason.split())}\n")


class Runner(unittest.TextTestRunner):
    resultclass = Result
