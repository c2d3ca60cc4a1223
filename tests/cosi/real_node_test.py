"""The node adapter under a real kubelet: Pods with the inline volume, one that waits for its access, one whose
access is revoked, a kubelet that is restarted.

Real are kubelet, containerd, the control plane, our images and the objects of deploy/kubernetes/cosi.
Played are node-driver-registrar and the object gateway (rgw_double.py).

Usage: real_node_test.py CLUSTER_PROGRAM. The programs of the node are in the folder that
KUBEBUILDER_ASSETS names (tests/envtest/node.py).
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.dirname(os.path.abspath(sys.argv[1]))
for room in ("bucket", "deploy", "envtest", "support"):
    sys.path.append(os.path.join(HERE, "..", room))

# pylint: disable=wrong-import-position
import deployed  # noqa: E402
import deployed_cosi  # noqa: E402
import gateway  # noqa: E402
import node as envtest  # noqa: E402
import runner  # noqa: E402
import sanity  # noqa: E402
from deployed_cosi import ADAPTER, DRIVER  # noqa: E402

API = "objectstorage.k8s.io/v1alpha1"
P = "objectstorage.k8s.io/"
CLASSES = [
    {"apiVersion": API, "kind": "BucketClass", "metadata": {"name": "standard"}, "provisioner": DRIVER,
     "deletionPolicy": "Delete", "protocol": {"s3": {"region": "us-east-1"}}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "read", "namespace": "cbt-cosi"},
     "data": {"policy.json": '{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"]}'}},
    {"apiVersion": API, "kind": "BucketAccessClass", "metadata": {"name": "read"},
     "policyActionsConfigMap": {"name": "read", "namespace": "cbt-cosi"}}]


@unittest.skipIf(envtest.lacks(), envtest.lacks())
class RealNodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cbt-node-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.node = node = deployed.Node(cls.folder)
        cls.addClassCleanup(node.stop)
        node.start()
        node.import_ours(PROGRAMS, ("cbt-cluster",))
        node.import_registrar()
        store = gateway.Gateway(node, envtest.ADDRESS, double=True)
        cls.addClassCleanup(store.stop)
        deployed_cosi.deploy(node, store.endpoint, store.credentials())
        node.apply(CLASSES)

    # --- Objects.

    def request(self, name):
        self.node.apply([
            {"apiVersion": API, "kind": "BucketRequest", "metadata": {"name": name, "namespace": "default"},
             "spec": {"bucketClassName": "standard"}},
            {"apiVersion": API, "kind": "BucketAccessRequest", "metadata": {"name": name, "namespace": "default"},
             "spec": {"bucketRequestName": name, "bucketAccessClassName": "read"}}])

    def granted(self, name):
        """The BucketAccess, once it is granted."""
        self.node.wait_for(f"{name} is granted", lambda: self.node.kubectl(
            "get", "bucketaccessrequest", name, "-o", "jsonpath={.status.accessGranted}") == "true")
        return self.node.get("bucketaccess", self.node.get("bucketaccessrequest", name)["status"]["bucketAccessName"])

    def pod(self, name, request):
        """Starts one with the bucket's credentials in /bucket; returns its uid."""
        self.node.apply([{
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "app", "image": "localhost/busybox:1",
                                     "command": ["sleep", "2147483647"],
                                     "volumeMounts": [{"name": "bucket", "mountPath": "/bucket"}]}],
                     "volumes": [{"name": "bucket", "csi": {
                         "driver": ADAPTER, "volumeAttributes": {"bucketAccessRequestName": request}}}]}}])
        return self.node.get("pod", name)["metadata"]["uid"]

    def runs(self, name):
        self.node.wait_for(f"Pod {name} runs", lambda: self.node.kubectl(
            "get", "pod", name, "-o", "jsonpath={.status.phase}") == "Running")

    def waits(self, name, text):
        """An Event of the adapter says for what; the Pod has not started."""
        def said():
            return self.node.kubectl("get", "events", "--field-selector",
                                     f"reason=BucketAccessMissing,involvedObject.name={name}", "-o",
                                     "jsonpath={.items[*].message}")
        self.node.wait_for(f"the Event of {name}", lambda: text in said())
        self.assertEqual(self.node.get("pod", name)["status"]["phase"], "Pending")

    def inside(self, pod, *command):
        return self.node.kubectl("exec", pod, "--", *command)

    def finalizers(self, access):
        text = self.node.kubectl("get", "bucketaccess", access["metadata"]["name"], "--ignore-not-found", "-o", "json")
        return json.loads(text)["metadata"].get("finalizers", []) if text else None

    def delete(self, *things):
        self.node.kubectl("delete", *things, "--timeout=120s")

    # --- Tests.

    def test_cosi_c27_c29_c30_two_pods_share_an_access(self):
        self.request("shared")
        access = self.granted("shared")
        uids = [self.pod(name, "shared") for name in ("one", "two")]
        for name in ("one", "two"):
            self.runs(name)
        for name, uid in zip(("one", "two"), uids):
            info = json.loads(self.inside(name, "cat", "/bucket/BucketInfo"))
            self.assertEqual(info["spec"]["bucketName"], access["metadata"]["annotations"][P + "bucket-id"])
            self.assertEqual(self.inside(name, "stat", "-Lc", "%a %u", "/bucket/COSI_S3_ACCESS_SECRET_KEY"), "400 0\n")
            # Not even root in the container writes there, whose mount is another one.
            self.assertIn(" tmpfs ro,", self.inside(name, "grep", " /bucket ", "/proc/mounts"))
            self.assertIn(f"{P}pod-{uid}", self.finalizers(access))
        self.delete("pod/one")
        self.node.wait_for("its finalizer goes", lambda: f"{P}pod-{uids[0]}" not in self.finalizers(access))
        self.assertIn(f"{P}pod-{uids[1]}", self.finalizers(access))
        self.delete("pod/two", "bucketaccessrequest/shared", "bucketrequest/shared")

    def test_cosi_c28_a_pod_waits_for_its_access(self):
        self.pod("early", "later")
        self.waits("early", "BucketAccessRequest later does not exist")
        self.request("later")
        begin = time.monotonic()
        self.granted("later")
        self.runs("early")
        print(f"the Pod runs {time.monotonic() - begin:.1f} s after its request", file=sys.stderr)
        self.delete("pod/early", "bucketaccessrequest/later", "bucketrequest/later")

    def test_cosi_c23_an_access_is_revoked_under_a_pod(self):
        self.request("revoked")
        access = self.granted("revoked")
        uid = self.pod("holder", "revoked")
        self.runs("holder")
        self.delete("bucketaccessrequest/revoked")
        # The object stays for the Pod, which goes on running with keys that are worth nothing.
        self.assertEqual(self.finalizers(access), [f"{P}pod-{uid}"])
        self.inside("holder", "cat", "/bucket/BucketInfo")
        self.pod("late", "revoked")
        self.waits("late", "BucketAccessRequest revoked does not exist")
        self.delete("pod/holder", "pod/late")
        self.node.wait_for("the access goes", lambda: self.finalizers(access) is None)
        self.delete("bucketrequest/revoked")

    def test_the_kubelet_is_restarted(self):
        self.request("kept")
        access = self.granted("kept")
        uids = {name: self.pod(name, "kept") for name in ("stays", "goes")}
        for name in uids:
            self.runs(name)
        mount = f"{self.node.kubelet}/pods/{uids['goes']}/volumes/kubernetes.io~csi/bucket/mount"
        self.stop_kubelet()
        # One Pod is deleted meanwhile.
        self.node.kubectl("delete", "pod", "goes", "--wait=false")
        self.node.start_kubelet()
        self.node.wait_for("the Pod's mount goes", lambda: not self.mounted(mount))
        self.node.wait_for("its finalizer goes", lambda: f"{P}pod-{uids['goes']}" not in self.finalizers(access))
        self.inside("stays", "cat", "/bucket/BucketInfo")
        self.assertIn(f"{P}pod-{uids['stays']}", self.finalizers(access))
        self.pod("new", "kept")
        self.runs("new")
        self.delete("pod/stays", "pod/new", "bucketaccessrequest/kept", "bucketrequest/kept")

    def stop_kubelet(self):
        kubelet = self.node.processes.pop("kubelet")
        kubelet.send_signal(signal.SIGKILL)
        kubelet.wait()

    def mounted(self, path):
        return path in self.node.inside("cat", "/proc/self/mounts")

    def test_sanity_at_the_kubelets_socket(self):
        if not os.path.exists(f"{self.node.assets}/csi-sanity"):
            self.skipTest("KUBEBUILDER_ASSETS names no folder with csi-sanity")
        said = self.node.inside(*sanity.command(
            self.node.assets, f"{self.node.kubelet}/plugins/{ADAPTER}/csi.sock", self.folder))
        print(next(line for line in said.splitlines() if "Passed" in line), file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], testRunner=runner.Runner)
