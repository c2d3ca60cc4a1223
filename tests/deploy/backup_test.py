"""Backups of deploy/kubernetes/backup with a bucket of COSI, as Pods of a real node: a full one and an increment of
a claim in file system mode, restored.

Real are the images of `make image`, the manifests of driver, COSI and backup, kubelet, containerd, the
control plane and the sidecars of Kubernetes. Played are node-driver-registrar, names of Services, and,
where Ceph is not installed, the object gateway.

Usage: backup_test.py CBT. The programs of the node are in the folder that KUBEBUILDER_ASSETS names.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
PROGRAMS = os.path.dirname(os.path.abspath(sys.argv[1]))
EXAMPLES = os.path.join(os.path.dirname(TESTS), "examples", "cluster")
sys.path += [HERE, *(os.path.join(TESTS, one) for one in ("bucket", "cosi", "demo/cluster", "envtest", "support"))]

# pylint: disable=wrong-import-position
import built  # noqa: E402
import deployed  # noqa: E402
import deployed_cosi  # noqa: E402
import gateway  # noqa: E402
import node as envtest  # noqa: E402
import runner  # noqa: E402
import volumes  # noqa: E402

SPACE = "shop"
BACKUP = os.path.join(built.DEPLOY, "backup")
OURS = "images.example.org/cbt"
BUSYBOX = "localhost/busybox:1"


def lacks():
    return envtest.lacks_for_volumes("nbdkit") or deployed.lacks_sidecars()


def claim(name, mode, snapshot=None):
    source = {"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": SPACE, "labels": {} if snapshot else {"backup": "nightly"}},
            "spec": {"storageClassName": "cbt", "volumeMode": mode,
                     "accessModes": ["ReadOnlyMany" if snapshot else "ReadWriteOnce"],
                     "resources": {"requests": {"storage": "64Mi"}}, **(source if snapshot else {})}}


@unittest.skipIf(lacks(), lacks())
class BackupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cbt-node-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.addClassCleanup(volumes.detach_what_is_left, cls.folder)
        cls.node = node = deployed.Node(cls.folder)
        cls.addClassCleanup(node.stop)
        node.start()
        node.import_ours(PROGRAMS, ("cbt-cluster", "cbtctl", "cbt-driver"), (deployed.REGISTRY, OURS))
        node.import_sidecars()
        node.import_registrar()
        kubectl = built.kubectl()
        (image,) = {one["image"] for item in built.build(BACKUP) if item["metadata"]["name"] == "backup-data"
                    and item["kind"] == "CronJob"
                    for one in item["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"]}
        node.import_image(image, ["/kubectl"], {"/kubectl": kubectl, **deployed.libraries_of(kubectl)})
        volumes.deploy(node)
        store = gateway.Gateway(node, envtest.ADDRESS, double=bool(gateway.lacks()))
        cls.addClassCleanup(store.stop)
        deployed_cosi.deploy(node, store.endpoint, store.credentials())

    # --- kubectl.

    def kubectl(self, *command, **more):
        return self.node.kubectl("-n", SPACE, *command, **more)

    def wait(self, thing, path, *values):
        """Until the field has one of these values; returns it."""
        found = []

        def there():
            found[:] = [self.kubectl("get", thing, "-o", f"jsonpath={{{path}}}", check=False)]
            return found[0] in values
        try:
            self.node.wait_for(f"{thing}: {path} is {' or '.join(values)}", there, 180)
        except RuntimeError as error:
            raise AssertionError(f"{str(error)[:300]}\n{self.kubectl('describe', 'pods', check=False)[-5000:]}") \
                from error
        return found[0]

    # --- Steps of docs/guides/backup-in-a-cluster.md.

    def set_up(self):
        node = self.node
        node.kubectl("create", "namespace", SPACE)
        node.kubectl("label", "namespace", SPACE, "cbt.storage.k8s.io/backup-client=true",
                     "pod-security.kubernetes.io/enforce=baseline")
        node.kubectl("annotate", "volumesnapshotclass", "cbt",
                     "snapshot.storage.kubernetes.io/is-default-class=true")
        node.kubectl("apply", "-k", os.path.join(BACKUP, "file-systems"))
        node.kubectl("apply", "-f", os.path.join(EXAMPLES, "classes.yaml"), "-f",
                     os.path.join(EXAMPLES, "bucket.yaml"))
        self.kubectl("create", "secret", "generic", "backup-repository", "--from-literal=password=the password")
        self.wait("bucketaccessrequest/backups", ".status.accessGranted", "true")

    def fleet(self):
        claims = self.node.kubectl("get", "pvc", "-A", "-l", "backup=nightly", "-o", "json")
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(BACKUP, "fleet.py")], input=claims, stdout=subprocess.PIPE, text=True,
            check=True, env={**os.environ, "OVERLAY": os.path.join(built.OVERLAYS, "backup"),
                             "PATH": f"{self.node.assets}:{os.environ['PATH']}"})
        return json.loads(done.stdout)["items"]

    def back_up(self, number):
        """As the CronJob does at its time; what cbtctl said."""
        self.kubectl("create", "job", f"now-{number}", "--from=cronjob/backup-orders")
        self.wait(f"job/now-{number}", ".status.succeeded", "1")
        self.wait("job/store-orders", ".status.succeeded", "1")
        said = self.kubectl("logs", "job/store-orders")
        print(said.strip().splitlines()[-1], file=sys.stderr, flush=True)
        # As its time to live does.
        self.kubectl("delete", "job", "store-orders", "--cascade=foreground", "--timeout=120s")
        return said

    def application(self):
        self.node.apply([claim("orders", "Filesystem"), {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": SPACE},
            "spec": {"terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "app", "image": BUSYBOX, "command": ["sleep", "2147483647"],
                                     "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                     "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "orders"}}]}}])
        self.wait("pod/app", ".status.phase", "Running")

    def write(self, mib):
        self.kubectl("exec", "app", "--", "sh", "-c",
                     f"dd if=/dev/urandom of=/data/file bs=1048576 count={mib} conv=notrunc && sync")

    def restore(self):
        """Into a new claim, which is compared with the snapshot: the device that was backed up."""
        with open(os.path.join(EXAMPLES, "restore.yaml"), encoding="utf-8") as file:
            restored, pod = yaml.safe_load_all(file)
        (container,) = pod["spec"]["containers"]
        container["args"] = ["backup", "restore", f"{SPACE}.orders", "--no-progress",
                             f"--repo=cosi:/bucket#{SPACE}/orders", "--password-file=/password/password",
                             "--to=/dev/restored"]
        pod["spec"]["initContainers"] = [container]
        pod["spec"]["containers"] = [{
            "name": "compare", "image": BUSYBOX, "command": ["cmp", "/dev/restored", "/dev/snapshot"],
            "volumeDevices": [{"name": one, "devicePath": f"/dev/{one}"} for one in ("restored", "snapshot")]}]
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                volume["secret"]["secretName"] = "backup-repository"
        pod["spec"]["volumes"].append({"name": "snapshot", "persistentVolumeClaim": {"claimName": "snapshot"}})
        self.node.apply([restored, claim("snapshot", "Block", "backup-orders"), pod])
        phase = self.wait("pod/restore", ".status.phase", "Succeeded", "Failed")
        self.assertEqual(phase, "Succeeded", self.kubectl("logs", "restore", "--all-containers"))

    def test_a_claim_of_files_in_a_bucket_of_cosi(self):
        self.set_up()
        self.application()
        self.write(12)
        self.node.apply(self.fleet())
        self.assertRegex(self.back_up(1), rf"of {SPACE}\.orders: allocated;")
        self.write(2)
        said = self.back_up(2)
        self.assertRegex(said, rf"of {SPACE}\.orders: delta, since")
        # Two that were written, and the file system's own.
        self.assertRegex(said, r"read [2-9]\.0 MiB of 64\.0 MiB")
        self.restore()
        # The rights that the manifests give, and none of the cluster's.
        for namespace, wanted in ((SPACE, "yes"), ("default", "no")):
            self.assertEqual(self.node.kubectl(
                "auth", "can-i", "get", "volumesnapshots.snapshot.storage.k8s.io", "-n", namespace, "--as",
                f"system:serviceaccount:{SPACE}:backup", check=False).strip(), wanted)
        self.kubectl("delete", "pods,pvc", "--all", "--grace-period=0", "--timeout=120s")
        self.node.wait_for("the volumes are unstaged", lambda: not glob.glob(f"{self.folder}/state/*/volumes/*/NODE"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
