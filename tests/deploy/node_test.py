"""Overlays on a whole Kubernetes node: the images of `make image` and the sidecars of Kubernetes run as the
manifests have them, find each other, and publish what clients need.

Real are: kubelet, containerd, control plane, the images, the sidecars of Kubernetes where
KUBEBUILDER_ASSETS has them. Played is node-driver-registrar. The node's folders are not below
/var/lib. There is no network plugin that enforces policies, and no DNS.

Usage: node_test.py CBT
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import unittest


HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.dirname(os.path.abspath(sys.argv[1]))
sys.path.append(HERE)
for room in ("envtest", "support"):
    sys.path.append(os.path.join(HERE, "..", room))

# pylint: disable=wrong-import-position
import built  # noqa: E402
import deployed  # noqa: E402
import node as envtest  # noqa: E402
import runner  # noqa: E402
from node import Authority  # noqa: E402

DRIVER = "local.storage.example.org"


def lacks():
    return envtest.lacks_for_volumes("nbdkit", "losetup", "mkfs.ext4") or deployed.lacks_sidecars()


@unittest.skipIf(lacks(), lacks())
class NodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cbt-deploy-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.node = deployed.Node(cls.folder)
        cls.addClassCleanup(cls.node.stop)
        cls.node.start()
        cls.node.kubectl("label", "node", "node1", "cbt.csi.example.com/volumes=true")
        cls.node.define(os.environ.get("CBT_SNAPSHOT_CRDS", os.path.join(cls.node.assets, "crds")),
                        os.path.join(HERE, "crds"),
                        *(os.path.join(built.DEPLOY, part, "crd") for part in ("", "aggregated", "sessions")))
        cls.node.import_ours(PROGRAMS, ("cbt-cluster", "cbtctl", "cbt-driver"),
                             (deployed.REGISTRY, "images.example.org/cbt"))
        cls.node.import_sidecars()
        cls.node.import_registrar()
        os.makedirs(f"{cls.folder}/certificates")
        cls.authority = Authority(f"{cls.folder}/certificates", "authority")

    def secret(self, namespace, name, hosts=(), client="", kind="kubernetes.io/tls"):
        """By openssl, as docs/guides/certificates.md has it."""
        subject = f"/CN={client or hosts[0]}"
        alternatives = ",".join("DNS:" + host for host in hosts)
        self.authority.issue(name, subject, "clientAuth" if client else "serverAuth", alternatives)

        def encoded(file):
            with open(f"{self.folder}/certificates/{file}", "rb") as data:
                return base64.b64encode(data.read()).decode()
        data = {"ca.crt": encoded("authority.crt")}
        if kind == "kubernetes.io/tls":
            data.update({"tls.crt": encoded(name + ".crt"), "tls.key": encoded(name + ".key")})
        self.node.write("secret.json", {"apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
                                        "metadata": {"name": name, "namespace": namespace}})
        self.node.kubectl("apply", "-f", f"{self.folder}/secret.json")
        return data["ca.crt"]

    def published(self, resource, name):
        """The spec of an object that a sidecar makes; it tries again until the definition is there."""
        self.node.wait_for(f"{resource} {name}", lambda: self.node.kubectl(
            "get", resource, name, "-o", "name", check=False))
        return self.node.get(resource, name)["spec"]

    def test_the_driver_elsewhere_and_under_another_name(self):
        objects = built.build(os.path.join(built.OVERLAYS, "driver"))
        self.node.apply([one for one in objects if one["kind"] == "Namespace"])
        authority = self.secret("storage", "csi-cbt-certs",
                                ["csi-cbt.storage", "http-sidecar.storage.svc"])
        self.secret("storage", "http-sidecar-clients", client="cbt-aggregated-api", kind="Opaque")
        self.node.apply(objects)
        self.node.wait_for_workload("daemonset", "storage", "csi-cbt-volumes")
        self.node.wait_for_workload("statefulset", "storage", "csi-cbt")
        published = self.published("snapshotmetadataservices.cbt.storage.k8s.io", DRIVER)
        self.assertEqual((published["address"], published["caCert"]),
                         ("csi-cbt.storage:6443", authority))
        discovery = self.published("driverdiscoveries.cbt.storage.k8s.io", DRIVER)
        self.assertEqual(discovery["clientConfig"]["service"]["name"], "http-sidecar")
        self.assertEqual(discovery["clientConfig"]["service"]["namespace"], "storage")
        configuration = self.published("snapshotservicesconfigurations.cbt.storage.k8s.io", DRIVER)
        self.assertEqual(configuration["driverNamespace"], "storage")
        self.sidecars_are_not_root()
        self.metrics_are_served()
        self.a_volume_is_made()

    def sidecars_are_not_root(self):
        tasks = self.node.ctr("tasks", "ls")
        pod = self.node.get("pod", "-n", "storage", "csi-cbt-0")
        users = {}
        for status in pod["status"]["containerStatuses"]:
            number = next(line.split()[1] for line in tasks.splitlines()
                          if line.startswith(status["containerID"].partition("//")[2]))
            with open(f"/proc/{number}/status", encoding="utf-8") as file:
                (line,) = [line for line in file if line.startswith("Uid:")]
            users[status["name"]] = int(line.split()[1])
        self.assertEqual(users.pop("driver"), 0)
        self.assertEqual(users.pop("node-driver-registrar"), 0)
        self.assertEqual(set(users.values()), {65532}, users)

    def metrics_are_served(self):
        address = self.node.get("pod", "-n", "storage", "csi-cbt-0")["status"]["podIP"]
        for port, name in ((8080, "cbt_sidecar_ready 1"), (8081, "cbt_http_sidecar_ready 1"),
                           (9808, "cbt_volumes_not_served 0")):
            said = self.node.inside("busybox", "wget", "-qO-", f"http://{address}:{port}/metrics")
            self.assertIn(name, said, port)

    def a_volume_is_made(self):
        """By the provisioner, for a claim of the class; it is deleted again."""
        self.node.write("claim.json", {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                     "storageClassName": "now", "resources": {"requests": {"storage": "64Mi"}}}})
        self.node.write("class.json", {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "now"},
            "provisioner": DRIVER, "volumeBindingMode": "Immediate"})
        # The kubelet writes it when the registrar names the driver.
        self.node.write("csinode.json", {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node1"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "node1",
                                  "topologyKeys": [f"topology.{DRIVER}/node"]}]}})
        self.node.kubectl("apply", "--force-conflicts", "--server-side", "-f",
                          f"{self.folder}/csinode.json")
        self.node.kubectl("label", "node", "node1", f"topology.{DRIVER}/node=node1")
        for name in ("class", "claim"):
            self.node.kubectl("apply", "-f", f"{self.folder}/{name}.json")
        try:
            self.node.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=120s",
                              "pvc/disk")
        except AssertionError:
            self.fail(self.node.kubectl("describe", "pvc", "disk", check=False))
        volumes = os.listdir(f"{self.folder}/state/{DRIVER}/volumes")
        self.assertEqual(len(volumes), 1)
        self.node.kubectl("delete", "pvc", "disk", "--timeout=60s")

    def test_metrics_over_tls_are_probed(self):
        space = "cbt-session-manager"
        objects = [one for one in built.build(os.path.join(built.OVERLAYS, "metrics-tls"))
                   if one["kind"] != "CustomResourceDefinition"
                   and one["metadata"].get("namespace") != "monitoring"]
        self.node.apply([one for one in objects if one["kind"] == "Namespace"])
        self.secret(space, "session-manager-certs", [f"session-manager.{space}.svc", "cbt-metrics"])
        self.node.apply(objects)
        self.node.wait_for_workload("deployment", space, "session-manager")
        (pod, *_) = self.node.get("pods", "-n", space)["items"]
        said = self.node.inside("busybox", "wget", "--no-check-certificate", "-qO-",
                                f"https://{pod['status']['podIP']}:8080/metrics")
        self.assertIn('cbt_certificate_expiry_timestamp_seconds{file="/certificates/tls.crt"}', said)
        self.node.kubectl("delete", "validatingwebhookconfiguration", "cbt-session-manager")
        self.node.kubectl("delete", "namespace", space, "--timeout=60s")

    def test_the_example_for_a_try(self):
        objects = built.build(os.path.join(built.DEPLOY, "example"))
        self.node.apply([one for one in objects if one["kind"] == "Namespace"])
        self.secret("csi-example", "csi-snapshot-metadata-certs", ["csi-snapshot-metadata.csi-example"])
        self.node.apply(objects)
        self.node.wait_for_workload("statefulset", "csi-example", "csi-snapshot-metadata")
        self.assertEqual(self.published("sms", "folder.example.com")["address"],
                         "csi-snapshot-metadata.csi-example:6443")

    def test_then_the_aggregated_api_explains_itself(self):
        # Last: it takes over the version that the sessions' definitions are of.
        objects = built.build(os.path.join(built.OVERLAYS, "aggregated"))
        self.node.apply([one for one in objects if one["kind"] == "Namespace"])
        authority = self.secret("backup-system", "aggregated-api-certs",
                                ["aggregated-api.backup-system.svc"])
        self.secret("backup-system", "aggregated-api-client", client="cbt-aggregated-api")
        self.node.kubectl("delete", "-k", os.path.join(built.DEPLOY, "sessions", "crd"))
        for one in objects:
            if one["kind"] == "APIService":
                one["spec"]["caBundle"] = authority
        self.node.apply(objects)
        self.node.wait_for_workload("deployment", "backup-system", "aggregated-api")
        self.node.kubectl("wait", "--for=condition=Available", "--timeout=60s",
                          "apiservice/v1alpha1.cbt.storage.k8s.io")

        def explained():
            return subprocess.run(
                self.node.enter(f"{self.node.assets}/kubectl", f"--kubeconfig={self.node.kubeconfig}",
                                "explain", "volumesnapshotdeltas.spec",
                                "--api-version=cbt.storage.k8s.io/v1alpha1"),
                capture_output=True, text=True, check=False)
        self.node.wait_for("the API server has the document",
                           lambda: explained().returncode == 0, 120)
        said = explained().stdout
        self.assertIn("targetVolumeSnapshotName", said)
        self.assertIn("-required-", said)
        self.assertEqual(self.node.get("deployment", "-n", "backup-system", "aggregated-api")["status"]
                         ["readyReplicas"], 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
