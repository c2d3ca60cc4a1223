"""deploy/kubernetes/cosi on a real node: controller, driver with its sidecar, node adapter. Not a test.

Played is node-driver-registrar. The object gateway is radosgw, or what speaks enough of it.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "envtest"))

# pylint: disable=wrong-import-position
import built  # noqa: E402

COSI = os.path.join(built.DEPLOY, "cosi")
DRIVER = "cbt.cosi.example.com"  # the manifest's
ADAPTER = "cosi.sigs.k8s.io"


def use_gateway(objects, endpoint):
    """The driver's variables, as an overlay sets them."""
    (driver,) = [one for one in objects if one["kind"] == "Deployment"]
    (container,) = [one for one in driver["spec"]["template"]["spec"]["containers"] if one["name"] == "driver"]
    for variable in container["env"]:
        if variable["name"] in ("RGW", "S3_ENDPOINT"):
            variable["value"] = endpoint
    return objects


def deploy(node, endpoint, credentials):
    """All of COSI; its images are there already."""
    node.apply(built.build(os.path.join(COSI, "controller")))
    objects = use_gateway(built.build(os.path.join(COSI, "driver")), endpoint)
    node.apply([one for one in objects if one["kind"] == "Namespace"])
    node.write("credentials", credentials)
    node.kubectl("create", "secret", "generic", "cosi-driver-keys", "-n", "cosi-driver",
                 f"--from-file={node.folder}/credentials")
    node.apply(objects)
    node.apply(built.build(os.path.join(COSI, "node")))
    node.kubectl("apply", "-f", os.path.join(COSI, "sidecar", "node", "node-role.yaml"))
    node.wait_for_workload("deployment", "cbt-cosi", "cosi-controller")
    node.wait_for_workload("deployment", "cosi-driver", "cosi-driver")
    node.wait_for_workload("daemonset", "cbt-cosi-node", "cosi-node")
    node.register(ADAPTER)
