"""Controls the process of slow readers (slow_readers.cc)."""

import select
import subprocess

PATIENCE = 60  # seconds for any answer of the process


class SlowReaders:
    """Streams that each take a message per second."""

    def __init__(self, program, server, snapshot, streams, max_results):
        self.process = subprocess.Popen(
            [program, server.address, snapshot, str(streams), str(max_results)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.size = float(self.next_line())

    def next_line(self):
        """The next line, and the only one to read."""
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            raise RuntimeError("the slow readers printed no line")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the slow readers failed")
        return line

    def stop(self):
        """Messages received in one second by all streams."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        return float(self.next_line())

    def close(self):
        self.process.stdin.close()
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError("the slow readers failed")
        self.process.stdout.close()
