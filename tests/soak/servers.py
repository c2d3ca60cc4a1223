"""Starts, watches and stops `cbtctl serve` and `cbtctl relay` processes."""

import os
import re
import signal
import ssl
import subprocess
import time
import urllib.request

TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server across restarts; `shape` is how it answers: (style, block size)."""

    def __init__(self, name, folder, shape, command):
        self.name, self.folder, self.shape, self.command = name, folder, shape, command
        self.process = None
        self.address = None
        self.lives = 0
        self.idle = None  # descriptors without any client
        self.start()

    def start(self):
        reader, writer = os.pipe()
        path = os.path.join(self.folder, self.name + ".out")
        with open(path, "wb") as out:
            self.process = subprocess.Popen(
                [*map(str, self.command), "--ready-fd", str(writer), "--metrics", "127.0.0.1:0"],
                pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            self.address = pipe.read().strip()
        with open(path, encoding="utf-8") as out:
            output = out.read()
        if not self.address:
            raise RuntimeError(f"{self.name}: {output}")
        self.metrics = re.search(r"http://\S+/metrics", output)[0]
        self.lives += 1

    def stop(self, how=signal.SIGTERM, timeout=60):
        """Ends the process and returns its exit status, negative for a signal."""
        self.process.send_signal(how)
        return self.process.wait(timeout)

    @property
    def pid(self):
        return self.process.pid

    def resident(self, field="VmRSS"):
        """Memory in KiB; None if the process has gone. RssAnon excludes mapped files: streams share
        those pages, and each counts them.
        """
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
                found = re.search(field + r":\s+(\d+)", file.read())
        except OSError:
            return None
        return int(found[1]) if found else None

    def descriptors(self):
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return None

    def processor(self):
        """Processor seconds of the running process."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0
        return (int(fields[11]) + int(fields[12])) / TICK

    def streams(self):
        """Its own count of open streams."""
        with urllib.request.urlopen(self.metrics, timeout=30) as page:
            text = page.read().decode()
        return sum(int(float(n)) for n in
                   re.findall(r"^cbt_streams_in_flight(?:\{[^}]*\})? (\S+)$", text, re.M))


def tls_of(folder, name):
    """The options of a server with a new certificate for "localhost", and a client's ssl context."""
    key, certificate = f"{folder}/{name}.key", f"{folder}/{name}.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, stderr=subprocess.DEVNULL)
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2"])
    return ["--tls-cert", certificate, "--tls-key", key], context


def settle(reached, seconds):
    """Waits until `reached()` or the timeout; returns whether it was reached."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
