"""`cbt-driver driver` is killed at every system call of its state, and its calls fail at every one."""

import os
import shutil
import signal
import unittest

import grpc

import driver_parts as parts
from driver_parts import MIB, from_snapshot, make_snapshot, make_volume, size

SCALE = max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))
ACTIONS = ("create", "restore", "clone", "snapshot", "expand", "delete snapshot", "delete volume")


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

    def prepare(self):
        driver = self.start()
        volume = make_volume(driver.client, "source", MIB)
        snapshots = [make_snapshot(driver.client, volume, name) for name in ("one", "two")]
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
        if action == "delete snapshot":
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
        self.assertEqual(len(volumes), action in ("create", "restore", "clone"))
        self.assertEqual(set(os.listdir(os.path.join(self.folder, "state", "volumes"))),
                         {volume, *volumes})
        kept = set(snapshots) - ({snapshots[0]} if action == "delete snapshot" else set())
        self.assertLessEqual(kept, listed)
        self.assertEqual(len(listed), len(kept) + (action == "snapshot"))
        base, target = snapshots
        if action != "delete snapshot":
            self.assertEqual(client.delta(base, target), ([], MIB))

    def run_with(self, action, kind, at):
        """One action with one fault; False if the fault was not reached."""
        shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
        volume, snapshots = self.prepare()
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

    # One step in a few dozen; every step with CBT_TEST_SCALE=41.
    def test_killed_at_every_step(self):
        for action in ACTIONS:
            with self.subTest(action=action):
                self.steps(action, "kill", max(1, 41 // SCALE))

    def test_disk_full_at_every_step(self):
        for action in ("create", "snapshot", "expand"):
            with self.subTest(action=action):
                self.steps(action, "enospc", max(1, 19 // SCALE))

    def test_broken_disk_at_every_step(self):
        for action in ("create", "snapshot", "delete snapshot"):
            with self.subTest(action=action):
                self.steps(action, "eio", max(1, 41 // SCALE))


if __name__ == "__main__":
    parts.main()
