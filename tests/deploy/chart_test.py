"""The charts of deploy/chart: helm finds no fault, what it renders by default is what kubectl builds of the folder,
and values change what they name.

Usage: chart_test.py

CBT_HELM names the program; default: helm.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
sys.path.append(os.path.join(HERE, "..", "support"))
sys.path.append(os.path.join(HERE, "..", "..", "deploy", "chart"))

# pylint: disable=wrong-import-position
import built  # noqa: E402
import chart  # noqa: E402
import rules  # noqa: E402
import runner  # noqa: E402

HELM = os.environ.get("CBT_HELM") or shutil.which("helm")
DIGEST = "sha256:" + "1" * 64


def by_name(objects):
    return {chart.identity(one): one for one in objects}


@unittest.skipIf(HELM is None or built.kubectl() is None, "no helm (CBT_HELM) or no kubectl")
class ChartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-chart-"))
        os.environ["KUBECTL"] = built.kubectl()
        for name in ("CACHE", "CONFIG", "DATA"):
            os.environ[f"HELM_{name}_HOME"] = os.path.join(cls.folder, "helm")
        subprocess.run([sys.executable, "-B", chart.__file__, "--output", cls.folder], check=True,
                       stdout=subprocess.DEVNULL)

    def helm(self, *arguments):
        done = subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def rendered(self, name, namespace, *settings, values=None):
        path = os.path.join(self.folder, "values.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(values or {}, file)
        said = self.helm("template", "x", os.path.join(self.folder, name), "--include-crds", "--namespace",
                         namespace, "--values", path, *(word for one in settings for word in ("--set", one)))
        return [one for one in yaml.safe_load_all(said) if one]

    @staticmethod
    def folder_of(one):
        return [part for name in (one.folder, *one.definitions)
                for part in built.build(os.path.join(built.DEPLOY, name))]

    def test_helm_finds_no_fault(self):
        for name in chart.CHARTS:
            for settings in ([], ["--set", "certManager=true,monitoring=true,namespace.create=true"]):
                self.helm("lint", "--strict", os.path.join(self.folder, name), *settings)

    def test_the_default_is_the_folder(self):
        for name, one in chart.CHARTS.items():
            wanted = self.folder_of(one)
            made = by_name(self.rendered(name, one.namespace, "namespace.create=true"))
            self.assertEqual(made, by_name(wanted))
            made = by_name(self.rendered(name, one.namespace))
            self.assertEqual(made, by_name(part for part in wanted if part["kind"] != "Namespace"))

    def test_certificates_are_those_of_the_folder(self):
        for name, one in chart.CHARTS.items():
            made = by_name(self.rendered(name, one.namespace, "certManager=true", "namespace.create=true"))
            wanted = by_name(self.folder_of(one)) | by_name(chart.with_certificates(one.folder))
            self.assertEqual(made, wanted)

    def test_another_namespace_keeps_the_rules(self):
        for name, one in chart.CHARTS.items():
            for settings in (["certManager=true"], ["monitoring=true"]):
                made = self.rendered(name, "storage", "namespace.create=true", *settings)
                made.sort(key=lambda part: part["kind"] not in ("Namespace", "CustomResourceDefinition"))
                self.assertEqual(rules.check(made), [])
                text = json.dumps([part for part in made if part["kind"] != "PrometheusRule"])
                self.assertNotIn(f'"namespace": "{one.namespace}"', text)
                self.assertNotIn(f".{one.namespace}.svc", text)

    def test_values_change_what_they_name(self):
        values = {"image": {"registry": "images.example.org/cbt", "tag": "9.9.9",
                            "digests": {"csi-snapshot-metadata": DIGEST}},
                  "replicas": {"session-manager": 3},
                  "resources": {"session-manager": {"limits": {"memory": "1Gi"}}}}
        made = self.rendered("cbt-session-manager", "storage", values=values)
        (found,) = [one for one in made if one["kind"] == "Deployment"]
        self.assertEqual(found["spec"]["replicas"], 3)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["image"],
                         f"images.example.org/cbt/csi-snapshot-metadata:9.9.9@{DIGEST}")
        self.assertEqual(container["resources"]["limits"]["memory"], "1Gi")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
