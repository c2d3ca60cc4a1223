"""Backups as deploy/kubernetes/backup has them, as Pods of a real node with the whole driver. Not a test: a part
of velero_calls_test.py, which has started the node.

Real are the manifests, the snapshots, the claims that are made of them, kubectl and cbtctl in Pods, the accounts
and their tokens. Played are the images and the bucket, tests/bucket/s3_double.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time

# pylint: disable=wrong-import-position
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "deploy"))
import built  # noqa: E402
from driver_parts import CBT, MIB  # noqa: E402
from node import ADDRESS  # noqa: E402
from real_node_test import IMAGE, eventually, libraries_of  # noqa: E402

DOUBLE = os.path.join(HERE, "..", "bucket", "s3_double.py")
SIZE = 64 * MIB
SPACE = "shop"
WRITE = "dd if=/exchange/written of=/dev/disk bs=1048576 conv=notrunc,fsync seek={} 2>&1"


class BackupPods:
    """Of a class with `driver` (whole_driver.WholeDriver), `node`, `exchange` and `rng`."""

    def start_bucket(self):
        server = subprocess.Popen(
            self.node.enter(sys.executable, "-B", DOUBLE, "AKTEST", "secret", "", "bucket", "1000", "0.0.0.0"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for end in (server.stdin.close, server.wait, server.kill):
            self.addCleanup(end)
        self.bucket, self.port = server, server.stdout.readline().strip()

    def say(self, command):
        self.bucket.stdin.write(command + "\n")
        self.bucket.stdin.flush()
        return self.bucket.stdout.readline().strip()

    def fleet(self):
        """What fleet.py prints for the claims of the namespace, with this node's images."""
        claims = self.node.kubectl("get", "pvc", "-n", SPACE, "-l", "backup=nightly", "-o", "json")
        path = f"{self.node.assets}:{os.environ['PATH']}"
        done = subprocess.run([sys.executable, "-B", os.path.join(built.DEPLOY, "backup", "fleet.py")], input=claims,
                              stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PATH": path})
        return re.sub(r"registry\.example\.com/libcbt/cbtctl:[0-9.]+", IMAGE, done.stdout)

    def set_up_backups(self):
        node = self.node
        kubectl = shutil.which("kubectl", path=node.assets)
        objects = built.build(os.path.join(built.DEPLOY, "backup"))
        (image,) = {one["image"] for item in objects if item["metadata"]["name"] == "backup-data" and
                    item["kind"] == "CronJob"
                    for one in item["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"]}
        node.import_image(image, ["/kubectl"], {"/kubectl": kubectl, **{one: one for one in libraries_of(kubectl)}})
        # For the test's own Pod, which has a folder of this machine; overlays_test.py has the level.
        node.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": {
            "cbt.storage.k8s.io/backup-client": "true", "pod-security.kubernetes.io/enforce": "privileged"}}})
        node.kubectl("annotate", "volumesnapshotclass", "cbt", "snapshot.storage.kubernetes.io/is-default-class=true")
        self.start_bucket()
        node.create({"apiVersion": "v1", "kind": "Secret",
                     "metadata": {"name": "backup-repository", "namespace": SPACE},
                     "stringData": {"repository": f"s3:http://{ADDRESS}:{self.port}/bucket/backups",
                                    "password": "the password", "access-key": "AKTEST", "secret-key": "secret"}})

    def run_backup(self, name, number):
        """As the CronJob does at its time; what cbtctl said."""
        node = self.node
        started = time.monotonic()
        node.kubectl("create", "job", f"now-{name}-{number}", "-n", SPACE, f"--from=cronjob/backup-{name}")

        def finished(job, field):
            status = node.kubectl("get", "job", job, "-n", SPACE, "--ignore-not-found", "-o", "json")
            return json.loads(status or "{}").get("status", {}).get(field)
        try:
            eventually(lambda: finished(f"now-{name}-{number}", "succeeded"), "the snapshot is made", 180)
            eventually(lambda: finished(f"store-{name}", "succeeded"), "the backup is made", 180)
        except AssertionError:
            print(node.kubectl("describe", "pods", "-n", SPACE, check=False)[-6000:], file=sys.stderr)
            print(node.kubectl("logs", "-n", SPACE, f"job/store-{name}", check=False), file=sys.stderr)
            raise
        said = node.kubectl("logs", "-n", SPACE, f"job/store-{name}")
        print(f"backup {number}: {time.monotonic() - started:.1f} s, {self.say('count')} requests of S3: "
              f"{said.splitlines()[-1]}", file=sys.stderr, flush=True)
        # As its time to live does after an hour.
        node.kubectl("delete", "job", f"store-{name}", "-n", SPACE, "--cascade=foreground", "--timeout=120s")
        return said

    def test_backups_run_as_pods(self):
        self.set_up_backups()
        driver, node = self.driver, self.node
        driver.claim("orders", SPACE, size=SIZE)
        node.kubectl("label", "pvc", "orders", "-n", SPACE, "backup=nightly")
        driver.pod("shop-writer", "orders", SPACE)
        driver.wait_for_pod("shop-writer", "Running", SPACE)
        data = bytearray(SIZE)
        eventually(lambda: "Bound" in node.kubectl("get", "pvc", "orders", "-n", SPACE), "the claim is bound")
        node.write("fleet.json", self.fleet())
        node.kubectl("apply", "-f", f"{node.folder}/fleet.json")
        for number, tier in enumerate(("allocated", "delta", "delta")):
            place = (3, 40, 41)[number]
            written = self.rng.randbytes(2 * MIB)
            data[place * MIB:(place + 2) * MIB] = written
            with open(f"{self.exchange}/written", "wb") as file:
                file.write(written)
            node.kubectl("exec", "shop-writer", "-n", SPACE, "--", "/bin/sh", "-c", WRITE.format(place))
            said = self.run_backup("orders", number)
            self.assertRegex(said, rf"of {SPACE}\.orders: {tier}[,;]")
            self.assertRegex(said, r"read 2\.0 MiB of 64\.0 MiB")
        restored = f"{self.exchange}/restored"
        environment = ["env", "AWS_ACCESS_KEY_ID=AKTEST", "AWS_SECRET_ACCESS_KEY=secret", "RESTIC_PASSWORD=the password"]
        node.inside(*environment, CBT, "backup", "restore", f"{SPACE}.orders", "--to", restored, "--repo",
                    f"s3:http://{ADDRESS}:{self.port}/bucket/backups/{SPACE}/orders")
        with open(restored, "rb") as file:
            self.assertTrue(file.read() == data, "the restored volume is not the claim's")
        node.kubectl("delete", "cronjobs,jobs", "-n", SPACE, "--all", "--timeout=120s")
        for kind, name in (("pod", "shop-writer"), ("volumesnapshot", "backup-orders"), ("pvc", "orders")):
            driver.gone(kind, name, SPACE)
