"""A node (node.py) with the project's images and manifests. Not a test.

Images have the names that the manifests have, folders of the node's are not below /var/lib, and
node-driver-registrar is played: its container does nothing.
"""

import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(PROJECT, "tests", "deploy"), os.path.join(PROJECT, "deploy", "image")]

# pylint: disable=wrong-import-position
import built  # noqa: E402
import node as envtest  # noqa: E402
import registrar  # noqa: E402
from images import IMAGES  # noqa: E402
from node import run  # noqa: E402

BUILD_IMAGE = os.path.join(PROJECT, "deploy", "image", "build.py")
REGISTRY = "registry.example.com/libcbt"
REGISTRAR = "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0"
SIDECARS = ("csi-provisioner", "csi-resizer", "csi-snapshotter")


def lacks_sidecars():
    """Which of Kubernetes' sidecars of a driver is missing; empty: none."""
    for program in SIDECARS:
        if not os.path.exists(os.path.join(os.environ["KUBEBUILDER_ASSETS"], program)):
            return f"KUBEBUILDER_ASSETS has no {program}"
    return ""


def libraries_of(program):
    """{path: path} of the shared libraries; none of a program that is linked statically."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return {path: path for path in re.findall(r"(?:=> |^\t)(/\S+)", listed, re.MULTILINE)}


class Node(envtest.Node):
    def __init__(self, folder):
        super().__init__(folder)
        self.registrars = []

    def register(self, driver):
        """As node-driver-registrar does, until the node's end: Pods are unmounted until then."""
        self.registrars.append(registrar.Registrar(driver, f"{self.kubelet}/plugins/{driver}/csi.sock",
                                                   f"{self.kubelet}/plugins_registry/{driver}-reg.sock"))
        self.wait_for(f"the kubelet knows {driver}",
                      lambda: driver in self.kubectl("get", "csinode", "node1", "-o", "json"))

    def stop(self):
        super().stop()
        while self.registrars:
            self.registrars.pop().stop()

    # --- Images.

    def import_ours(self, folder, programs, registries=(REGISTRY,)):
        """Those of `make image`, of these programs in `folder`."""
        for program in programs:
            path = f"{self.folder}/{program}.tar"
            run(sys.executable, "-B", BUILD_IMAGE, "--program", os.path.join(folder, program), "--output",
                path)
            for registry in registries:
                self.ctr("images", "import", "--base-name", f"{registry}/{IMAGES[program].title}", path)
            os.unlink(path)

    def import_sidecars(self):
        """Kubernetes' own of deploy/kubernetes/driver, of the programs in KUBEBUILDER_ASSETS."""
        tags = {container["name"]: container["image"]
                for one in built.build(os.path.join(built.DEPLOY, "driver"))
                if one["kind"] == "StatefulSet" for container in one["spec"]["template"]["spec"]["containers"]}
        for name in SIDECARS:
            program = os.path.join(self.assets, name)
            self.import_image(tags[name], ["/" + name], {"/" + name: program, **libraries_of(program)})

    def import_registrar(self):
        self.import_image(REGISTRAR, ["/bin/sh", "-c", "sleep 1000000", "registrar"],
                          {"/bin/busybox": shutil.which("busybox"), "/bin/sh": envtest.image.Link("busybox"),
                           "/bin/sleep": envtest.image.Link("busybox")})

    # --- Objects.

    def apply(self, objects):
        """In this node's folders."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        text = text.replace("/var/lib/kubelet", self.kubelet)
        text = text.replace('"path": "/var/lib/cbt', f'"path": "{self.folder}/state')
        self.write("objects.json", text)
        self.kubectl("apply", "-f", f"{self.folder}/objects.json")

    def define(self, *paths):
        """Definitions from these files and folders."""
        for path in paths:
            kind = "-k" if os.path.exists(os.path.join(path, "kustomization.yaml")) else "-f"
            self.kubectl("apply", "--server-side", kind, path)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")

    def get(self, *what):
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def wait_for_workload(self, kind, namespace, name, seconds=180):
        # kubectl knows no rollout of a DaemonSet that is updated by hand.
        field = "numberReady}=1" if kind == "daemonset" else "readyReplicas}=" + str(
            self.get(kind, "-n", namespace, name)["spec"]["replicas"])
        try:
            self.kubectl("wait", "-n", namespace, f"{kind}/{name}", f"--timeout={seconds}s",
                         "--for=jsonpath={.status." + field)
        except AssertionError as error:
            pods = self.kubectl("describe", "pods", "-n", namespace, check=False)[-6000:]
            logs = self.kubectl("logs", "-n", namespace, f"{kind}/{name}", "--all-containers",
                                "--tail=20", "--prefix", check=False)[-6000:]
            raise AssertionError(f"{kind}/{name} does not get ready: {pods}\n{logs}") from error
