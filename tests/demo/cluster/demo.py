#!/usr/bin/env python3
"""docs/tutorials/whole-cluster.md on this machine: a Pod's volume is backed up by its changed blocks into a
bucket that it was given, and restored; then the access is revoked. Usage:

    demo.py BIN_DIR

BIN_DIR has cbtctl, cbt-cluster and cbt-driver. Control plane, kubelet and containerd are those that
KUBEBUILDER_ASSETS names (`make envtest`), the object gateway is radosgw. Without them the exit status
is 77, and the reason is said. Needs root. Fails if a comparison does.
"""

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(os.path.dirname(TESTS), "examples", "cluster")
sys.path += [HERE, *(os.path.join(TESTS, one) for one in ("envtest", "bucket", "cosi", "deploy"))]
sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import built  # noqa: E402
import deployed  # noqa: E402
import deployed_cosi  # noqa: E402
import gateway  # noqa: E402
import node as envtest  # noqa: E402
import volumes  # noqa: E402

NAMESPACE = "shop"
DAYS = ("monday", "tuesday", "wednesday", "thursday")
FIRST = 12  # MiB
PIECE = 65536
PIECES = 3
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}

bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


def lacks():
    if envtest.lacks() or deployed.lacks_sidecars() or gateway.lacks():
        return envtest.lacks() or deployed.lacks_sidecars() or gateway.lacks()
    if not os.path.exists(os.path.join(os.environ["KUBEBUILDER_ASSETS"], "snapshot-controller")):
        return "KUBEBUILDER_ASSETS has no snapshot-controller"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return "no " + device
    return "" if shutil.which("nbdkit") else "no nbdkit"


def heading(text):
    print(f"\n{bold}{text}{plain}", flush=True)


def say(text):
    print("\n".join("  " + line for line in text.strip().splitlines()), flush=True)


class Story:
    def __init__(self, programs, folder, ending):
        self.programs, self.folder, self.ending = programs, folder, ending
        self.node = deployed.Node(folder)

    # --- kubectl.

    def kubectl(self, *command, **more):
        return self.node.kubectl("-n", NAMESPACE, *command, **more)

    def apply(self, objects):
        """A file of examples/cluster, or a list of objects."""
        if isinstance(objects, str):
            objects = self.example(objects)
        for one in objects:
            if one["kind"] == "Pod":
                for container in one["spec"]["containers"]:
                    container["image"] = container["image"].replace("busybox", "localhost/busybox")
        self.node.apply(objects)

    @staticmethod
    def example(name, day=DAYS[0]):
        with open(os.path.join(EXAMPLES, name + ".yaml"), encoding="utf-8") as file:
            return list(yaml.safe_load_all(file.read().replace(DAYS[0], day)))

    def wait(self, what, condition, seconds=180):
        """The node's own processes may not end meanwhile."""
        try:
            self.node.wait_for(what, condition, seconds)
        except RuntimeError as error:
            pods = self.kubectl("describe", "pods", check=False)[-4000:]
            raise AssertionError(f"{str(error)[:300]}\n{pods}") from error

    def field(self, thing, path):
        return self.kubectl("get", thing, "-o", f"jsonpath={{{path}}}", check=False)

    def wait_for_pod(self, name, *phases):
        self.wait(f"Pod {name} is {' or '.join(phases)}", lambda: self.field("pod/" + name, ".status.phase") in phases)
        return self.field("pod/" + name, ".status.phase")

    def delete(self, *things):
        self.kubectl("delete", *things, "--ignore-not-found", "--grace-period=0", "--timeout=120s")

    # --- The story.

    def start(self):
        node = self.node
        self.ending.callback(volumes.detach_what_is_left, self.folder)
        self.ending.callback(node.stop)
        node.start()
        node.import_ours(self.programs, ("cbt-cluster", "cbtctl", "cbt-driver"))
        node.import_sidecars()
        node.import_registrar()
        volumes.deploy(node)
        store = gateway.Gateway(node, envtest.ADDRESS)
        self.ending.callback(store.stop)
        deployed_cosi.deploy(node, store.endpoint, store.credentials())
        say(node.kubectl("get", "pods", "--all-namespaces", "--no-headers", "-o",
                         "custom-columns=:.metadata.namespace,:.metadata.name,:.spec.containers[*].name"))
        say(f"object gateway: radosgw at {store.endpoint}")

    def begin(self):
        self.node.kubectl("apply", "-f", os.path.join(EXAMPLES, "namespace.yaml"))
        self.wait("service accounts", lambda: self.kubectl("get", "serviceaccount", "default", check=False))
        self.apply(built.build(EXAMPLES))
        self.wait_for_pod("shop", "Running")
        self.write(0, FIRST << 20)
        say(f"Pod shop has written {FIRST} MiB to its claim of 64 MiB")

    def write(self, offset, length):
        self.kubectl("exec", "shop", "--", "sh", "-c",
                     f"dd if=/dev/urandom of=/dev/data bs={PIECE} seek={offset // PIECE} count={length // PIECE} "
                     "conv=notrunc,fsync 2>&1")

    def give_bucket(self):
        self.node.kubectl("apply", "-f", os.path.join(EXAMPLES, "classes.yaml"))
        self.kubectl("create", "secret", "generic", "backup-password", "--from-literal=password=correct horse")
        self.node.kubectl("apply", "-f", os.path.join(EXAMPLES, "bucket.yaml"))
        for thing in ("bucketrequest/backups", "bucketaccessrequest/backups"):
            field = ".status.bucketAvailable" if "bucketrequest/" in thing else ".status.accessGranted"
            self.wait(f"{thing} is ready", lambda thing=thing, field=field: self.field(thing, field) == "true")
        for kind in ("bucketrequests", "bucketaccessrequests"):
            say(self.kubectl("get", kind))

    def snapshot(self, day):
        self.apply(self.example("snapshot", day))
        self.wait(f"snapshot {day} is ready",
                  lambda: self.field("volumesnapshot/" + day, ".status.readyToUse") == "true")

    def back_up(self, day, *more):
        """Returns how many bytes were read."""
        pod = f"backup-{day}"
        objects = self.example("backup", day)
        objects[0]["spec"]["containers"][0]["args"] += more
        begin = time.monotonic()
        self.apply(objects)
        phase = self.wait_for_pod(pod, "Succeeded", "Failed")
        log = self.kubectl("logs", pod)
        if phase != "Succeeded":
            raise AssertionError(f"{pod}: {log}")
        say(f"{day:<9} {log.strip().splitlines()[-1]}   ({time.monotonic() - begin:.1f} s)")
        self.delete(f"pod/{pod}", f"pvc/{day}")
        found = re.search(r"read ([\d.]+) (B|KiB|MiB)", log)
        return float(found[1]) * UNITS[found[2]]

    def increments(self):
        for number, (before, day) in enumerate(zip(DAYS, DAYS[1:]), 1):
            for piece in range(PIECES):
                self.write((piece * 300 + number * 7) * PIECE, PIECE)
            self.snapshot(day)
            read = self.back_up(day, "--require-incremental")
            # A blob has 1 MiB.
            if read > PIECES << 20:
                raise AssertionError(f"{day}: {read} bytes were read for {PIECES} pieces")
            self.delete(f"volumesnapshot/{before}")
            self.wait("its content is deleted", lambda: len(self.contents()) == 1)
        say(f"left: {', '.join(self.contents())}")

    def contents(self):
        return self.node.kubectl("get", "volumesnapshotcontents", "--no-headers", "-o",
                                 "custom-columns=:.spec.volumeSnapshotRef.name").split()

    def restore(self):
        wanted = self.kubectl("exec", "shop", "--", "sha256sum", "/dev/data").split()[0]
        self.apply("restore")
        if self.wait_for_pod("restore", "Succeeded", "Failed") != "Succeeded":
            raise AssertionError(self.kubectl("logs", "restore"))
        self.delete("pod/restore")
        pod = self.example("application")[1]
        pod["metadata"]["name"] = "look"
        pod["spec"].update(restartPolicy="Never")
        pod["spec"]["containers"][0]["command"] = ["sha256sum", "/dev/data"]
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "restored"
        self.apply([pod])
        self.wait_for_pod("look", "Succeeded", "Failed")
        found = self.kubectl("logs", "look").split()[0]
        say(f"claim data      {wanted}\nclaim restored  {found}")
        if found != wanted:
            raise AssertionError("the restored volume differs")

    def revoke(self):
        """A Pod has the keys already; another one comes too late."""
        day = "friday"
        self.snapshot(day)
        pod = self.example("backup", day)[0]
        pod["spec"]["initContainers"] = [{
            "name": "wait", "image": "localhost/busybox:1",
            "command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"],
            "volumeMounts": [{"name": "temporary", "mountPath": "/tmp"}]}]
        self.apply([pod])
        name = pod["metadata"]["name"]
        self.wait("the Pod has its mounts", lambda: self.field(
            "pod/" + name, ".status.initContainerStatuses[0].state.running.startedAt"))
        self.delete("bucketaccessrequest/backups")
        self.kubectl("exec", name, "-c", "wait", "--", "touch", "/tmp/go")
        if self.wait_for_pod(name, "Succeeded", "Failed") != "Failed":
            raise AssertionError("a backup with keys that were revoked has succeeded")
        log = self.kubectl("logs", name, "-c", "backup").strip()
        say(f"a Pod that has the keys already:\n  {log.splitlines()[-1]}")
        if "403" not in log and "InvalidAccessKeyId" not in log:
            raise AssertionError(f"the error does not say that access was revoked: {log}")
        self.delete("pod/" + name)
        self.apply(self.example("backup", day))
        said = []

        def refused():
            said[:] = self.kubectl("get", "events", "--field-selector",
                                   f"reason=BucketAccessMissing,involvedObject.name={name}", "-o",
                                   "jsonpath={.items[*].message}").splitlines()
            return said
        self.wait("the kubelet has asked for the mount", refused)
        say(f"a Pod that comes after that, by `kubectl describe`:\n  BucketAccessMissing: {said[0]}")
        self.delete("pod/" + name, "pvc/" + day)

    def show(self):
        begin = time.monotonic()
        print(f"{bold}libcbt: a cluster's volume goes into a bucket by its changed blocks, and comes back{plain}")
        for title, step in (("1. A node, a CSI driver, COSI and an object gateway", self.start),
                            ("2. An application writes to its claim", self.begin),
                            ("3. A bucket and access to it, by two objects", self.give_bucket),
                            ("4. A snapshot, and its backup", lambda: (self.snapshot(DAYS[0]), self.back_up(DAYS[0]))),
                            ("5. Three more: what changed is read, then the base is deleted", self.increments),
                            ("6. The restore, into a new claim", self.restore),
                            ("7. The access is revoked", self.revoke)):
            heading(title)
            at = time.monotonic()
            step()
            say(f"({time.monotonic() - at:.0f} s)")
        heading(f"All comparisons hold; the whole took {time.monotonic() - begin:.0f} s.")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if lacks():
        print(f"demo: {lacks()}")
        sys.exit(77)
    # Signals end the demo like an error does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as ending:
        folder = tempfile.mkdtemp(prefix="cbt-node-")
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            Story(os.path.abspath(sys.argv[1]), folder, ending).show()
        except (AssertionError, OSError, RuntimeError) as error:
            sys.exit(f"demo: {error}")


if __name__ == "__main__":
    main()
