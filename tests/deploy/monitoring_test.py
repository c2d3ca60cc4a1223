"""Alerts and dashboard: promtool takes each rule, makes each fire and keeps it quiet; what they ask for is a
metric of the programs.

Usage: monitoring_test.py
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(HERE, "..", "..")
MONITORING = os.path.join(PROJECT, "deploy", "kubernetes", "monitoring")
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402

# Of the scraper, and of cert-manager.
FOREIGN = {"up", "certmanager_certificate_expiration_timestamp_seconds"}
METRIC = re.compile(r"\b(?:cbt|csi_sidecar|snapshot_metadata|certmanager)_[a-z_]+|\bup\b")
WIDTH = 24  # of Grafana's grid


def load(path):
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def exposed():
    """The names of metrics in the programs' texts."""
    names = set()
    for root in ("src", "programs", "include"):
        for path in glob.glob(os.path.join(PROJECT, root, "**", "*.[ch]*"), recursive=True):
            with open(path, encoding="utf-8") as file:
                names |= set(re.findall(r"\b(?:cbt|csi_sidecar|snapshot_metadata)_[a-z_]+", file.read()))
    return names


class MonitoringTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rules = load(os.path.join(MONITORING, "alerts.yaml"))["spec"]
        cls.alerts = [rule for group in cls.rules["groups"] for rule in group["rules"]]
        with open(os.path.join(MONITORING, "dashboard.json"), encoding="utf-8") as file:
            cls.dashboard = json.load(file)
        cls.questions = [target["expr"] for panel in cls.dashboard["panels"]
                         for target in panel["targets"]]

    def promtool(self, rules, *command):
        program = shutil.which("promtool")
        if program is None:
            self.skipTest("no promtool")
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-alerts-"))
        with open(os.path.join(folder, "rules.yaml"), "w", encoding="utf-8") as file:
            yaml.safe_dump(rules, file)
        shutil.copy(os.path.join(HERE, "alerts.yaml"), os.path.join(folder, "test.yaml"))
        done = subprocess.run([program, *command], cwd=folder, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_each_alert_fires_and_is_quiet(self):
        code, said = self.promtool(self.rules, "check", "rules", "rules.yaml")
        self.assertEqual(code, 0, said)
        code, said = self.promtool(self.rules, "test", "rules", "test.yaml")
        self.assertEqual(code, 0, said)

    def test_alerts_that_never_fire_are_found(self):
        rules = json.loads(json.dumps(self.rules))
        for rule in rules["groups"][0]["rules"]:
            rule["expr"] = "vector(0) > 1"
        code, said = self.promtool(rules, "test", "rules", "test.yaml")
        self.assertNotEqual(code, 0, said)
        for rule in self.alerts:
            self.assertIn(f"alertname: {rule['alert']},", said)

    def test_every_alert_is_tried(self):
        tried = {(one["alertname"], bool(one["exp_alerts"]))
                 for test in load(os.path.join(HERE, "alerts.yaml"))["tests"]
                 for one in test["alert_rule_test"]}
        names = [rule["alert"] for rule in self.alerts]
        self.assertEqual(len(names), len(set(names)))
        quiet_elsewhere = {"CbtSidecarNotReady"}  # of two namespaces, one
        for name in names:
            self.assertIn((name, True), tried)
            self.assertTrue((name, False) in tried or name in quiet_elsewhere, name)
        for rule in self.alerts:
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            self.assertEqual(set(rule["annotations"]), {"summary", "action"})

    def test_metrics_are_those_of_the_programs(self):
        known = exposed() | FOREIGN
        for question in [rule["expr"] for rule in self.alerts] + self.questions:
            metrics = METRIC.findall(re.sub(r'"[^"]*"', "", question))
            self.assertTrue(metrics, question)
            for metric in metrics:
                self.assertIn(re.sub(r"_(count|bucket|sum)$", "", metric), known, question)

    def test_the_dashboard_can_be_shown(self):
        board = self.dashboard
        for field, kind in (("title", str), ("uid", str), ("schemaVersion", int), ("panels", list),
                            ("templating", dict), ("time", dict), ("annotations", dict)):
            self.assertIsInstance(board[field], kind)
        variables = {one["name"] for one in board["templating"]["list"]}
        taken = set()
        for panel in board["panels"]:
            self.assertIn(panel["type"], ("timeseries", "stat"))
            self.assertTrue(panel["title"])
            grid = panel["gridPos"]
            self.assertLessEqual(grid["x"] + grid["w"], WIDTH)
            cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                     for y in range(grid["y"], grid["y"] + grid["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
            references = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(references), len(set(references)))
            for used in re.findall(r"\$\{?(\w+)", json.dumps(panel)):
                self.assertTrue(used in variables or used.startswith("__"), used)
        numbers = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_its_questions_are_promql(self):
        rules = [{"record": f"question:{number}", "expr": question.replace(
            "$__rate_interval", "5m").replace("$namespace", ".*")}
                 for number, question in enumerate(self.questions)]
        code, said = self.promtool({"groups": [{"name": "questions", "rules": rules}]},
                                   "check", "rules", "rules.yaml")
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
