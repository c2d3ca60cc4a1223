"""Buckets and access to them, from request to end, on a real kube-apiserver with a driver in Python: the
controller and the sidecar have the rights of their manifests and no more.

Usage: flows_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import re
import sys
import time
import unittest

# pylint: disable=wrong-import-position
from world import DRIVER, P, Running, reference, stop  # noqa: E402
import fake_driver  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402


def tearDownModule():
    stop()


class CreateTest(Running):
    def test_cosi_c1_c2_c3_c4_c5_c8_a_request_gets_a_bucket(self):
        klass = self.bucket_class(parameters={"tier": "hot"}, allowedNamespaces=[{"name": "prod"}])
        request = self.available(self.bucket_request(klass, bucketPrefix="logs"))
        uid = request["metadata"]["uid"]
        bucket = self.bucket_of(request)
        # C2, S15: the name is made of the request's uid.
        self.assertEqual(bucket["metadata"]["name"], "logs-" + uid)
        self.assertEqual(bucket["spec"]["bucketRequest"], reference(request))
        # C3
        for one in (request, bucket):
            self.assertEqual(one["metadata"]["labels"][P + "provisioner"], DRIVER)
        self.assertEqual(bucket["metadata"]["labels"][P + "bucket-prefix"], "logs")
        # C4, S2
        self.assertEqual(self.finalizers(request), [P + "bucketrequest-protection"])
        self.assertEqual(self.finalizers(bucket), [P + "br-protect"])
        # C5
        spec = bucket["spec"]
        self.assertEqual((spec["provisioner"], spec["deletionPolicy"], spec["parameters"],
                          spec["allowedNamespaces"] if "allowedNamespaces" in spec else None,
                          spec["protocol"]), (DRIVER, "Delete", {"tier": "hot"}, None, {"s3": {"region": "eu"}}))
        # C8
        self.assertEqual(bucket["status"], {"bucketID": "id-logs-" + uid, "bucketAvailable": True})
        self.assertIn("id-logs-" + uid, self.driver.buckets)
        # Without a prefix, and another request: another bucket.
        second = self.available(self.bucket_request(klass))
        self.assertEqual(second["status"]["bucketName"], "br-" + second["metadata"]["uid"])

    def test_cosi_c6_the_default_class(self):
        request = self.bucket_request()
        self.wait_event(request, "NoClass", "there is no default class")
        klass = self.make("BucketClass", {"deletionPolicy": "Delete", "protocol": {"s3": {}},
                                          "provisioner": DRIVER},
                          annotations={P + "is-default-class": ""})
        self.available(request)
        # Two of them do not count, nor does "false".
        other = self.make("BucketClass", {"deletionPolicy": "Delete", "protocol": {"s3": {}},
                                          "provisioner": DRIVER},
                          annotations={P + "is-default-class": "true"})
        undecided = self.bucket_request()
        self.wait_event(undecided, "NoClass", "several default classes")
        self.change(other, {"metadata": {"annotations": {P + "is-default-class": "false"}}})
        self.available(undecided)
        self.delete(klass)

    def test_cosi_c6_a_class_that_comes_later(self):
        request = self.bucket_request("late-class")
        self.wait_event(request, "NoClass", "BucketClass late-class does not exist")
        self.make("BucketClass", {"deletionPolicy": "Delete", "protocol": {"s3": {}},
                                  "provisioner": DRIVER}, name="late-class")
        self.available(request)

    def test_cosi_c7_s13_a_class_allows_namespaces(self):
        klass = self.bucket_class(allowedNamespaces=[{"name": "other"}])
        refused = self.bucket_request(klass)
        self.wait_event(refused, "NamespaceNotAllowed", "does not allow namespace prod")
        self.available(self.bucket_request(klass, "other"))
        self.assertNotIn("bucketName", self.now(refused).get("status", {}))
        # It is not held by anything.
        self.delete(refused)
        self.gone(refused)

    def test_cosi_c33_s16_what_the_driver_refuses_is_said(self):
        self.driver.fail["CreateBucket"] = (fake_driver.CODES.RESOURCE_EXHAUSTED, "the quota is used up")
        request = self.bucket_request(self.bucket_class())
        bucket = self.wait(request, lambda one: one.get("status", {}).get("bucketName"))
        bucket = self.bucket_of(bucket)
        self.wait_event(bucket, "CreateFailed", "the quota is used up")
        # Users may not look at the Bucket, nor at what the driver says of its backend.
        name = bucket["metadata"]["name"]
        self.wait_event(request, "CreateFailed",
                        f"RESOURCE_EXHAUSTED: the driver's words are in an Event of Bucket/{name}")
        self.assertNotIn("quota", str(self.events(request)))
        self.assertFalse(self.now(request)["status"]["bucketAvailable"])
        del self.driver.fail["CreateBucket"]
        self.available(request)

    def test_cosi_s16_a_driver_that_does_not_run(self):
        request = self.bucket_request(self.bucket_class(provisioner="missing.example.com"))
        text = f"driver missing.example.com has not made Bucket br-{request['metadata']['uid']} yet"
        self.wait_event(request, "WaitsForDriver", text)
        self.delete(request)
        self.wait_event(request, "WaitsForDriver", "driver missing.example.com has not deleted Bucket")
        bucket = self.bucket_of(request)
        self.change(bucket, {"metadata": {"finalizers": []}})
        self.gone(request)

    def test_cosi_c33_an_answer_that_is_lost_makes_no_second_bucket(self):
        self.driver.lose.add("CreateBucket")
        request = self.bucket_request(self.bucket_class())
        self.assertTrue(parts.wait_until(
            lambda: self.driver.count("CreateBucket", request["metadata"]["uid"]) >= 2))
        self.driver.lose.clear()
        self.available(request)
        self.assertEqual(sum(request["metadata"]["uid"] in one for one in self.driver.buckets), 1)

    def test_a_bucket_that_vanishes_is_not_made_again(self):
        request = self.bucket()
        bucket = self.bucket_of(request)
        self.delete(bucket)
        self.gone(bucket)
        self.wait_event(request, "BucketLost")
        self.assertFalse(self.now(request)["status"]["bucketAvailable"])
        time.sleep(1)
        self.assertIsNone(self.now(bucket))
        self.delete(request)
        self.gone(request)


class AccessTest(Running):
    def test_cosi_c13_c14_c15_c35_access_is_granted(self):
        request = self.bucket()
        wanted = self.access(request)
        access = self.access_of(wanted)
        bucket = self.bucket_of(request)
        name = access["metadata"]["name"]
        self.assertEqual(name, "ba-" + wanted["metadata"]["uid"])
        self.assertEqual(access["spec"]["bucketAccessRequest"], reference(wanted))
        self.assertEqual(access["spec"]["bucketName"], bucket["metadata"]["name"])
        # S9: the policy of a ConfigMap with one key is that key's value.
        self.assertEqual(access["spec"]["policyActionsConfigMapData"],
                         '{"Effect":"Allow","Action":["s3:*"]}')
        self.assertEqual(self.finalizers(wanted), [P + "bucketaccessrequest-protection"])
        self.assertEqual(self.finalizers(access), [P + "bar-protect"])
        # S19
        self.assertEqual(sorted(self.finalizers(bucket)), [P + "ba-" + name, P + "br-protect"])
        self.assertEqual(access["status"]["accountID"], "account-" + name)
        secret = self.secret_of(access)
        self.assertEqual(access["status"]["credentials"]["namespace"], "cosi-driver")
        self.assertEqual(secret["COSI_S3_ENDPOINT"], "http://s3.example.com:9000")
        self.assertEqual(secret["COSI_S3_ACCESS_KEY_ID"], "key-account-" + name)
        self.assertTrue(secret["COSI_S3_ACCESS_SECRET_KEY"].startswith("very-secret-"))
        info = json.loads(secret["BucketInfo"])
        self.assertEqual(info["spec"]["bucketName"], bucket["status"]["bucketID"])
        self.assertEqual(info["spec"]["secretS3"]["accessSecretKey"], secret["COSI_S3_ACCESS_SECRET_KEY"])
        # Credentials are in no log.
        self.assertNotIn("very-secret", self.sidecar.log() + self.controller.log())

    def test_what_is_settled_is_read_from_the_watches(self):
        """The controller does not ask for an object that a change leaves as it should be."""
        request = self.bucket()
        wanted = self.access(request)

        def reads():
            text = self.plane.kubectl("get", "--raw", "/metrics").stdout
            return sum(int(count) for count in re.findall(
                r'^apiserver_request_total{.*resource="bucket(?:access|accessrequest|request)?e?s".*'
                r'verb="(?:GET|LIST)".*} (\d+)', text, re.MULTILINE))

        time.sleep(1)
        before = reads()
        self.assertGreater(before, 0)
        for turn in range(10):
            for one in (request, wanted):
                self.change(one, {"metadata": {"annotations": {"example.com/turn": str(turn)}}})
            time.sleep(0.1)
        # Some are for objects of other tests; two for each change were forty and more.
        self.assertLess(reads() - before, 20)

    def test_cosi_s8_s9_several_keys_make_one_policy(self):
        self.world.ask("POST", self.world.path("ConfigMap", "policies"),
                       {"metadata": {"name": "two"}, "data": {"a": "1", "b": "2"}})
        wanted = self.granted(self.access_request(
            self.access_class("two"), bucketRequestName=self.bucket()["metadata"]["name"]))
        call = [request for method, request in self.driver.calls if method == "GrantBucketAccess"][-1]
        self.assertEqual(json.loads(call.access_policy), {"a": "1", "b": "2"})
        self.assertEqual(call.account_name, "ba-" + wanted["metadata"]["uid"])

    def test_cosi_c14_c15_a_service_account_gets_no_keys(self):
        wanted = self.access(self.bucket(), serviceAccountName="app")
        access = self.access_of(wanted)
        self.assertEqual(access["spec"]["serviceAccount"], {"name": "app", "namespace": "prod"})
        secret = self.secret_of(access)
        self.assertIn("COSI_S3_ENDPOINT", secret)
        self.assertFalse([key for key in secret if "ACCESS" in key])

    def test_cosi_c14_s18_an_account_of_the_administrator(self):
        request = self.bucket()
        name = self.name()
        access = self.make("BucketAccess", {
            "bucketName": request["status"]["bucketName"], "accountID": "chosen",
            "policyActionsConfigMapData": "{}",
            "bucketAccessRequest": {"name": name, "namespace": "prod"}})
        time.sleep(1)
        wanted = self.make("BucketAccessRequest", {
            "bucketAccessClassName": self.access_class(),
            "bucketRequestName": request["metadata"]["name"]}, "prod", name)
        wanted = self.granted(wanted)
        self.assertEqual(wanted["status"]["bucketAccessName"], access["metadata"]["name"])
        self.assertEqual(self.now(access)["status"]["accountID"], "account-chosen")

    def test_cosi_c16_another_policy_for_a_known_account(self):
        request = self.bucket()
        bucket = self.bucket_of(request)
        self.driver.accounts[(bucket["status"]["bucketID"], "account-taken")] = ("another", "x")
        name = self.name()
        access = self.make("BucketAccess", {
            "bucketName": bucket["metadata"]["name"], "accountID": "taken",
            "policyActionsConfigMapData": "{}",
            "bucketAccessRequest": {"name": name, "namespace": "prod"}})
        time.sleep(1)
        wanted = self.make("BucketAccessRequest", {
            "bucketAccessClassName": self.access_class(),
            "bucketRequestName": request["metadata"]["name"]}, "prod", name)
        self.wait_event(access, "GrantFailed", "the account has another policy")
        self.wait_event(wanted, "GrantFailed", f"an Event of BucketAccess/{access['metadata']['name']}")
        self.assertNotIn("policy", str(self.events(wanted)))
        self.assertFalse(self.now(wanted)["status"]["accessGranted"])
        # It is not asked for all the time.
        before = self.driver.count("GrantBucketAccess", "taken")
        time.sleep(3)
        self.assertLessEqual(self.driver.count("GrantBucketAccess", "taken"), before + 1)

    def test_cosi_c35_a_lost_answer_gives_the_same_key_again(self):
        self.driver.lose.add("GrantBucketAccess")
        request = self.bucket()
        wanted = self.access_request(self.access_class(), bucketRequestName=request["metadata"]["name"])
        self.assertTrue(parts.wait_until(
            lambda: self.driver.count("GrantBucketAccess", wanted["metadata"]["uid"]) >= 2))
        self.driver.lose.clear()
        access = self.access_of(self.granted(wanted))
        key = (self.bucket_of(request)["status"]["bucketID"], access["status"]["accountID"])
        self.assertEqual(self.secret_of(access)["COSI_S3_ACCESS_SECRET_KEY"], self.driver.accounts[key][1])

    def test_a_secret_that_was_deleted_comes_again(self):
        access = self.access_of(self.access(self.bucket()))
        before = self.secret_of(access)
        where = access["status"]["credentials"]
        self.world.ask("DELETE", self.world.path("Secret", where["namespace"], where["name"]))
        self.assertTrue(parts.wait_until(lambda: self.secret_of(access) == before, 30))

    def test_a_secret_of_somebody_else_is_not_touched(self):
        self.driver.fail["GrantBucketAccess"] = (fake_driver.CODES.UNAVAILABLE, "later")
        request = self.bucket()
        wanted = self.access_request(self.access_class(), bucketRequestName=request["metadata"]["name"])
        name = "ba-" + wanted["metadata"]["uid"]
        self.wait_event(self.wait(wanted, lambda one: one.get("status", {}).get("bucketAccessName")) and
                        self.access_of(wanted), "GrantFailed")
        path = self.world.path("Secret", "cosi-driver", name)
        # Without the driver's name: a Secret of the driver's whose access is gone would be removed.
        self.world.ask("PATCH", path, {"metadata": {"labels": {P + "bucket-access-uid": "foreign",
                                                               P + "provisioner": None}},
                                       "stringData": {"mine": "1"}}, kind="application/merge-patch+json")
        del self.driver.fail["GrantBucketAccess"]
        # At the next try: in this one the sidecar has seen its own Secret already.
        self.assertTrue(parts.wait_until(
            lambda: self.events(self.access_of(wanted), "SecretTaken") or
            "is not of this access" in self.sidecar.log()), self.logs())
        self.assertEqual(set(self.find("Secret", name, "cosi-driver")["data"]), {"mine"})

    def test_cosi_c11_s13_a_tenant_names_anothers_bucket(self):
        bucket = self.bucket_of(self.bucket())
        thief = self.access_request(self.access_class(), "other", bucketName=bucket["metadata"]["name"])
        nothing = self.access_request(self.access_class(), "other", bucketName="never-made")
        for one in (thief, nothing):
            self.wait_event(one, "BucketNotAllowed", "does not exist, or does not allow namespace other")
            self.assertNotIn("bucketAccessName", self.now(one).get("status", {}))
        # Nor by a request of the name of the owner's.
        borrowed = self.access_request(self.access_class(), "other",
                                       bucketRequestName=bucket["spec"]["bucketRequest"]["name"])
        self.wait_event(borrowed, "NoBucketRequest")
        # The owner's namespace may, and others once they are named.
        self.granted(self.access_request(self.access_class(), bucketName=bucket["metadata"]["name"]))
        self.change(bucket, {"spec": {"allowedNamespaces": [{"name": "other"}]}})
        self.granted(thief)

    def test_cosi_c12_s7_no_access_to_what_goes_or_is_retained(self):
        request = self.bucket("Retain")
        bucket = self.bucket_of(request)
        self.delete(request)
        self.gone(request)
        late = self.access_request(self.access_class(), bucketName=bucket["metadata"]["name"])
        self.change(bucket, {"spec": {"allowedNamespaces": [{"name": "prod"}]}})
        self.wait_event(late, "BucketNotAvailable", "is not available")


class DeleteTest(Running):
    def test_cosi_c17_c18_s7_retain(self):
        request = self.bucket("Retain")
        wanted = self.access(request)
        bucket, access = self.bucket_of(request), self.access_of(wanted)
        self.delete(request)
        self.gone(request)
        now = self.now(bucket)
        self.assertFalse(now["status"]["bucketAvailable"])
        self.assertNotIn("bucketRequest", now["spec"])
        self.assertNotIn("finalizers", now["metadata"])
        self.assertTrue(self.now(access)["status"]["accessGranted"])
        self.assertIn(bucket["status"]["bucketID"], self.driver.buckets)
        # The administrator removes the object; the access can still be revoked.
        self.delete(bucket)
        self.gone(bucket)
        self.assertIn(bucket["status"]["bucketID"], self.driver.buckets)
        self.delete(wanted)
        self.gone(wanted)
        self.gone(access)
        self.assertNotIn((bucket["status"]["bucketID"], access["status"]["accountID"]), self.driver.accounts)

    def test_cosi_c19_c21_s5_delete_waits_for_the_last_access(self):
        request = self.bucket("Delete")
        first, second = self.access(request), self.access(request)
        bucket = self.bucket_of(request)
        self.delete(request)
        # Both are named: by the first event, or once the controller has seen both.
        self.wait_event(request, "BucketInUse", first["metadata"]["name"])
        self.wait_event(request, "BucketInUse", second["metadata"]["name"])
        self.delete(first)
        self.gone(first)
        time.sleep(1)
        self.assertEqual(self.driver.count("DeleteBucket", bucket["metadata"]["name"]), 0)
        self.assertIsNotNone(self.now(request))
        # C12: there is no new access.
        late = self.access_request(self.access_class(), bucketRequestName=request["metadata"]["name"])
        self.wait_event(late, "BucketGoes")
        self.delete(second)
        self.gone(request)
        self.gone(bucket)
        self.assertNotIn(bucket["status"]["bucketID"], self.driver.buckets)

    def test_cosi_c20_s6_force_delete_revokes_and_strips(self):
        request = self.bucket("ForceDelete")
        wanted = self.access(request)
        bucket, access = self.bucket_of(request), self.access_of(wanted)
        # A Pod that runs does not hold it.
        self.change(access, {"metadata": {"finalizers": self.finalizers(access) + [P + "pod-1"]}})
        self.delete(request)
        for one in (request, bucket, access):
            self.gone(one)
        self.assertFalse(self.now(wanted)["status"]["accessGranted"])
        self.wait_event(wanted, "AccessLost")
        calls = [method for method, one in self.driver.calls
                 if bucket["metadata"]["name"] in str(one) and method in ("RevokeBucketAccess", "DeleteBucket")]
        # It may be revoked twice: by what the access says, and by what its Secret says.
        self.assertEqual(calls[-1], "DeleteBucket")
        self.assertEqual(set(calls[:-1]), {"RevokeBucketAccess"})
        self.assertIsNone(self.secret_of(access))
        self.delete(wanted)
        self.gone(wanted)

    def test_cosi_c20_s6_a_driver_that_does_not_revoke_is_not_waited_for(self):
        request = self.bucket("ForceDelete")
        wanted = self.access(request)
        bucket, access = self.bucket_of(request), self.access_of(wanted)
        self.driver.fail["RevokeBucketAccess"] = (fake_driver.CODES.INTERNAL, "out of order")
        self.delete(request)
        self.gone(access)
        self.gone(request)
        self.wait_event(bucket, "NotRevoked", "was removed all the same")
        # What is left in the backend is revoked as soon as that works, by what the Secret says.
        del self.driver.fail["RevokeBucketAccess"]
        self.assertTrue(parts.wait_until(lambda: self.secret_of(access) is None, 60), self.logs())
        self.assertNotIn((bucket["status"]["bucketID"], access["status"]["accountID"]), self.driver.accounts)

    def test_cosi_c23_c36_a_user_deletes_access(self):
        request = self.bucket()
        wanted = self.access(request)
        access = self.access_of(wanted)
        self.change(access, {"metadata": {"finalizers": self.finalizers(access) + [P + "pod-" + "9" * 8]}})
        self.driver.fail["RevokeBucketAccess"] = (fake_driver.CODES.UNAVAILABLE, "the backend sleeps")
        self.delete(wanted)
        self.wait_event(access, "RevokeFailed", "the backend sleeps")
        self.assertIsNotNone(self.now(wanted))
        del self.driver.fail["RevokeBucketAccess"]
        # Revoked under a running Pod; the request goes, the access with its last Pod (S21: swept, as
        # there is no such Pod).
        self.gone(wanted)
        self.assertEqual(self.driver.count("RevokeBucketAccess", access["metadata"]["name"]) > 1, True)
        self.gone(access)
        self.assertTrue(parts.wait_until(
            lambda: self.finalizers(self.bucket_of(request)) == [P + "br-protect"]))

    def test_cosi_c24_an_administrator_deletes_an_access(self):
        wanted = self.access(self.bucket())
        access = self.access_of(wanted)
        self.delete(access)
        self.gone(access)
        self.assertGreaterEqual(self.driver.count("RevokeBucketAccess", access["metadata"]["name"]), 1)
        self.wait_event(wanted, "AccessLost")
        self.wait(wanted, lambda one: not one["status"]["accessGranted"])
        time.sleep(1)
        self.assertIsNone(self.now(access))

    def test_cosi_c25_an_administrator_deletes_a_bucket(self):
        request = self.bucket("Delete")
        wanted = self.access(request)
        bucket = self.bucket_of(request)
        self.delete(bucket)
        time.sleep(1)
        self.assertIn(bucket["status"]["bucketID"], self.driver.buckets)
        self.change(bucket, {"spec": {"deletionPolicy": "ForceDelete"}})
        self.gone(bucket)
        self.assertNotIn(bucket["status"]["bucketID"], self.driver.buckets)
        # C26: what users made stays.
        self.assertIsNotNone(self.now(request))
        self.assertIsNotNone(self.now(wanted))

    def test_cosi_c22_c34_a_slow_deletion(self):
        request = self.bucket("Delete")
        bucket = self.bucket_of(request)
        self.driver.fail["DeleteBucket"] = (fake_driver.CODES.FAILED_PRECONDITION, "objects are being removed")
        self.delete(request)
        self.wait_event(bucket, "DeleteFailed", "objects are being removed")
        self.assertIsNotNone(self.now(request))
        self.driver.buckets.pop(bucket["status"]["bucketID"])
        self.driver.fail["DeleteBucket"] = (fake_driver.CODES.NOT_FOUND, "gone")
        self.gone(request)
        del self.driver.fail["DeleteBucket"]

    def test_access_that_was_never_granted_goes(self):
        self.driver.fail["GrantBucketAccess"] = (fake_driver.CODES.INVALID_ARGUMENT, "no")
        wanted = self.access_request(self.access_class(),
                                     bucketRequestName=self.bucket()["metadata"]["name"])
        access = self.wait(wanted, lambda one: one.get("status", {}).get("bucketAccessName"))
        access = self.access_of(access)
        self.wait_event(access, "GrantFailed")
        self.delete(wanted)
        self.gone(wanted)
        self.gone(access)
        del self.driver.fail["GrantBucketAccess"]

    def test_cosi_c39_metrics(self):
        for operation in ("create", "delete", "grant", "revoke"):
            self.assertIsNotNone(self.sidecar.metric(f'cbt_cosi_calls_total{{operation="{operation}"}}'))
            self.assertIsNotNone(self.sidecar.metric(f'cbt_cosi_failed_calls_total{{operation="{operation}"}}'))
        self.assertIsNotNone(self.controller.metric('cbt_cosi_bound_total{kind="BucketRequest"}'))


class StaticTest(Running):
    def test_cosi_c9_c31_s14_without_a_driver(self):
        klass = self.bucket_class(provisioner=None)
        request = self.bucket_request(klass)
        self.wait_event(request, "NeedsAdministrator", "an administrator makes a Bucket")
        name = request["metadata"]["name"]
        bucket = self.make("Bucket", {"deletionPolicy": "Delete", "protocol": {"s3": {}}, "bucketID": "old-bucket",
                                      "bucketRequest": {"name": name, "namespace": "prod"}})
        self.available(request)
        wanted = self.access_request(self.access_class(), bucketRequestName=name)
        self.wait_event(wanted, "NeedsAdministrator", "an administrator makes a BucketAccess")
        self.world.ask("POST", self.world.path("Secret", "policies"),
                       {"metadata": {"name": "by-hand-" + name}, "stringData": {"key": "k"}})
        access = self.make("BucketAccess", {
            "bucketName": bucket["metadata"]["name"],
            "credentials": {"name": "by-hand-" + name, "namespace": "policies"},
            "bucketAccessRequest": {"name": wanted["metadata"]["name"], "namespace": "prod"}})
        wanted = self.granted(wanted)
        self.assertEqual(self.access_of(wanted)["status"]["credentials"]["name"], "by-hand-" + name)
        # Nothing of the administrator's is deleted (C17, C26).
        self.delete(wanted)
        self.gone(wanted)
        self.gone(access)
        self.delete(request)
        self.gone(request)
        self.assertIsNotNone(self.now(bucket))
        self.assertIsNotNone(self.find("Secret", "by-hand-" + name, "policies"))
        self.delete(bucket)
        self.gone(bucket)
        self.assertEqual(self.driver.count("CreateBucket", "old-bucket"), 0)

    def test_cosi_c13_what_was_bound_before_the_controller_was_killed_ends(self):
        klass, rw = self.bucket_class(provisioner=None), self.access_class()
        spec = {"deletionPolicy": "Delete", "protocol": {"s3": {}}, "bucketID": "killed-bucket"}
        one, other = self.bucket_request(klass), self.bucket_request(klass)
        self.make("Bucket", {**spec, "bucketRequest": {"name": other["metadata"]["name"], "namespace": "prod"}})
        wanted = self.access_request(rw, bucketRequestName=self.available(other)["metadata"]["name"])
        self.wait_event(one, "NeedsAdministrator")
        self.wait_event(wanted, "NeedsAdministrator")
        self.controller.kill()
        # Bound by one side: the requests do not name them.
        bucket = self.make("Bucket", {**spec, "bucketRequest": reference(one)})
        access = self.make("BucketAccess", {"bucketName": self.bucket_of(other)["metadata"]["name"],
                                            "bucketAccessRequest": reference(wanted)})
        self.delete(one)
        self.delete(wanted)
        self.controller.start()
        self.gone(one, 120)
        self.assertNotIn("bucketRequest", self.now(bucket)["spec"])
        self.gone(wanted, 120)
        self.gone(access, 120)

    def test_cosi_c31_an_access_for_another_bucket(self):
        request = self.bucket()
        name = self.name()
        self.make("BucketAccess", {"bucketName": "another",
                                   "bucketAccessRequest": {"name": name, "namespace": "prod"}})
        time.sleep(1)
        wanted = self.make("BucketAccessRequest", {
            "bucketAccessClassName": self.access_class(), "bucketRequestName": request["metadata"]["name"]},
            "prod", name)
        self.wait_event(wanted, "OtherBucket", "for Bucket another")

    def test_cosi_c1_c11_a_bucket_that_was_there_before(self):
        bucket = self.make("Bucket", {"deletionPolicy": "Delete", "protocol": {"s3": {}}, "bucketID": "id-brown",
                                      "provisioner": DRIVER, "allowedNamespaces": [{"name": "prod"}]})
        self.driver.buckets["id-brown"] = ("brown", b"", {})
        self.wait(bucket, lambda one: one.get("status", {}).get("bucketAvailable"))
        wanted = self.granted(self.access_request(self.access_class(), bucketName=bucket["metadata"]["name"]))
        self.delete(bucket)
        time.sleep(1)
        self.assertIsNotNone(self.now(bucket))
        self.delete(wanted)
        self.gone(bucket)
        # C17: what COSI has not made, it does not delete.
        self.assertIn("id-brown", self.driver.buckets)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
