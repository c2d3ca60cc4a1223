"""The process of slow readers (slow_readers.cc), seen from the one that measures."""

import select
import subprocess

PATIENCE = 60  # seconds for any answer of the process


class SlowReaders:
    """Streams of which each takes a message a second."""

    def __init__(self, program, server, snapshot, streams, max_results):
        self.process = subprocess.Popen(
            [program, server.address, snapshot, str(streams), str(max_results)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.size = float(self.said())

    def said(self):
        """The next line, which is all that there is to read."""
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            raise RuntimeError("a slow reader waits for a message that does not come")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the slow readers failed")
        return line

    def stop(self):
        """Messages that came in a second, for all streams together."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        return float(self.said())

    def close(self):
        self.process.stdin.close()
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError("the slow readers failed")
        self.process.stdout.close()
