"""What the tests of sessions have in common: a control plane with the manager's manifests and a few users, the
manager's process, and requests. Not a test; sys.argv is that of the tests.
"""

import base64
import datetime
import json
import os
import subprocess
import sys
import tempfile
import unittest

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.abspath(os.path.join(HERE, "..", "..", "..", "deploy", "kubernetes", "sessions"))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "..", "support"))
sys.path.append(os.path.join(HERE, "..", "..", "sidecar"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import parts  # noqa: E402

DRIVER = "sessions.example.com"
MANAGER = "cbt-session-manager"
API = "cbt.storage.k8s.io/v1alpha1"


class Manager(parts.Component):
    """The process, with its webhook's port."""

    def __init__(self, folder, kubeconfig, *flags, name="manager", port=None, elect=True):
        self.port = port or parts.free_port()
        super().__init__(folder, name, parts.cluster(CBT), "session-manager", f"--listen=127.0.0.1:{self.port}",
                         f"--tls-cert={folder}/tls.crt", f"--tls-key={folder}/tls.key",
                         f"--kubeconfig={kubeconfig}", "--scan-time=1s", f"--lease-namespace={MANAGER}",
                         f"--identity={name}", "--grace=2", *(["--leader-elect"] if elect else []), *flags)

    def active(self):
        return self.metric("cbt_session_manager_active") == 1


def request(name, snapshots, namespace="prod", **spec):
    return {"apiVersion": API, "kind": "SnapshotSessionRequest",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"snapshots": list(snapshots), **spec}}


def configuration(name="the-driver", driver=DRIVER, **spec):
    return {"apiVersion": API, "kind": "SnapshotServicesConfiguration",
            "metadata": {"name": name, "labels": {"cbt.storage.k8s.io/driver": driver}},
            "spec": {"address": "service.csi-driver:6443", "caCert": "UEVN",
                     "driverNamespace": "csi-driver", **spec}}


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


class Plane:
    """The control plane that all tests share, with the manager's manifests and a few users."""

    def __init__(self):
        self.plane = cluster.ControlPlane(CONTROL_PLANE)
        self.folder = tempfile.mkdtemp(prefix="cbt-sessions-")
        parts.make_certificate(self.folder, "ca")
        parts.make_certificate(self.folder, "tls", "ca")
        for file in ("snapshotsessionrequests", "snapshotsessiondata",
                     "snapshotservicesconfigurations"):
            self.plane.install(os.path.join(DEPLOY, "crd", file + ".yaml"))
        for file in ("namespace", "service-account", "cluster-role", "cluster-role-binding",
                     "lease-role"):
            self.plane.apply(os.path.join(DEPLOY, file + ".yaml"))
        for namespace in ("csi-driver", "prod", "other", "backup"):
            self.plane.create({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": namespace}})
        self.kubeconfig = self.plane.kubeconfig_of(MANAGER, "session-manager", self.folder)
        self.plane.create(configuration())
        # May open sessions in prod; the other may create requests there, and not read snapshots.
        for account in ("app", "blind"):
            self.plane.account("backup", account)
            self.role("prod", account, "cbt.storage.k8s.io", "snapshotsessionrequests",
                      ["create", "get", "list", "watch", "delete", "update", "patch"])
        self.role("prod", "app-snapshots", "snapshot.storage.k8s.io", "volumesnapshots", ["get"],
                  account="app")
        self.role("other", "app-other", "cbt.storage.k8s.io", "snapshotsessionrequests",
                  ["create"], account="app")
        self.port = parts.free_port()
        self.register_webhook()

    def role(self, namespace, name, group, resource, verbs, account=None):
        meta = {"name": name, "namespace": namespace}
        self.plane.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                           "metadata": meta, "rules": [
                               {"apiGroups": [group], "resources": [resource], "verbs": verbs}]})
        self.plane.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                           "metadata": meta, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                                                         "kind": "Role", "name": name},
                           "subjects": [{"kind": "ServiceAccount", "name": account or name,
                                         "namespace": "backup"}]})

    def register_webhook(self):
        """That of the manifests, with the address of this machine."""
        rendered = json.loads(self.plane.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                                 os.path.join(DEPLOY, "webhook.yaml")).stdout)
        client = rendered["webhooks"][0]["clientConfig"]
        path = client.pop("service")["path"]
        client["url"] = f"https://127.0.0.1:{self.port}{path}"
        client["caBundle"] = base64.b64encode(parts.read(f"{self.folder}/ca.crt")).decode()
        self.plane.apply_text(json.dumps(rendered))

    def manager(self, *flags, port=None, **options):
        return Manager(self.folder, self.kubeconfig, *flags, port=port or self.port, **options)


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


class Base(unittest.TestCase):
    flags = ()
    counter = 0

    @classmethod
    def setUpClass(cls):
        cls.world = shared()
        cls.plane = cls.world.plane
        cls.manager = cls.world.manager(*cls.flags).wait_ready()
        cls.addClassCleanup(cls.manager.stop)
        if not parts.wait_until(cls.manager.active, 60):
            raise AssertionError("the manager does not lead:\n" + cls.manager.log())

    def name(self):
        Base.counter += 1
        return f"n{Base.counter}"

    def snapshot(self, namespace="prod", driver=DRIVER, volume="volume-1",
                 at=1_700_000_000_000_000_000, **more):
        """Bound and ready, unless the arguments say otherwise; returns its name."""
        name = self.name()
        self.plane.snapshot(name, namespace, volume=volume, created=at, driver=driver, **more)
        return name

    def as_user(self, account, *arguments, text="", check=True):
        token = self.plane.token("backup", account)
        path = self.plane.kubectl_kubeconfig(os.path.join(self.world.folder, account + ".user"), token,
                                             "prod")
        result = subprocess.run(
            [os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"), "--kubeconfig", path,
             *arguments], input=text, capture_output=True, text=True, check=False)
        if check and result.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {result.stderr}")
        return result

    def create(self, one, account="app", check=True):
        return self.as_user(account, "create", "-f", "-", text=json.dumps(one), check=check)

    def get(self, name, namespace="prod"):
        return self.list("snapshotsessionrequests", namespace).get(name)

    def list(self, plural, namespace):
        found = json.loads(self.plane.kubectl("get", plural, "-n", namespace, "-o", "json").stdout)
        return {one["metadata"]["name"]: one for one in found["items"]}

    def data_of(self, uid):
        return [one for one in self.list("snapshotsessiondata", "csi-driver").values()
                if one["metadata"].get("labels", {}).get("cbt.storage.k8s.io/session-request") == uid]

    def open(self, *snapshots, account="app"):
        name = self.name()
        self.create(request(name, snapshots), account)
        return name

    def final(self, name, seconds=60):
        """The request in its final state."""
        found = []

        def is_final():
            found[:] = [self.get(name)]
            return found[0].get("status", {}).get("sessionState") in ("Ready", "Failed")

        self.assertTrue(parts.wait_until(is_final, seconds), f"{found}\n{self.manager.log()[-2000:]}")
        return found[0]

    def ready(self, name, seconds=60):
        one = self.final(name, seconds)
        self.assertEqual(one["status"]["sessionState"], "Ready", one["status"])
        return one

    def token_of(self, one):
        return base64.b64decode(one["status"]["sessionToken"]).decode()

    def expect_one_session(self, one):
        data = self.data_of(one["metadata"]["uid"])
        self.assertEqual([d["metadata"]["name"] for d in data], [self.token_of(one)])
        return data[0]
