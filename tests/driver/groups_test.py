"""Group snapshots by `cbt-driver driver`: their codes, and volumes that are written to meanwhile."""

import signal
import threading
import time
import unittest

import grpc

import driver_parts as parts
from driver_parts import MIB, Code, csi, from_snapshot, make_snapshot, make_volume
from served_parts import BLOCK, Model, Served, ServedTest, blocks_of, differing, read_blocks

ROUNDS = 8
KILLS = 6


def members_of(group):
    return [one.snapshot_id for one in group.snapshots]


class GroupCodesTest(parts.DriverTest):
    def setUp(self):
        super().setUp()
        self.client = self.start().client
        self.volumes = [make_volume(self.client, name) for name in ("a", "b")]

    def group(self, name="g", volumes=None):
        return self.client.CreateVolumeGroupSnapshot(
            name=name, source_volume_ids=volumes or self.volumes).group_snapshot

    def test_the_service_says_what_it_does(self):
        capabilities = self.client.GroupControllerGetCapabilities().capabilities
        self.assertEqual([one.rpc.type for one in capabilities],
                         [csi.GroupControllerServiceCapability.RPC
                          .CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT])

    def test_a_group_has_a_snapshot_of_each_volume(self):
        group = self.group()
        self.assertEqual({one.source_volume_id for one in group.snapshots}, set(self.volumes))
        for one in group.snapshots:
            self.assertEqual((one.group_snapshot_id, one.size_bytes),
                             (group.group_snapshot_id, 4 * MIB))
            self.assertTrue(one.creation_time.seconds)
            self.assertEqual(dict(one.accessible_topology[0].segments),
                             {f"topology.{parts.NAME}/node": "node-1"})
        self.assertLessEqual(group.creation_time.ToNanoseconds(),
                             min(one.creation_time.ToNanoseconds() for one in group.snapshots))
        self.assertTrue(group.ready_to_use)
        self.assertEqual(self.client.GetVolumeGroupSnapshot(
            group_snapshot_id=group.group_snapshot_id,
            snapshot_ids=members_of(group)).group_snapshot, group)
        self.assertEqual(self.group(), group)
        listed = self.client.ListSnapshots().entries
        self.assertEqual({one.snapshot.group_snapshot_id for one in listed},
                         {group.group_snapshot_id})
        alone = make_snapshot(self.client, self.volumes[0], "alone")
        self.assertEqual(self.client.ListSnapshots(snapshot_id=alone).entries[0]
                         .snapshot.group_snapshot_id, "")
        # A member is a snapshot like others.
        self.assertTrue(make_volume(self.client, "restored", volume_content_source=from_snapshot(
            members_of(group)[0])))
        self.assertEqual(self.client.delta(alone, alone)[0], [])
        found = self.client.delta(next(one.snapshot_id for one in group.snapshots
                                       if one.source_volume_id == self.volumes[0]), alone)
        self.assertEqual(found, ([], 4 * MIB))

    def test_codes(self):
        create, get, delete = (self.client.CreateVolumeGroupSnapshot,
                               self.client.GetVolumeGroupSnapshot,
                               self.client.DeleteVolumeGroupSnapshot)
        self.fails(Code.INVALID_ARGUMENT, create, source_volume_ids=self.volumes)
        self.fails(Code.INVALID_ARGUMENT, create, name="a\n", source_volume_ids=self.volumes)
        self.fails(Code.INVALID_ARGUMENT, create, name="a")
        self.fails(Code.INVALID_ARGUMENT, create, name="a",
                   source_volume_ids=[self.volumes[0]] * 2)
        self.fails(Code.INVALID_ARGUMENT, create, name="a",
                   source_volume_ids=[f"vol-{i:024}" for i in range(65)])
        self.fails(Code.INVALID_ARGUMENT, create, name="a", source_volume_ids=self.volumes,
                   parameters={"colour": "red"})
        self.fails(Code.NOT_FOUND, create, name="a", source_volume_ids=[*self.volumes, "../x"])
        self.fails(Code.INVALID_ARGUMENT, get)
        self.fails(Code.NOT_FOUND, get, group_snapshot_id="none")
        self.fails(Code.INVALID_ARGUMENT, delete)
        delete(group_snapshot_id="none", snapshot_ids=["x"])
        self.assertEqual(len(self.client.ListSnapshots().entries), 0)
        group = create(name="a", source_volume_ids=self.volumes, parameters={
            "csi.storage.k8s.io/volumegroupsnapshot/name": "x"}).group_snapshot
        self.fails(Code.ALREADY_EXISTS, create, name="a", source_volume_ids=self.volumes[:1])
        named = {"group_snapshot_id": group.group_snapshot_id}
        for wrong in (["x"], members_of(group)[:1], [*members_of(group), "x"]):
            self.fails(Code.INVALID_ARGUMENT, get, **named, snapshot_ids=wrong)
            self.fails(Code.INVALID_ARGUMENT, delete, **named, snapshot_ids=wrong)
        details = self.fails(Code.INVALID_ARGUMENT, self.client.DeleteSnapshot,
                             snapshot_id=members_of(group)[0])
        self.assertIn(group.group_snapshot_id, details)
        for _ in range(2):
            delete(**named, snapshot_ids=members_of(group))
        self.fails(Code.NOT_FOUND, get, **named, snapshot_ids=members_of(group))
        self.assertEqual(len(self.client.ListSnapshots().entries), 0)


class Counting(threading.Thread):
    """Writes 1, 2, 3 ... to the first block of each volume in turn, and to one of the others."""

    def __init__(self, served):
        super().__init__(daemon=True)
        self.served, self.written, self.error, self.stopping = served, 0, None, threading.Event()

    def run(self):
        try:
            while not self.stopping.is_set():
                number = self.written + 1
                for one in self.served:
                    one.nbd.write(0, Model.data(number, 1))
                    one.nbd.write((1 + number % 200) * BLOCK, Model.data(number, 1))
                self.written = number
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def wait_for_more(self, test, seconds=60):
        now, late = self.written, time.monotonic() + seconds
        while self.written < now + 3:
            test.assertIsNone(self.error)
            test.assertLess(time.monotonic(), late, "writes are held for too long")
            time.sleep(0.001)

    def end(self, test):
        self.stopping.set()
        self.join()
        test.assertIsNone(self.error)


class GroupWritesTest(ServedTest):
    def prepare(self):
        driver = self.start()
        volumes = [make_volume(driver.client, name, 4 * MIB) for name in ("a", "b", "c")]
        served = [Served(self, driver, volume) for volume in volumes]
        self.assertTrue(all(one.up for one in served), self.logged())
        writer = Counting(served)
        writer.start()
        return driver, volumes, writer

    def group(self, client, name, volumes):
        """The members of a group that is ready, in the order of the volumes."""
        while True:
            made = client.CreateVolumeGroupSnapshot(
                name=name, source_volume_ids=volumes).group_snapshot
            if made.ready_to_use:
                found = {one.source_volume_id: one.snapshot_id for one in made.snapshots}
                return [found[volume] for volume in volumes]
            time.sleep(0.01)

    def check_moment(self, driver, volumes, members):
        """Returns what each member holds."""
        images = [read_blocks(self.file_of(driver, *both)) for both in zip(volumes, members)]
        numbers = [int.from_bytes(image[0][:8], "little") for image in images]
        for earlier, later in zip(numbers, numbers[1:]):
            self.assertIn(earlier - later, (0, 1), numbers)
        self.assertIn(numbers[0] - numbers[-1], (0, 1), numbers)
        return images

    def test_members_are_of_one_moment_and_deltas_are_exact(self):
        driver, volumes, writer = self.prepare()
        before = None
        for i in range(ROUNDS):
            writer.wait_for_more(self)
            members = self.group(driver.client, str(i), volumes)
            images = self.check_moment(driver, volumes, members)
            if before is not None:
                for (base, old), target, new in zip(before, members, images):
                    found, capacity = driver.client.delta(base, target)
                    self.assertEqual(capacity, 4 * MIB)
                    self.assertEqual(blocks_of(found), differing(old, new))
            before = list(zip(members, images))
        writer.end(self)

    def test_a_driver_that_is_killed_holds_nothing(self):
        driver, volumes, writer = self.prepare()
        for i in range(KILLS):
            writer.wait_for_more(self)
            name, done = str(i), threading.Event()

            def call(client=driver.client, name=name, done=done):
                try:
                    client.CreateVolumeGroupSnapshot(name=name, source_volume_ids=volumes)
                except grpc.RpcError:
                    pass
                done.set()

            caller = threading.Thread(target=call, daemon=True)
            caller.start()
            done.wait(0.004 * i)
            driver.process.send_signal(signal.SIGKILL)
            driver.process.wait(60)
            caller.join()
            driver.stop()
            # No write waits for the time of a hold to pass.
            writer.wait_for_more(self, seconds=15)
            driver = self.start()
            listed = [one.snapshot for one in driver.client.ListSnapshots().entries]
            groups = {one.group_snapshot_id for one in listed}
            self.assertEqual(len(listed), len(groups) * len(volumes))
            self.check_moment(driver, volumes, self.group(driver.client, name, volumes))
            self.assertEqual(len(driver.client.ListSnapshots().entries), (i + 1) * len(volumes))
        writer.end(self)


if __name__ == "__main__":
    parts.main()
