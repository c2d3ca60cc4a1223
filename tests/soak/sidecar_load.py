"""Several sidecars of one driver on a real API server, under the opens of many backup applications: what an open
costs the API server, how long it takes, what memory and processor the sidecars need, and what a client
notices when a replica is killed in the middle.

  sidecar_load.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE [--snapshots N] [--rate N] [--seconds N]

An hour at full size: --snapshots 10000 --rate 5 --seconds 3600. Not part of `make test`.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import re
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else "")
sys.path.append(os.path.join(HERE, "..", "sidecar"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import parts  # noqa: E402

PROJECT = os.path.join(HERE, "..", "..")
SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1"
# What an open may ask; watches and their lists are the caches'.
ASKED = re.compile(r'^apiserver_request_total\{.*resource="(tokenreviews|subjectaccessreviews|'
                   r'volumesnapshots|volumesnapshotcontents|volumesnapshotclasses|secrets|'
                   r'snapshotmetadataservices)".*verb="(POST|GET|LIST)".*\} (\d+)', re.M)


class Api:
    """Requests of an administrator, one connection a thread."""

    def __init__(self, plane):
        self.url = urllib.parse.urlsplit(plane.facts["url"])
        self.context = ssl.create_default_context(cafile=plane.facts["ca"])
        self.token = plane.admin_token
        self.local = threading.local()

    def ask(self, method, path, body=None, kind="application/json"):
        for _ in range(5):
            if not hasattr(self.local, "connection"):
                self.local.connection = http.client.HTTPSConnection(
                    self.url.hostname, self.url.port, context=self.context, timeout=60)
            try:
                self.local.connection.request(
                    method, path, json.dumps(body) if body is not None else None,
                    {"Authorization": "Bearer " + self.token, "Content-Type": kind})
                answer = self.local.connection.getresponse()
                data = answer.read()
            except (OSError, http.client.HTTPException):
                del self.local.connection
                continue
            if answer.status == 429:
                time.sleep(1)
                continue
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]}")
            return data
        raise RuntimeError(f"{method} {path}: no answer")

    def requests(self):
        counts = collections.Counter()
        for resource, verb, count in ASKED.findall(self.ask("GET", "/metrics").decode()):
            counts[f"{verb} {resource}"] += int(count)
        return counts

    def snapshot(self, namespace, number):
        name = f"snap-{number}"
        made = parts.snapshot(name, namespace)
        status = made.pop("status")
        del made["metadata"]["uid"]
        path = f"{SNAPSHOTS}/namespaces/{namespace}/volumesnapshots"
        made = json.loads(self.ask("POST", path, made))
        self.ask("PATCH", f"{path}/{name}/status", {"status": status}, "application/merge-patch+json")
        content = parts.content(name, namespace, handle=f"{namespace}/{name}", volume=f"v-{namespace}",
                                uid=made["metadata"]["uid"], created=1_700_000_000_000_000_000 + number)
        status = content.pop("status")
        del content["metadata"]["uid"]
        self.ask("POST", f"{SNAPSHOTS}/volumesnapshotcontents", content)
        self.ask("PATCH", f"{SNAPSHOTS}/volumesnapshotcontents/{content['metadata']['name']}/status",
                 {"status": status}, "application/merge-patch+json")


def usage(process):
    """Resident memory in MiB, and seconds of processor time."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        memory = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return memory, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class World:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.plane = plane = cluster.ControlPlane(arguments.control_plane)
        self.api = Api(plane)
        plane.install(os.path.join(PROJECT, "deploy/kubernetes/crd/snapshotmetadataservices.yaml"))
        parts.make_certificate(folder, "ca")
        parts.make_certificate(folder, "tls", "ca")
        self.plugin = parts.Plugin(f"unix:{folder}/csi.sock")
        plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "csi-driver"}})
        plane.account("csi-driver", "csi-snapshot-metadata")
        for file in ("cluster-role.yaml", "cluster-role-binding.yaml"):
            plane.apply(os.path.join(PROJECT, "deploy/kubernetes/sidecar", file))
        plane.create(parts.service())
        plane.create(parts.snapshot_class())
        self.tenants = [f"tenant-{number}" for number in range(arguments.tenants)]
        self.tokens = {}
        for tenant in self.tenants:
            plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}})
            plane.account(tenant, "backup")
            plane.role(tenant, "backup", tenant, "backup")
            self.tokens[tenant] = plane.token(tenant, "backup", parts.AUDIENCE)
        self.per_tenant = max(2, arguments.snapshots // arguments.tenants)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: self.api.snapshot(*one),
                          [(tenant, number) for tenant in self.tenants
                           for number in range(self.per_tenant)]))
        kubeconfig = plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", folder)
        self.sidecars = [parts.Sidecar(arguments.cbt, folder, kubeconfig, "--log-level=warning",
                                       name=f"sidecar-{number}") for number in range(arguments.replicas)]
        self.channels = [sidecar.channel() for sidecar in self.sidecars]
        self.answers = collections.defaultdict(list)  # of a tenant: (seconds, code, tries)

    def open(self, number):
        """One backup: on a replica, and on the next one if that does not answer, as a client does."""
        tenant = self.tenants[number % len(self.tenants)]
        snapshot = 1 + number // len(self.tenants) % (self.per_tenant - 1)
        base = f"{tenant}/snap-{snapshot - 1}" if number % 3 else None
        began, code = time.monotonic(), None
        for tries in range(1, len(self.channels) + 1):
            channel = self.channels[(number + tries) % len(self.channels)]
            code, _ = parts.ask(channel, self.tokens[tenant], tenant, f"snap-{snapshot}", base)
            if code != parts.CODES.UNAVAILABLE:
                break
        self.answers[tenant].append((time.monotonic() - began, code, tries))

    def run(self):
        arguments = self.arguments
        count = int(arguments.rate * arguments.seconds)
        time.sleep(2)  # the caches are filled
        before, start = self.api.requests(), time.monotonic()
        processor = [usage(sidecar.process)[1] for sidecar in self.sidecars]
        killed = None
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            for number in range(count):
                time.sleep(max(0, start + number / arguments.rate - time.monotonic()))
                if number == count // 2 and len(self.sidecars) > 1:
                    killed = self.sidecars[-1]
                    killed.process.kill()
                pool.submit(self.open, number)
        left = [sidecar for sidecar in self.sidecars if sidecar is not killed]
        seconds = time.monotonic() - start
        self.report(count, seconds, self.api.requests() - before,
                    [(usage(sidecar.process), spent) for sidecar, spent in zip(left, processor)])

    def report(self, count, seconds, asked, used):
        answers = [one for all_ in self.answers.values() for one in all_]
        times = sorted(one[0] for one in answers)
        codes = collections.Counter(one[1].name for one in answers)
        slow = {tenant: sorted(one[0] for one in all_)[int(len(all_) * 0.9)]
                for tenant, all_ in self.answers.items()}
        print(f"snapshots {self.per_tenant * len(self.tenants)}, tenants {len(self.tenants)}, replicas "
              f"{len(self.sidecars)}, opens {count} in {seconds:.0f} s")
        print(f"codes {dict(codes)}, on another replica {sum(one[2] > 1 for one in answers)}")
        print(f"time of an open, ms: 50 % {1000 * times[len(times) // 2]:.0f}, "
              f"99 % {1000 * times[int(len(times) * 0.99)]:.0f}, longest {1000 * times[-1]:.0f}")
        print(f"tenants' 90 %, ms: {1000 * min(slow.values()):.0f} to {1000 * max(slow.values()):.0f}; opens of "
              f"a tenant {min(map(len, self.answers.values()))} to {max(map(len, self.answers.values()))}")
        print(f"API calls of an open {sum(asked.values()) / count:.2f}: {dict(asked)}")
        for (memory, processor), spent in used:
            print(f"a sidecar: {memory:.0f} MiB, {1000 * (processor - spent) / count * len(self.sidecars):.1f} "
                  "ms of processor for an open of its own")

    def stop(self):
        for channel in self.channels:
            channel.close()
        for sidecar in self.sidecars:
            sidecar.stop()
        self.plugin.stop()
        self.plane.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cbt")
    parser.add_argument("messages")
    parser.add_argument("control_plane")
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=5, help="opens a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--tenants", type=int, default=50)
    arguments = parser.parse_args()
    if not cluster.available():
        sys.exit("sidecar_load: KUBEBUILDER_ASSETS is not set")
    with tempfile.TemporaryDirectory(prefix="cbt-load-") as folder:
        world = World(arguments, folder)
        try:
            world.run()
        finally:
            world.stop()


if __name__ == "__main__":
    main()
