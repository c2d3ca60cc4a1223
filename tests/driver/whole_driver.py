"""The whole driver of deploy/kubernetes/driver on a real node: its Pod with csi-provisioner, csi-resizer,
csi-snapshotter and the sidecar, the volume host, and a snapshot-controller. Not a test.

Played are the images (files of this machine) and node-driver-registrar.
"""

import base64
import json
import os

# pylint: disable=wrong-import-position
import real_node_test as real  # noqa: E402
import registrar  # noqa: E402
from driver_parts import CBT, MIB, NAME  # noqa: E402
from node import run  # noqa: E402
from real_node_test import IMAGE, DEPLOY, eventually, libraries_of  # noqa: E402

CONTROLLERS = ("csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller")
# There is no DNS: clients find the sidecar by the address of its Service.
SIDECAR = "10.0.0.50"
API = "snapshot.storage.k8s.io/v1"


def lacks():
    """What is missing for a node with the whole driver; empty: nothing."""
    if real.lacks():
        return real.lacks()
    for program in CONTROLLERS:
        if not os.path.exists(os.path.join(os.environ["KUBEBUILDER_ASSETS"], program)):
            return f"KUBEBUILDER_ASSETS has no {program}"
    return ""


def image_files():
    """The images of the driver, of the sidecar and of Kubernetes' controllers in one."""
    programs = {f"/usr/bin/{name}": os.path.join(os.environ["KUBEBUILDER_ASSETS"], name)
                for name in CONTROLLERS[:3]}
    programs["/usr/bin/csi-snapshot-metadata"] = os.path.join(os.path.dirname(CBT), "cbt-cluster")
    files = {**real.image_files(), **programs}
    for program in programs.values():
        files.update({library: library for library in libraries_of(program)})
    return files


class WholeDriver:
    """`case`: the class of a test; what is started here is stopped with it."""

    def __init__(self, case, folder):
        self.folder, self.node = folder, real.Node(folder)
        node = self.node
        case.addClassCleanup(self.detach_what_is_left)
        case.addClassCleanup(node.stop)
        node.start()
        node.import_image(IMAGE, ["/usr/bin/cbtctl"], image_files())
        node.kubectl("create", "namespace", "csi-driver")
        node.kubectl("label", "node", "node1", f"{NAME}/volumes=true")
        self.define()
        node.launch("snapshot-controller", f"--kubeconfig={node.kubeconfig}")
        self.make_certificate()
        real.deploy(node, "daemon-set.yaml")
        self.deploy_driver()
        case.addClassCleanup(registrar.Registrar(
            NAME, f"{node.plugin}/csi.sock", f"{node.kubelet}/plugins_registry/{NAME}-reg.sock").stop)
        try:
            eventually(lambda: self.ready("csi-cbt-volumes") and self.ready("csi-cbt"), "driver and host")
        except AssertionError:
            print(node.kubectl("describe", "pods", "-n", "csi-driver"))
            raise
        eventually(lambda: NAME in node.kubectl("get", "csinode", "node1", "-o", "json"),
                   "the kubelet knows the driver")

    def detach_what_is_left(self):
        real.detach_what_is_left(self.folder)

    def define(self):
        """Definitions, rights and classes, as they are shipped."""
        def apply(path):
            self.node.kubectl("apply", "-f", path)
        apply(os.path.join(os.environ["KUBEBUILDER_ASSETS"], "crds"))
        kubernetes = os.path.join(DEPLOY, "..")
        apply(os.path.join(kubernetes, "crd", "snapshotmetadataservices.yaml"))
        apply(os.path.join(kubernetes, "sidecar", "cluster-role.yaml"))
        for name in ("csi-driver", "service-account", "cluster-role", "cluster-role-bindings",
                     "publish-role", "classes"):
            apply(os.path.join(DEPLOY, name + ".yaml"))
        service = self.node.shipped("service.yaml")
        service["spec"]["clusterIP"] = SIDECAR
        self.node.create(service)

    def make_certificate(self):
        keys = real.envtest.Authority(self.node.keys, "metadata-ca")
        keys.issue("metadata", "/CN=csi-cbt", "serverAuth", f"DNS:csi-cbt.csi-driver,IP:{SIDECAR}")

        def encoded(name):
            with open(f"{self.node.keys}/{name}", "rb") as file:
                return base64.b64encode(file.read()).decode()
        self.node.create({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "csi-cbt-certs", "namespace": "csi-driver"},
            "data": {"tls.crt": encoded("metadata.crt"), "tls.key": encoded("metadata.key"),
                     "ca.crt": encoded("metadata-ca.crt")}})

    def deploy_driver(self):
        """The shipped StatefulSet, all but its registrar."""
        node = self.node
        workload = node.shipped("stateful-set.yaml")
        spec = workload["spec"]["template"]["spec"]
        spec["containers"] = [one for one in spec["containers"]
                              if one["name"] != "node-driver-registrar"]
        spec["volumes"] = [one for one in spec["volumes"] if one["name"] != "registration"]
        for container in spec["containers"]:
            container.setdefault("command", ["/usr/bin/" + container["name"]])
            container["args"] = [
                f"--publish={SIDECAR}:6443" if one.startswith("--publish=") else one
                for one in container["args"]]
        real.place(node, spec)
        node.create(workload)

    def ready(self, app):
        """Whether all containers of the driver's or the host's Pod are ready."""
        pod = real.pod_of(self.node, app)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return bool(statuses) and all(one["ready"] for one in statuses)

    # --- Objects.

    def claim(self, name, namespace="default", snapshot=None, modes=("ReadWriteOnce",), mode="Block",
              size=64 * MIB):
        source = {"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                                 "name": snapshot}} if snapshot else {}
        self.node.create({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"accessModes": list(modes), "volumeMode": mode, "storageClassName": "cbt",
                     "resources": {"requests": {"storage": str(size)}}, **source}})

    def pod(self, name, claim, namespace="default", script="sleep 2147483647", read_only=False):
        """A Pod with the claim as /dev/disk, and the test's folder `exchange` as /exchange."""
        volume = {"claimName": claim, **({"readOnly": True} if read_only else {})}
        self.node.create({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                     "containers": [{
                         "name": "main", "image": "localhost/busybox:1",
                         "command": ["/bin/sh", "-c", script],
                         "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
                         "volumeMounts": [{"name": "exchange", "mountPath": "/exchange"}]}],
                     "volumes": [
                         {"name": "disk", "persistentVolumeClaim": volume},
                         {"name": "exchange", "hostPath": {"path": f"{self.folder}/exchange",
                                                           "type": "DirectoryOrCreate"}}]}})

    def wait_for_pod(self, name, phase, namespace="default"):
        eventually(lambda: self.node.get("pod", name, "-n", namespace)["status"]["phase"] == phase,
                   f"Pod {name} is {phase}")

    def snapshot(self, name, namespace="default", **source):
        self.node.create({
            "apiVersion": API, "kind": "VolumeSnapshot",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"volumeSnapshotClassName": "cbt", "source": source}})

    def content_of(self, name, namespace="default"):
        """Waits until the snapshot is ready; its VolumeSnapshotContent."""
        def bound():
            status = self.node.get("volumesnapshot", name, "-n", namespace).get("status", {})
            return status.get("readyToUse") and status["boundVolumeSnapshotContentName"]
        return self.node.get("volumesnapshotcontent", eventually(bound, f"snapshot {name} is ready"))

    def gone(self, kind, name, namespace="default"):
        self.node.kubectl("delete", kind, name, "-n", namespace, "--ignore-not-found",
                          "--timeout=120s")

    def listed(self, *options):
        """[(offset, length)] that `cbtctl list` prints inside the node."""
        text = self.node.inside(CBT, "list", "--kubeconfig", self.node.kubeconfig, "--format", "ndjson",
                                "--quiet", *options)
        lines = [json.loads(line) for line in text.splitlines()]
        if not lines[-1].get("complete"):
            raise AssertionError(f"incomplete: {lines[-1]}")
        return lines
