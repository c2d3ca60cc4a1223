"""deploy/kubernetes/sessions: it renders, and a real API server takes it.

Usage: manifests_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import os
import subprocess
import sys
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
import runner  # noqa: E402


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.kubectl("apply", "--validate=strict", "-k", os.path.join(DEPLOY, "crd"))
        cls.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        cls.plane.apply(os.path.join(DEPLOY, "namespace.yaml"))

    def one(self, file):
        return json.loads(self.plane.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                             os.path.join(DEPLOY, file)).stdout)

    def test_they_are_taken_as_they_are(self):
        for flags in (["--dry-run=server"], []):
            result = self.plane.kubectl("apply", "--validate=strict", *flags, "-k", DEPLOY)
            self.assertNotIn("Warning", result.stderr)
        # Nothing changes the second time.
        result = self.plane.kubectl("apply", "-k", DEPLOY)
        # kubectl sends the selectors of budgets every time.
        self.assertEqual({line.rsplit(" ", 1)[1] for line in result.stdout.splitlines()
                          if not line.startswith("poddisruptionbudget")}, {"unchanged"}, result.stdout)

    def test_s9_replicas_with_an_account_of_their_own_of_which_one_acts(self):
        deployment = self.one("deployment.yaml")
        self.assertEqual(deployment["spec"]["replicas"], 2)
        self.assertIn("--leader-elect",
                      deployment["spec"]["template"]["spec"]["containers"][0]["args"])
        pod = deployment["spec"]["template"]["spec"]
        account = self.one("service-account.yaml")["metadata"]
        self.assertEqual((pod["serviceAccountName"], deployment["metadata"]["namespace"]),
                         (account["name"], account["namespace"]))
        sidecars = subprocess.run(["grep", "-rh", "name: session-manager", os.path.dirname(DEPLOY),
                                   "--include=*.yaml", "--exclude-dir=sessions"],
                                  capture_output=True, text=True, check=False).stdout
        self.assertEqual(sidecars, "")

    def test_s8_the_webhook_is_asked_on_create_and_must_answer(self):
        webhook = self.one("webhook.yaml")["webhooks"][0]
        self.assertEqual(webhook["rules"], [
            {"operations": ["CREATE"], "apiGroups": ["cbt.storage.k8s.io"],
             "apiVersions": ["v1alpha1"], "resources": ["snapshotsessionrequests"],
             "scope": "Namespaced"}])
        self.assertEqual((webhook["failurePolicy"], webhook["sideEffects"]), ("Fail", "None"))
        service = self.one("service.yaml")
        reference = webhook["clientConfig"]["service"]
        self.assertEqual((reference["name"], reference["namespace"]),
                         (service["metadata"]["name"], service["metadata"]["namespace"]))
        self.assertEqual(service["spec"]["ports"][0]["port"], 443)

    def test_s16_the_time_comes_from_a_config_map(self):
        container = self.one("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("--session-time=$(SESSION_TIME)", container["args"])
        reference = container["env"][0]["valueFrom"]["configMapKeyRef"]
        config = self.one("config-map.yaml")
        self.assertEqual(reference["name"], config["metadata"]["name"])
        self.assertIn(reference["key"], config["data"])

    def test_the_flags_are_those_of_the_command(self):
        container = self.one("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
        usage = subprocess.run([parts.cluster(CBT), "session-manager", "--help"],
                               capture_output=True, text=True,
                               check=True).stdout
        self.assertEqual(container["args"][0], "session-manager")
        for argument in container["args"][1:]:
            self.assertIn(argument.partition("=")[0] + " ", usage)

    def test_the_roles_grant_what_is_used_and_no_more(self):
        rendered = self.plane.kubectl("kustomize", DEPLOY).stdout
        for word in ("'*'", '"*"', "secrets", "patch", "pods", "impersonate"):
            self.assertNotIn(word, rendered)
        granted = {(resource, verb) for rule in self.one("cluster-role.yaml")["rules"]
                   for resource in rule["resources"] for verb in rule["verbs"]}
        self.assertEqual(granted, {
            ("subjectaccessreviews", "create"),
            ("snapshotsessionrequests", "get"), ("snapshotsessionrequests", "list"),
            ("snapshotsessionrequests", "watch"), ("snapshotsessionrequests", "delete"),
            ("snapshotsessionrequests/status", "update"),
            ("snapshotsessiondata", "list"), ("snapshotsessiondata", "watch"),
            ("snapshotsessiondata", "create"), ("snapshotsessiondata", "delete"),
            ("snapshotservicesconfigurations", "list"),
            ("volumesnapshots", "get"), ("volumesnapshotcontents", "get")})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
