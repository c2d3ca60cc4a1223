"""What the loads on Kubernetes components have in common: objects made fast, requests counted, processes
sampled. Not a test."""

import base64
import collections
import http.client
import json
import os
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request

import parts

SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1"
COUNTED = re.compile(r"^apiserver_request_total\{(.*)\} (\d+)", re.M)


class Api:
    """Requests of an administrator, or of whom the token names; one connection a thread."""

    def __init__(self, plane, token=None):
        self.url = urllib.parse.urlsplit(plane.facts["url"])
        self.context = ssl.create_default_context(cafile=plane.facts["ca"])
        self.token = token or plane.admin_token
        self.local = threading.local()

    def send(self, method, path, body=None, kind="application/json"):
        """The status and the body; OSError or HTTPException without an answer."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(
                self.url.hostname, self.url.port, context=self.context, timeout=60)
        try:
            self.local.connection.request(
                method, path, json.dumps(body) if body is not None else None,
                {"Authorization": "Bearer " + self.token, "Content-Type": kind})
            answer = self.local.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            del self.local.connection
            raise

    def ask(self, method, path, body=None, kind="application/json"):
        """The body of a success; again after an interruption, or if the server is busy."""
        for _ in range(5):
            try:
                status, data = self.send(method, path, body, kind)
            except (OSError, http.client.HTTPException):
                continue
            if status == 429:
                time.sleep(1)
                continue
            if status >= 300:
                raise RuntimeError(f"{method} {path}: {status} {data[:300]}")
            return data
        raise RuntimeError(f"{method} {path}: no answer")

    def requests(self, resources):
        """How often each of the resources was asked for, without watches."""
        counts = collections.Counter()
        for labels, count in COUNTED.findall(self.ask("GET", "/metrics").decode()):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if label["resource"] in resources and label["verb"] != "WATCH":
                name = "/".join(filter(None, (label["resource"], label["subresource"])))
                counts[f"{label['verb']} {name}"] += int(count)
        return counts

    def snapshot(self, namespace, number, driver=parts.DRIVER):
        """A bound and ready snapshot `snap-NUMBER`, later than those of lower numbers."""
        name = f"snap-{number}"
        made = parts.snapshot(name, namespace)
        status = made.pop("status")
        del made["metadata"]["uid"]
        path = f"{SNAPSHOTS}/namespaces/{namespace}/volumesnapshots"
        made = json.loads(self.ask("POST", path, made))
        self.ask("PATCH", f"{path}/{name}/status", {"status": status}, "application/merge-patch+json")
        content = parts.content(name, namespace, handle=f"{namespace}/{name}", volume=f"v-{namespace}",
                                uid=made["metadata"]["uid"], created=1_700_000_000_000_000_000 + number,
                                driver=driver)
        status = content.pop("status")
        del content["metadata"]["uid"]
        self.ask("POST", f"{SNAPSHOTS}/volumesnapshotcontents", content)
        self.ask("PATCH", f"{SNAPSHOTS}/volumesnapshotcontents/{content['metadata']['name']}/status",
                 {"status": status}, "application/merge-patch+json")


def etcd_url(plane):
    """Of the control plane's own etcd."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parent = file.read().rpartition(")")[2].split()[1]
            with open(f"/proc/{entry}/cmdline", encoding="utf-8") as file:
                flags = file.read().split("\0")
        except OSError:
            continue
        if parent == str(plane.process.pid) and flags[0].endswith("/etcd"):
            (found,) = [flag.partition("=")[2] for flag in flags if flag.startswith("--listen-client-urls=")]
            return found
    raise RuntimeError("the control plane has no etcd")


def write_to_etcd(plane, namespace, count):
    """`count` bound and ready snapshots, past the API server: a hundred times as fast."""
    url = etcd_url(plane) + "/v3/kv/txn"

    def put(resource, name, thing):
        thing["metadata"].update(creationTimestamp="2026-01-01T00:00:00Z", generation=1)
        key = f"/registry/snapshot.storage.k8s.io/{resource}/{name}"
        encoded = [base64.b64encode(text.encode()).decode() for text in (key, json.dumps(thing))]
        return {"requestPut": dict(zip(("key", "value"), encoded))}
    batch = []
    for number in range(count):
        name = f"nightly-{number:06}"
        content = parts.content(name, namespace, handle=f"snap-{number:030}", volume=f"volume-{number:028}",
                                own_name=f"snapcontent-{number:036}", uid=f"{number:036}")
        content["metadata"]["uid"] = f"{number:036}"
        made = parts.snapshot(name, namespace, content["metadata"]["name"], uid=f"{number:036}")
        batch += [put("volumesnapshots", f"{namespace}/{name}", made),
                  put("volumesnapshotcontents", content["metadata"]["name"], content)]
        if len(batch) >= 100 or number == count - 1:  # etcd takes 128
            request = urllib.request.Request(url, json.dumps({"success": batch}).encode())
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
            batch = []


def usage(process):
    """Resident memory in MiB, and seconds of processor time."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        memory = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return memory, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Samples:
    """The memory of processes over time, and what processor time they took."""

    def __init__(self, components):
        self.components = components
        self.memory = {one.name: [] for one in components}
        self.processor = {one.name: [] for one in components}

    def take(self):
        for one in self.components:
            if one.process.poll() is None:
                memory, processor = usage(one.process)
                self.memory[one.name].append(memory)
                self.processor[one.name].append(processor)

    def lines(self):
        for name, memory in self.memory.items():
            if memory:
                at = [memory[len(memory) * part // 4] for part in range(4)] + [memory[-1]]
                # A process that was started again counts from zero.
                spent = sum(max(0, later - earlier) for earlier, later in
                            zip(self.processor[name], self.processor[name][1:]))
                yield (f"{name}: MiB over time {' '.join(f'{one:.0f}' for one in at)}, most {max(memory):.0f}; "
                       f"{spent:.1f} s of processor")


def percentiles(times):
    """Of seconds, in milliseconds."""
    times = sorted(times)
    return (f"50 % {1000 * times[len(times) // 2]:.0f}, 99 % {1000 * times[int(len(times) * 0.99)]:.0f}, "
            f"longest {1000 * times[-1]:.0f}")
