"""The rules for manifests: each finds a fault that is planted in objects of the tree, and nothing else
finds anything there before.

Usage: rules_test.py
"""

import copy
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import built  # noqa: E402
import rules  # noqa: E402
import runner  # noqa: E402


def one(objects, kind, name):
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod(objects, kind, name):
    return one(objects, kind, name)["spec"]["template"]["spec"]


def container(objects, name):
    for workload in rules.workloads(objects):
        for each in workload.containers:
            if each["name"] == name:
                return each
    raise KeyError(name)


@unittest.skipIf(built.kubectl() is None, "no kubectl")
class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = built.build(os.path.join(built.DEPLOY, "driver"))
        cls.sessions = built.build(os.path.join(built.DEPLOY, "sessions"))
        cls.example = built.build(os.path.join(built.DEPLOY, "example"))
        cls.drivers = built.build(os.path.join(built.OVERLAYS, "two-drivers"))
        for objects in (cls.driver, cls.sessions, cls.example, cls.drivers):
            assert rules.check(objects) == [], rules.check(objects)

    def finds(self, objects, change, *words):
        """The change makes exactly these findings, in any order: a word of each."""
        changed = copy.deepcopy(objects)
        change(changed)
        findings = rules.check(changed)
        self.assertEqual(len(findings), len(words), findings)
        for word in words:
            self.assertTrue(any(word in finding for finding in findings), (word, findings))

    def test_accounts(self):
        self.finds(self.example, lambda all_: all_.remove(one(all_, "ServiceAccount", "backup")),
                   *["the account backup/backup is not made here"] * 3)
        def elsewhere(all_):
            one(all_, "ClusterRoleBinding", "csi-cbt")["subjects"][0]["namespace"] = "default"
        self.finds(self.driver, elsewhere, "the account default/csi-cbt is not made here")
        def default(all_):
            del pod(all_, "StatefulSet", "csi-cbt")["serviceAccountName"]
        self.finds(self.driver, default, "the token of the default account")

    def test_roles(self):
        def renamed(all_):
            one(all_, "ClusterRole", "csi-cbt")["metadata"]["name"] = "other"
        self.finds(self.driver, renamed, "the ClusterRole csi-cbt is not made here")
        def wide(all_):
            one(all_, "ClusterRole", "csi-cbt")["rules"][0]["verbs"] = ["*"]
        self.finds(self.driver, wide, "verbs are *")
        def secrets(all_):
            one(all_, "ClusterRole", "csi-cbt")["rules"][0]["resources"] = ["secrets"]
        self.finds(self.driver, secrets, "every one of ['secrets']")

    def test_namespaces(self):
        objects = [each for each in self.example if each.get("metadata", {}).get("namespace") == "backup"]
        self.finds(self.example, lambda all_: all_.remove(one(all_, "Namespace", "backup")),
                   *["its namespace is not made before it"] * len(objects))
        self.finds(self.driver, lambda all_: all_.append(all_.pop(0)),
                   *["not made before it"] * sum("namespace" in each["metadata"] for each in self.driver))
        def bare(all_):
            del one(all_, "Namespace", "csi-driver")["metadata"]["labels"]
        self.finds(self.driver, bare, "no Pod Security level")
        def restricted(all_):
            labels = one(all_, "Namespace", "csi-driver")["metadata"]["labels"]
            labels["pod-security.kubernetes.io/enforce"] = "restricted"
        findings = copy.deepcopy(self.driver)
        restricted(findings)
        self.assertIn("DaemonSet csi-driver/csi-cbt-volumes: is not restricted: volume state",
                      rules.check(findings))
        def root(all_):
            del pod(all_, "StatefulSet", "csi-snapshot-metadata")["securityContext"]["runAsNonRoot"]
        self.finds(self.example, root, *["may be root"] * 2)

    def test_services_and_policies(self):
        def missing(all_):
            all_.remove(one(all_, "Service", "csi-cbt-metrics"))
        self.finds(self.driver, missing, "no Service has port 8080", "no Service has port 9808")
        def closed(all_):
            one(all_, "NetworkPolicy", "csi-cbt")["spec"]["ingress"].pop()
        self.finds(self.driver, closed, "lets port 8080 in", "lets port 9808 in")
        def unknown(all_):
            one(all_, "Service", "csi-cbt")["spec"]["ports"][0]["targetPort"] = "grcp"
        self.finds(self.driver, unknown, "has no port grcp", "no Service has port 50051")
        def hidden(all_):
            container(all_, "driver")["args"].append("--other=:9999")
        self.finds(self.driver, hidden, "driver listens at 9999")
        def shared(all_):
            del one(all_, "Service", "fast-csi-cbt")["spec"]["selector"]["app.kubernetes.io/instance"]
        self.finds(self.drivers, shared, "selects StatefulSet csi-driver/fast-csi-cbt, StatefulSet")
        def twice(all_):
            again = copy.deepcopy(one(all_, "Service", "csi-cbt"))
            again["metadata"]["name"] = "again"
            all_.append(again)
        self.finds(self.driver, twice, "leads where Service csi-driver/csi-cbt does")
        def unguarded(all_):
            all_.remove(one(all_, "NetworkPolicy", "csi-cbt-volumes"))
        self.finds(self.driver, unguarded, "no NetworkPolicy is for it")
        def no_names(all_):
            one(all_, "NetworkPolicy", "csi-cbt")["spec"]["egress"][0]["ports"].pop(0)
        self.finds(self.driver, no_names, "can't reach UDP 53")
        def probe(all_):
            container(all_, "driver")["livenessProbe"]["httpGet"]["port"] = "web"
        self.finds(self.driver, probe, "livenessProbe of no port")

    def test_images(self):
        for image, word in (("registry.example.com/libcbt/cbtctl:latest", "the tag is no version"),
                            ("registry.example.com/libcbt/cbtctl", "no reference"),
                            ("cbtctl:0.1.0", "no reference"),
                            ("registry.example.com/libcbt/cbtctl:9.9.9", "the version is"),
                            ("registry.example.com/libcbt/ctl:0.1.0", "builds no ctl")):
            def change(all_, image=image):
                container(all_, "plugin")["image"] = image
            findings = copy.deepcopy(self.example)
            change(findings)
            self.assertTrue(any(word in finding for finding in rules.check(findings)), image)

    def test_confinement_and_drains(self):
        def unlimited(all_):
            del container(all_, "csi-resizer")["resources"]
        self.finds(self.driver, unlimited, "no requests", "no limit of memory")
        def written(all_):
            container(all_, "csi-resizer")["securityContext"]["readOnlyRootFilesystem"] = False
        self.finds(self.driver, written, "its root can be written")
        def single(all_):
            one(all_, "Deployment", "session-manager")["spec"]["replicas"] = 1
        self.finds(self.sessions, single, "the API server asks it, and there is one")
        def gone(all_):
            all_.remove(one(all_, "Service", "session-manager"))
        self.finds(self.sessions, gone, "which is not made here", "no Service has port 8443")
        def drained(all_):
            all_.remove(one(all_, "PodDisruptionBudget", "session-manager"))
        self.finds(self.sessions, drained, "has 0 disruption budgets")
        def together(all_):
            del pod(all_, "Deployment", "session-manager")["topologySpreadConstraints"]
        self.finds(self.sessions, together, "on one node")

    def test_drivers(self):
        def shared(all_):
            for name in ("fast-csi-cbt", "slow-csi-cbt"):
                for volume in pod(all_, "StatefulSet", name)["volumes"]:
                    if volume["name"] == "state":
                        volume["hostPath"]["path"] = "/var/lib/cbt"
        self.finds(self.drivers, shared, "/var/lib/cbt belongs to")
        def elsewhere(all_):
            for volume in pod(all_, "StatefulSet", "csi-cbt")["volumes"]:
                if volume["name"] == "socket-dir":
                    volume["hostPath"]["path"] = "/var/lib/kubelet/plugins/x"
        self.finds(self.driver, elsewhere, "registers /var/lib/kubelet/plugins/cbt.csi.example.com/csi.sock, and has no such")
        def other(all_):
            one(all_, "StorageClass", "cbt")["provisioner"] = "other"
        self.finds(self.driver, other, "of no driver here")
        def grouped(all_):
            one(all_, "VolumeGroupSnapshotClass", "fast-cbt")["driver"] = "other"
        self.finds(self.drivers, grouped, "of no driver here")
        def published(all_):
            container(all_, "csi-snapshot-metadata")["env"][0]["value"] = "old-name"
        self.finds(self.driver, published, "which is no Service of it")
        def certified(all_):
            one(all_, "Certificate", "fast-csi-cbt-certs")["spec"]["dnsNames"] = ["fast-csi-cbt.other"]
        self.finds(self.drivers, certified, *["its certificate is not for"] * 2)

    def test_columns(self):
        def bare(all_):
            version = one(all_, "CustomResourceDefinition",
                          "snapshotsessionrequests.cbt.storage.k8s.io")["spec"]["versions"][0]
            del version["additionalPrinterColumns"]
            del version["schema"]["openAPIV3Schema"]["description"]
        self.finds(self.sessions, bare, "kubectl shows only Name", "kubectl explains nothing")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
