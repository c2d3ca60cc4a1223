"""What the tests of COSI have in common: a control plane with the manifests, drivers, the components' processes,
and objects. Not a test; sys.argv is that of the tests.
"""

import base64
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.abspath(os.path.join(HERE, "..", "..", "deploy", "kubernetes", "cosi"))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))
sys.path.append(os.path.join(HERE, "..", "sidecar"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import fake_driver  # noqa: E402
import parts  # noqa: E402

API = "objectstorage.k8s.io/v1alpha1"
P = "objectstorage.k8s.io/"
DRIVER = "rgw.example.com"
SCALE = int(os.environ.get("CBT_TEST_SCALE", "1"))


class Component(parts.Component):
    """A process of `cbt-cluster`."""

    def __init__(self, folder, kubeconfig, command, *flags, name):
        super().__init__(folder, name, parts.cluster(CBT), command, f"--kubeconfig={kubeconfig}", *flags)


class Plane:
    """The control plane that all tests share: definitions, rights of the manifests, two drivers' namespaces."""

    def __init__(self):
        self.plane = cluster.ControlPlane(CONTROL_PLANE, "--allow-privileged=true")
        self.folder = tempfile.mkdtemp(prefix="cbt-cosi-")
        self.tls = ssl.create_default_context(cafile=self.plane.facts["ca"])
        self.plane.kubectl("apply", "--validate=strict", "-k", os.path.join(DEPLOY, "crd"))
        self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        for namespace in ("cosi-driver", "other-driver", "prod", "other", "policies"):
            self.plane.create({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": namespace}})
        self.plane.account("prod", "default")  # no controller makes one here
        for file in ("namespace", "service-account", "cluster-role", "cluster-role-binding",
                     "lease-role", "user-role"):
            self.plane.apply(os.path.join(DEPLOY, "controller", file + ".yaml"))
        for file in ("namespace", "service-account", "cluster-role", "cluster-role-binding"):
            self.plane.apply(os.path.join(DEPLOY, "node", file + ".yaml"))
        self.plane.apply(os.path.join(DEPLOY, "sidecar", "cluster-role.yaml"))
        for namespace in ("cosi-driver", "other-driver"):
            for file in ("service-account", "cluster-role-binding", "role", "node/node-role"):
                text = parts.read(os.path.join(DEPLOY, "sidecar", file + ".yaml")).decode()
                text = re.sub(r"(namespace|name): cosi-driver$",
                              lambda m: f"{m[1]}: {namespace}" if m[1] == "namespace" else m[0],
                              text, flags=re.MULTILINE)
                if file == "cluster-role-binding":
                    text = text.replace("  name: cbt-cosi-sidecar\nroleRef",
                                        f"  name: cbt-cosi-sidecar-{namespace}\nroleRef")
                self.plane.apply_text(text)
        self.controller_config = self.plane.kubeconfig_of("cbt-cosi", "cosi-controller", self.folder)
        self.node_config = self.plane.kubeconfig_of("cbt-cosi-node", "cosi-node", self.folder)
        self.plane.create({"apiVersion": "v1", "kind": "ConfigMap",
                           "metadata": {"name": "read-write", "namespace": "policies"},
                           "data": {"policy.json": '{"Effect":"Allow","Action":["s3:*"]}'}})

    def ask(self, method, path, body=None, missing=False, kind="application/json"):
        """A request as the administrator; None for what is missing, if that may be."""
        request = urllib.request.Request(
            self.plane.facts["url"] + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.plane.admin_token, "Content-Type": kind})
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if missing and error.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    @staticmethod
    def path(kind, namespace=None, name=None):
        plural = kind.lower() + ("es" if kind.endswith("s") else "s")
        core = kind.lower() in ("secret", "pod", "event", "configmap")
        return ("/api/v1" if core else f"/apis/{API}") + (f"/namespaces/{namespace}" if namespace else "") + \
            f"/{plural}" + (f"/{name}" if name else "")

    def controller(self, *flags, name="controller"):
        return Component(self.folder, self.controller_config, "cosi-controller", "--sweep-time=1s",
                         "--lease-namespace=cbt-cosi", *flags, name=name)

    def sidecar(self, driver, *flags, namespace="cosi-driver", name="sidecar"):
        config = self.plane.kubeconfig_of(namespace, "cosi-driver", self.folder, name)
        return Component(self.folder, config, "cosi-sidecar", f"--driver=unix:{driver.path}",
                         f"--namespace={namespace}", f"--lease-namespace={namespace}",
                         "--call-time=5s", *flags, name=name)

    def driver(self, name=DRIVER):
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), "cosi.sock")
        return fake_driver.Driver(path, name)


SHARED = []


def shared():
    if not cluster.available():
        raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                "kube-apiserver")
    if not SHARED:
        SHARED.append(Plane())
    return SHARED[0]


def stop():
    for one in SHARED:
        one.plane.stop()
        shutil.rmtree(one.folder)


def reference(one):
    meta = one["metadata"]
    return {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}


class Base(unittest.TestCase):
    """Objects, and waits for what becomes of them. Names are new ones."""
    counter = 0

    @classmethod
    def setUpClass(cls):
        cls.world = shared()
        cls.plane = cls.world.plane

    def name(self, prefix="n"):
        Base.counter += 1
        return f"{prefix}{Base.counter}"

    def make(self, kind, spec=None, namespace=None, name=None, **meta):
        one = {"apiVersion": API, "kind": kind, "metadata": {"name": name or self.name(), **meta}}
        if namespace:
            one["metadata"]["namespace"] = namespace
        if kind in ("BucketClass", "BucketAccessClass"):
            one.update(spec)
        else:
            one["spec"] = spec
        return self.world.ask("POST", self.world.path(kind, namespace), one)

    def bucket_class(self, policy="Delete", provisioner=DRIVER, **more):
        spec = {"deletionPolicy": policy, "protocol": {"s3": {"region": "eu"}}, **more}
        if provisioner:
            spec["provisioner"] = provisioner
        return self.make("BucketClass", spec)["metadata"]["name"]

    def access_class(self, policy="read-write", **more):
        return self.make("BucketAccessClass", {
            "policyActionsConfigMap": {"name": policy, "namespace": "policies"}, **more})["metadata"]["name"]

    def bucket_request(self, klass=None, namespace="prod", **spec):
        if klass:
            spec["bucketClassName"] = klass
        return self.make("BucketRequest", spec, namespace)

    def access_request(self, klass, namespace="prod", **spec):
        return self.make("BucketAccessRequest", {"bucketAccessClassName": klass, **spec}, namespace)

    def find(self, kind, name, namespace=None):
        return self.world.ask("GET", self.world.path(kind, namespace, name), missing=True)

    def all(self, kind, namespace=None):
        return self.world.ask("GET", self.world.path(kind, namespace))["items"]

    def now(self, one):
        return self.find(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))

    def wait(self, one, condition, seconds=60):
        """The object in the state that `condition` wants."""
        found = []

        def is_so():
            found[:] = [self.now(one)]
            return found[0] is not None and condition(found[0])

        self.assertTrue(parts.wait_until(is_so, seconds), json.dumps(found, indent=1) + self.logs())
        return found[0]

    def gone(self, one, seconds=60):
        self.assertTrue(parts.wait_until(lambda: self.now(one) is None, seconds),
                        json.dumps(self.now(one), indent=1) + self.logs())

    def logs(self):
        return ""

    def available(self, request, seconds=60):
        return self.wait(request, lambda one: one.get("status", {}).get("bucketAvailable"), seconds)

    def granted(self, request, seconds=60):
        return self.wait(request, lambda one: one.get("status", {}).get("accessGranted"), seconds)

    def bucket_of(self, request):
        return self.find("Bucket", self.now(request)["status"]["bucketName"])

    def access_of(self, request):
        return self.find("BucketAccess", self.now(request)["status"]["bucketAccessName"])

    def secret_of(self, access):
        where = access["status"]["credentials"]
        found = self.find("secret", where["name"], where["namespace"])
        if found is None:
            return None
        return {key: base64.b64decode(value).decode() for key, value in found.get("data", {}).items()}

    def delete(self, one):
        meta = one["metadata"]
        self.world.ask("DELETE", self.world.path(one["kind"], meta.get("namespace"), meta["name"]),
                       missing=True)

    def events(self, one, reason=None):
        """Messages of the Events about the object."""
        namespace = one["metadata"].get("namespace", "default")
        found = self.world.ask("GET", f"/api/v1/namespaces/{namespace}/events?fieldSelector="
                                      f"involvedObject.uid%3D{one['metadata']['uid']}")["items"]
        return [event["message"] for event in found if reason in (None, event["reason"])]

    def wait_event(self, one, reason, text="", seconds=30):
        self.assertTrue(parts.wait_until(
            lambda: any(text in message for message in self.events(one, reason)), seconds),
            f"{self.events(one)}{self.logs()}")

    def patch(self, one, patch, *flags, check=True):
        """By kubectl, which shows what the API server says; its result."""
        meta = one["metadata"]
        return self.plane.kubectl("patch", one["kind"], meta["name"], "--type=merge", "-p",
                                  json.dumps(patch), *flags,
                                  *(["-n", meta["namespace"]] if "namespace" in meta else []), check=check)

    def change(self, one, patch, subresource=""):
        meta = one["metadata"]
        path = self.world.path(one["kind"], meta.get("namespace"), meta["name"]) + subresource
        return self.world.ask("PATCH", path, patch, kind="application/merge-patch+json")

    def finalizers(self, one):
        return self.now(one)["metadata"].get("finalizers", [])


class Running(Base):
    """With a controller, a driver and its sidecar."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.driver = cls.world.driver()
        cls.addClassCleanup(cls.driver.stop)
        cls.controller = cls.world.controller("--revoke-time=3s", name=cls.__name__ + "-controller")
        cls.addClassCleanup(cls.controller.stop)
        cls.sidecar = cls.world.sidecar(cls.driver, name=cls.__name__ + "-sidecar")
        cls.addClassCleanup(cls.sidecar.stop)
        cls.controller.wait_ready()
        cls.sidecar.wait_ready()

    def logs(self):
        return "\n" + self.controller.log()[-3000:] + "\n" + self.sidecar.log()[-3000:]

    def bucket(self, policy="Delete", **spec):
        """A request whose bucket is available."""
        return self.available(self.bucket_request(self.bucket_class(policy), **spec))

    def access(self, request, **spec):
        """A request for access to that bucket, which is granted."""
        return self.granted(self.access_request(
            self.access_class(), bucketRequestName=request["metadata"]["name"], **spec))
