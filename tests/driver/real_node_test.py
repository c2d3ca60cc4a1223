"""`cbt-driver driver` and `cbt-driver volume-host` on a whole Kubernetes node: a Pod that writes all the time keeps
its volumes through the end of everything that serves them.

Real are: the kubelet, containerd, the control plane, the Pods with their images and mounts, and the
objects of deploy/kubernetes/driver. Played are: the image (files of this machine in place of
Debian's packages); node-driver-registrar; the provisioner (the test calls CreateVolume and writes
the PersistentVolumes). The node's folders are not below /var/lib, and the driver's Pod has no other
sidecars.

Usage: real_node_test.py CBT FOLDER_OF_MESSAGES NBDKIT_PLUGIN. The programs of the node are in the
folder that KUBEBUILDER_ASSETS names (tests/envtest/node.py).
"""

import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, "..", "..", "deploy", "kubernetes", "driver")
sys.path.append(os.path.join(HERE, "..", "envtest"))

# pylint: disable=wrong-import-position
import driver_parts as parts  # noqa: E402
import node as envtest  # noqa: E402
import registrar  # noqa: E402
from driver_parts import MIB, NAME, block, csi, mount  # noqa: E402
from image import Link  # noqa: E402
from node import run  # noqa: E402

IMAGE = "localhost/cbt:1"
SLOTS = 48
RESENDS = (6, 9)  # the first kernel that repeats requests of FUSE

# Each slot is written in place again and again; what is printed has been synced.
WRITER = """
i=0
while [ ! -e /tmp/stop ]; do
  head -c 65536 /dev/urandom >/tmp/one || exit 1
  slot=$((i % SLOTS))
  dd if=/tmp/one TARGET bs=65536 conv=notrunc,fsync 2>/tmp/error || { cat /tmp/error; exit 1; }
  echo "$i $slot $(sha256sum </tmp/one)"
  i=$((i + 1))
  sleep 0.05
done
"""
READER = """
slot=0
while [ $slot -lt SLOTS ]; do
  dd TARGET bs=65536 count=1 2>/dev/null >/tmp/one || exit 1
  echo "0 $slot $(sha256sum </tmp/one)"
  slot=$((slot + 1))
done
"""


def lacks():
    """What is missing for a node with the driver; empty: nothing."""
    return envtest.lacks_for_volumes("nbdkit", "losetup", "mkfs.ext4", "blkid")


def libraries_of(program):
    return set(re.findall(r"(?:=> |^\t)(/\S+)", run("ldd", program), re.MULTILINE))


def image_files():
    """The driver's image: its programs, those that it runs, and their libraries."""
    tools = ("nbdkit", "losetup", "blkid", "mkfs.ext4", "resize2fs", "e2fsck", "mount")
    programs = {"/usr/bin/cbtctl": parts.CBT,
                "/usr/bin/cbt-driver": parts.DRIVER,
                "/usr/lib/nbdkit/nbdkit-cbt-plugin.so": parts.PLUGIN,
                **{f"/usr/bin/{tool}": shutil.which(tool) for tool in tools}}
    files = dict(programs)
    # For --events, which asks the API server, the driver loads it.
    (loaded,) = re.findall(r"libcurl\.so\.4 .*=> (/\S+)", run("ldconfig", "-p"))[:1]
    files[loaded] = loaded
    for program in [*programs.values(), loaded]:
        files.update({library: library for library in libraries_of(program)})
    files["/bin/busybox"] = shutil.which("busybox")
    return {**files, **{f"/bin/{applet}": Link("busybox") for applet in ("sh", "cat", "kill")}}


class Node(envtest.Node):
    def __init__(self, folder):
        super().__init__(folder)
        self.plugin = f"{self.kubelet}/plugins/{NAME}"

    def get(self, *command):
        return json.loads(self.kubectl("get", *command, "-o", "json"))

    def create(self, thing):
        self.write("object.json", thing)
        self.kubectl("create", "-f", f"{self.folder}/object.json")

    def shipped(self, file):
        """An object of deploy/kubernetes/driver."""
        return json.loads(self.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                       os.path.join(DEPLOY, file)))


def eventually(condition, what, seconds=120):
    latest = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > latest:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.2)
    return found


def detach_what_is_left(folder):
    """After a failure: the node's mounts have gone with its namespace, loop devices stay."""
    volumes = [os.path.basename(one) for one in glob.glob(f"{folder}/state/volumes/*")]
    listed = run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
    for line in listed.splitlines():
        name, _, backing = line.partition(" ")
        if any(volume in backing for volume in volumes):
            run("losetup", "--detach", name, check=False)


def place(node, spec):
    """Puts a shipped Pod on this node: its folders, and the image of this machine's files."""
    for container in spec["containers"]:
        container["image"] = IMAGE
        if container["name"] == "volume-host":
            container["args"].append("--nbdkit-plugin=/usr/lib/nbdkit/nbdkit-cbt-plugin.so")
        for one in container["volumeMounts"]:
            if one["name"] == "kubelet":
                one["mountPath"] = node.kubelet
    folders = {"state": f"{node.folder}/state", "kubelet": node.kubelet, "socket-dir": node.plugin}
    for one in spec["volumes"]:
        if "hostPath" in one:
            one["hostPath"]["path"] = folders.get(one["name"], one["hostPath"]["path"])


def deploy(node, file):
    """The shipped workload with its first container only."""
    workload = node.shipped(file)
    spec = workload["spec"]["template"]["spec"]
    del spec["containers"][1:]
    mounted = {one["name"] for one in spec["containers"][0]["volumeMounts"]}
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] in mounted]
    place(node, spec)
    node.create(workload)


def pod_of(node, app):
    """The Pod of the driver or the host that is not on its way out; None without one."""
    found = [one for one in node.get("pods", "-n", "csi-driver")["items"]
             if one["metadata"]["ownerReferences"][0]["name"] == app
             and "deletionTimestamp" not in one["metadata"]]
    return found[0] if found else None


@unittest.skipIf(lacks(), lacks())
class RealNodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cbt-node-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.addClassCleanup(detach_what_is_left, cls.folder)
        cls.node = node = Node(cls.folder)
        cls.addClassCleanup(node.stop)
        node.start()
        node.import_image(IMAGE, ["/usr/bin/cbtctl"], image_files())
        node.kubectl("create", "namespace", "csi-driver")
        node.kubectl("label", "node", "node1", f"{NAME}/volumes=true")
        for file in ("csi-driver.yaml", "service-account.yaml"):
            node.create(node.shipped(file))
        deploy(node, "daemon-set.yaml")
        deploy(node, "stateful-set.yaml")
        eventually(lambda: cls.ready("csi-cbt") and cls.ready("csi-cbt-volumes"), "driver and host")
        cls.addClassCleanup(registrar.Registrar(
            NAME, f"{node.plugin}/csi.sock", f"{node.kubelet}/plugins_registry/{NAME}-reg.sock").stop)
        eventually(lambda: NAME in node.kubectl("get", "csinode", "node1", "-o", "json"),
                   "the kubelet knows the driver")

    @classmethod
    def ready(cls, app):
        """The identity of its container, if that is ready."""
        pod = pod_of(cls.node, app)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return next((one["containerID"].partition("//")[2] for one in statuses if one["ready"]), None)

    def ask(self, method, **fields):
        client = parts.csi_client.Client(csi, f"unix://{self.node.plugin}/csi.sock")
        try:
            return getattr(client, method)(**fields)
        finally:
            client.close()

    # --- Volumes and Pods.

    def claim(self, name, mode):
        """A claim, bound to a new volume of the driver; returns the volume's id."""
        capability = mount("ext4") if mode == "Filesystem" else block()
        volume = self.ask("CreateVolume", name=name, volume_capabilities=[capability],
                          capacity_range=parts.size(64 * MIB)).volume.volume_id
        spec = {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": ""}
        self.node.create({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-" + name},
            "spec": {**spec, "capacity": {"storage": "64Mi"},
                     "persistentVolumeReclaimPolicy": "Retain",
                     "claimRef": {"namespace": "default", "name": name},
                     "csi": {"driver": NAME, "volumeHandle": volume,
                             **({"fsType": "ext4"} if mode == "Filesystem" else {})}}})
        self.node.create({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {**spec, "volumeName": "pv-" + name,
                     "resources": {"requests": {"storage": "64Mi"}}}})
        return volume

    def start_pod(self, name, script, file, disk):
        """A Pod with both volumes: a container for each."""
        def container(title, target, **more):
            text = script.replace("SLOTS", str(SLOTS)).replace("TARGET", target)
            return {"name": title, "image": "localhost/busybox:1", "command": ["/bin/sh", "-c", text],
                    **more}
        self.node.create({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                     "containers": [
                         container("files", file,
                                   volumeMounts=[{"name": "files", "mountPath": "/data"}]),
                         container("disk", disk,
                                   volumeDevices=[{"name": "disk", "devicePath": "/dev/disk"}])],
                     "volumes": [{"name": one, "persistentVolumeClaim": {"claimName": one}}
                                 for one in ("files", "disk")]}})

    def lines(self, pod, container, *more, check=True):
        return [line.split() for line in
                self.node.kubectl("logs", pod, "-c", container, *more, check=check).splitlines()]

    def steps(self):
        """How many times each container has written. Fails if one of them had an error."""
        pod = self.node.get("pod", "writer")
        for status in pod["status"].get("containerStatuses", []):
            if "terminated" in status["state"]:
                self.fail(f"{status['name']} ended: " +
                          self.node.kubectl("logs", "writer", "-c", status["name"], "--tail=3"))
        found = []
        for container in ("files", "disk"):
            last = self.lines("writer", container, "--tail=1", check=False)  # not started yet
            found.append(int(last[0][0]) if last else -1)
        return found

    def wait_for_writes(self, what):
        before = self.steps()
        eventually(lambda: all(now > old + 10 for now, old in zip(self.steps(), before)),
                   f"both containers go on writing after {what}")
        self.assertEqual(list(self.ask("ControllerListVolumeHealth").entries), [], what)

    def longest_wait(self, container, since):
        """Seconds between two writes, at most."""
        times = [datetime.datetime.fromisoformat(line[0][:26].rstrip("Z") + "+00:00")
                 for line in self.lines("writer", container, "--timestamps")]
        times = [one.timestamp() for one in times]
        return max((b - a for a, b in zip(times, times[1:]) if b >= since), default=0)

    # --- What ends.

    def kill_servers(self):
        self.node.kubectl("exec", "-n", "csi-driver", pod_of(self.node, "csi-cbt-volumes")["metadata"]["name"],
                          "--", "/bin/sh", "-c", "kill -9 $(cat /var/lib/cbt/volumes/*/nbdkit.pid)")

    def zombies(self, app):
        """Processes that have ended, and that the first one of the container did not wait for."""
        tasks = self.node.ctr("tasks", "ls")
        first = re.search(rf"^{self.ready(app)}\s+(\d+)", tasks, re.MULTILINE)[1]
        found = []
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state == "Z" and parent == first:
                found.append(path)
        return found

    def kill_container(self, app):
        container = self.ready(app)
        self.node.ctr("tasks", "kill", "--signal", "SIGKILL", container)
        eventually(lambda: self.ready(app) not in (None, container), f"{app} runs again")

    def delete_pod(self, app):
        container = self.ready(app)
        self.node.kubectl("delete", "pod", "-n", "csi-driver", pod_of(self.node, app)["metadata"]["name"])
        eventually(lambda: self.ready(app) not in (None, container), f"{app} has a new Pod")

    def stats_are_answered(self, volumes):
        """NC: the kubelet gets statistics of both volumes at its own paths, and warns of nothing."""
        def reported():
            answer = self.node.kubectl("get", "--raw", "/api/v1/nodes/node1/proxy/stats/summary",
                                       check=False)  # none before the kubelet has looked around
            summary = json.loads(answer) if answer else {"pods": []}
            found = {one["pvcRef"]["name"]: one.get("capacityBytes", 0)
                     for pod in summary["pods"] for one in pod.get("volume", []) if "pvcRef" in one}
            return found if found.keys() >= {"files", "disk"} else None
        capacities = eventually(reported, "the kubelet's statistics have both volumes", 150)
        self.assertEqual(capacities["disk"], 64 * MIB)
        self.assertGreater(capacities["files"], 48 * MIB)
        with open(self.node.log, encoding="utf-8", errors="replace") as log:
            warnings = [line for line in log if line[:1] in "EW" and
                        ("NodeGetVolumeStats" in line or "NOT_FOUND" in line or
                         any(volume in line and "etric" in line for volume in volumes))]
        self.assertEqual(warnings, [])

    def test_na_a_pod_that_writes_keeps_its_volumes_whatever_is_restarted(self):
        volumes = [self.claim("files", "Filesystem"), self.claim("disk", "Block")]
        self.start_pod("writer", WRITER, "of=/data/$slot", "of=/dev/disk seek=$slot")
        eventually(lambda: self.node.get("pod", "writer")["status"]["phase"] == "Running",
                   "the Pod runs")
        eventually(lambda: min(self.steps()) > 10, "both containers write")
        self.stats_are_answered(volumes)
        ends = [("both servers were killed", self.kill_servers),
                ("the driver's container was killed", lambda: self.kill_container("csi-cbt")),
                ("the driver's Pod was replaced", lambda: self.delete_pod("csi-cbt")),
                ("the host's Pod was replaced", lambda: self.delete_pod("csi-cbt-volumes")),
                ("both servers were killed again", self.kill_servers),
                ("both servers were killed once more", self.kill_servers)]
        kernel = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
        if kernel >= RESENDS:
            ends.append(("the host's container was killed",
                         lambda: self.kill_container("csi-cbt-volumes")))
        for what, end in ends:
            since = time.time()
            end()
            self.wait_for_writes(what)
            waits = {one: round(self.longest_wait(one, since), 2) for one in ("files", "disk")}
            self.assertEqual(self.zombies("csi-cbt-volumes"), [], what)
            print(f"{what}: longest wait between two writes {waits}", file=sys.stderr, flush=True)
        self.content_is_what_was_written()

    def content_is_what_was_written(self):
        """Read by another Pod, after the volumes were unstaged."""
        wanted = {}
        for one in ("files", "disk"):
            self.node.kubectl("exec", "writer", "-c", one, "--", "touch", "/tmp/stop")
        eventually(lambda: self.node.get("pod", "writer")["status"]["phase"] == "Succeeded",
                   "the writers end without an error")
        for one in ("files", "disk"):
            wanted[one] = {line[1]: line[2] for line in self.lines("writer", one)}
            self.assertEqual(len(wanted[one]), SLOTS)
        self.node.kubectl("delete", "pod", "writer")
        eventually(lambda: not glob.glob(f"{self.folder}/state/volumes/*/NODE"), "both are unstaged")
        self.start_pod("reader", READER, "if=/data/$slot", "if=/dev/disk skip=$slot")
        eventually(lambda: self.node.get("pod", "reader")["status"]["phase"] == "Succeeded",
                   "the readers end without an error")
        for one in ("files", "disk"):
            self.assertEqual({line[1]: line[2] for line in self.lines("reader", one)}, wanted[one])
        self.node.kubectl("delete", "pod", "reader")
        eventually(lambda: not glob.glob(f"{self.folder}/state/volumes/*/NODE"), "both are unstaged")


if __name__ == "__main__":
    parts.main()
