"""deploy/kubernetes/driver on a real node: the driver's Pod with Kubernetes' sidecars and ours, the volume
host, and a snapshot-controller. Not a test.

Played is node-driver-registrar; the snapshot-controller is a process of the node.
"""

import base64
import glob
import os
import subprocess

# pylint: disable=wrong-import-position
import built  # noqa: E402
import node as envtest  # noqa: E402

DRIVER = "cbt.csi.example.com"
NAMESPACE = "csi-driver"
# There is no DNS: clients find the sidecar by the address of its Service.
ADDRESS = "10.0.0.50"


def certificate(node):
    """By openssl, as docs/guides/certificates.md has it."""
    keys = envtest.Authority(node.keys, "metadata-ca")
    keys.issue("metadata", "/CN=csi-cbt", "serverAuth", f"DNS:csi-cbt.{NAMESPACE},IP:{ADDRESS}")

    def encoded(name):
        with open(f"{node.keys}/{name}", "rb") as file:
            return base64.b64encode(file.read()).decode()
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "csi-cbt-certs", "namespace": NAMESPACE},
            "data": {"tls.crt": encoded("metadata.crt"), "tls.key": encoded("metadata.key"),
                     "ca.crt": encoded("metadata-ca.crt")}}


def objects_of_the_driver():
    objects = built.build(os.path.join(built.DEPLOY, "driver"))
    for one in objects:
        if one["kind"] == "Service" and one["metadata"]["name"] == "csi-cbt":
            one["spec"]["clusterIP"] = ADDRESS
        if one["kind"] == "StatefulSet":
            for container in one["spec"]["template"]["spec"]["containers"]:
                container["args"] = [f"--publish={ADDRESS}:6443" if argument.startswith("--publish=") else argument
                                     for argument in container.get("args", [])]
    return objects


def deploy(node):
    """Its images are there already."""
    node.kubectl("label", "node", "node1", f"{DRIVER}/volumes=true")
    node.define(os.path.join(node.assets, "crds"), os.path.join(built.DEPLOY, "crd"))
    node.launch("snapshot-controller", f"--kubeconfig={node.kubeconfig}")
    objects = objects_of_the_driver()
    node.apply([one for one in objects if one["kind"] == "Namespace"] + [certificate(node)])
    node.apply(objects)
    node.wait_for_workload("daemonset", NAMESPACE, "csi-cbt-volumes")
    node.wait_for_workload("statefulset", NAMESPACE, "csi-cbt")
    node.register(DRIVER)
    node.wait_for("the driver's metadata service is published", lambda: node.kubectl(
        "get", "snapshotmetadataservices", DRIVER, "-o", "name", check=False))


def detach_what_is_left(folder):
    """The node's mounts have gone with its namespace, loop devices stay."""
    volumes = {os.path.basename(one) for one in glob.glob(f"{folder}/state/{DRIVER}/volumes/*")}
    listed = envtest.run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
    for line in listed.splitlines():
        name, _, backing = line.partition(" ")
        if any(volume in backing for volume in volumes):
            subprocess.run(["losetup", "--detach", name], check=False)
