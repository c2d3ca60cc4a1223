"""What Velero's block data mover asks of Kubernetes, call by call, on a real node with the whole driver: five
backups of a volume, each base deleted before the next one, each moving only what has changed.

Usage: velero_calls_test.py CBT FOLDER_OF_MESSAGES NBDKIT_PLUGIN. The programs of the node are in the
folder that KUBEBUILDER_ASSETS names (tests/envtest/node.py).
"""

import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "envtest"))

# pylint: disable=wrong-import-position
import driver_parts as parts  # noqa: E402
from backup_pods import BackupPods  # noqa: E402
import whole_driver as whole  # noqa: E402
from driver_parts import MIB, NAME  # noqa: E402
from real_node_test import eventually  # noqa: E402
from whole_driver import API  # noqa: E402

SIZE = 64 * MIB
PIECE = 65536
ROUNDS = 5 * max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))
BACKUP = "velero"  # the namespace of the backup application

# Lines of "offset length" become writes to the repository's file at the same places.
MOVE = """
while read -r offset length; do
  dd if=/dev/disk of=/exchange/repository bs=4096 conv=notrunc skip=$((offset / 4096)) \
     seek=$((offset / 4096)) count=$((length / 4096)) 2>/tmp/error || { cat /tmp/error; exit 1; }
done </exchange/ranges
"""
PUT = "dd if=/exchange/written of=/dev/disk bs=65536 conv=notrunc,fsync seek={} 2>&1"
RESTORE = "dd if=/exchange/repository of=/dev/disk bs=1048576 conv=fsync && sha256sum </dev/disk"


@unittest.skipIf(whole.lacks(), whole.lacks())
class VeleroCallsTest(BackupPods, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cbt-node-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.driver = whole.WholeDriver(cls, cls.folder)
        cls.node = cls.driver.node
        cls.exchange = f"{cls.folder}/exchange"
        os.makedirs(cls.exchange)
        cls.node.kubectl("create", "namespace", BACKUP)
        cls.node.kubectl("create", "serviceaccount", "backup", "-n", BACKUP)
        cls.node.kubectl("apply", "-f", os.path.join(whole.DEPLOY, "..", "client", "cluster-role.yaml"))
        for role in ("snapshot-metadata-client", "snapshot-metadata-client-cluster"):
            cls.node.kubectl("create", "clusterrolebinding", role, "--clusterrole=" + role,
                             f"--serviceaccount={BACKUP}:backup")
        eventually(lambda: cls.node.get("snapshotmetadataservices")["items"], "the sidecar publishes")

    def setUp(self):
        self.rng = random.Random(45)
        self.data = bytearray(SIZE)  # what the volume holds
        self.path = f"{self.exchange}/repository"
        with open(self.path, "wb") as file:
            file.truncate(SIZE)

    def write(self, piece, length=PIECE):
        """Writes to the volume, in the Pod that uses it."""
        written = self.rng.randbytes(length)
        self.data[piece * PIECE:piece * PIECE + length] = written
        with open(f"{self.exchange}/written", "wb") as file:
            file.write(written)
        self.node.kubectl("exec", "writer", "--", "/bin/sh", "-c", PUT.format(piece))

    def repository(self):
        with open(self.path, "rb") as file:
            return file.read()

    def hand_over(self, name):
        """A second content for the handle in the backup's namespace; the first one is deleted, its data kept.
        Returns the handle."""
        node = self.node
        content = self.driver.content_of(name)
        handle = content["status"]["snapshotHandle"]
        node.create({
            "apiVersion": API, "kind": "VolumeSnapshot",
            "metadata": {"name": name, "namespace": BACKUP},
            "spec": {"volumeSnapshotClassName": "cbt", "source": {"volumeSnapshotContentName": name}}})
        own = node.get("volumesnapshot", name, "-n", BACKUP)["metadata"]
        node.create({
            "apiVersion": API, "kind": "VolumeSnapshotContent",
            "metadata": {"name": name, "annotations": {
                "snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"}},
            "spec": {"deletionPolicy": "Delete", "driver": NAME, "volumeSnapshotClassName": "cbt",
                     "source": {"snapshotHandle": handle},
                     "volumeSnapshotRef": {"namespace": BACKUP, "name": name, "uid": own["uid"],
                                           "resourceVersion": own["resourceVersion"]}}})
        first = content["metadata"]["name"]
        node.kubectl("patch", "volumesnapshotcontent", first, "--type=merge", "-p",
                     '{"spec": {"deletionPolicy": "Retain"}}')
        self.driver.gone("volumesnapshot", name)
        self.driver.gone("volumesnapshotcontent", first)
        self.assertEqual(self.driver.content_of(name, BACKUP)["status"]["snapshotHandle"], handle)
        return handle

    def stream(self, snapshot, base):
        """What the sidecar says, to the account of the backup."""
        options = ["--base-handle", base] if base else []
        lines = self.driver.listed(f"k8s:{BACKUP}/{snapshot}", "--service-account", f"{BACKUP}/backup",
                                   "--prove", *options)
        return [(one["byte_offset"], one["size_bytes"]) for one in lines if "byte_offset" in one]

    def back_up(self, name, base, read_only):
        """One backup; returns its handle and the bytes that were moved."""
        driver = self.driver
        driver.snapshot(name, persistentVolumeClaimName="data")
        handle = self.hand_over(name)
        driver.claim(name, BACKUP, name, ["ReadOnlyMany" if read_only else "ReadWriteOnce"], size=SIZE)
        ranges = self.stream(name, base)
        with open(f"{self.exchange}/ranges", "w", encoding="utf-8") as file:
            file.writelines(f"{offset} {length}\n" for offset, length in ranges)
        driver.pod(name, name, BACKUP, MOVE, read_only)
        driver.wait_for_pod(name, "Succeeded", BACKUP)
        volume = self.node.get("pvc", name, "-n", BACKUP)["spec"]["volumeName"]
        for kind in ("pod", "pvc", "volumesnapshot"):
            driver.gone(kind, name, BACKUP)
        eventually(lambda: not self.node.kubectl("get", "pv", volume, "--ignore-not-found"),
                   "the claim's volume is deleted")
        eventually(lambda: not self.node.get("volumesnapshotcontents")["items"],
                   "the base is deleted")
        return handle, sum(length for _, length in ranges)

    def test_e21_ten_increments_whose_bases_are_deleted_move_what_changed(self):
        driver = self.driver
        driver.claim("data", size=SIZE)
        driver.pod("writer", "data")
        driver.wait_for_pod("writer", "Running")
        handle = None
        self.write(16, 12 * MIB)
        for number in range(ROUNDS + 1):
            for piece in self.rng.sample(range(SIZE // PIECE), 3) if number else ():
                self.write(piece)
            started = time.monotonic()
            handle, moved = self.back_up(f"backup-{number}", handle, number % 2 == 1)
            print(f"backup {number}: {moved} bytes, {time.monotonic() - started:.1f} s",
                  file=sys.stderr, flush=True)
            self.assertEqual(moved, 3 * PIECE if number else 12 * MIB)
            self.assertTrue(self.repository() == self.data, f"backup {number} is not the volume")
        self.node.kubectl("delete", "pod", "writer")
        # A probe that asks for the wrong thing ends a container over and over.
        pods = self.node.get("pods", "-n", "csi-driver")["items"]
        self.assertEqual({one["name"]: one["restartCount"] for pod in pods
                          for one in pod["status"]["containerStatuses"] if one["restartCount"]}, {})
        self.restored_is_equal()

    def restored_is_equal(self):
        self.driver.claim("restored", size=SIZE)
        self.driver.pod("restore", "restored", script=RESTORE)
        self.driver.wait_for_pod("restore", "Succeeded")
        self.assertIn(hashlib.sha256(self.data).hexdigest(), self.node.kubectl("logs", "restore"))


if __name__ == "__main__":
    parts.main()
