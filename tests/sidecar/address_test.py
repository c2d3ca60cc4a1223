"""`k8s:NAMESPACE/SNAPSHOT` as an address of the command: a real kube-apiserver, the sidecar, and a
plugin that serves images.

Usage: address_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import base64
import json
import os
import re
import random
import subprocess
import sys
import tempfile
import unittest

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(HERE, "..", "..")
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402
from parts import AUDIENCE, DRIVER  # noqa: E402

BLOCK = 4096
BLOCKS = 256
MONDAY, TUESDAY = 1_700_000_000_000_000_000, 1_700_100_000_000_000_000


def image(seed, base=None):
    """Blocks of data and of nothing; over a base, some of its blocks anew."""
    random_source = random.Random(seed)
    blocks = [base[i * BLOCK:(i + 1) * BLOCK] if base else bytes(BLOCK) for i in range(BLOCKS)]
    for i in range(BLOCKS):
        # Neighbours and single ones.
        if random_source.random() < 0.3 or (i % 16 < 3 and seed % 2 == 0):
            blocks[i] = random_source.randbytes(BLOCK)
    return b"".join(blocks)


class AddressTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)
        plane = cls.plane
        plane.install(os.path.join(PROJECT, "deploy/kubernetes/crd/snapshotmetadataservices.yaml"))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-address-"))
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        for namespace in ("csi-driver", "backup", "ns", "other"):
            plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for account in ("csi-driver/csi-snapshot-metadata", "backup/backup", "backup/norole",
                        "backup/job"):
            plane.account(*account.split("/"))
        for file in ("sidecar/cluster-role.yaml", "sidecar/cluster-role-binding.yaml",
                     "client/cluster-role.yaml", "client/token-role.yaml"):
            plane.apply(os.path.join(PROJECT, "deploy/kubernetes", file))
        # The rights of the shipped roles, in one namespace; `job` may read snapshots and no more.
        for account in ("backup", "job"):
            cls.bind("ns", "RoleBinding", "snapshot-metadata-client", account)
        cls.bind(None, "ClusterRoleBinding", "snapshot-metadata-client-cluster", "backup")

        os.makedirs(os.path.join(cls.folder, "images", "vol1"))
        cls.monday = cls.write("monday", image(1))
        cls.tuesday = cls.write("tuesday", image(2, parts.read(cls.monday)))
        cls.plugin = subprocess.Popen(
            [CBT, "serve", "--root", os.path.join(cls.folder, "images"), "--listen",
             f"unix://{cls.folder}/csi.sock", "--plugin-name", DRIVER],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.end, cls.plugin)
        for name, created in (("monday", MONDAY), ("tuesday", TUESDAY)):
            plane.snapshot(name, "ns", volume="vol1", created=created, handle=f"vol1/{name}",
                           klass="class")
        plane.snapshot("far", "other", volume="vol1", created=MONDAY, handle="vol1/monday2")
        plane.create(parts.snapshot_class())
        kubeconfig = plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", cls.folder)
        made = parts.service()
        plane.create(made)
        cls.sidecar = parts.Sidecar(CBT, cls.folder, kubeconfig)
        cls.addClassCleanup(cls.sidecar.stop)
        made["spec"] = {"audience": AUDIENCE, "address": f"localhost:{cls.sidecar.port}",
                        "caCert": base64.b64encode(parts.read(f"{cls.folder}/ca.crt")).decode()}
        plane.replace(made)
        cls.kubeconfig = plane.kubectl_kubeconfig(os.path.join(cls.folder, "person.kubeconfig"),
                                                  plane.token("backup", "backup"))

    @staticmethod
    def end(process):
        process.terminate()
        process.wait(30)

    @classmethod
    def bind(cls, namespace, kind, role, account):
        meta = {"name": f"{role}-{account}"}
        if namespace:
            meta["namespace"] = namespace
        cls.plane.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                          "metadata": meta,
                          "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                                      "kind": "ClusterRole", "name": role},
                          "subjects": [{"kind": "ServiceAccount", "name": account,
                                        "namespace": "backup"}]})

    @classmethod
    def write(cls, name, data):
        path = os.path.join(cls.folder, "images", "vol1", name + ".img")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def cbt(self, *arguments, code=0, kubeconfig=None, environment=None):
        """Standard output and error; the kubeconfig comes by the option unless it is ""."""
        if kubeconfig is None:
            kubeconfig = self.kubeconfig
        options = ("--kubeconfig", kubeconfig) if kubeconfig else ()
        done = subprocess.run([CBT, *arguments, *options], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code,
                         f"{arguments}: {done.stderr}\n{self.sidecar.log()[-1500:]}")
        return done.stdout, done.stderr

    def expect(self, code, text, *arguments, **options):
        error = self.cbt(*arguments, code=code, **options)[1]
        self.assertIn(text, error)
        self.assertEqual(error.count("\n"), 1, error)

    def listed(self, *arguments, **options):
        """The answer, without what its head says that it is about."""
        text = self.cbt("list", *arguments, **options)[0]
        return re.sub(r',"(base|snapshot|source_version)":"[^"]*"', "", text)

    def truth(self, *arguments):
        return subprocess.run([CBT, *arguments], check=True, capture_output=True, text=True).stdout

    def test_what_is_allocated(self):
        self.assertEqual(self.listed("k8s:ns/tuesday"), self.truth("allocated", self.tuesday))

    def test_a_delta_by_name_and_by_handle(self):
        truth = self.truth("delta", self.monday, self.tuesday)
        self.assertGreater(truth.count("\n"), 20)
        for base in (("--base", "monday"), ("--base-handle", "vol1/monday")):
            self.assertEqual(self.listed("k8s:ns/tuesday", *base), truth, base)
        offset = str(100 * BLOCK)
        self.assertEqual(self.listed("k8s:ns/tuesday", "--base", "monday", "--starting-offset",
                                     offset, "--api", "kubernetes", "--prove"),
                         self.truth("delta", self.monday, self.tuesday, "--starting-offset", offset))

    def test_maps_and_objects_have_the_names(self):
        path = os.path.join(self.folder, "map.cbm")
        self.cbt("list", "k8s:ns/tuesday", "--base", "monday", "--output", path)
        info = json.loads(self.truth("map", "info", path, "--json"))
        self.assertEqual((info["base"], info["target"]), ("ns/monday", "ns/tuesday"), info)
        self.assertEqual(self.truth("verify", self.monday, self.tuesday, "--map", path)[:4], "yes:")
        # The kubeconfig is read, so it is not written over.
        self.expect(2, "person.kubeconfig", "list", "k8s:ns/tuesday", "--output", self.kubeconfig)
        made = json.loads(self.cbt("list", "k8s:ns/tuesday", "--base", "monday", "--object")[0])
        self.assertIn("monday", json.dumps(made["spec"]))
        self.assertNotIn("vol1", json.dumps(made["spec"]))

    def test_verify(self):
        ask = ("verify", self.monday, self.tuesday, "--service", "k8s:ns/tuesday")
        self.assertEqual(self.cbt(*ask, "--base", "monday")[0][:4], "yes:")
        self.assertEqual(self.cbt(*ask, "--base-handle", "vol1/monday")[0][:4], "yes:")
        self.assertEqual(self.cbt("verify", self.tuesday, "--service", "k8s:ns/tuesday")[0][:4],
                         "yes:")
        # Another image than the one that the service knows.
        other = os.path.join(self.folder, "other.img")
        with open(other, "wb") as file:
            file.write(image(5, parts.read(self.tuesday)))
        self.assertEqual(self.cbt("verify", self.monday, other, "--service", "k8s:ns/tuesday",
                                  "--base", "monday", code=1)[0][:3], "no:")
        self.expect(2, "--base", *ask)

    def test_conform_finds_no_failure(self):
        for base in (("--base", "monday"), ("--base-handle", "vol1/monday")):
            rows = [json.loads(line) for line in
                    self.cbt("conform", "k8s:ns/tuesday", *base, "--json")[0].splitlines()]
            self.assertGreater(sum(row["result"] == "pass" for row in rows), 80)
            self.assertEqual([row for row in rows if row["result"] == "fail"], [])

    def test_what_is_not_there_or_not_allowed(self):
        self.expect(2, "VolumeSnapshot ns/never", "list", "k8s:ns/never")
        # Nothing is learned of a namespace without a right in it.
        self.expect(2, "VolumeSnapshot other/far", "list", "k8s:other/far")
        self.expect(2, "VolumeSnapshot other/never", "list", "k8s:other/never")
        self.expect(2, "base", "list", "k8s:ns/tuesday", "--base", "never")
        self.expect(2, "base", "list", "k8s:ns/tuesday", "--base-handle", "vol1/monday2")
        self.expect(2, "newer", "list", "k8s:ns/monday", "--base", "tuesday")

    def test_another_service_account(self):
        # The token's own role lets `backup` make tokens for itself alone.
        self.expect(2, "token for service account backup/job", "list", "k8s:ns/tuesday",
                    "--service-account", "backup/job")
        admin = self.plane.facts["kubeconfig"]
        truth = self.truth("allocated", self.tuesday)
        for account in ("backup/backup", "backup/job"):
            self.assertEqual(self.listed("k8s:ns/tuesday", "--service-account", account,
                                         "--token-expiry", "900", kubeconfig=admin), truth)
        self.expect(2, "", "list", "k8s:ns/tuesday", "--service-account", "backup/norole",
                    kubeconfig=admin)
        # Who asks with a certificate has no service account.
        self.expect(2, "service account", "list", "k8s:ns/tuesday", kubeconfig=admin)

    def test_where_the_cluster_is_found(self):
        truth = self.truth("allocated", self.tuesday)
        home = os.path.join(self.folder, "home")
        os.makedirs(os.path.join(home, ".kube"))
        nowhere = {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""}
        self.expect(2, "in a pod", "list", "k8s:ns/tuesday", kubeconfig="",
                    environment={"HOME": home, "KUBECONFIG": "", **nowhere})
        self.assertEqual(self.listed("k8s:ns/tuesday", kubeconfig="",
                                     environment={"KUBECONFIG": self.kubeconfig}), truth)
        os.symlink(self.kubeconfig, os.path.join(home, ".kube", "config"))
        self.assertEqual(self.listed("k8s:ns/tuesday", kubeconfig="",
                                     environment={"HOME": home, "KUBECONFIG": ""}), truth)
        self.expect(2, "absent", "list", "k8s:ns/tuesday",
                    kubeconfig=os.path.join(self.folder, "absent"))

    def test_a_service_that_another_authority_signed_is_not_trusted(self):
        parts.make_certificate(self.folder, "stranger")
        made = self.plane.get("snapshotmetadataservice", DRIVER)
        trusted = made["spec"]["caCert"]
        try:
            made["spec"]["caCert"] = base64.b64encode(
                parts.read(f"{self.folder}/stranger.crt")).decode()
            made["metadata"].pop("managedFields", None)
            self.plane.replace(made)
            self.expect(3, "certificate", "list", "k8s:ns/tuesday", "--retry-for", "0")
        finally:
            made = self.plane.get("snapshotmetadataservice", DRIVER)
            made["spec"]["caCert"] = trusted
            self.plane.replace(made)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
