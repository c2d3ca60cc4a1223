"""deploy/kubernetes: every base renders, and a real API server takes it.

Usage: manifests_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import os
import subprocess
import sys
import unittest

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.abspath(os.path.join(HERE, "..", "..", "deploy", "kubernetes"))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import runner  # noqa: E402


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)

    def test_the_example_is_taken_as_it_is(self):
        crd = os.path.join(DEPLOY, "crd")
        self.plane.kubectl("apply", "--dry-run=server", "-k", crd)
        self.plane.kubectl("apply", "-k", crd)
        self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s",
                           "crd/snapshotmetadataservices.cbt.storage.k8s.io")
        for path in (("example", "namespace.yaml"), ("example", "plugin", "namespace.yaml")):
            self.plane.apply(os.path.join(DEPLOY, *path))
        self.plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "csi-driver"}})
        for folder in ("sidecar", "client", "example"):
            path = os.path.join(DEPLOY, folder)
            for flags in (["--dry-run=server"], []):
                result = self.plane.kubectl("apply", "--validate=strict", *flags, "-k", path)
                self.assertNotIn("Warning", result.stderr)
        # Nothing changes the second time.
        result = self.plane.kubectl("apply", "-k", os.path.join(DEPLOY, "example"))
        self.assertEqual({line.rsplit(" ", 1)[1] for line in result.stdout.splitlines()},
                         {"unchanged"}, result.stdout)

    def test_the_definition_is_that_of_the_api(self):
        self.plane.kubectl("apply", "-k", os.path.join(DEPLOY, "crd"))
        self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s",
                           "crd/snapshotmetadataservices.cbt.storage.k8s.io")
        good = {"apiVersion": "cbt.storage.k8s.io/v1beta1", "kind": "SnapshotMetadataService",
                "metadata": {"name": "a.example.com"},
                "spec": {"address": "a:1", "audience": "a", "caCert": "YQ=="}}
        self.plane.create(good)
        listed = self.plane.kubectl("get", "sms", "-o", "wide").stdout
        self.assertIn("a.example.com", listed)
        for field in ("address", "audience", "caCert", None):
            bad = json.loads(json.dumps(good))
            bad["metadata"]["name"] = "b.example.com"
            if field is None:
                del bad["spec"]
            else:
                del bad["spec"][field]
            result = self.plane.kubectl("create", "-f", "-", text=json.dumps(bad), check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("Required", result.stderr)
        # Empty texts are taken; what should be base64 must be.
        self.plane.create({**good, "metadata": {"name": "c.example.com"},
                           "spec": {"address": "", "audience": "", "caCert": "YQ=="}})
        for authority in ("not base64!", ""):
            bad = {**good, "metadata": {"name": "d.example.com"},
                   "spec": {**good["spec"], "caCert": authority}}
            self.assertNotEqual(self.plane.kubectl("create", "-f", "-", text=json.dumps(bad),
                                                   check=False).returncode, 0)

    def test_the_roles_grant_what_is_used_and_no_more(self):
        rendered = subprocess.run(
            [os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"), "kustomize",
             os.path.join(DEPLOY, "sidecar"), "-o", "/dev/stdout"],
            check=True, capture_output=True, text=True).stdout
        for word in ('"*"', "'*'", "secrets", "delete", "update", "pods"):
            self.assertNotIn(word, rendered)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
