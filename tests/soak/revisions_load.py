"""The programs of the earlier revisions on a real API server under load: many open sessions of a session
manager with two replicas, or pages of the aggregated API at a rate. A replica is killed half-way.

  revisions_load.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE sessions [--sessions N] [--rate N]
  revisions_load.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE pages [--rate N] [--seconds N] [--users N]

At full size: sessions --sessions 1000; pages --rate 100 --seconds 900. Not part of `make test`.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KIND = sys.argv[4] if len(sys.argv) > 4 else "sessions"
sys.path.insert(0, os.path.join(HERE, "..", "revisions", "aggregated" if KIND == "pages" else "sessions"))

# pylint: disable=wrong-import-position,import-error
import world  # noqa: E402  (it puts the others on the path)
import api_server  # noqa: E402
import cluster  # noqa: E402
import parts  # noqa: E402


def make_snapshots(api, namespace, count, driver):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: api.snapshot(namespace, number, driver), range(count)))


class Sessions:
    """Requests for sessions at a rate, until each is Ready; then all of them are deleted."""

    RESOURCES = ("snapshotsessionrequests", "snapshotsessiondata", "snapshotservicesconfigurations",
                 "volumesnapshots", "volumesnapshotcontents", "subjectaccessreviews", "leases")
    REQUESTS = f"/apis/{world.API}/namespaces/prod/snapshotsessionrequests"
    DATA = f"/apis/{world.API}/namespaces/csi-driver/snapshotsessiondata"

    def __init__(self, arguments):
        self.arguments = arguments
        self.world = world.Plane()
        self.plane = self.world.plane
        self.admin = api_server.Api(self.plane)
        make_snapshots(self.admin, "prod", arguments.snapshots, world.DRIVER)
        self.user = api_server.Api(self.plane, self.plane.token("backup", "app"))
        self.managers = [self.world.manager(name="manager-0", port=self.world.port).wait_ready()]
        if not parts.wait_until(self.managers[0].active):
            raise RuntimeError("the manager does not lead:\n" + self.managers[0].log())
        self.managers.append(self.world.manager(name="manager-1", port=parts.free_port()).wait_ready())
        self.samples = api_server.Samples(self.managers)
        self.codes = collections.Counter()
        self.made = {}  # when each was asked for
        self.created = []  # seconds of the requests
        self.ready = {}
        self.lists = 0

    def create(self, number):
        name = f"s{number}"
        began = time.monotonic()
        body = world.request(name, [f"snap-{number % self.arguments.snapshots}"])
        for _ in range(5):
            try:
                code, _ = self.user.send("POST", self.REQUESTS, body)
            except (OSError, http.client.HTTPException):
                code = 0
            self.codes[code] += 1
            if code == 201:
                break
            time.sleep(1)
        self.created.append(time.monotonic() - began)
        self.made[name] = began

    def look(self):
        """Which sessions are ready."""
        self.lists += 1
        now = time.monotonic()
        for one in json.loads(self.admin.ask("GET", self.REQUESTS))["items"]:
            if one.get("status", {}).get("sessionState") == "Ready":
                self.ready.setdefault(one["metadata"]["name"], now)

    def open(self, numbers):
        start = time.monotonic()
        looks = threading.Thread(target=self.look_on, args=({f"s{number}" for number in numbers},))
        looks.start()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for at, number in enumerate(numbers):
                time.sleep(max(0, start + at / self.arguments.rate - time.monotonic()))
                pool.submit(self.create, number)
        looks.join()
        return time.monotonic() - start

    def look_on(self, wanted):
        end = time.monotonic() + 900
        while not wanted <= set(self.ready) and time.monotonic() < end:
            self.look()
            self.samples.take()
            time.sleep(0.5)

    def run(self):
        count = self.arguments.sessions
        self.samples.take()
        before = self.admin.requests(self.RESOURCES)
        seconds = self.open(range(count))
        asked = self.admin.requests(self.RESOURCES) - before
        asked["LIST snapshotsessionrequests"] -= self.lists
        asked = +asked
        waits = [self.ready[name] - made for name, made in self.made.items() if name in self.ready]
        print(f"sessions {len(self.ready)} of {count} ready after {seconds:.0f} s; answers {dict(self.codes)}")
        print(f"time of a request, ms: {api_server.percentiles(self.created)}")
        print(f"until seen as ready, ms: {api_server.percentiles(waits)}")
        print(f"API calls of a session {sum(asked.values()) / count:.2f}: {dict(asked)}")

        # The other replica leads with all of them open. Its webhook has no address here.
        self.managers[0].kill()
        began = time.monotonic()
        if not parts.wait_until(self.managers[1].active, 120):
            raise RuntimeError("the other manager does not lead:\n" + self.managers[1].log())
        self.managers[0].start()
        print(f"the other manager led after {time.monotonic() - began:.1f} s")
        self.managers[0].wait_ready()
        for number in range(20):
            self.create(count + number)
        wanted = {f"s{count + number}" for number in range(20)}
        parts.wait_until(lambda: self.look() or wanted <= set(self.ready), 60)
        print(f"opened by it: {len(wanted & set(self.ready))} of 20")

        began = time.monotonic()
        self.admin.ask("DELETE", self.REQUESTS)
        left = []

        def gone():
            left[:] = json.loads(self.admin.ask("GET", self.DATA))["items"]
            time.sleep(0.5)
            return not left

        parts.wait_until(gone, 300)
        self.samples.take()
        print(f"all ended after {time.monotonic() - began:.1f} s, {len(left)} data left")

    def stop(self):
        for line in self.samples.lines():
            print(line)
        for manager in self.managers:
            manager.stop()
        self.plane.stop()


class Pages:
    """Users walk through the pages of deltas, each over a connection of its own."""

    RESOURCES = ("subjectaccessreviews", "tokenreviews", "volumesnapshots", "volumesnapshotcontents",
                 "volumesnapshotclasses", "secrets", "driverdiscoveries", "leases", "configmaps")

    def __init__(self, arguments):
        self.arguments = arguments
        self.world = world.World()
        self.plane = plane = self.world.plane
        self.admin = api_server.Api(plane)
        make_snapshots(self.admin, "prod", arguments.snapshots, world.DRIVER)
        plugin = self.world.plugin
        plugin.capacity, plugin.blocks = 4000 * world.BLOCK, [(i * 3 * world.BLOCK, world.BLOCK)
                                                              for i in range(1000)]
        users = [f"app-{number}" for number in range(arguments.users)]
        for account in users:
            plane.account("backup", account)
            self.world.bind("prod", account)
        self.users = [world.User(plane.facts, plane.token("backup", account)) for account in users]
        self.apis = [self.world.aggregated(f"aggregated-{i}") for i in range(2)]
        port = parts.free_port()
        self.sidecar = self.world.sidecar("http-sidecar", f"--publish=https://localhost:{port}",
                                          f"--publish-ca={self.world.folder}/ca.crt", port=port)
        for one in (*self.apis, self.sidecar):
            one.wait_ready()
        self.world.balancer.backends = [one.port for one in self.apis]
        name, version = world.API.split("/")
        plane.kubectl("wait", f"apiservice/{version}.{name}", "--for=condition=Available", "--timeout=60s")
        self.samples = api_server.Samples([*self.apis, self.sidecar])
        if not parts.wait_until(lambda: self.users[0].ask("snap-0")[0] == 201, 60):
            raise RuntimeError(f"no page: {self.users[0].ask('snap-0')}")
        self.lock = threading.Lock()
        self.answers = collections.defaultdict(list)  # of a user: (seconds since the start, seconds, code)
        self.wrong = []

    def walk(self, number, start, end):
        user, step = self.users[number], len(self.users) / self.arguments.rate
        target, offset, seen = number, 0, 0
        next_time = start + step * number / len(self.users)
        while next_time < end:
            time.sleep(max(0, next_time - time.monotonic()))
            next_time += step
            began = time.monotonic()
            try:
                code, answer = user.ask(f"snap-{target % self.arguments.snapshots}", offset=offset)
            except (OSError, http.client.HTTPException):
                user.connection.close()
                code, answer = 0, None
            self.answers[number].append((began - start, time.monotonic() - began, code))
            if code != 201:
                continue
            status = answer["status"]
            if status["state"] == world.FAILED:
                self.answers[number][-1] = (*self.answers[number][-1][:2], "Failed: " + status["error"])
                continue
            seen += len(status["changedBlockDeltas"])
            offset = status["continue"] if status["state"] == world.CONTINUE else 0
            if status["state"] == world.COMPLETED:
                if seen != len(self.world.plugin.blocks):
                    self.wrong.append((target, seen))
                seen, target = 0, target + len(self.users)

    def run(self):
        arguments = self.arguments
        before = self.admin.requests(self.RESOURCES)
        start = time.monotonic()
        end = start + arguments.seconds
        threads = [threading.Thread(target=self.walk, args=(number, start, end))
                   for number in range(arguments.users)]
        for one in threads:
            one.start()
        killed = False
        while any(one.is_alive() for one in threads):
            self.samples.take()
            if not killed and time.monotonic() > start + arguments.seconds / 2:
                self.apis[1].kill()
                killed = time.monotonic() - start
            time.sleep(min(30, arguments.seconds / 20))
            self.world.plugin.requests.clear()
        seconds = time.monotonic() - start
        asked = self.admin.requests(self.RESOURCES) - before
        answers = sorted(one for all_ in self.answers.values() for one in all_)
        codes = collections.Counter(str(one[2]) for one in answers)
        near = collections.Counter(str(one[2]) for one in answers if killed - 1 < one[0] < killed + 30)
        print(f"snapshots {arguments.snapshots}, users {arguments.users}, pages {len(answers)} in "
              f"{seconds:.0f} s: {len(answers) / seconds:.1f} a second")
        print(f"codes {dict(codes)}, in the 30 s from the kill on {dict(near)}; walks with other blocks "
              f"{len(self.wrong)}")
        print(f"time of a page, ms: {api_server.percentiles([one[1] for one in answers])}")
        slow = [sorted(one[1] for one in all_)[int(len(all_) * 0.9)] for all_ in self.answers.values()]
        good = [sum(one[2] == 201 for one in all_) for all_ in self.answers.values()]
        print(f"users' 90 %, ms: {1000 * min(slow):.0f} to {1000 * max(slow):.0f}; pages of a user "
              f"{min(good)} to {max(good)}")
        print(f"API calls of a page {sum(asked.values()) / len(answers):.3f}: {dict(asked)}")

    def stop(self):
        for line in self.samples.lines():
            print(line)
        for one in (*self.apis, self.sidecar):
            one.stop()
        self.world.balancer.listener.close()
        self.world.plugin.stop()
        self.plane.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cbt")
    parser.add_argument("messages")
    parser.add_argument("control_plane")
    parser.add_argument("kind", choices=("sessions", "pages"))
    parser.add_argument("--snapshots", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--rate", type=float, default=20, help="requests or pages a second")
    parser.add_argument("--seconds", type=float, default=60, help="of pages")
    parser.add_argument("--users", type=int, default=50, help="of pages")
    arguments = parser.parse_args()
    if not cluster.available():
        sys.exit("revisions_load: KUBEBUILDER_ASSETS is not set")
    load = {"sessions": Sessions, "pages": Pages}[arguments.kind](arguments)
    try:
        load.run()
    finally:
        load.stop()


if __name__ == "__main__":
    main()
