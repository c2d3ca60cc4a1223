"""The custom resources of COSI on a real kube-apiserver: what can be written, and what can't be changed.

Usage: definitions_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import sys
import unittest

# pylint: disable=wrong-import-position
from world import API, Base, stop  # noqa: E402
import runner  # noqa: E402

S3 = {"s3": {"region": "eu", "signatureVersion": "S3V4"}}


def tearDownModule():
    stop()


class DefinitionsTest(Base):
    def refused(self, text, kind, body, namespace=None):
        one = {"apiVersion": API, "kind": kind, "metadata": {"name": self.name()}, **body}
        if namespace:
            one["metadata"]["namespace"] = namespace
        result = self.plane.kubectl("create", "-f", "-", text=json.dumps(one), check=False)
        self.assertNotEqual(result.returncode, 0, body)
        self.assertIn(text, result.stderr)

    def unchangeable(self, one, patch, text):
        result = self.patch(one, patch, check=False)
        self.assertNotEqual(result.returncode, 0, patch)
        self.assertIn(text, result.stderr)

    def bucket(self, **spec):
        return self.make("Bucket", {"deletionPolicy": "Delete", "protocol": S3, **spec})

    def test_six_kinds_and_their_columns(self):
        for plural, scope, has_status, columns in (
                ("bucketrequests", "Namespaced", True, "CLASS BUCKET AVAILABLE"),
                ("buckets", "Cluster", True, "PROVISIONER POLICY NAMESPACE REQUEST AVAILABLE"),
                ("bucketclasses", "Cluster", False, "PROVISIONER POLICY DEFAULT"),
                ("bucketaccessrequests", "Namespaced", True, "CLASS ACCESS GRANTED"),
                ("bucketaccesses", "Cluster", True, "BUCKET NAMESPACE REQUEST GRANTED"),
                ("bucketaccessclasses", "Cluster", False, "POLICY")):
            spec = self.plane.get("crd", f"{plural}.objectstorage.k8s.io")["spec"]
            self.assertEqual(spec["scope"], scope)
            self.assertEqual([(v["name"], v["served"], v["storage"]) for v in spec["versions"]],
                             [("v1alpha1", True, True)])
            self.assertEqual("subresources" in spec["versions"][0], has_status)
            names = [one["name"] for one in spec["versions"][0]["additionalPrinterColumns"]]
            self.assertEqual(" ".join(names).upper(), columns + " AGE")

    def test_a_bucket_request_never_changes(self):
        one = self.bucket_request("gold", bucketPrefix="logs")
        self.unchangeable(one, {"spec": {"bucketClassName": "silver"}}, "can't be changed")
        self.unchangeable(one, {"spec": {"bucketPrefix": None}}, "can't be changed")
        self.refused("bucketPrefix", "BucketRequest", {"spec": {"bucketPrefix": "No_Name"}}, "prod")
        self.refused("bucketPrefix", "BucketRequest", {"spec": {"bucketPrefix": "a" * 27}}, "prod")
        # Once bound it stays bound.
        self.patch(one, {"status": {"bucketName": "b"}}, "--subresource=status")
        result = self.patch(one, {"status": {"bucketName": "c"}}, "--subresource=status", check=False)
        self.assertIn("stays bound", result.stderr)

    def test_a_bucket_changes_two_fields(self):
        one = self.bucket(provisioner="a.example.com", bucketClassName="gold", parameters={"a": "b"},
                          bucketRequest={"name": "r", "namespace": "prod", "uid": "u"})
        for field, value in (("provisioner", "b.example.com"), ("provisioner", None),
                             ("bucketClassName", "silver"), ("bucketID", "x"), ("parameters", {"a": "c"}),
                             ("parameters", None), ("protocol", {"s3": {"region": "us"}}),
                             ("bucketRequest", {"uid": "v"}), ("bucketRequest", {"name": "s"})):
            self.unchangeable(one, {"spec": {field: value}}, "can't be changed")
        self.patch(one, {"spec": {"deletionPolicy": "ForceDelete", "allowedNamespaces": [{"name": "other"}]}})
        # A bucket that is retained loses its request, and gets no other.
        self.patch(one, {"spec": {"bucketRequest": None}})
        self.unchangeable(one, {"spec": {"bucketRequest": {"name": "r", "namespace": "prod"}}},
                          "can't be changed")
        # One of an administrator learns the uid of its request, once.
        free = self.bucket(bucketRequest={"name": "r", "namespace": "prod"})
        self.patch(free, {"spec": {"bucketRequest": {"uid": "u"}}})
        self.unchangeable(free, {"spec": {"bucketRequest": {"uid": "v"}}}, "can't be changed")
        self.patch(free, {"status": {"bucketID": "id"}}, "--subresource=status")
        result = self.patch(free, {"status": {"bucketID": "di"}}, "--subresource=status", check=False)
        self.assertIn("does not change", result.stderr)

    def test_what_a_bucket_needs(self):
        self.refused("deletionPolicy", "Bucket", {"spec": {"protocol": S3}})
        self.refused("deletionPolicy", "Bucket", {"spec": {"deletionPolicy": "Forget", "protocol": S3}})
        self.refused("protocol", "Bucket", {"spec": {"deletionPolicy": "Delete"}})
        for protocol in ({}, {"s3": {}, "gs": {}}):
            self.refused("exactly one protocol", "Bucket",
                         {"spec": {"deletionPolicy": "Delete", "protocol": protocol}})
        for name in ("-a", "a.", "a/b", "a" * 64):
            self.refused("provisioner", "Bucket", {"spec": {"deletionPolicy": "Delete", "protocol": S3,
                                                            "provisioner": name}})

    def test_cosi_c10_a_class_has_one_protocol_and_never_changes(self):
        self.refused("exactly one protocol", "BucketClass", {"deletionPolicy": "Delete", "protocol": {}})
        self.refused("exactly one protocol", "BucketClass",
                     {"deletionPolicy": "Delete", "protocol": {"s3": {}, "azureBlob": {}}})
        self.refused("deletionPolicy", "BucketClass", {"protocol": S3})
        one = self.make("BucketClass", {"deletionPolicy": "Delete", "protocol": S3, "parameters": {"a": "b"},
                                        "provisioner": "a.example.com"})
        for patch in ({"deletionPolicy": "Retain"}, {"provisioner": None}, {"parameters": {"a": "c"}},
                      {"protocol": {"s3": {"region": "us"}}}, {"allowedNamespaces": [{"name": "prod"}]}):
            self.unchangeable(one, patch, "can't be changed")
        self.patch(one, {"metadata": {"annotations": {"objectstorage.k8s.io/is-default-class": ""}}})

    def test_cosi_c11_an_access_request_names_one_bucket(self):
        base = {"bucketAccessClassName": "rw"}
        for spec in (base, {**base, "bucketRequestName": "a", "bucketName": "b"}):
            self.refused("either", "BucketAccessRequest", {"spec": spec}, "prod")
        self.refused("bucketAccessClassName", "BucketAccessRequest", {"spec": {"bucketName": "b"}}, "prod")
        one = self.access_request("rw", bucketName="b")
        self.unchangeable(one, {"spec": {"bucketName": "c"}}, "can't be changed")
        self.unchangeable(one, {"spec": {"serviceAccountName": "c"}}, "can't be changed")

    def test_an_access_never_changes(self):
        one = self.make("BucketAccess", {"bucketName": "b", "parameters": {"a": "b"},
                                         "bucketAccessRequest": {"name": "r", "namespace": "prod"}})
        for patch in ({"bucketName": "c"}, {"accountID": "x"}, {"policyActionsConfigMapData": "{}"},
                      {"parameters": None}, {"serviceAccount": {"name": "a", "namespace": "b"}},
                      {"bucketAccessRequest": {"name": "s"}}):
            self.unchangeable(one, {"spec": patch}, "can't be changed")
        self.patch(one, {"spec": {"bucketAccessRequest": {"uid": "u"}}})
        self.unchangeable(one, {"spec": {"bucketAccessRequest": {"uid": "v"}}}, "can't be changed")

    def test_an_access_class_reserves_two_parameters(self):
        config = {"policyActionsConfigMap": {"name": "a", "namespace": "b"}}
        self.refused("policyActionsConfigMap", "BucketAccessClass", {})
        for key in ("configMap", "secrets"):
            self.refused("reserved", "BucketAccessClass",
                         {**config, "parameters": {f"objectstorage.k8s.io/{key}": "x"}})
        one = self.make("BucketAccessClass", {**config, "parameters": {"a": "b"}})
        self.unchangeable(one, {"policyActionsConfigMap": {"name": "c"}}, "can't be changed")
        self.unchangeable(one, {"parameters": {"a": "c"}}, "can't be changed")

    def test_cosi_s16_a_status_has_no_other_fields(self):
        for plural, fields in (("bucketrequests", {"bucketName", "bucketAvailable"}),
                               ("buckets", {"bucketID", "bucketAvailable"}),
                               ("bucketaccessrequests", {"bucketAccessName", "accessGranted"}),
                               ("bucketaccesses", {"accessGranted", "accountID", "credentials"})):
            spec = self.plane.get("crd", f"{plural}.objectstorage.k8s.io")["spec"]
            schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            self.assertEqual(set(schema["status"]["properties"]), fields)
        # Nor does a request come with a status.
        one = self.make("BucketRequest", {}, "prod")
        self.assertNotIn("status", self.now(one))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
