"""The session manager on a real kube-apiserver, with the rights of its manifests and no more: webhook,
sessions, expiry, leaders, restarts.

Usage: manager_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import datetime
import json
import random
import signal
import sys
import threading
import time
import unittest

# pylint: disable=wrong-import-position
from world import API, MANAGER, Base, configuration, request, stop, when  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402

UTC = datetime.timezone.utc


def tearDownModule():
    stop()


class DefinitionsTest(Base):
    """What the proposal's definitions say, and where ours differ."""

    def definition(self, plural):
        return self.plane.get("crd", f"{plural}.cbt.storage.k8s.io")["spec"]

    def schema(self, plural):
        return self.definition(plural)["versions"][0]["schema"]["openAPIV3Schema"]["properties"]

    def test_s1_group_and_version(self):
        for plural in ("snapshotsessionrequests", "snapshotsessiondata",
                       "snapshotservicesconfigurations"):
            spec = self.definition(plural)
            self.assertEqual(spec["group"], "cbt.storage.k8s.io")
            self.assertEqual([(v["name"], v["served"], v["storage"]) for v in spec["versions"]],
                             [("v1alpha1", True, True)])
            self.assertNotIn("shortNames", spec["names"])
            # Ours: only the manager writes the status of a request.
            self.assertEqual("subresources" in spec["versions"][0],
                             plural == "snapshotsessionrequests")

    def test_s2_request(self):
        self.assertEqual(self.definition("snapshotsessionrequests")["scope"], "Namespaced")
        schema = self.schema("snapshotsessionrequests")
        self.assertEqual(schema["spec"]["required"], ["snapshots"])
        self.assertEqual(schema["spec"]["properties"]["snapshots"]["items"]["type"], "string")
        self.assertEqual(schema["status"]["required"], ["sessionState"])
        formats = {name: (one["type"], one.get("format"))
                   for name, one in schema["status"]["properties"].items()}
        self.assertEqual(formats, {"sessionState": ("string", None), "error": ("string", None),
                                   "caCert": ("string", "byte"), "sessionToken": ("string", "byte"),
                                   "expiryTime": ("string", "date-time"),
                                   "sessionURL": ("string", None)})
        self.assertNotIn("enum", schema["status"]["properties"]["sessionState"])
        for bad in ({}, {"snapshots": []}, {"snapshots": "monday"}, {"snapshots": ["a", "a"]}):
            one = request(self.name(), [])
            one["spec"] = bad
            self.assertNotEqual(self.create(one, check=False).returncode, 0, bad)

    def test_s2_a_request_does_not_change_nor_do_users_write_its_status(self):
        name = self.open(self.snapshot())
        one = self.ready(name)
        changed = self.as_user("app", "patch", "snapshotsessionrequest", name, "--type=merge", "-p",
                               '{"spec":{"snapshots":["another"]}}', check=False)
        self.assertIn("can't be changed", changed.stderr)
        self.as_user("app", "patch", "snapshotsessionrequest", name, "--type=merge", "-p",
                     '{"status":{"expiryTime":"2099-01-01T00:00:00Z"}}')
        self.assertEqual(self.get(name)["status"], one["status"])
        # Nor with a request that is born with one.
        born = request(self.name(), [self.snapshot()])
        born["status"] = {"sessionState": "Ready", "sessionToken": "YQ==",
                          "expiryTime": "2099-01-01T00:00:00Z"}
        self.create(born)
        made = self.ready(born["metadata"]["name"])
        self.assertRegex(self.token_of(made), "^[0-9a-f]{64}$")
        self.assertLess(when(made["status"]["expiryTime"]),
                        datetime.datetime.now(UTC) + datetime.timedelta(hours=2))

    def test_s3_configuration(self):
        spec = self.definition("snapshotservicesconfigurations")
        self.assertEqual(spec["scope"], "Cluster")
        schema = self.schema("snapshotservicesconfigurations")["spec"]
        self.assertEqual(schema["properties"]["caCert"]["format"], "byte")
        for missing in ("address", "caCert", "driverNamespace"):
            one = configuration(self.name(), "missing.example.com")
            del one["spec"][missing]
            result = self.plane.kubectl("create", "-f", "-", text=json.dumps(one), check=False)
            self.assertIn("Required", result.stderr)

    def test_s4_data(self):
        spec = self.definition("snapshotsessiondata")
        self.assertEqual((spec["scope"], spec["names"]["plural"], spec["names"]["singular"]),
                         ("Namespaced", "snapshotsessiondata", "snapshotsessiondata"))
        schema = self.schema("snapshotsessiondata")
        self.assertNotIn("status", schema)
        self.assertEqual(sorted(schema["spec"]["required"]),
                         ["expiryTime", "snapshotNamespace", "snapshots"])
        self.assertEqual(schema["spec"]["properties"]["expiryTime"]["format"], "date-time")

    def test_s5_the_names_of_the_definition(self):
        names = self.definition("snapshotservicesconfigurations")["names"]
        self.assertEqual((names["kind"], names["plural"], names["singular"]),
                         ("SnapshotServicesConfiguration", "snapshotservicesconfigurations",
                          "snapshotsessionservice"))
        self.plane.kubectl("get", "snapshotsessionservice", "the-driver")
        webhooks = self.plane.get("validatingwebhookconfiguration", MANAGER)["webhooks"]
        self.assertEqual(len(webhooks), 1)
        self.assertIsNone(self.plane.get("mutatingwebhookconfiguration", MANAGER))


class SessionsTest(Base):
    def test_s8_only_who_may_read_snapshots_opens_sessions(self):
        snapshot = self.snapshot()
        result = self.create(request(self.name(), [snapshot]), "blind", check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("Forbidden", result.stderr)
        self.assertIn('"system:serviceaccount:backup:blind" may not get volumesnapshots in '
                      'namespace \\"prod\\"'.replace('\\"', '"'), result.stderr.replace('\\"', '"'))
        # The right to list is not the right to get.
        self.world.role("prod", self.name(), "snapshot.storage.k8s.io", "volumesnapshots",
                        ["list"], account="blind")
        self.assertNotEqual(self.create(request(self.name(), [snapshot]), "blind",
                                        check=False).returncode, 0)
        # Nor is that in another namespace.
        result = self.create(request(self.name(), [snapshot], "other"), check=False)
        self.assertIn('namespace "other"', result.stderr.replace('\\"', '"'))
        denied = self.manager.metric('cbt_session_reviews_total{answer="denied"}')
        self.assertGreaterEqual(denied, 3)
        self.ready(self.open(snapshot))
        self.assertGreaterEqual(self.manager.metric('cbt_session_reviews_total{answer="allowed"}'), 1)

    def test_s8_without_the_webhook_nothing_is_created(self):
        snapshot = self.snapshot()
        self.manager.stop()
        try:
            result = self.create(request(self.name(), [snapshot]), check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("failed calling webhook", result.stderr)
        finally:
            type(self).manager = self.world.manager().wait_ready()
            type(self).addClassCleanup(self.manager.stop)
        self.ready(self.open(snapshot), 60)

    def test_s8_the_certificate_is_renewed(self):
        parts.make_certificate(self.world.folder, "tls", "ca")
        self.ready(self.open(self.snapshot()))

    def test_s14_the_whole_flow(self):
        """As a backup application does it: create, watch, read."""
        snapshots = [self.snapshot(), self.snapshot()]
        begin = datetime.datetime.now(UTC).replace(microsecond=0)
        name = self.open(*snapshots)
        self.as_user("app", "wait", f"snapshotsessionrequest/{name}", "--timeout=30s",
                     "--for=jsonpath={.status.sessionState}=Ready")
        one = self.get(name)
        status = one["status"]
        self.assertEqual(sorted(status), ["caCert", "expiryTime", "sessionState", "sessionToken",
                                          "sessionURL"])
        self.assertEqual(status["sessionURL"], "service.csi-driver:6443")
        self.assertEqual(status["caCert"], "UEVN")
        # S10: an hour, unless configured.
        expiry = when(status["expiryTime"])
        self.assertGreaterEqual(expiry, begin + datetime.timedelta(hours=1))
        self.assertLess(expiry, begin + datetime.timedelta(hours=1, minutes=1))
        # S4: the data's name is the token.
        self.assertRegex(self.token_of(one), "^[0-9a-f]{64}$")
        data = self.expect_one_session(one)
        self.assertEqual(data["metadata"]["namespace"], "csi-driver")
        self.assertEqual(data["spec"], {"expiryTime": status["expiryTime"],
                                        "snapshotNamespace": "prod", "snapshots": snapshots})
        # No token is in the log.
        self.assertNotIn(self.token_of(one), self.manager.log())
        # Two sessions over the same snapshots are two.
        another = self.ready(self.open(*snapshots))
        self.assertNotEqual(self.token_of(another), self.token_of(one))

    def test_s15_data_goes_to_the_namespace_of_the_configuration(self):
        self.plane.create({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": "another-driver"}})
        self.plane.create(configuration("another", "another.example.com",
                                        driverNamespace="another-driver"))
        one = self.ready(self.open(self.snapshot(driver="another.example.com")))
        self.assertIn(self.token_of(one), self.list("snapshotsessiondata", "another-driver"))

    def expect_failed(self, text, *snapshots):
        one = self.final(self.open(*snapshots))
        self.assertEqual(one["status"]["sessionState"], "Failed")
        self.assertIn(text, one["status"]["error"])
        self.assertIn("expiryTime", one["status"])
        self.assertNotIn("sessionToken", one["status"])
        self.assertEqual(self.data_of(one["metadata"]["uid"]), [])
        return one["metadata"]["name"]

    def test_s12_snapshots_that_make_no_session(self):
        good = self.snapshot()
        self.expect_failed("VolumeSnapshot prod/never does not exist", good, "never")
        self.expect_failed("is no name of a VolumeSnapshot", "../secrets")
        self.expect_failed("is not bound", self.snapshot(status=False))
        self.expect_failed("does not exist", self.snapshot(content=False))
        self.expect_failed("does not belong", self.snapshot(uid="another"))
        elsewhere = self.snapshot(driver="other.example.com")
        self.expect_failed("more than one driver", good, elsewhere)

    def test_s13_drivers_without_one_configuration(self):
        name = self.expect_failed("no SnapshotServicesConfiguration has the label "
                                  "cbt.storage.k8s.io/driver=unknown.example.com",
                                  self.snapshot(driver="unknown.example.com"))
        for suffix in ("a", "b"):
            self.plane.create(configuration("twice-" + suffix, "twice.example.com"))
        self.expect_failed("more than one SnapshotServicesConfiguration",
                           self.snapshot(driver="twice.example.com"))
        # S11: for good.
        self.plane.create(configuration("late", "unknown.example.com"))
        time.sleep(2.5)
        self.assertEqual(self.get(name)["status"]["sessionState"], "Failed")

    def test_s16_who_deletes_a_request_ends_its_session(self):
        one = self.ready(self.open(self.snapshot()))
        self.as_user("app", "delete", "snapshotsessionrequest", one["metadata"]["name"])
        self.assertTrue(parts.wait_until(lambda: not self.data_of(one["metadata"]["uid"])))
        # A new one of the same name is another.
        self.create(request(one["metadata"]["name"], one["spec"]["snapshots"]))
        again = self.ready(one["metadata"]["name"])
        self.assertNotEqual(self.token_of(again), self.token_of(one))
        self.expect_one_session(again)

    def test_s16_data_that_no_request_names_is_removed(self):
        one = self.ready(self.open(self.snapshot()))
        future = "2099-01-01T00:00:00Z"

        def data(name, labels, expiry=future):
            return {"apiVersion": API, "kind": "SnapshotSessionData",
                    "metadata": {"name": name, "namespace": "csi-driver", "labels": labels,
                                 "annotations": {"cbt.storage.k8s.io/session-request-name":
                                                 one["metadata"]["name"]}},
                    "spec": {"expiryTime": expiry, "snapshotNamespace": "prod",
                             "snapshots": ["a"]}}

        uid = "cbt.storage.k8s.io/session-request"
        # A second one, as two managers could have made it; that of a request that is gone; one that
        # is over; and one of somebody else.
        self.plane.create(data("a" * 64, {uid: one["metadata"]["uid"]}))
        self.plane.create(data("b" * 64, {uid: "another"}))
        self.plane.create(data("c" * 64, {}, "2020-01-01T00:00:00Z"))
        self.plane.create(data("d" * 64, {}))
        gone = {c * 64 for c in "abc"}
        self.assertTrue(parts.wait_until(
            lambda: not gone & set(self.list("snapshotsessiondata", "csi-driver"))))
        self.assertIn("d" * 64, self.list("snapshotsessiondata", "csi-driver"))
        self.expect_one_session(one)

    def test_s11_an_api_server_that_goes_away_delays_sessions_only(self):
        one = self.ready(self.open(self.snapshot()))
        self.plane.command("kill")
        time.sleep(1)
        self.assertEqual(self.manager.get("/livez")[0], 200)
        self.plane.command("start")
        self.expect_one_session(self.get(one["metadata"]["name"]))
        # The webhook, the watch and the lease come back by themselves.
        snapshot = self.snapshot()
        self.assertTrue(parts.wait_until(
            lambda: self.create(request("after-" + snapshot, [snapshot]),
                                check=False).returncode == 0, 60))
        self.expect_one_session(self.ready("after-" + snapshot, 60))

    def test_pages(self):
        for path in ("/healthz", "/livez", "/readyz"):
            self.assertEqual(self.manager.get(path), (200, "ok"))
        self.assertEqual(self.manager.get("/")[0], 404)


class ExpiryTest(Base):
    flags = ("--session-time=12s",)

    def test_s16_what_expired_is_removed(self):
        begin = time.monotonic()
        names = [self.open(self.snapshot()) for _ in range(3)]
        failed = self.open("never")
        ones = [self.ready(name) for name in names]
        self.assertEqual(self.final(failed)["status"]["sessionState"], "Failed")
        self.assertTrue(parts.wait_until(
            lambda: not set(names + [failed]) & set(self.list("snapshotsessionrequests", "prod")), 60))
        self.assertGreaterEqual(time.monotonic() - begin, 11)
        for one in ones:
            self.assertTrue(parts.wait_until(lambda one=one: not self.data_of(one["metadata"]["uid"])))
        self.assertGreaterEqual(self.manager.metric('cbt_session_removed_total{kind="request"}'), 4)
        self.assertGreaterEqual(self.manager.metric('cbt_session_removed_total{kind="data"}'), 3)

    def test_s16_the_time_is_configured(self):
        one = self.ready(self.open(self.snapshot()))
        created = when(one["metadata"]["creationTimestamp"])
        life = when(one["status"]["expiryTime"]) - created
        self.assertGreaterEqual(life, datetime.timedelta(seconds=11))
        self.assertLess(life, datetime.timedelta(seconds=60))


class RestartsTest(Base):
    def test_s9_one_of_two_managers_acts(self):
        other = self.world.manager(name="other", port=parts.free_port()).wait_ready()
        self.addCleanup(other.stop)
        time.sleep(3)
        self.assertEqual([self.manager.active(), other.active()], [True, False])
        # Stopped in order, it gives the lease up at once.
        self.manager.stop()
        self.assertTrue(parts.wait_until(other.active, 10))
        type(self).manager = self.world.manager().wait_ready()
        type(self).addClassCleanup(self.manager.stop)
        self.expect_one_session(self.ready(self.open(self.snapshot())))
        self.assertGreaterEqual(other.metric('cbt_sessions_total{state="Ready"}'), 1)
        # Killed, it is waited for.
        other.kill()
        name = self.open(self.snapshot())
        self.assertTrue(parts.wait_until(self.manager.active, 60))
        self.expect_one_session(self.ready(name))

    def test_s11_killed_again_and_again_it_loses_and_doubles_nothing(self):
        # Without a lease, as a Pod is restarted that needs none: the worst case.
        self.manager.stop()
        snapshots = [self.snapshot() for _ in range(4)]
        over = threading.Event()
        managers = []
        dice = random.Random(29)

        def storm():
            while not over.is_set():
                one = self.world.manager(name="storm", elect=False)
                managers.append(one)
                parts.wait_until(lambda one=one: one.get("/readyz")[0] == 200, 5)
                over.wait(dice.uniform(0, 1.5))
                one.process.send_signal(signal.SIGKILL)
                one.process.wait()

        thread = threading.Thread(target=storm)
        thread.start()
        names = []
        try:
            until = time.monotonic() + 120
            while len(names) < 12 and time.monotonic() < until:
                name = self.name()
                if self.create(request(name, [dice.choice(snapshots)]), check=False).returncode == 0:
                    names.append(name)
        finally:
            over.set()
            thread.join()
        type(self).manager = self.world.manager().wait_ready()
        type(self).addClassCleanup(self.manager.stop)
        self.assertTrue(parts.wait_until(self.manager.active, 60))
        self.assertGreater(len(names), 4)
        tokens = set()
        for name in names:
            one = self.ready(name, 60)
            self.assertTrue(parts.wait_until(
                lambda one=one: len(self.data_of(one["metadata"]["uid"])) == 1))
            self.expect_one_session(one)
            tokens.add(self.token_of(one))
        self.assertEqual(len(tokens), len(names))
        print(f"{len(names)} sessions, {len(managers)} managers killed", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
