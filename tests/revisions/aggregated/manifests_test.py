"""deploy/kubernetes/aggregated: it renders, and a real API server takes it.

Usage: manifests_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import os
import re
import subprocess
import sys
import unittest

# pylint: disable=wrong-import-position
from world import CBT, CONTROL_PLANE, DEPLOY  # noqa: E402
import cluster  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402

SIDECAR = os.path.join(DEPLOY, "sidecar")


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
        cls.plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "csi-driver"}})

    def all(self, file):
        text = self.plane.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                  os.path.join(DEPLOY, file)).stdout
        # One value after the other.
        made = []
        while text.strip():
            one, end = json.JSONDecoder().raw_decode(text.lstrip())
            made.append(one)
            text = text.lstrip()[end:]
        return made

    def one(self, file):
        return self.all(file)[0]

    def test_they_are_taken_as_they_are(self):
        for folder in (DEPLOY, SIDECAR):
            for flags in (["--dry-run=server"], []):
                result = self.plane.kubectl("apply", "--validate=strict", *flags, "-k", folder)
                self.assertNotIn("Warning", result.stderr)
            # Nothing changes the second time.
            result = self.plane.kubectl("apply", "-k", folder)
            # kubectl sends the selectors of budgets every time.
            self.assertEqual({line.rsplit(" ", 1)[1] for line in result.stdout.splitlines()
                              if not line.startswith("poddisruptionbudget")}, {"unchanged"}, result.stdout)
        self.plane.kubectl("apply", "--validate=strict", "--dry-run=server", "-f",
                           os.path.join(SIDECAR, "secret-role.yaml"))

    def test_a1_the_api_service_is_that_of_the_service(self):
        api = self.one("api-service.yaml")
        service = self.one("service.yaml")
        self.assertEqual(api["metadata"]["name"], "v1alpha1.cbt.storage.k8s.io")
        self.assertEqual((api["spec"]["service"]["name"], api["spec"]["service"]["namespace"]),
                         (service["metadata"]["name"], service["metadata"]["namespace"]))
        self.assertEqual(api["spec"]["service"]["port"], service["spec"]["ports"][0]["port"])
        self.assertNotIn("insecureSkipTLSVerify", api["spec"])

    def test_a9_requests_are_of_the_level_workload_low(self):
        schema = self.one("flow-schema.yaml")["spec"]
        self.assertEqual(schema["priorityLevelConfiguration"]["name"], "workload-low")
        self.assertEqual(schema["distinguisherMethod"]["type"], "ByUser")
        self.plane.kubectl("get", "prioritylevelconfiguration", "workload-low")
        rule = schema["rules"][0]["resourceRules"][0]
        self.assertEqual((rule["resources"], rule["verbs"]), (["volumesnapshotdeltas"], ["create"]))

    def test_a15_several_replicas_and_only_ready_ones(self):
        self.assertGreater(self.one("deployment.yaml")["spec"]["replicas"], 1)
        container = self.one("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/readyz")
        text = parts.read(os.path.join(SIDECAR, "service.yaml")).decode()
        self.assertIn("path: /readyz", text)
        self.assertIn("--leader-elect", text)

    def test_a16_the_roles_grant_what_is_used_and_no_more(self):
        rendered = self.plane.kubectl("kustomize", DEPLOY).stdout
        for word in ("secrets]", "- secrets", "impersonate", "pods"):
            self.assertNotIn(word, rendered)
        roles = {one["metadata"]["name"]: {(resource, verb) for rule in one["rules"]
                                           for resource in rule["resources"] for verb in rule["verbs"]}
                 for one in self.all("cluster-role.yaml")}
        watched = ("driverdiscoveries", "volumesnapshotcontents", "volumesnapshots",
                   "volumesnapshotclasses")
        self.assertEqual(roles, {
            "cbt-aggregated-api": {(resource, verb) for resource in watched
                                   for verb in ("get", "list", "watch")} |
                                  {("driverdiscoveries/status", "update")},
            "cbt-aggregated-api-authentication-reader": {("configmaps", verb)
                                                         for verb in ("get", "list", "watch")},
            "cbt-volume-snapshot-delta-creator": {("volumesnapshotdeltas", "create")}})
        bound = {one["roleRef"]["name"] for one in self.all("cluster-role-bindings.yaml")}
        self.assertEqual(bound, {"cbt-aggregated-api", "system:auth-delegator",
                                 "cbt-aggregated-api-authentication-reader"})
        (reader,) = [one for one in self.all("cluster-role.yaml")
                     if one["metadata"]["name"] == "cbt-aggregated-api-authentication-reader"]
        self.assertEqual(reader["rules"][0]["resourceNames"], ["extension-apiserver-authentication"])

    def test_the_flags_are_those_of_the_commands(self):
        container = self.one("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
        text = parts.read(os.path.join(SIDECAR, "service.yaml")).decode()
        in_comment = re.findall(r"[a-z-]*--?[a-z-]+(?:=[^,\]\s]+)?|http-sidecar",
                                re.search(r"args: \[(.*?)\]", text, re.DOTALL).group(1))
        for arguments in (container["args"], [a for a in in_comment if not a.startswith("#")]):
            usage = subprocess.run([parts.cluster(CBT), arguments[0], "--help"], capture_output=True, text=True,
                                   check=True).stdout
            self.assertGreater(len(arguments), 5)
            for argument in arguments[1:]:
                self.assertIn(argument.partition("=")[0] + " ", usage)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
