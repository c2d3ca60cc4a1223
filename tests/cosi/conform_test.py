"""`cbtctl conform --cosi` passes our driver and a plain one, and finds each planted fault."""

import json
import os
import subprocess
import tempfile
import unittest

import driver_parts as parts
from driver_parts import READ, V1alpha2, fresh
from planted_driver import ABSENT, FAULTS, Backend, serve


def conform(path, *options):
    done = subprocess.run([parts.CTL, "conform", "--cosi", "unix://" + path, *options], capture_output=True, text=True,
                          timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr


def results(path, *options):
    """{revision: {rule: result}}, and the exit status."""
    code, out, err = conform(path, "--json", *options)
    found = {}
    for line in out.splitlines():
        report = json.loads(line)
        found.setdefault(report["method"], {})[report["id"]] = (report["result"], report["evidence"])
    return found, code, err


class DriverTest(parts.Case):
    def test_our_driver_keeps_every_rule(self):
        found, code, err = results(self.driver.socket, "--bucket-parameter", "versioning=true")
        self.assertEqual(set(found), {"proposal", "v0.2", "v1alpha2"}, err)
        for revision, rules in found.items():
            self.assertEqual(set(rules), set(FAULTS))
            for rule, (result, evidence) in rules.items():
                absent = rule in ABSENT[revision]
                self.assertEqual(result, "not applicable" if absent else "pass", (revision, rule, evidence))
        self.assertEqual(code, 0)
        if self.gateway is not None:
            self.assertEqual((list(self.gateway.buckets), list(self.gateway.users)), ([], ["admin"]))

    def test_what_is_said(self):
        code, out, err = conform(self.driver.socket)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"\d+ passed, 0 failed, \d+ not applicable\n$")
        for options, text in ((("--bucket-parameter", "x"), "KEY=VALUE"), (("--access-parameter", "=x"), "KEY=VALUE")):
            code, out, err = conform(self.driver.socket, *options)
            self.assertEqual(code, 2)
            self.assertIn(text, err)
        code, out, err = conform(self.driver.socket + "x", "--timeout", "1")
        self.assertNotEqual(code, 0)
        # An access parameter that the driver refuses fails its rules.
        found, code, _ = results(self.driver.socket, "--access-parameter", "unknown=x")
        self.assertEqual((found["v1alpha2"]["grant"][0], code), ("fail", 1))

    def test_keys_are_not_printed(self):
        bucket = V1alpha2(self.driver).create(fresh("bc"))
        grant = V1alpha2(self.driver).grant(fresh("ba"), bucket, READ)
        _, out, err = conform(self.driver.socket, "-v")
        self.assertNotIn(grant.secret, out + err)
        self.assertNotIn(self.admin[1], out + err)
        V1alpha2(self.driver).revoke(grant.account, bucket)
        V1alpha2(self.driver).delete(bucket)


@unittest.skipIf(os.environ.get("CBT_TEST_S3"), "needs no gateway")
class PlantedTest(unittest.TestCase):
    def run_with(self, fault, revisions):
        with tempfile.TemporaryDirectory(prefix="cosi") as folder:
            path = os.path.join(folder, "cosi.sock")
            backend = Backend(fault)
            server = serve(path, backend, revisions)
            try:
                return results(path, "--settle", "0")
            finally:
                server.stop(0).wait()
                backend.gateway.close()

    def test_a_driver_without_a_fault_passes(self):
        for revision in ABSENT:
            found, code, err = self.run_with(None, [revision])
            self.assertEqual(set(found), {revision}, err)
            self.assertEqual({rule: each for rule, each in found[revision].items() if each[0] == "fail"}, {})
            self.assertEqual(code, 0)

    def test_each_fault_is_found(self):
        for revision, absent in ABSENT.items():
            for fault in FAULTS:
                if fault in absent:
                    continue
                with self.subTest(f"{revision} {fault}"):
                    found, code, err = self.run_with(fault, [revision])
                    self.assertEqual(found[revision][fault][0], "fail", (found[revision], err))
                    self.assertEqual(code, 1)

    def test_no_driver_of_cosi(self):
        found, code, err = self.run_with(None, [])
        self.assertEqual(found, {})
        self.assertNotEqual(code, 0)
        self.assertIn("v1alpha2", err)


if __name__ == "__main__":
    parts.main()
