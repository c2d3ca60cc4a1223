"""Rows of services: a client beside the Go lister, relays beside the Go sidecar."""

import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from turns import OURS, Program, Run, run_all, version

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "bench" / "rpc"))
import relays  # noqa: E402  pylint: disable=wrong-import-position,import-error


def peak_mib(pid):
    found = re.search(r"^VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) / 1024


class Services:
    """A plugin that streams blocks, an API server that is a fake, and what stands between."""

    def __init__(self, build, folder, tuples):
        self.tuples, self.folder = tuples, folder
        self.world = relays.World(build, folder, tuples)
        self.cbt = self.world.cbt
        self.world.certify()
        self.parts = self.world.parts
        self.port, _ = self.world.sidecar([self.parts.cluster(self.cbt), "sidecar"])
        self.announce(self.port)

    def stop(self):
        self.world.stop()

    def announce(self, port):
        """What clients look up: the service's address, and a token for an account."""
        service = self.parts.service(relays.DRIVER)
        service["spec"].update(address=f"localhost:{port}",
                               caCert=base64.b64encode(self.parts.read(f"{self.folder}/ca.crt")).decode())
        content = self.parts.content(handle="ns/snap", driver=relays.DRIVER)
        content["status"]["restoreSize"] = 2 * self.tuples * 4096
        self.world.api.put(service, content)
        self.config = self.world.api.kubeconfig(self.folder)

        def say(method, path, _body):
            old = "/apis/cbt.storage.k8s.io/v1alpha1/snapshotmetadataservices/"
            if path.startswith(old):  # listers of releases
                return 200, dict(service, apiVersion="cbt.storage.k8s.io/v1alpha1")
            if method == "POST" and path == "/api/v1/namespaces/backup/serviceaccounts/user/token":
                return 201, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "user"},
                             "spec": {"audiences": [self.parts.AUDIENCE]},
                             "status": {"token": "good-user", "expirationTimestamp": "2100-01-01T00:00:00Z"}}
            return None

        self.world.api.say = say

    def list(self):
        peer = os.environ.get("CBT_PEER_LISTER")
        ours = Program(OURS, [self.cbt, "list", "k8s:ns/snap", "--kubeconfig", self.config, "--service-account", "backup/user",
                              "--format", "json", "--quiet"], f"{self.folder}/ours.json")
        theirs = Program("go", [peer, "-kubeconfig", self.config, "-n", "ns", "-s", "snap", "-o", "json", "-service-account", "user",
                                "-service-account-namespace", "backup"], f"{self.folder}/theirs.json")
        run_all(ours, theirs)
        answers = []
        for path in (ours.output, theirs.output):
            with open(path, encoding="utf-8") as file:
                whole = json.load(file)
            messages = whole if isinstance(whole, list) else [whole]
            answers.append([(int(one.get("byte_offset", 0)), int(one["size_bytes"])) for message in messages
                            for one in message.get("block_metadata", [])])
        if answers[0] != answers[1] or len(answers[0]) != self.tuples:
            sys.exit(f"list: the answers differ: {len(answers[0])} and {len(answers[1])} tuples")
        return f"`list` of {self.tuples / 1e6:.3g} million blocks as JSON", [ours, theirs], {"go": "the Go lister " + version_of_go(peer)}

    def relay(self):
        """The client's wall clock, and the relay's own processor time and memory."""
        peer = os.environ.get("CBT_PEER_SIDECAR")
        ways = {OURS: self.world.sidecar([self.parts.cluster(self.cbt), "sidecar"]), "go": self.world.sidecar([peer])}
        return "`cbt-cluster sidecar`", self.readers(ways), {"go": "the Go sidecar " + version_of_go(peer)}

    def relay_command(self):
        peer = os.environ.get("CBT_PEER_SIDECAR")
        ways = {OURS: self.world.relay(), "go": self.world.sidecar([peer])}
        return "`cbtctl relay`", self.readers(ways), {"go": "the Go sidecar " + version_of_go(peer)}

    def readers(self, ways):
        def reader(port, process):
            def read():
                before = relays.used(process.pid)[0]
                began = time.monotonic()
                self.world.read(port)
                wall = time.monotonic() - began
                return Run(wall, relays.used(process.pid)[0] - before, peak_mib(process.pid))
            return read
        return [Program(name, function=reader(*way)) for name, way in ways.items()]


def version_of_go(program):
    """What the Go toolchain left in it, if there is one to ask: its own version, or that of the module
    of the project that it was built with.
    """
    try:
        done = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return version(program, "--version")
    own = re.search(r"^\s+mod\s+\S+\s+(v\S+)", done.stdout, re.MULTILINE)
    part = re.search(r"^\s+dep\s+\S+/external-snapshot-metadata(/client)?\s+(v\S+)", done.stdout, re.MULTILINE)
    if own:
        return own.group(1)
    return f"with external-snapshot-metadata{part.group(1) or ''} {part.group(2)}" if part else "?"
