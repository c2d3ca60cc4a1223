"""deploy/kubernetes/cosi: it renders, a real API server takes it, and its rights are no more than are needed.

Usage: manifests_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import os
import subprocess
import sys
import unittest

# pylint: disable=wrong-import-position
from world import DEPLOY, Base, stop  # noqa: E402
import runner  # noqa: E402


def tearDownModule():
    stop()


class ManifestsTest(Base):
    def rendered(self, folder):
        text = subprocess.run([os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"), "create",
                               "--dry-run=client", "--kubeconfig", self.plane.facts["kubeconfig"], "-o", "json",
                               "-k", os.path.join(DEPLOY, folder)], capture_output=True, text=True, check=True)
        decoder, at, found = json.JSONDecoder(), 0, []
        while at < len(text.stdout.rstrip()):
            one, at = decoder.raw_decode(text.stdout, at)
            found += one["items"] if one["kind"] == "List" else [one]
            at += len(text.stdout[at:]) - len(text.stdout[at:].lstrip())
        return found

    def test_they_are_taken_as_they_are(self):
        # The test's world has made it without kubectl, which warns once.
        self.plane.kubectl("apply", "-f", os.path.join(DEPLOY, "sidecar", "namespace.yaml"))
        for folder in ("crd", "controller", "driver", "node"):
            path = os.path.join(DEPLOY, folder)
            for flags in (["--dry-run=server"], []):
                result = self.plane.kubectl("apply", "--validate=strict", *flags, "-k", path)
                self.assertNotIn("Warning", result.stderr)
            result = self.plane.kubectl("apply", "-k", path)
            self.assertEqual({line.rsplit(" ", 1)[1] for line in result.stdout.splitlines()},
                             {"unchanged"}, result.stdout)

    def rules(self, folder, kind):
        return [(one["metadata"]["name"], rule) for one in self.rendered(folder) if one["kind"] == kind
                for rule in one["rules"]]

    def test_cosi_c37_s17_secrets_of_its_own_namespace_only(self):
        for folder in ("controller", "driver", "node"):
            for name, rule in self.rules(folder, "ClusterRole"):
                self.assertNotIn("secrets", rule["resources"], name)
                self.assertNotIn("*", rule["resources"] + rule["verbs"], name)
        cluster = {resource for _, rule in self.rules("sidecar", "ClusterRole") for resource in rule["resources"]}
        self.assertEqual(cluster, {"buckets", "bucketaccesses", "buckets/status", "bucketaccesses/status",
                                   "events"})
        self.assertIn("secrets", {resource for _, rule in self.rules("sidecar", "Role")
                                  for resource in rule["resources"]})

    def test_cosi_c26_nobody_may_delete_what_users_made(self):
        for folder in ("controller", "driver", "node"):
            for name, rule in self.rules(folder, "ClusterRole"):
                if name == "cbt-cosi-user":
                    self.assertFalse([one for one in rule["resources"] if "status" in one])
                    continue
                if "delete" in rule["verbs"]:
                    self.assertEqual(set(rule["resources"]), {"buckets", "bucketaccesses"}, name)

    def test_cosi_s1_c40_an_inline_driver_that_needs_nothing_new(self):
        driver = next(one for one in self.rendered("node") if one["kind"] == "CSIDriver")
        self.assertEqual(driver["metadata"]["name"], "cosi.sigs.k8s.io")
        spec = driver["spec"]
        self.assertEqual((spec["volumeLifecycleModes"], spec["podInfoOnMount"], spec["attachRequired"]),
                         (["Ephemeral"], True, False))
        for folder in ("controller", "driver", "node"):
            for one in self.rendered(folder):
                self.assertNotIn("feature-gates", json.dumps(one))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
