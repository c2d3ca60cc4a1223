"""The node adapter on a real kube-apiserver, called as kubelet calls it: mounts in memory, what waits, what is revoked,
kills between the steps, csi-sanity's node part.

Usage: node_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest

# pylint: disable=wrong-import-position
from world import P, Component, Running, stop  # noqa: E402
import grpc  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402
import sanity  # noqa: E402

CODES = grpc.StatusCode
CONTEXT = "csi.storage.k8s.io/"


def tearDownModule():
    stop()


def field(number, value):
    """A field of protobuf: bytes or text."""
    value = value.encode() if isinstance(value, str) else value
    size, length = len(value), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def pairs(number, values):
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values.items())


class Kubelet:
    """Calls of csi.v1.Node as bytes: its generated messages meet others of the same package here."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel("unix:" + socket)

    def call(self, method, request, seconds=30):
        return self.channel.unary_unary(f"/csi.v1.{method}")(request, timeout=seconds, wait_for_ready=True)

    def publish(self, volume, target, context, group=""):
        capability = field(2, field(3, group) if group else b"") + b"\x1a\x02\x08\x01"
        return self.call("Node/NodePublishVolume", field(1, volume) + field(4, target) + field(5, capability) +
                         pairs(8, context))

    def unpublish(self, volume, target):
        return self.call("Node/NodeUnpublishVolume", field(1, volume) + field(2, target))


class NodeTest(Running):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root mounts")
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(dir=cls.world.folder)
        cls.socket = os.path.join(cls.folder, "csi.sock")
        cls.node = Component(cls.world.folder, cls.world.node_config, "cosi-node",
                             f"--listen=unix:{cls.socket}", "--node-id=node-1",
                             f"--state-dir={cls.folder}/state", name="node")
        cls.addClassCleanup(cls.node.stop)
        cls.node.wait_ready()
        cls.kubelet = Kubelet(cls.socket)
        cls.addClassCleanup(cls.kubelet.channel.close)

    def pod(self):
        return self.world.ask("POST", self.world.path("Pod", "prod"), {
            "metadata": {"name": self.name("pod")},
            "spec": {"containers": [{"name": "a", "image": "b"}],
                     "automountServiceAccountToken": False}}) | {"kind": "Pod"}

    def context(self, pod, request):
        meta = pod["metadata"]
        return {CONTEXT + "ephemeral": "true", CONTEXT + "pod.name": meta["name"],
                CONTEXT + "pod.namespace": meta["namespace"], CONTEXT + "pod.uid": meta["uid"],
                "bucketAccessRequestName": request}

    def target(self, pod):
        """As kubelet names it; the parent is there, and it is not."""
        folder = os.path.join(self.folder, "pods", pod["metadata"]["uid"])
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, "mount")
        self.addCleanup(subprocess.run, ["umount", "-l", target], check=False, capture_output=True)
        return target

    def code(self, function, *arguments):
        with self.assertRaises(grpc.RpcError) as caught:
            function(*arguments)
        return caught.exception.code(), caught.exception.details()

    def test_cosi_c27_c29_c30_s1_s3_s4_a_pod_gets_its_credentials(self):
        wanted = self.access(self.bucket())
        access = self.access_of(wanted)
        pod, other = self.pod(), self.pod()
        target = self.target(pod)
        self.kubelet.publish("v1", target, self.context(pod, wanted["metadata"]["name"]))
        secret = self.secret_of(access)
        self.assertEqual(set(os.listdir(target)), set(secret))
        for name, text in secret.items():
            path = os.path.join(target, name)
            self.assertEqual(parts.read(path).decode(), text)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o400)
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            line = next(one for one in mounts if f" {target} " in one).split()
        self.assertEqual(line[2], "tmpfs")
        for option in ("ro", "nosuid", "nodev", "noexec"):
            self.assertIn(option, line[3].split(","))
        # One finalizer for each Pod, of its uid, on the access (S3).
        self.assertIn(P + "pod-" + pod["metadata"]["uid"], self.finalizers(access))
        self.kubelet.publish("v2", self.target(other), self.context(other, wanted["metadata"]["name"]), "1234")
        path = os.path.join(self.target(other), "BucketInfo")
        self.assertEqual((stat.S_IMODE(os.stat(path).st_mode), os.stat(path).st_gid), (0o440, 1234))
        # Again: nothing changes.
        self.kubelet.publish("v1", target, self.context(pod, wanted["metadata"]["name"]))
        # Each unpublish removes its own (S4).
        for _ in range(2):
            self.kubelet.unpublish("v1", target)
            self.assertFalse(os.path.exists(target))
            self.assertNotIn(P + "pod-" + pod["metadata"]["uid"], self.finalizers(access))
        self.assertIn(P + "pod-" + other["metadata"]["uid"], self.finalizers(access))
        self.kubelet.unpublish("v2", self.target(other))
        self.assertNotIn("very-secret", self.node.log())

    def test_cosi_c28_a_pod_waits_for_its_access(self):
        request = self.bucket_request("a-class-that-comes")
        wanted = self.access_request(self.access_class(), bucketRequestName=request["metadata"]["name"])
        pod = self.pod()
        target = self.target(pod)
        for name, text in (("never", "does not exist"), (wanted["metadata"]["name"], "has no BucketAccess yet")):
            begin = time.monotonic()
            code, details = self.code(self.kubelet.publish, "w1", target, self.context(pod, name))
            self.assertLess(time.monotonic() - begin, 5)
            self.assertEqual(code, CODES.UNAVAILABLE)
            self.assertIn(text, details)
            self.wait_event(pod, "BucketAccessMissing", text)
            self.assertFalse(os.path.exists(target))
        self.make("BucketClass", {"deletionPolicy": "Delete", "protocol": {"s3": {}},
                                  "provisioner": self.driver.name}, name="a-class-that-comes")
        self.granted(wanted)
        self.kubelet.publish("w1", target, self.context(pod, wanted["metadata"]["name"]))
        self.kubelet.unpublish("w1", target)

    def test_cosi_c28_an_access_that_is_revoked_is_not_mounted_again(self):
        wanted = self.access(self.bucket())
        access = self.access_of(wanted)
        pod, late = self.pod(), self.pod()
        target = self.target(pod)
        self.kubelet.publish("r1", target, self.context(pod, wanted["metadata"]["name"]))
        self.delete(wanted)
        # Revoked under the running Pod, whose finalizer holds the object (C23).
        self.gone(wanted)
        self.wait(access, lambda one: P + "bar-protect" not in one["metadata"]["finalizers"])
        code, _ = self.code(self.kubelet.publish, "r2", self.target(late),
                            self.context(late, wanted["metadata"]["name"]))
        self.assertEqual(code, CODES.UNAVAILABLE)
        self.kubelet.unpublish("r1", target)
        self.gone(access)

    def test_a_request_of_another_namespace_is_not_found(self):
        wanted = self.access(self.bucket())
        pod = self.pod()
        context = self.context(pod, wanted["metadata"]["name"])
        context[CONTEXT + "pod.namespace"] = "other"
        code, details = self.code(self.kubelet.publish, "x1", self.target(pod), context)
        self.assertEqual((code, "does not exist" in details), (CODES.UNAVAILABLE, True))

    def test_unpublishing_always_ends(self):
        # What was never there; what is gone; what is mounted twice; what has an open file.
        self.kubelet.unpublish("never", os.path.join(self.folder, "nothing", "mount"))
        self.kubelet.unpublish("../../etc", self.target(self.pod()))
        wanted = self.access(self.bucket())
        pod = self.pod()
        target = self.target(pod)
        self.kubelet.publish("u1", target, self.context(pod, wanted["metadata"]["name"]))
        access = self.access_of(wanted)
        self.change(access, {"metadata": {"finalizers": []}})
        self.delete(access)
        self.gone(access)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", target], check=True)
        with open(os.path.join(target, "open"), "w", encoding="utf-8"):
            self.kubelet.unpublish("u1", target)
        self.assertFalse(os.path.exists(target))

    def test_unpublishing_ends_without_the_api_server(self):
        wanted = self.access(self.bucket())
        pod = self.pod()
        target = self.target(pod)
        self.kubelet.publish("a1", target, self.context(pod, wanted["metadata"]["name"]))
        self.plane.command("stop")
        try:
            code, _ = self.code(self.kubelet.publish, "a2", self.target(pod),
                                self.context(pod, wanted["metadata"]["name"]))
            self.assertEqual(code, CODES.UNAVAILABLE)
            self.kubelet.unpublish("a1", target)
            self.assertFalse(os.path.exists(target))
        finally:
            self.plane.command("start")
        # S21: the controller takes the finalizer when the Pod is gone.
        access = self.access_of(wanted)
        self.assertIn(P + "pod-" + pod["metadata"]["uid"], self.finalizers(access))
        self.world.ask("DELETE", self.world.path("Pod", "prod", pod["metadata"]["name"]) + "?gracePeriodSeconds=0")
        self.assertTrue(parts.wait_until(
            lambda: P + "pod-" + pod["metadata"]["uid"] not in self.finalizers(access), 60), self.logs())

    def test_cosi_s21_pods_that_run_keep_their_finalizer(self):
        wanted = self.access(self.bucket())
        access = self.access_of(wanted)
        pod = self.pod()
        self.kubelet.publish("s1", self.target(pod), self.context(pod, wanted["metadata"]["name"]))
        self.change(access, {"metadata": {"finalizers": self.finalizers(access) + [P + "pod-gone"]}})
        self.assertTrue(parts.wait_until(lambda: P + "pod-gone" not in self.finalizers(access), 30))
        self.assertIn(P + "pod-" + pod["metadata"]["uid"], self.finalizers(access))
        self.kubelet.unpublish("s1", self.target(pod))

    def test_it_is_killed_and_comes_back(self):
        wanted = self.access(self.bucket())
        access = self.access_of(wanted)
        pod = self.pod()
        target = self.target(pod)
        self.kubelet.publish("k1", target, self.context(pod, wanted["metadata"]["name"]))
        self.node.kill()
        # The Pod keeps what it has.
        self.assertTrue(os.listdir(target))
        self.node.start().wait_ready()
        self.kubelet.unpublish("k1", target)
        self.assertNotIn(P + "pod-" + pod["metadata"]["uid"], self.finalizers(access))
        # One that was killed between mount and files has left an empty one.
        os.mkdir(target)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", target], check=True)
        self.kubelet.publish("k1", target, self.context(pod, wanted["metadata"]["name"]))
        self.assertIn("BucketInfo", os.listdir(target))
        self.kubelet.unpublish("k1", target)

    def test_what_is_no_inline_volume_is_refused(self):
        pod = self.pod()
        target = self.target(pod)
        context = self.context(pod, "a")
        for missing in (CONTEXT + "ephemeral", CONTEXT + "pod.uid", "bucketAccessRequestName"):
            code, _ = self.code(self.kubelet.publish, "i1", target,
                                {key: value for key, value in context.items() if key != missing})
            self.assertEqual(code, CODES.INVALID_ARGUMENT, missing)
        code, _ = self.code(self.kubelet.call, "Node/NodeStageVolume", b"")
        self.assertEqual(code, CODES.UNIMPLEMENTED)
        code, _ = self.code(self.kubelet.call, "Node/NodePublishVolume", b"\xff")
        self.assertEqual(code, CODES.INVALID_ARGUMENT)

    def test_sanity(self):
        program = os.path.join(os.environ["KUBEBUILDER_ASSETS"], "csi-sanity")
        if not os.path.exists(program):
            self.skipTest("KUBEBUILDER_ASSETS names no folder with csi-sanity")
        done = subprocess.run(
            sanity.command(os.environ["KUBEBUILDER_ASSETS"], self.socket, self.folder),
            capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-5000:] + done.stderr[-2000:])
        print(next(line for line in done.stdout.splitlines() if "Passed" in line), file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
