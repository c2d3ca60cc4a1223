"""Runs programs while their system calls fail, for the tests of this folder.

<test>.py CBT TRACKER_DRIVER SHIM [unittest arguments]
"""

import os
import shutil
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runner  # pylint: disable=wrong-import-position
import warm  # pylint: disable=wrong-import-position

CBT, DRIVER, SHIM = (os.path.abspath(path) for path in sys.argv[1:4])
del sys.argv[1:4]

# Faults that a caller must not notice.
HARMLESS = ("short", "eintr")
# As in tests/support/figures.h.
SCALE = max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))
figures = {"r11_wrong": 0}
# What the preloaded library may look at before main().
BEFORE_MAIN = ("FAULT_BELOW", "FAULT_SOCKETS", "FAULT_STDIN")


def count(name, number=1):
    """Adds to a figure of the scorecard."""
    figures[name] = figures.get(name, 0) + number


def execute(*command, env=None, stdin=os.devnull):
    with open(stdin or os.devnull, "rb") as file:
        return warm.run([str(part) for part in command], stdin=file, timeout=120,
                        env=os.environ if env is None else env, loaded_with=BEFORE_MAIN)


def ok(*command):
    done = execute(*command)
    assert done.returncode == 0, (command, done)
    return done.stdout.decode()


class FaultsTest(unittest.TestCase):
    """A private folder; faults hit the files of `below` in it."""

    place = None  # the parent folder; None: the one for temporary files

    def _formatMessage(self, msg, standardMsg):
        return super()._formatMessage(msg, f"{standardMsg}\n{self.where}")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cbt-faults-", dir=self.place)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.below = os.path.join(self.folder, "below")
        self.pristine = os.path.join(self.folder, "pristine")
        self.fired = os.path.join(self.folder, "fired")
        self.where = ""
        self.wrong = "r11_wrong"  # the figure for wrong results
        os.mkdir(self.pristine)

    def run(self, result=None):
        before = len(result.failures) + len(result.errors)
        super().run(result)
        count(self.wrong, len(result.failures) + len(result.errors) - before)

    def fresh(self):
        """Makes `below` a copy of `pristine`."""
        shutil.rmtree(self.below, ignore_errors=True)
        shutil.copytree(self.pristine, self.below, symlinks=True)

    def environment(self, kind, at, sockets=False, then=False, **more):
        return dict(os.environ, LD_PRELOAD=SHIM, FAULT_BELOW=self.below, FAULT_KIND=kind,
                    FAULT_AT=str(at), FAULT_FIRED=self.fired, FAULT_SOCKETS=str(int(sockets)),
                    FAULT_THEN=str(int(then)), **more)

    def take_fired(self):
        """The name of the call that failed; None if the fault was not reached."""
        if not os.path.exists(self.fired):
            return None
        with open(self.fired) as file:
            name = file.read()
        os.unlink(self.fired)
        return name

    def calls(self, command, kind, stdin=None, sockets=False):
        """The number of calls that can have the fault, and the result without one."""
        counted = os.path.join(self.folder, "count")
        result = execute(*command, stdin=stdin, env=self.environment(
            kind, 0, sockets, FAULT_COUNT=counted, FAULT_STDIN=str(int(stdin is not None))))
        with open(counted) as file:
            return int(file.read()), result


def answer_in(stdout):
    """A command's output without the final error line."""
    begin = stdout.rfind(b'{"error":')
    return stdout if begin < 0 else stdout[:begin]


def sample(points, most):
    """About `most` of the numbers 1 to `points`: the first two thirds of them, then every k-th."""
    if points <= most:
        return list(range(1, points + 1))
    dense = most * 2 // 3
    step = -(-(points - dense) // (most - dense))
    return sorted({*range(1, dense + 1), *range(dense + step, points, step), points})


def main():
    program = unittest.main(module="__main__", exit=False, testRunner=runner.Runner)
    for name, number in sorted(figures.items()):
        print(f"figure: {name} {number}")
    sys.exit(not program.result.wasSuccessful())
