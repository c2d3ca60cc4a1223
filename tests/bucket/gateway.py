"""An object gateway on a node of tests/envtest/node.py, where its Pods reach it. Not a test."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def lacks():
    """What is missing for a real one; empty: nothing."""
    missing = [one for one in ("ceph-mon", "ceph-osd", "radosgw") if shutil.which(one) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Gateway:
    """radosgw, or the double of it, in the network namespace of `node`. Its user may make users and buckets."""

    def __init__(self, node, address, double=False):
        # `read` waits for the end of the pipe.
        command = [sys.executable, "-B", os.path.join(HERE, "..", "cosi", "rgw_double.py"), address] if double else [
            os.path.join(HERE, "radosgw.sh"), "sh", "-c", 'echo "$CBT_TEST_S3"; read -r _']
        self.process = subprocess.Popen(
            ["nsenter", "-t", str(node.namespace.pid), "-n", "--", *command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "CBT_S3_ADDRESS": address})
        said = self.process.stdout.readline().split()
        if len(said) != 4:
            raise AssertionError(" ".join(said) + self.process.communicate()[0])
        self.endpoint, _, self.access_key, self.secret_key = said

    def credentials(self):
        """A file as AWS has it."""
        return f"[default]\naws_access_key_id={self.access_key}\naws_secret_access_key={self.secret_key}\n"

    def stop(self):
        self.process.communicate()
