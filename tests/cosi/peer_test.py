"""Today's controller and sidecar of the COSI project (v1alpha2, in Go) drive `cbt-cluster cosi-driver`: a claim
becomes a bucket, access becomes a Secret, and restic reads and writes with it.

They are on no registry: CBT_PEER_COSI_CONTROLLER and CBT_PEER_COSI_SIDECAR name the programs, built by
hand from their repository (`go build ./controller/cmd`, `./sidecar/cmd`), and CBT_PEER_COSI_CRDS its
client/config/crd. The gateway is radosgw (tests/bucket/radosgw.sh): without it the exit status is 77.

Usage: peer_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

# pylint: disable=wrong-import-position
from world import CBT, CONTROL_PLANE  # noqa: E402
import cluster  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402
from s3 import S3  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
VARIABLES = ("CBT_PEER_COSI_CONTROLLER", "CBT_PEER_COSI_SIDECAR", "CBT_PEER_COSI_CRDS")
PEERS = [os.environ.get(name) for name in VARIABLES]
API = "objectstorage.k8s.io/v1alpha2"
DRIVER = "cbt.cosi.example.com"
KINDS = {"bucket": "buckets", "claim": "bucketclaims", "access": "bucketaccesses"}


def lacks():
    if not all(PEERS):
        return f"{', '.join(VARIABLES)} are not set"
    return "" if shutil.which("restic") else "no restic"


@unittest.skipIf(lacks(), lacks())
class PeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real kube-apiserver")
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-cosi-peer-"))
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.kubectl("apply", "--server-side", "-k", PEERS[2])
        cls.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        cls.plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}})
        cls.endpoint, _, *keys = os.environ["CBT_TEST_S3"].split()
        cls.owner = S3(cls.endpoint, *keys)
        socket = f"{cls.folder}/cosi.sock"
        cls.start("driver", parts.cluster(CBT), "cosi-driver", "--endpoint", "unix://" + socket, "--rgw", cls.endpoint,
                  AWS_ACCESS_KEY_ID=keys[0], AWS_SECRET_ACCESS_KEY=keys[1])
        assert parts.wait_until(lambda: os.path.exists(socket)), cls.log("driver")
        config = "--kubeconfig=" + cls.plane.facts["kubeconfig"]
        cls.start("controller", PEERS[0], config, "--health-probe-bind-address=0")
        cls.sidecar = ["sidecar", PEERS[1], config, "--health-probe-bind-address=0"]
        cls.environment = {"COSI_ENDPOINT": "unix://" + socket}
        cls.running = cls.start(*cls.sidecar, **cls.environment)
        for thing in (
                {"kind": "BucketClass", "metadata": {"name": "standard"},
                 "spec": {"driverName": DRIVER, "deletionPolicy": "Delete"}},
                {"kind": "BucketAccessClass", "metadata": {"name": "keys"},
                 "spec": {"driverName": DRIVER, "authenticationType": "Key"}}):
            cls.plane.create({"apiVersion": API, **thing})

    @classmethod
    def start(cls, name, *command, **environment):
        with open(f"{cls.folder}/{name}.log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env={**os.environ, **environment})
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        return process

    @classmethod
    def log(cls, name):
        return parts.read(f"{cls.folder}/{name}.log").decode(errors="replace")[-4000:]

    def find(self, kind, name):
        result = self.plane.kubectl("get", KINDS[kind], name, "-n", "prod", "--ignore-not-found", "-o", "json")
        return json.loads(result.stdout) if result.stdout else None

    def eventually(self, condition, what):
        self.assertTrue(parts.wait_until(condition, 60),
                        f"{what}\n" + "\n".join(self.log(name) for name in ("controller", "sidecar", "driver")))

    def ready(self, kind, name):
        self.eventually(lambda: (self.find(kind, name) or {}).get("status", {}).get("readyToUse"),
                        f"{kind} {name} is ready")
        return self.find(kind, name)

    def claim(self, name):
        """Its bucket's ID."""
        self.plane.create({"apiVersion": API, "kind": "BucketClaim", "metadata": {"name": name, "namespace": "prod"},
                           "spec": {"bucketClassName": "standard", "protocols": ["S3"]}})
        claim = self.ready("claim", name)
        self.assertEqual(claim["status"]["protocols"], ["S3"])
        return self.ready("bucket", claim["status"]["boundBucketName"])["status"]["bucketID"]

    def access(self, name, claim, mode="ReadWrite"):
        """The Secret's data."""
        self.plane.create({
            "apiVersion": API, "kind": "BucketAccess", "metadata": {"name": name, "namespace": "prod"},
            "spec": {"bucketAccessClassName": "keys", "protocol": "S3",
                     "bucketClaims": [{"bucketClaimName": claim, "accessMode": mode, "accessSecretName": name}]}})
        self.ready("access", name)
        secret = json.loads(self.plane.kubectl("get", "secret", name, "-n", "prod", "-o", "json").stdout)
        return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}

    def restic(self, secret, *command):
        done = subprocess.run(["restic", "--quiet", "--no-cache", *command], cwd=self.folder, text=True, check=False,
                              capture_output=True, timeout=120, env={
                                  **os.environ, "RESTIC_PASSWORD": "x",
                                  "RESTIC_REPOSITORY": f"s3:{secret['COSI_S3_ENDPOINT']}/{secret['COSI_S3_BUCKET_ID']}",
                                  "AWS_ACCESS_KEY_ID": secret["COSI_S3_ACCESS_KEY_ID"],
                                  "AWS_SECRET_ACCESS_KEY": secret["COSI_S3_ACCESS_SECRET_KEY"]})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_claim_becomes_a_bucket_that_a_client_reads_and_writes(self):
        bucket = self.claim("photos")
        secret = self.access("photos", "photos")
        self.assertEqual((secret["COSI_S3_BUCKET_ID"], secret["COSI_S3_ENDPOINT"], secret["COSI_S3_ADDRESSING_STYLE"]),
                         (bucket, self.endpoint, "path"))
        data = os.urandom(1 << 20)
        os.makedirs(f"{self.folder}/data")
        with open(f"{self.folder}/data/file", "wb") as file:
            file.write(data)
        self.restic(secret, "init")
        self.restic(secret, "backup", "data")
        self.restic(secret, "restore", "latest", "--target", "restored")
        self.assertEqual(parts.read(f"{self.folder}/restored/data/file"), data)
        # Who may only read can't write, whatever the client.
        keys = self.access("reader", "photos", "ReadOnly")
        reader = S3(self.endpoint, keys["COSI_S3_ACCESS_KEY_ID"], keys["COSI_S3_ACCESS_SECRET_KEY"])
        self.assertEqual((reader.get(bucket, "config"), reader.put(bucket, "more")), (200, 403))

    def test_access_is_revoked_and_a_claim_leaves_its_bucket(self):
        bucket = self.claim("short")
        keys = self.access("short", "short")
        client = S3(self.endpoint, keys["COSI_S3_ACCESS_KEY_ID"], keys["COSI_S3_ACCESS_SECRET_KEY"])
        self.assertEqual(client.put(bucket, "kept"), 200)
        self.plane.kubectl("delete", KINDS["access"], "short", "-n", "prod", "--wait=false")
        # Theirs sees that it is to be deleted when it starts, not from the change.
        self.running.terminate()
        self.running.wait()
        self.start(*self.sidecar, **self.environment)
        self.eventually(lambda: client.get(bucket, "kept") == 403, "the keys are worth nothing")
        self.eventually(lambda: self.find("access", "short") is None, "the access goes")
        # Theirs removes no bucket yet: the claim goes, its Bucket and the data stay.
        name = self.find("claim", "short")["status"]["boundBucketName"]
        self.plane.kubectl("delete", KINDS["claim"], "short", "-n", "prod", "--timeout=60s")
        self.assertIsNotNone(self.find("bucket", name))
        self.assertIn(b"<Key>kept</Key>", self.owner.request("GET", f"/{bucket}", {"list-type": "2"})[1])


if __name__ == "__main__":
    if not lacks() and not os.environ.get("CBT_TEST_S3"):
        GATEWAY = os.path.join(HERE, "..", "bucket", "radosgw.sh")
        os.execv(GATEWAY, [GATEWAY, sys.executable, "-B", *sys.argv])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
