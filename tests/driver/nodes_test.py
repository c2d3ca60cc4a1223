"""Two drivers of one name, as on two nodes: neither answers for what is on the other one, and a call that
goes astray changes nothing there."""

import os

import driver_parts as parts
from driver_parts import MIB, Code, block, csi, from_snapshot, from_volume, make_volume, size
from served_parts import BLOCK, Model, Served, ServedTest


def requirement(*nodes):
    return csi.TopologyRequirement(requisite=[
        csi.Topology(segments={f"topology.{parts.NAME}/node": node}) for node in nodes])


class NodesTest(ServedTest):
    def setUp(self):
        super().setUp()
        self.here, self.there = (self.on(node) for node in ("node-1", "node-2"))
        self.volume = make_volume(self.here.client, "a", MIB)
        served = Served(self, self.here, self.volume)
        self.assertTrue(served.up, self.logged())
        served.nbd.write(0, Model.data(1, 1))
        self.first = self.snapshot(self.here.client, self.volume, "first")
        served.nbd.write(BLOCK, Model.data(2, 1))
        self.second = self.snapshot(self.here.client, self.volume, "second")

    def on(self, node):
        self.folder_of_state = os.path.join(self.folder, node)
        os.mkdir(self.folder_of_state)
        return self.start(node=node)

    def has_all(self):
        """What was made here is here, with its changes."""
        client = self.here.client
        self.assertEqual({one.snapshot.snapshot_id for one in client.ListSnapshots().entries},
                         {self.first, self.second})
        self.assertEqual([one.volume.volume_id for one in client.ListVolumes().entries],
                         [self.volume])
        self.assertEqual(client.delta(self.first, self.second), ([(BLOCK, BLOCK)], MIB))
        self.assertEqual(client.allocated(self.first), ([(0, BLOCK)], MIB))

    def test_metadata_is_never_answered_by_another_node(self):
        # An empty stream that ends with OK would be a backup without the changes.
        client = self.there.client
        mine = make_volume(client, "a", MIB)
        own = self.snapshot(client, mine, "first")
        self.fails(Code.NOT_FOUND, client.allocated, self.second)
        self.fails(Code.NOT_FOUND, client.delta, self.first, self.second)
        # Of one node each, in both directions.
        self.fails(Code.NOT_FOUND, client.delta, self.first, own)
        self.fails(Code.NOT_FOUND, client.delta, own, self.second)
        self.has_all()

    def test_a_snapshot_of_a_name_is_of_its_node(self):
        client = self.there.client
        mine = make_volume(client, "a", MIB)
        self.assertNotEqual(mine, self.volume)
        self.assertNotIn(self.snapshot(client, mine, "first"), (self.first, self.second))
        self.fails(Code.NOT_FOUND, client.CreateSnapshot, source_volume_id=self.volume,
                   name="third")
        self.has_all()

    def test_nothing_is_restored_on_another_node(self):
        for source in (from_snapshot(self.first), from_volume(self.volume)):
            self.fails(Code.NOT_FOUND, self.there.client.CreateVolume, name="b",
                       volume_capabilities=[block()], capacity_range=size(MIB),
                       volume_content_source=source)
            # Where both nodes would do, the one that has the source makes it.
            made = self.here.client.CreateVolume(
                name="b", volume_capabilities=[block()], capacity_range=size(MIB),
                volume_content_source=source,
                accessibility_requirements=requirement("node-2", "node-1")).volume
            self.assertEqual([dict(one.segments) for one in made.accessible_topology],
                             [{f"topology.{parts.NAME}/node": "node-1"}])
            self.here.client.DeleteVolume(volume_id=made.volume_id)
        self.assertEqual(len(self.there.client.ListVolumes().entries), 0)

    def test_a_volume_is_made_on_the_node_that_is_asked_for(self):
        for driver, node, other in ((self.here, "node-1", "node-2"),
                                    (self.there, "node-2", "node-1")):
            self.assertEqual(driver.client.NodeGetInfo().node_id, node)
            self.fails(Code.RESOURCE_EXHAUSTED, driver.client.CreateVolume, name="b",
                       volume_capabilities=[block()],
                       accessibility_requirements=requirement(other))
            make_volume(driver.client, "b", MIB, accessibility_requirements=requirement(node))

    def test_a_deletion_that_goes_astray_deletes_nothing(self):
        # OK, as CSI wants it for what is not there: who sends it to the wrong node leaves the data.
        self.there.client.DeleteSnapshot(snapshot_id=self.first)
        self.there.client.DeleteVolume(volume_id=self.volume)
        self.fails(Code.NOT_FOUND, self.there.client.ControllerExpandVolume,
                   volume_id=self.volume, capacity_range=size(2 * MIB))
        self.has_all()

    def test_a_node_that_is_gone_is_not_answered_for(self):
        self.here.stop()
        self.fails(Code.NOT_FOUND, self.there.client.delta, self.first, self.second)
        self.assertEqual(len(self.there.client.ListSnapshots().entries), 0)
        self.here = self.start_again()
        self.has_all()

    def start_again(self):
        self.folder_of_state = os.path.join(self.folder, "node-1")
        return self.start(node="node-1")


if __name__ == "__main__":
    parts.main()
