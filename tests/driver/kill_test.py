"""`cbt-driver driver` is killed at every system call of its state, and its calls fail at every one."""

import os
import shutil
import signal
import unittest

import grpc

import driver_parts as parts
from driver_parts import MIB, from_snapshot, make_snapshot, make_volume, size

SCALE = max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))
ACTIONS = ("create", "restore", "clone", "snapshot", "expand", "delete snapshot", "delete volume",
           "group", "delete group")


def make_group(client, name, volumes):
    """A group snapshot that is ready: its id, and those of its members."""
    while True:
        made = client.CreateVolumeGroupSnapshot(name=name, source_volume_ids=volumes).group_snapshot
        if made.ready_to_use:
            return made.group_snapshot_id, [one.snapshot_id for one in made.snapshots]


class KillTest(parts.DriverTest):
    def environment(self, kind, at, count=None):
        settings = {"LD_PRELOAD": parts.SHIM, "FAULT_KIND": kind, "FAULT_AT": str(at),
                    "FAULT_BELOW": os.path.join(self.folder, "state"),
                    "FAULT_FIRED": os.path.join(self.folder, "fired")}
        return settings | ({"FAULT_COUNT": count} if count else {})

    def setUp(self):
        if parts.SHIM is None:
            raise unittest.SkipTest("no preloaded library in this build")
        super().setUp()

    def prepare(self, action):
        driver = self.start()
        volume = make_volume(driver.client, "source", MIB)
        snapshots = [make_snapshot(driver.client, volume, name) for name in ("one", "two")]
        self.members = None
        if action.endswith("group"):
            self.other = make_volume(driver.client, "other", MIB)
        if action == "delete group":
            self.members = make_group(driver.client, "old", [volume, self.other])
        driver.stop()
        return volume, snapshots

    def act(self, client, action, volume, snapshots):
        """What an action returns, the same when it is repeated."""
        if action == "create":
            return make_volume(client, "new", MIB)
        if action == "restore":
            return make_volume(client, "new", MIB, volume_content_source=from_snapshot(snapshots[0]))
        if action == "clone":
            return make_volume(client, "new", MIB,
                               volume_content_source=parts.from_volume(volume))
        if action == "snapshot":
            try:
                return make_snapshot(client, volume, "three")
            except grpc.RpcError as error:
                # Its copy failed after it had been acknowledged.
                if not parts.delete_lost(client, error):
                    raise
                return make_snapshot(client, volume, "three")
        if action == "expand":
            return client.ControllerExpandVolume(
                volume_id=volume, capacity_range=size(2 * MIB)).capacity_bytes
        if action == "group":
            try:
                return make_group(client, "new", [volume, self.other])
            except grpc.RpcError as error:
                # The copy of a member failed after the group had been taken.
                if "was removed" not in error.details():
                    raise
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                return make_group(client, "new", [volume, self.other])
        if action == "delete group":
            group, members = self.members
            client.DeleteVolumeGroupSnapshot(group_snapshot_id=group, snapshot_ids=members)
        elif action == "delete snapshot":
            client.DeleteSnapshot(snapshot_id=snapshots[0])
        else:
            for snapshot in snapshots:
                client.DeleteSnapshot(snapshot_id=snapshot)
            client.DeleteVolume(volume_id=volume)
        return None

    def check(self, client, action, volume, snapshots):
        """The state after the action was repeated to its end."""
        volumes = {one.volume.volume_id: one.volume.capacity_bytes
                   for one in client.ListVolumes().entries}
        listed = {one.snapshot.snapshot_id for one in client.ListSnapshots().entries}
        capacity = 2 * MIB if action == "expand" else MIB
        if action == "delete volume":
            self.assertEqual((volumes, listed), ({}, set()))
            self.assertEqual(os.listdir(os.path.join(self.folder, "state", "volumes")), [])
            return
        self.assertEqual(volumes.pop(volume), capacity)
        if action.endswith("group"):
            self.check_groups(client, action, volume, snapshots)
            return
        self.assertEqual(len(volumes), action in ("create", "restore", "clone"))
        self.assertEqual(set(os.listdir(os.path.join(self.folder, "state", "volumes"))),
                         {volume, *volumes})
        kept = set(snapshots) - ({snapshots[0]} if action == "delete snapshot" else set())
        self.assertLessEqual(kept, listed)
        self.assertEqual(len(listed), len(kept) + (action == "snapshot"))
        base, target = snapshots
        if action != "delete snapshot":
            self.assertEqual(client.delta(base, target), ([], MIB))

    def check_groups(self, client, action, volume, snapshots):
        """The members of a group are all there, or none is, in the volumes too."""
        members = [] if action == "delete group" else self.act(client, action, volume, snapshots)[1]
        listed = {one.snapshot.snapshot_id: one.snapshot for one in client.ListSnapshots().entries}
        self.assertEqual(set(listed), {*snapshots, *members})
        state = os.path.join(self.folder, "state")
        self.assertEqual(os.listdir(os.path.join(state, "groups")),
                         list({listed[member].group_snapshot_id for member in members}))
        kept = []
        for one in (volume, self.other):
            folder = os.path.join(state, "volumes", one)
            # A driver that is killed while it writes a record leaves a part of it aside.
            names = [name for name in os.listdir(os.path.join(folder, "names"))
                     if not name.endswith(".partial")]
            files = os.listdir(os.path.join(folder, "volume", "snapshots"))
            # A file has a number if its snapshot was taken once more.
            self.assertEqual(sorted(names), sorted(file.partition("#")[0] for file in files))
            kept += names
        self.assertEqual(sorted(kept), sorted(listed))

    def run_with(self, action, kind, at):
        """One action with one fault; False if the fault was not reached."""
        shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
        volume, snapshots = self.prepare(action)
        fired = os.path.join(self.folder, "fired")
        if os.path.exists(fired):
            os.unlink(fired)
        driver = self.start(environment=self.environment(kind, at))
        if driver.up:
            try:
                self.act(driver.client, action, volume, snapshots)
            except grpc.RpcError as error:
                self.assertNotEqual(error.code(), grpc.StatusCode.OK)
                if kind != "kill":
                    # The same driver does it when it is asked again.
                    self.act(driver.client, action, volume, snapshots)
        # Later calls than those of the action are not what is tried.
        reached = os.path.exists(fired)
        if driver.up and reached and kind != "kill":
            self.check(driver.client, action, volume, snapshots)
        driver.stop(signal.SIGKILL)
        if not reached:
            return False
        driver = self.start()
        first = self.act(driver.client, action, volume, snapshots)
        self.assertEqual(self.act(driver.client, action, volume, snapshots), first)
        self.check(driver.client, action, volume, snapshots)
        driver.stop()
        return True

    def steps(self, action, kind, stride):
        at, done = 1, 0
        while self.run_with(action, kind, at):
            done += 1
            at += stride
        self.assertGreater(done, 1)
        print(f"{action}: {kind} at {done} of the first {at} calls", flush=True)

    # One step in a few dozen; every step with CBT_TEST_SCALE=83. A group has several volumes' steps.
    def stride(self, action):
        return max(1, (83 if action.endswith("group") else 41) // SCALE)

    def test_killed_at_every_step(self):
        for action in ACTIONS:
            with self.subTest(action=action):
                self.steps(action, "kill", self.stride(action))

    def test_disk_full_at_every_step(self):
        for action in ("create", "snapshot", "expand"):
            with self.subTest(action=action):
                self.steps(action, "enospc", max(1, 19 // SCALE))

    def test_broken_disk_at_every_step(self):
        for action in ("create", "snapshot", "delete snapshot", "group", "delete group"):
            with self.subTest(action=action):
                self.steps(action, "eio", self.stride(action))


if __name__ == "__main__":
    parts.main()
