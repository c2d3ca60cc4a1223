"""Several sidecars of one driver on a real API server, under the opens of many backup applications: what an open
costs the API server, how long it takes, what memory and processor the sidecars need, and what a client
notices when a replica is killed in the middle.

  sidecar_load.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE [--snapshots N] [--rate N] [--seconds N] [--greedy N]
                  [--further N]

An hour at full size: --snapshots 10000 --rate 5 --seconds 3600. With --greedy, the first tenant opens as fast as
it can beside that, in so many threads. With --further 70000 there are more snapshots than watches keep. Not part of
`make test`.
"""

import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else "")
sys.path.append(os.path.join(HERE, "..", "sidecar"))

# pylint: disable=wrong-import-position
import api_server  # noqa: E402
import cluster  # noqa: E402
import parts  # noqa: E402

PROJECT = os.path.join(HERE, "..", "..")
# What an open may ask.
ASKED = ("tokenreviews", "subjectaccessreviews", "volumesnapshots", "volumesnapshotcontents",
         "volumesnapshotclasses", "secrets", "snapshotmetadataservices")


class World:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.plane = plane = cluster.ControlPlane(arguments.control_plane)
        self.api = api_server.Api(plane)
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
        if arguments.further:
            plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "archive"}})
            api_server.write_to_etcd(plane, "archive", arguments.further)
        kubeconfig = plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", folder)
        self.sidecars = [parts.Sidecar(arguments.cbt, folder, kubeconfig, "--log-level=warning",
                                       name=f"sidecar-{number}") for number in range(arguments.replicas)]
        self.channels = [sidecar.channel() for sidecar in self.sidecars]
        self.samples = api_server.Samples(self.sidecars)
        self.answers = collections.defaultdict(list)  # of a tenant: (when, seconds, code, tries)
        self.greed = []  # the same
        self.ended = threading.Event()

    def open(self, number, tenant=None, answers=None):
        """One backup: on a replica, and on the next one if that does not answer, as a client does."""
        tenant = tenant or self.tenants[number % len(self.tenants)]
        snapshot = 1 + number // len(self.tenants) % (self.per_tenant - 1)
        base = f"{tenant}/snap-{snapshot - 1}" if number % 3 else None
        began, code = time.monotonic(), None
        for tries in range(1, len(self.channels) + 1):
            channel = self.channels[(number + tries) % len(self.channels)]
            code, _ = parts.ask(channel, self.tokens[tenant], tenant, f"snap-{snapshot}", base)
            if code != parts.CODES.UNAVAILABLE:
                break
        (self.answers[tenant] if answers is None else answers).append(
            (began, time.monotonic() - began, code, tries))

    def be_greedy(self, thread):
        number = thread
        while not self.ended.is_set():
            self.open(number, self.tenants[0], self.greed)
            number += self.arguments.greedy

    def watch_memory(self):
        while not self.ended.wait(min(30, self.arguments.seconds / 20)):
            self.samples.take()

    def run(self):
        arguments = self.arguments
        count = int(arguments.rate * arguments.seconds)
        time.sleep(arguments.settle)
        self.samples.take()
        before, start = self.api.requests(ASKED), time.monotonic()
        beside = [threading.Thread(target=self.watch_memory)] + [
            threading.Thread(target=self.be_greedy, args=(number,)) for number in range(arguments.greedy)]
        for one in beside:
            one.start()
        killed = None
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            for number in range(count):
                time.sleep(max(0, start + number / arguments.rate - time.monotonic()))
                if number == count // 2 and len(self.sidecars) > 1:
                    killed = time.monotonic()
                    self.sidecars[-1].process.kill()
                pool.submit(self.open, number)
        seconds = time.monotonic() - start
        self.ended.set()
        for one in beside:
            one.join()
        self.samples.take()
        self.report(count, seconds, self.api.requests(ASKED) - before, killed)

    def report(self, count, seconds, asked, killed):
        answers = [one for all_ in self.answers.values() for one in all_]
        times = [one[1] for one in answers]
        codes = collections.Counter(one[2].name for one in answers)
        slow = {tenant: sorted(one[1] for one in all_)[int(len(all_) * 0.9)]
                for tenant, all_ in self.answers.items()}
        good = [sum(one[2] == parts.CODES.OK for one in all_) for all_ in self.answers.values()]
        snapshots = self.per_tenant * len(self.tenants) + self.arguments.further
        print(f"snapshots {snapshots}, tenants {len(self.tenants)}, replicas {len(self.sidecars)}, opens {count} in "
              f"{seconds:.0f} s")
        print(f"codes {dict(codes)}, on another replica {sum(one[3] > 1 for one in answers)}")
        print(f"time of an open, ms: {api_server.percentiles(times)}")
        if killed:
            after = [one[1] for one in answers if killed <= one[0] < killed + 30]
            print(f"in the 30 s after the kill, ms: {api_server.percentiles(after)}")
        print(f"tenants' 90 %, ms: {1000 * min(slow.values()):.0f} to {1000 * max(slow.values()):.0f}; opens of "
              f"a tenant that succeeded {min(good)} to {max(good)}")
        if self.greed:
            greedy = collections.Counter(one[2].name for one in self.greed)
            print(f"the greedy tenant: {len(self.greed) / seconds:.0f} a second, {dict(greedy)}; ms: "
                  f"{api_server.percentiles([one[1] for one in self.greed])}")
        opens = count + len(self.greed)
        print(f"API calls of an open {sum(asked.values()) / opens:.2f}: {dict(asked)}")
        for line in self.samples.lines():
            print(line)

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
    parser.add_argument("--settle", type=float, default=10, help="seconds for the caches to fill; before, "
                        "an open asks the API server for each object")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--further", type=int, default=0, help="snapshots of a tenant that opens none")
    parser.add_argument("--greedy", type=int, default=0, help="threads of a tenant that does not wait")
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
