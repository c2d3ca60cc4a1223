"""`cbt-driver driver` and `cbt-cluster sidecar` with Kubernetes' own controllers: kube-apiserver, snapshot-controller
and csi-snapshotter. Volumes are attached as kubelet would attach them.

Usage: cluster_test.py CBT FOLDER_OF_MESSAGES NBDKIT_PLUGIN "" FOLDER_OF_OTHER_MESSAGES CONTROL_PLANE
"""

import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

OTHER_MESSAGES, CONTROL_PLANE = sys.argv[5:7]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, "..", "..", "deploy", "kubernetes")
sys.path.append(OTHER_MESSAGES)
sys.path.append(os.path.join(HERE, "..", "sidecar"))

# pylint: disable=wrong-import-position
import driver_parts  # noqa: E402
import cluster  # noqa: E402
import node_test  # noqa: E402
import parts  # noqa: E402
from driver_parts import MIB, NAME, block, make_volume  # noqa: E402
from node_test import BLOCK, extents_of  # noqa: E402
from parts import AUDIENCE, CODES  # noqa: E402

API = "snapshot.storage.k8s.io/v1"
GROUP_API = "groupsnapshot.storage.k8s.io/v1"


class Controller:
    """A controller of external-snapshotter; started again when it ends, as a Pod would be."""

    def __init__(self, folder, name, kubeconfig, *flags):
        self.command = [os.path.join(os.environ["KUBEBUILDER_ASSETS"], name),
                        f"--kubeconfig={kubeconfig}", "--v=4", *flags]
        self.log = os.path.join(folder, name + ".log")
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)

    def keep(self):
        if self.process.poll() is not None:
            self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        for program in ("snapshot-controller", "csi-snapshotter"):
            if not os.path.exists(os.path.join(os.environ["KUBEBUILDER_ASSETS"], program)):
                raise unittest.SkipTest(f"KUBEBUILDER_ASSETS has no {program}")
        if node_test.lacks():
            raise unittest.SkipTest(node_test.lacks())
        cls.folder = tempfile.mkdtemp(prefix="cbt-driver-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.install(os.path.join(DEPLOY, "crd/snapshotmetadataservices.yaml"))
        for namespace in ("csi-driver", "backup", "ns"):
            cls.plane.create({"apiVersion": "v1", "kind": "Namespace",
                              "metadata": {"name": namespace}})
        # The roles are those that are shipped.
        for file in ("service-account", "cluster-role", "cluster-role-bindings"):
            cls.plane.apply(os.path.join(DEPLOY, "driver", file + ".yaml"))
        cls.plane.apply(os.path.join(DEPLOY, "sidecar", "cluster-role.yaml"))
        # Before the controllers, which look for them once.
        definitions = os.environ.get("CBT_OPERATOR_CRDS", os.path.join(HERE, "..", "deploy", "crds"))
        for file in sorted(glob.glob(os.path.join(definitions, "*group*snapshot*.yaml"))):
            cls.plane.install(file)
        for file in ("rights", "class"):
            cls.plane.apply(os.path.join(DEPLOY, "driver", "groups", file + ".yaml"))
        cls.kubeconfig = cls.plane.kubeconfig_of("csi-driver", "csi-cbt", cls.folder)
        for name, policy in (("delete", "Delete"), ("retain", "Retain")):
            # The members of a group name none, and so are of the default one.
            default = {"snapshot.storage.kubernetes.io/is-default-class": str(name == "delete").lower()}
            cls.plane.create({"apiVersion": API, "kind": "VolumeSnapshotClass",
                              "metadata": {"name": name, "annotations": default}, "driver": NAME,
                              "deletionPolicy": policy})
        cls.driver = driver_parts.Driver(cls.folder, log=cls.folder + "/driver.log")
        cls.addClassCleanup(lambda: cls.driver.stop(signal.SIGKILL))
        cls.controllers = [
            Controller(cls.folder, "snapshot-controller", cls.plane.facts["kubeconfig"]),
            Controller(cls.folder, "csi-snapshotter", cls.kubeconfig,
                       f"--csi-address={cls.folder}/csi.sock", "--extra-create-metadata")]
        for controller in cls.controllers:
            cls.addClassCleanup(controller.stop)
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.plane.create(parts.service(NAME))
        cls.sidecar = parts.Sidecar(driver_parts.CBT, cls.folder, cls.kubeconfig)
        cls.addClassCleanup(cls.sidecar.stop)
        cls.channel = cls.sidecar.channel()
        cls.addClassCleanup(cls.channel.close)
        cls.plane.account("backup", "reader")
        cls.plane.role("ns", "reader", "backup", "reader")
        cls.token = cls.plane.token("backup", "reader", AUDIENCE)

    def setUp(self):
        self.client = self.driver.client
        self.target = os.path.join(self.folder, "target")

    # --- What the provisioner and kubelet do.

    def claim(self, name, size=64 * MIB, labels=None):
        """A volume, bound to a claim; returns its handle."""
        volume = make_volume(self.client, name, size, volume_capabilities=[block()])
        spec = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": ""}
        claim = self.plane.create({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "ns", "labels": labels or {},
                         "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {**spec, "volumeName": "pv-" + name,
                     "resources": {"requests": {"storage": str(size)}}}})
        self.plane.create({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-" + name},
            "spec": {**spec, "capacity": {"storage": str(size)},
                     "persistentVolumeReclaimPolicy": "Retain",
                     "claimRef": {"namespace": "ns", "name": name,
                                  "uid": claim["metadata"]["uid"]},
                     "csi": {"driver": NAME, "volumeHandle": volume}}})
        self.plane.patch_status("pv", None, "pv-" + name, {"phase": "Bound"})
        self.plane.patch_status("pvc", "ns", name, {
            "phase": "Bound", "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": str(size)}})
        return volume

    def attach(self, volume):
        staging = os.path.join(self.folder, "staging")
        self.client.NodeStageVolume(volume_id=volume, staging_target_path=staging,
                                    volume_capability=block())
        self.client.NodePublishVolume(volume_id=volume, staging_target_path=staging,
                                      target_path=self.target, volume_capability=block())
        self.addCleanup(self.detach, volume, staging)

    def detach(self, volume, staging):
        self.client.NodeUnpublishVolume(volume_id=volume, target_path=self.target)
        self.client.NodeUnstageVolume(volume_id=volume, staging_target_path=staging)

    def write(self, blocks, rng):
        device = os.open(self.target, os.O_RDWR)
        for at in blocks:
            os.pwrite(device, rng.randbytes(BLOCK), at * BLOCK)
        os.fsync(device)
        os.close(device)

    # --- What people do.

    def snapshot(self, name, claim, klass="delete"):
        self.plane.create({"apiVersion": API, "kind": "VolumeSnapshot",
                           "metadata": {"name": name, "namespace": "ns"},
                           "spec": {"volumeSnapshotClassName": klass,
                                    "source": {"persistentVolumeClaimName": claim}}})

    def get(self, kind, name):
        result = self.plane.kubectl("get", kind, name, "-n", "ns", "-o", "json", check=False)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def eventually(self, condition, what, seconds=60):
        def look():
            for controller in self.controllers:
                controller.keep()
            return condition()
        if not parts.wait_until(look, seconds):
            logs = [parts.read(one.log).decode()[-3000:] for one in self.controllers]
            self.fail(f"not within {seconds} s: {what}\n" + "\n".join(logs))

    def ready(self, name):
        """Waits until the snapshot can be used; returns its handle."""
        def is_ready():
            return (self.get("volumesnapshot", name) or {}).get("status", {}).get("readyToUse")
        self.eventually(is_ready, f"{name} is ready")
        content = self.get("volumesnapshot", name)["status"]["boundVolumeSnapshotContentName"]
        return self.get("volumesnapshotcontent", content)["status"]["snapshotHandle"]

    def members(self, group):
        """Waits until the group snapshot can be used; returns its members' names by their claims."""
        def are_ready():
            status = (self.get("volumegroupsnapshot", group) or {}).get("status", {})
            if not status.get("readyToUse"):
                return False
            made = json.loads(self.plane.kubectl("get", "volumesnapshot", "-n", "ns", "-o",
                                                 "json").stdout)["items"]
            found.update({one["spec"]["source"].get("persistentVolumeClaimName")
                          or one["metadata"]["name"]: one["metadata"]["name"] for one in made
                          if one["status"].get("volumeGroupSnapshotName") == group
                          and one["status"].get("readyToUse")})
            return len(found) == 2
        found = {}
        self.eventually(are_ready, f"{group} is ready")
        return found

    def delta(self, base, target):
        """By the sidecar, with a reader's token."""
        code, answer = parts.ask(self.channel, self.token, snapshot=target, base=base)
        self.assertEqual(code, CODES.OK, answer)
        return answer

    def image(self, volume, handle):
        path = os.path.join(self.driver.state, "volumes", volume, "volume", "snapshots", handle)
        return parts.read(path)

    def handles(self):
        return {one.snapshot.snapshot_id for one in self.client.ListSnapshots().entries}

    def gone(self, handle):
        self.eventually(lambda: handle not in self.handles(), f"{handle} is deleted")

    def test_objects_lead_to_snapshots_whose_deltas_are_exact(self):
        rng = random.Random(28)
        volume = self.claim("data")
        self.attach(volume)
        blocks = [set(rng.sample(range(64 * MIB // BLOCK), 100)) for _ in range(3)]
        names, handles = ["first", "second", "third"], []
        for name, changed in zip(names, blocks):
            self.write(changed, rng)
            self.snapshot(name, "data")
            handles.append(self.ready(name))
        images = [self.image(volume, handle) for handle in handles]
        for base, target in ((0, 1), (1, 2), (0, 2)):
            different = {at // BLOCK for at in range(0, 64 * MIB, BLOCK)
                         if images[base][at:at + BLOCK] != images[target][at:at + BLOCK]}
            self.assertEqual(different, set().union(*blocks[base + 1:target + 1]))
            self.assertEqual(self.delta(handles[base], names[target]), extents_of(different))
        restored = self.get("volumesnapshot", "third")["status"]
        self.assertEqual(restored["restoreSize"], "64Mi")
        # Any order: the middle one first; what remains is still exact.
        self.plane.delete("volumesnapshot", "ns", "second")
        self.gone(handles[1])
        self.assertEqual(self.delta(handles[0], "third"), extents_of(blocks[1] | blocks[2]))
        for name, handle in (("first", handles[0]), ("third", handles[2])):
            self.plane.delete("volumesnapshot", "ns", name)
            self.gone(handle)
        self.eventually(lambda: self.get("volumesnapshot", "third") is None, "third is gone")

    def test_a_group_snapshot_leads_to_members_with_deltas(self):
        rng = random.Random(48)
        volumes = [self.claim(name, 8 * MIB, {"set": "pair"}) for name in ("left", "right")]
        self.attach(volumes[0])
        before, blocks = self.handles(), set(rng.sample(range(8 * MIB // BLOCK), 20))
        groups = []
        for name in ("monday", "tuesday"):
            self.plane.create({
                "apiVersion": GROUP_API, "kind": "VolumeGroupSnapshot",
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"volumeGroupSnapshotClassName": "cbt",
                         "source": {"selector": {"matchLabels": {"set": "pair"}}}}})
            members = {}
            for member in self.members(name).values():
                handle = self.ready(member)
                (listed,) = self.client.ListSnapshots(snapshot_id=handle).entries
                members[listed.snapshot.source_volume_id] = (member, handle)
            self.assertEqual(set(members), set(volumes))
            groups.append(members)
            self.write(blocks, rng)
        for volume, changed in zip(volumes, (blocks, set())):
            (_, base), (target, handle) = (group[volume] for group in groups)
            # The sidecar may not have seen yet that it is ready.
            self.eventually(lambda base=base, target=target: parts.ask(
                self.channel, self.token, snapshot=target, base=base)[0] != CODES.UNAVAILABLE,
                            f"the sidecar has seen {target}")
            self.assertEqual(self.delta(base, target), extents_of(changed))
            self.assertEqual(len(self.image(volume, handle)), 8 * MIB)
        for name in ("monday", "tuesday"):
            self.plane.delete("volumegroupsnapshot", "ns", name)
        self.eventually(lambda: self.handles() == before, "all members are deleted")
        for name in ("monday", "tuesday"):
            self.eventually(lambda name=name: self.get("volumegroupsnapshot", name) is None,
                            f"{name} is gone")

    def test_what_is_retained_can_be_provisioned_again(self):
        self.claim("kept")
        self.snapshot("retained", "kept", "retain")
        handle = self.ready("retained")
        self.plane.delete("volumesnapshot", "ns", "retained")
        self.eventually(lambda: self.get("volumesnapshot", "retained") is None, "it is gone")
        self.assertIn(handle, self.handles())
        self.plane.create({
            "apiVersion": API, "kind": "VolumeSnapshotContent", "metadata": {"name": "again"},
            "spec": {"deletionPolicy": "Delete", "driver": NAME,
                     "source": {"snapshotHandle": handle}, "sourceVolumeMode": "Block",
                     "volumeSnapshotClassName": "delete",
                     "volumeSnapshotRef": {"name": "again", "namespace": "ns"}}})
        self.plane.create({"apiVersion": API, "kind": "VolumeSnapshot",
                           "metadata": {"name": "again", "namespace": "ns"},
                           "spec": {"volumeSnapshotClassName": "delete",
                                    "source": {"volumeSnapshotContentName": "again"}}})
        self.assertEqual(self.ready("again"), handle)
        self.assertEqual(self.delta(handle, "again"), [])
        self.plane.delete("volumesnapshot", "ns", "again")
        self.gone(handle)

    def test_a_driver_that_is_down_comes_back(self):
        self.claim("interrupted")
        self.driver.stop(signal.SIGKILL)
        self.snapshot("late", "interrupted")
        self.eventually(lambda: self.get("volumesnapshot", "late").get("status", {}).get(
            "boundVolumeSnapshotContentName"), "the content is made")
        type(self).driver = driver_parts.Driver(self.folder, log=self.folder + "/driver.log")
        self.client = self.driver.client
        handle = self.ready("late")
        self.assertIn(handle, self.handles())
        self.plane.delete("volumesnapshot", "ns", "late")
        self.gone(handle)


class ManifestsTest(unittest.TestCase):
    def test_the_manifests_are_taken_as_they_are(self):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        plane = cluster.ControlPlane(CONTROL_PLANE, "--allow-privileged=true")
        self.addCleanup(plane.stop)
        plane.kubectl("apply", "-k", os.path.join(DEPLOY, "crd"))
        # A dry run makes no namespace.
        plane.apply(os.path.join(DEPLOY, "driver", "namespace.yaml"))
        for flags in (["--dry-run=server"], []):
            result = plane.kubectl("apply", "--validate=strict", *flags, "-k",
                                   os.path.join(DEPLOY, "driver"))
            self.assertNotIn("Warning", result.stderr)
        result = plane.kubectl("apply", "-k", os.path.join(DEPLOY, "driver"))
        self.assertEqual({line.rsplit(" ", 1)[1] for line in result.stdout.splitlines()},
                         {"unchanged"}, result.stdout)
        rendered = plane.kubectl("kustomize", os.path.join(DEPLOY, "driver")).stdout
        for word in ('"*"', "'*'", "secrets"):
            self.assertNotIn(word, rendered)


if __name__ == "__main__":
    driver_parts.main()
