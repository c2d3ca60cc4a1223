"""`cbt-cluster cosi-driver` in tests, and sidecars of the three revisions, played with grpcio and protoc's
messages."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "support"))
import runner  # noqa: E402  pylint: disable=wrong-import-position

CLUSTER, CTL, MESSAGES = (sys.argv + [""] * 4)[1:4]
sys.path.append(MESSAGES)

import grpc  # noqa: E402
import cosi_v1alpha1_pb2 as v1  # noqa: E402
import cosi_v1alpha2_pb2 as v2  # noqa: E402
from rgw_double import ADMIN, Gateway  # noqa: E402
from s3 import S3  # noqa: E402

NAME = "cbt.cosi.example.com"
READ, WRITE, BOTH = ("READ_ONLY", "WRITE_ONLY", "READ_WRITE")
POLICIES = {READ: ["s3:GetObject", "s3:ListBucket"], WRITE: ["s3:PutObject", "s3:DeleteObject"],
            BOTH: ["s3:GetObject", "s3:ListBucket", "s3:PutObject", "s3:DeleteObject"]}


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4()}"


class Driver:
    """A running driver."""

    def __init__(self, folder, *options, environment=None):
        self.socket = os.path.join(folder, "cosi.sock")
        self.log = os.path.join(folder, "driver.log")
        ready, ready_in_child = os.pipe()
        self.process = subprocess.Popen(
            [CLUSTER, "cosi-driver", "--endpoint", "unix://" + self.socket, "--log-level", "debug", "--log-file",
             self.log, "--ready-fd", str(ready_in_child), *options],
            pass_fds=[ready_in_child], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=dict(os.environ, **(environment or {})))
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            if not pipe.readline():
                raise RuntimeError(self.process.communicate()[1].decode())
        self.channel = grpc.insecure_channel("unix:" + self.socket, options=[("grpc.use_local_subchannel_pool", 1)])

    def call(self, path, request, answer, timeout=60):
        return self.channel.unary_unary(path, request_serializer=lambda message: message.SerializeToString(),
                                        response_deserializer=answer.FromString)(request, timeout=timeout)

    def stop(self, how=signal.SIGTERM):
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.stderr = self.process.communicate(timeout=60)[1].decode()
        return self.process.returncode


class Grant:
    """What a sidecar learns from a grant, whatever the revision."""

    def __init__(self, account, bucket, endpoint, region, access, secret):
        self.account, self.bucket, self.endpoint, self.region = account, bucket, endpoint, region
        self.access, self.secret = access, secret

    def s3(self):
        return S3(self.endpoint, self.access, self.secret)


class Proposal:
    """The sidecar of the proposal's first revision."""

    name = "proposal"

    def __init__(self, driver):
        self.driver = driver

    def method(self, name, request):
        answer = getattr(v1, f"Provisioner{name}Response")
        return self.driver.call(f"/cosi.v1alpha1.Provisioner/Provisioner{name}", request, answer)

    def info(self):
        return self.method("GetInfo", v1.ProvisionerGetInfoRequest()).name

    def create(self, name, **parameters):
        return self.method("CreateBucket", v1.ProvisionerCreateBucketRequest(
            name=name, protocol=v1.Protocol(s3=v1.S3()), parameters=parameters)).bucket_id

    def delete(self, bucket):
        self.method("DeleteBucket", v1.ProvisionerDeleteBucketRequest(bucket_id=bucket))

    def grant(self, who, bucket, mode=BOTH, **parameters):
        policy = json.dumps({"Effect": "Allow", "Action": POLICIES[mode]})
        return self.grant_by(who, bucket, policy, **parameters)

    def grant_by(self, who, bucket, policy, **parameters):
        answer = self.method("GrantBucketAccess", v1.ProvisionerGrantBucketAccessRequest(
            bucket_id=bucket, account_name=who, access_policy=policy, parameters=parameters))
        keys = json.loads(answer.credentials)
        return Grant(answer.account_id, bucket, keys["endpoint"], keys["region"], keys["accessKeyID"],
                     keys["accessSecretKey"])

    def revoke(self, account, bucket):
        self.method("RevokeBucketAccess",
                    v1.ProvisionerRevokeBucketAccessRequest(bucket_id=bucket, account_id=account))


class V02:
    """The sidecar of v0.2."""

    name = "v0.2"

    def __init__(self, driver):
        self.driver = driver

    def method(self, name, request, service="Provisioner"):
        return self.driver.call(f"/cosi.v1alpha1.{service}/Driver{name}", request,
                                getattr(v1, f"Driver{name}Response"))

    def info(self):
        return self.method("GetInfo", v1.DriverGetInfoRequest(), "Identity").name

    def create(self, name, **parameters):
        answer = self.method("CreateBucket", v1.DriverCreateBucketRequest(name=name, parameters=parameters))
        assert answer.bucket_info.s3.region == "us-east-1", answer
        assert answer.bucket_info.s3.signature_version == v1.S3V4, answer
        return answer.bucket_id

    def delete(self, bucket):
        self.method("DeleteBucket", v1.DriverDeleteBucketRequest(bucket_id=bucket, delete_context={"a": "b"}))

    def grant(self, who, bucket, mode=BOTH, **parameters):
        names = {READ: "ReadOnly", WRITE: "WriteOnly", BOTH: "ReadWrite"}
        answer = self.method("GrantBucketAccess", v1.DriverGrantBucketAccessRequest(
            bucket_id=bucket, name=who, authentication_type=v1.Key,
            parameters={"mode": names[mode], **parameters}))
        assert list(answer.credentials) == ["s3"], "one protocol, as the sidecar demands"
        keys = answer.credentials["s3"].secrets
        return Grant(answer.account_id, bucket, keys["endpoint"], keys["region"], keys["accessKeyID"],
                     keys["accessSecretKey"])

    def revoke(self, account, bucket):
        self.method("RevokeBucketAccess", v1.DriverRevokeBucketAccessRequest(bucket_id=bucket, account_id=account))


class V1alpha2:
    """The sidecar of v1alpha2."""

    name = "v1alpha2"

    def __init__(self, driver):
        self.driver = driver

    def method(self, name, request, service="Provisioner"):
        return self.driver.call(f"/sigs.k8s.io.cosi.v1alpha2.{service}/Driver{name}", request,
                                getattr(v2, f"Driver{name}Response"))

    def info(self):
        answer = self.method("GetInfo", v2.DriverGetInfoRequest(), "Identity")
        assert [each.type for each in answer.supported_protocols] == [v2.ObjectProtocol.S3], answer
        return answer.name

    @staticmethod
    def check(info, bucket):
        assert info.WhichOneof is not None and info.HasField("s3"), info
        assert info.s3.bucket_id == bucket and info.s3.endpoint and info.s3.region == "us-east-1", info
        assert info.s3.addressing_style.style == v2.S3AddressingStyle.PATH, info
        assert not info.HasField("azure") and not info.HasField("gcs"), info

    def create(self, name, **parameters):
        answer = self.method("CreateBucket", v2.DriverCreateBucketRequest(
            name=name, protocols=[v2.ObjectProtocol(type=v2.ObjectProtocol.S3)], parameters=parameters))
        self.check(answer.protocols, answer.bucket_id)
        return answer.bucket_id

    def find(self, bucket):
        answer = self.method("GetExistingBucket", v2.DriverGetExistingBucketRequest(existing_bucket_id=bucket))
        self.check(answer.protocols, bucket)
        return answer.bucket_id

    def delete(self, bucket):
        self.method("DeleteBucket", v2.DriverDeleteBucketRequest(bucket_id=bucket))

    def grant(self, who, bucket, mode=BOTH, **parameters):
        return self.grant_all(who, {bucket: mode}, **parameters)[0]

    def grant_all(self, who, buckets, **parameters):
        request = v2.DriverGrantBucketAccessRequest(
            account_name=who, protocol=v2.ObjectProtocol(type=v2.ObjectProtocol.S3),
            authentication_type=v2.AuthenticationType(type=v2.AuthenticationType.KEY), parameters=parameters)
        for bucket, mode in buckets.items():
            request.buckets.add(bucket_id=bucket, access_mode=v2.AccessMode(mode=v2.AccessMode.Mode.Value(mode)))
        answer = self.method("GrantBucketAccess", request)
        assert [each.bucket_id for each in answer.buckets] == list(buckets), answer.buckets
        for each in answer.buckets:
            self.check(each.bucket_info, each.bucket_id)
        keys = answer.credentials.s3
        return [Grant(answer.account_id, each.bucket_id, each.bucket_info.s3.endpoint, each.bucket_info.s3.region,
                      keys.access_key_id, keys.access_secret_key) for each in answer.buckets]

    def revoke(self, account, *buckets):
        request = v2.DriverRevokeBucketAccessRequest(account_id=account)
        for bucket in buckets:
            request.buckets.add(bucket_id=bucket)
        self.method("RevokeBucketAccess", request)


SIDECARS = (Proposal, V02, V1alpha2)


class Case(unittest.TestCase):
    """A driver on a gateway: a double, or the one that CBT_TEST_S3 names."""

    options = ()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cosi")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.gateway = None
        real = os.environ.get("CBT_TEST_S3", "").split()
        if real:
            self.endpoint, self.admin = real[0], (real[2], real[3])
        else:
            self.gateway = Gateway()
            self.addCleanup(self.gateway.close)
            self.endpoint, self.admin = self.gateway.endpoint, ADMIN
        self.driver = None
        self.start()
        self.addCleanup(lambda: self.driver.stop())

    def start(self):
        self.driver = Driver(self.folder, "--rgw", self.endpoint, *self.options,
                             environment={"AWS_ACCESS_KEY_ID": self.admin[0], "AWS_SECRET_ACCESS_KEY": self.admin[1]})

    def owner(self):
        return S3(self.endpoint, *self.admin)

    def sidecars(self):
        for kind in SIDECARS:
            yield kind(self.driver)

    def refused(self, code, call, *arguments, **named):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.code(), getattr(grpc.StatusCode, code), caught.exception.details())
        return caught.exception.details()


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
