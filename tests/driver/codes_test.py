"""Every code that the Controller and Identity services of `cbt-driver driver` promise."""

import os
import re
import signal
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import driver_parts as parts
from driver_parts import (CBT, DRIVER, MIB, Code, Mode, block, csi, from_snapshot, from_volume, make_snapshot,
                   make_volume, mount, size)


class CodesTest(parts.DriverTest):
    def setUp(self):
        super().setUp()
        self.driver = self.start()
        self.client = self.driver.client

    def test_identity_names_the_plugin_and_what_it_offers(self):
        info = self.client.GetPluginInfo()
        self.assertEqual(info.name, parts.NAME)
        self.assertTrue(info.vendor_version)
        capabilities = self.client.GetPluginCapabilities().capabilities
        self.assertEqual([one.service.type for one in capabilities if one.HasField("service")],
                         [csi.PluginCapability.Service.CONTROLLER_SERVICE,
                          csi.PluginCapability.Service.GROUP_CONTROLLER_SERVICE,
                          csi.PluginCapability.Service.VOLUME_ACCESSIBILITY_CONSTRAINTS,
                          csi.PluginCapability.Service.SNAPSHOT_METADATA_SERVICE,
                          csi.PluginCapability.Service.SNAPSHOT_ACCESSIBILITY_CONSTRAINTS])
        self.assertTrue(self.client.Probe().ready.value)
        for one in self.client.ControllerGetCapabilities().capabilities:
            self.assertTrue(one.HasField("rpc"))
        info = self.client.NodeGetInfo()
        self.assertEqual(info.node_id, "node-1")
        self.assertEqual(dict(info.accessible_topology.segments),
                         {f"topology.{parts.NAME}/node": "node-1"})

    def test_the_socket_can_be_given_to_a_group(self):
        self.driver.stop()
        group = 65532 if os.geteuid() == 0 else os.getegid()
        driver = self.start("--socket-group", str(group))
        socket = os.stat(driver.address.removeprefix("unix://"))
        self.assertEqual((socket.st_uid, socket.st_gid, socket.st_mode & 0o777),
                         (os.geteuid(), group, 0o660))

    def test_create_volume_checks_what_it_is_asked(self):
        create, ok = self.client.CreateVolume, [mount()]
        self.fails(Code.INVALID_ARGUMENT, create, volume_capabilities=ok)
        self.fails(Code.INVALID_ARGUMENT, create, name="a")
        for name in ("x" * 129, "a\nb"):
            self.fails(Code.INVALID_ARGUMENT, create, name=name, volume_capabilities=ok)
        for capability in (csi.VolumeCapability(), mount("ntfs"), mount(mode=Mode.UNKNOWN),
                           block(Mode.MULTI_NODE_MULTI_WRITER)):
            self.fails(Code.INVALID_ARGUMENT, create, name="a", volume_capabilities=[capability])
        for range_ in (size(-1), size(0, -1), size(2 * MIB, MIB)):
            self.fails(Code.INVALID_ARGUMENT, create, name="a", volume_capabilities=ok,
                       capacity_range=range_)
        for range_ in (size(1, 4095), size(2**63 - 1), size(5000, 6000)):
            self.fails(Code.OUT_OF_RANGE, create, name="a", volume_capabilities=ok,
                       capacity_range=range_)
        for parameters in ({"granularity": "x"}, {"granularity": "1000"}, {"colour": "red"}):
            self.fails(Code.INVALID_ARGUMENT, create, name="a", volume_capabilities=ok,
                       parameters=parameters)
        self.fails(Code.INVALID_ARGUMENT, create, name="a", volume_capabilities=ok,
                   mutable_parameters={"a": "b"})
        self.fails(Code.INVALID_ARGUMENT, create, name="a", volume_capabilities=ok,
                   volume_content_source=csi.VolumeContentSource())
        self.fails(Code.NOT_FOUND, create, name="a", volume_capabilities=ok,
                   volume_content_source=from_snapshot("none"))
        self.fails(Code.NOT_FOUND, create, name="a", volume_capabilities=ok,
                   volume_content_source=from_volume("../../etc"))
        elsewhere = csi.TopologyRequirement(requisite=[csi.Topology(
            segments={f"topology.{parts.NAME}/node": "node-2"})])
        self.fails(Code.RESOURCE_EXHAUSTED, create, name="a", volume_capabilities=ok,
                   accessibility_requirements=elsewhere)
        self.assertEqual(len(self.client.ListVolumes().entries), 0)
        self.assertEqual(os.listdir(os.path.join(self.driver.state, "volumes")), [])

    def test_create_volume_is_idempotent_by_name(self):
        wanted = {"name": "n" * 128, "volume_capabilities": [mount(), block()],
                  "capacity_range": size(10 * MIB, 10 * MIB),
                  "parameters": {"granularity": "64K", "csi.storage.k8s.io/pvc/name": "x"}}
        first = self.client.CreateVolume(**wanted).volume
        self.assertEqual(first.capacity_bytes, 10 * MIB)
        self.assertEqual(dict(first.accessible_topology[0].segments),
                         {f"topology.{parts.NAME}/node": "node-1"})
        again = self.client.CreateVolume(**wanted).volume
        self.assertEqual(again, first)
        self.fails(Code.ALREADY_EXISTS, self.client.CreateVolume,
                   **{**wanted, "capacity_range": size(20 * MIB, 20 * MIB)})
        self.fails(Code.ALREADY_EXISTS, self.client.CreateVolume,
                   **{**wanted, "volume_content_source": from_volume(first.volume_id)})
        # Without a size it is the default, or what the limit allows.
        self.assertEqual(self.client.CreateVolume(
            name="default", volume_capabilities=[mount()]).volume.capacity_bytes, 1 << 30)
        self.assertEqual(self.client.CreateVolume(
            name="limited", volume_capabilities=[mount()],
            capacity_range=size(0, 10000)).volume.capacity_bytes, 8192)
        self.assertEqual(self.client.CreateVolume(
            name="odd", volume_capabilities=[mount()],
            capacity_range=size(5000)).volume.capacity_bytes, 8192)

    def test_mg_a_volume_of_the_name_with_another_granularity_is_another(self):
        wanted = {"name": "a", "volume_capabilities": [mount()], "capacity_range": size(MIB)}
        made = self.client.CreateVolume(**wanted, parameters={"granularity": "64K"}).volume
        for parameters in ({"granularity": "32K"}, {}):
            self.fails(Code.ALREADY_EXISTS, self.client.CreateVolume, **wanted,
                       parameters=parameters)
        self.assertEqual(self.client.CreateVolume(
            **wanted, parameters={"granularity": "65536"}).volume, made)

    def test_mg_a_capacity_that_cannot_be_is_out_of_range(self):
        volume = make_volume(self.client, "small")
        for required in ((1 << 50) + 1, 2 << 50, 1 << 60, 2**63 - 1):
            self.fails(Code.OUT_OF_RANGE, self.client.CreateVolume, name="large",
                       volume_capabilities=[mount()], capacity_range=size(required))
            self.fails(Code.OUT_OF_RANGE, self.client.ControllerExpandVolume, volume_id=volume,
                       capacity_range=size(required))
        self.assertEqual(len(self.client.ListVolumes().entries), 1)

    def test_delete_volume(self):
        self.fails(Code.INVALID_ARGUMENT, self.client.DeleteVolume)
        self.client.DeleteVolume(volume_id="unknown")
        self.client.DeleteVolume(volume_id="..")
        volume = make_volume(self.client, "a")
        self.client.DeleteVolume(volume_id=volume)
        self.client.DeleteVolume(volume_id=volume)
        self.assertEqual(os.listdir(os.path.join(self.driver.state, "volumes")), [])
        self.assertNotEqual(make_volume(self.client, "a"), volume)

    def test_lists_of_volumes(self):
        self.fails(Code.ABORTED, self.client.ListVolumes, starting_token="invalid-token")
        self.fails(Code.INVALID_ARGUMENT, self.client.ListVolumes, max_entries=-1)
        made = {make_volume(self.client, str(i)) for i in range(5)}
        self.assertEqual({one.volume.volume_id for one in self.client.ListVolumes().entries}, made)
        found, token = [], ""
        while True:
            page = self.client.ListVolumes(max_entries=2, starting_token=token)
            found += [one.volume.volume_id for one in page.entries]
            token = page.next_token
            if not token:
                break
            # A token survives the entry that it names.
            self.client.DeleteVolume(volume_id=found[-1])
        self.assertEqual(set(found), made)
        self.assertEqual(len(found), 5)

    def test_get_volume_and_validate(self):
        get, validate = self.client.ControllerGetVolume, self.client.ValidateVolumeCapabilities
        self.fails(Code.INVALID_ARGUMENT, get)
        self.fails(Code.NOT_FOUND, get, volume_id="unknown")
        volume = make_volume(self.client, "a")
        self.assertEqual(get(volume_id=volume).volume.capacity_bytes, 4 * MIB)
        self.fails(Code.INVALID_ARGUMENT, validate, volume_capabilities=[mount()])
        self.fails(Code.INVALID_ARGUMENT, validate, volume_id=volume)
        self.fails(Code.NOT_FOUND, validate, volume_id="unknown", volume_capabilities=[mount()])
        confirmed = validate(volume_id=volume, volume_capabilities=[mount(), block()])
        self.assertEqual(len(confirmed.confirmed.volume_capabilities), 2)
        refused = validate(volume_id=volume,
                           volume_capabilities=[block(Mode.MULTI_NODE_MULTI_WRITER)])
        self.assertFalse(refused.HasField("confirmed"))
        refused = validate(volume_id=volume, volume_capabilities=[block()],
                           mutable_parameters={"colour": "red"})
        self.assertFalse(refused.HasField("confirmed"))
        self.assertTrue(refused.message)

    def test_expand(self):
        expand = self.client.ControllerExpandVolume
        self.fails(Code.INVALID_ARGUMENT, expand, capacity_range=size(MIB))
        volume = make_volume(self.client, "a")
        self.fails(Code.INVALID_ARGUMENT, expand, volume_id=volume)
        self.fails(Code.INVALID_ARGUMENT, expand, volume_id=volume, capacity_range=size(0))
        self.fails(Code.INVALID_ARGUMENT, expand, volume_id=volume, capacity_range=size(8 * MIB),
                   volume_capability=block(Mode.MULTI_NODE_MULTI_WRITER))
        self.fails(Code.NOT_FOUND, expand, volume_id="unknown", capacity_range=size(MIB))
        self.fails(Code.OUT_OF_RANGE, expand, volume_id=volume,
                   capacity_range=size(MIB, 2 * MIB))
        first = make_snapshot(self.client, volume, "before")
        grown = expand(volume_id=volume, capacity_range=size(8 * MIB, 8 * MIB))
        self.assertEqual(grown.capacity_bytes, 8 * MIB)
        self.assertTrue(grown.node_expansion_required)
        again = expand(volume_id=volume, capacity_range=size(8 * MIB),
                       volume_capability=block())
        self.assertEqual(again.capacity_bytes, 8 * MIB)
        self.assertFalse(again.node_expansion_required)
        self.assertEqual(self.client.ListVolumes().entries[0].volume.capacity_bytes, 8 * MIB)
        second = make_snapshot(self.client, volume, "after")
        self.assertEqual(self.client.delta(first, second)[1], 8 * MIB)

    def test_create_snapshot(self):
        create = self.client.CreateSnapshot
        one, two = make_volume(self.client, "one"), make_volume(self.client, "two")
        self.fails(Code.INVALID_ARGUMENT, create, source_volume_id=one)
        self.fails(Code.INVALID_ARGUMENT, create, name="a")
        self.fails(Code.INVALID_ARGUMENT, create, name="a" * 129, source_volume_id=one)
        self.fails(Code.INVALID_ARGUMENT, create, name="a", source_volume_id=one,
                   parameters={"colour": "red"})
        self.fails(Code.NOT_FOUND, create, name="a", source_volume_id="unknown")
        before = time.time()
        first = create(name="s" * 128, source_volume_id=one).snapshot
        self.assertEqual((first.source_volume_id, first.size_bytes), (one, 4 * MIB))
        self.assertGreater(first.creation_time.seconds, before - 2)
        self.assertLess(first.creation_time.seconds, time.time() + 2)
        again = create(name="s" * 128, source_volume_id=one).snapshot
        self.assertEqual(again.snapshot_id, first.snapshot_id)
        self.assertEqual(again.creation_time, first.creation_time)
        self.fails(Code.ALREADY_EXISTS, create, name="s" * 128, source_volume_id=two)
        self.assertTrue(self.client.ListSnapshots(
            snapshot_id=make_snapshot(self.client, one, "s" * 128)).entries[0]
                        .snapshot.ready_to_use)

    def test_delete_and_get_snapshot(self):
        self.fails(Code.INVALID_ARGUMENT, self.client.DeleteSnapshot)
        self.client.DeleteSnapshot(snapshot_id="unknown")
        self.client.DeleteSnapshot(snapshot_id="../..")
        self.fails(Code.INVALID_ARGUMENT, self.client.GetSnapshot)
        volume = make_volume(self.client, "a")
        snapshot = make_snapshot(self.client, volume, "s")
        self.assertEqual(self.client.GetSnapshot(snapshot_id=snapshot).snapshot.snapshot_id,
                         snapshot)
        self.client.DeleteSnapshot(snapshot_id=snapshot)
        self.client.DeleteSnapshot(snapshot_id=snapshot)
        self.fails(Code.NOT_FOUND, self.client.GetSnapshot, snapshot_id=snapshot)
        # A name may come back; its id never does, or an old base would lie about what changed.
        self.assertNotEqual(make_snapshot(self.client, volume, "s"), snapshot)

    def test_lists_of_snapshots(self):
        lists = self.client.ListSnapshots
        self.fails(Code.ABORTED, lists, starting_token="invalid-token")
        self.fails(Code.INVALID_ARGUMENT, lists, max_entries=-1)
        self.assertEqual(len(lists().entries), 0)
        volumes = [make_volume(self.client, name) for name in ("a", "b")]
        made = {volume: {make_snapshot(self.client, volume, f"{volume}-{i}") for i in range(3)}
                for volume in volumes}
        everything = set().union(*made.values())

        def ids(answer):
            return [one.snapshot.snapshot_id for one in answer.entries]

        self.assertEqual(sorted(ids(lists())), sorted(everything))
        for volume in volumes:
            self.assertEqual(set(ids(lists(source_volume_id=volume))), made[volume])
        one = next(iter(made[volumes[0]]))
        self.assertEqual(ids(lists(snapshot_id=one)), [one])
        self.assertEqual(ids(lists(snapshot_id=one, source_volume_id=volumes[1])), [])
        for answer in (lists(snapshot_id="unknown"), lists(source_volume_id="unknown")):
            self.assertEqual(ids(answer), [])
        page = lists(max_entries=2)
        self.assertEqual(len(page.entries), 2)
        self.assertTrue(page.next_token)
        rest = lists(starting_token=page.next_token)
        self.assertEqual(len(rest.entries), 4)
        self.assertEqual(set(ids(page)) | set(ids(rest)), everything)
        page = lists(max_entries=2, source_volume_id=volumes[0])
        rest = lists(starting_token=page.next_token, source_volume_id=volumes[0])
        self.assertEqual(set(ids(page)) | set(ids(rest)), made[volumes[0]])

    def test_snapshots_outlive_their_volume(self):
        volume = make_volume(self.client, "a")
        snapshots = [make_snapshot(self.client, volume, name) for name in ("one", "two")]
        self.client.DeleteVolume(volume_id=volume)
        self.assertEqual(len(self.client.ListVolumes().entries), 0)
        self.fails(Code.NOT_FOUND, self.client.CreateSnapshot, name="three",
                   source_volume_id=volume)
        self.assertEqual(len(self.client.ListSnapshots(source_volume_id=volume).entries), 2)
        self.assertEqual(self.client.delta(*snapshots), ([], 4 * MIB))
        restored = make_volume(self.client, "b",
                               volume_content_source=from_snapshot(snapshots[0]))
        self.assertNotEqual(restored, volume)
        self.assertEqual(self.driver.stop(), 0)
        self.client = self.start().client
        for snapshot in snapshots:
            self.client.DeleteSnapshot(snapshot_id=snapshot)
        self.assertEqual(os.listdir(os.path.join(self.driver.state, "volumes")), [restored])

    def test_volumes_from_snapshots_and_clones(self):
        volume = make_volume(self.client, "a")
        snapshot = make_snapshot(self.client, volume, "s")
        for source in (from_snapshot(snapshot), from_volume(volume)):
            made = self.client.CreateVolume(
                name="from " + source.WhichOneof("type"), volume_capabilities=[mount()],
                volume_content_source=source).volume
            self.assertEqual(made.content_source, source)
            self.assertEqual(made.capacity_bytes, 4 * MIB)
            again = self.client.CreateVolume(
                name="from " + source.WhichOneof("type"), volume_capabilities=[mount()],
                volume_content_source=source).volume
            self.assertEqual(again, made)
            self.fails(Code.OUT_OF_RANGE, self.client.CreateVolume, name="small",
                       volume_capabilities=[mount()], volume_content_source=source,
                       capacity_range=size(MIB, 2 * MIB))
            larger = self.client.CreateVolume(
                name="larger from " + source.WhichOneof("type"), volume_capabilities=[mount()],
                volume_content_source=source, capacity_range=size(6 * MIB)).volume
            self.assertEqual(larger.capacity_bytes, 6 * MIB)
        # What a clone needed in between is gone.
        self.assertEqual(len(self.client.ListSnapshots().entries), 1)
        folder = os.path.join(self.driver.state, "volumes", volume, "volume", "snapshots")
        self.assertEqual(len(os.listdir(folder)), 1)

    def test_snapshots_are_on_one_node(self):
        here, there = (csi.Topology(segments={f"topology.{parts.NAME}/node": f"node-{i}"}) for i in (1, 2))
        volume = make_volume(self.client, "a")
        self.fails(Code.RESOURCE_EXHAUSTED, self.client.CreateSnapshot, source_volume_id=volume, name="s",
                   accessibility_requirements=csi.TopologyRequirement(requisite=[there]))
        taken = self.client.CreateSnapshot(
            source_volume_id=volume, name="s",
            accessibility_requirements=csi.TopologyRequirement(requisite=[there, here])).snapshot
        self.assertEqual(list(taken.accessible_topology), [here])
        listed = self.client.ListSnapshots().entries[0].snapshot
        self.assertEqual(list(listed.accessible_topology), [here])

    def test_calls_without_meaning_here(self):
        self.fails(Code.UNIMPLEMENTED, self.client.ControllerPublishVolume, volume_id="a")
        self.fails(Code.UNIMPLEMENTED, self.client.ControllerUnpublishVolume, volume_id="a")
        self.fails(Code.UNIMPLEMENTED, self.client.ControllerModifyVolume, volume_id="a")

    def test_metadata_knows_its_snapshots(self):
        one, two = make_volume(self.client, "one"), make_volume(self.client, "two")
        a, b = make_snapshot(self.client, one, "a"), make_snapshot(self.client, one, "b")
        other = make_snapshot(self.client, two, "other")
        self.assertEqual(self.client.delta(a, b), ([], 4 * MIB))
        self.assertEqual(self.client.delta(a, a), ([], 4 * MIB))
        self.assertEqual(self.client.allocated(a), ([], 4 * MIB))
        self.fails(Code.INVALID_ARGUMENT, self.client.delta, b, a)
        self.fails(Code.INVALID_ARGUMENT, self.client.delta, a, other)
        self.fails(Code.NOT_FOUND, self.client.delta, a, "unknown")
        self.fails(Code.NOT_FOUND, self.client.delta, "unknown", a)
        self.fails(Code.NOT_FOUND, self.client.allocated, "unknown")
        self.fails(Code.INVALID_ARGUMENT, self.client.allocated, "")

    def test_e21_a_deleted_snapshot_stays_the_base_of_deltas(self):
        one, two = make_volume(self.client, "one"), make_volume(self.client, "two")
        base, middle = make_snapshot(self.client, one, "a"), make_snapshot(self.client, one, "b")
        other = make_snapshot(self.client, two, "other")
        target = make_snapshot(self.client, one, "c")
        for deleted in (base, middle, other):
            self.client.DeleteSnapshot(snapshot_id=deleted)
        self.assertEqual([entry.snapshot.snapshot_id for entry in self.client.ListSnapshots().entries], [target])
        for _ in range(2):
            self.assertEqual(self.client.delta(base, target), ([], 4 * MIB))
            self.assertEqual(self.client.delta(middle, target), ([], 4 * MIB))
            self.fails(Code.NOT_FOUND, self.client.delta, base, middle)
            self.fails(Code.NOT_FOUND, self.client.delta, other, target)
            self.fails(Code.NOT_FOUND, self.client.allocated, base)
            self.fails(Code.NOT_FOUND, self.client.CreateVolume, name="restored",
                       volume_capabilities=[mount()], volume_content_source=from_snapshot(base))
            self.driver.stop()
            self.driver = self.start()
            self.client = self.driver.client
        # A volume that was made from a snapshot has a history of its own.
        made = self.client.CreateVolume(name="made", volume_capabilities=[mount()],
                                        volume_content_source=from_snapshot(target)).volume.volume_id
        self.fails(Code.NOT_FOUND, self.client.delta, base, make_snapshot(self.client, made, "of made"))
        # The last snapshot is deleted: nothing to compare with, until there is another.
        self.client.DeleteSnapshot(snapshot_id=target)
        self.fails(Code.NOT_FOUND, self.client.delta, base, target)
        newest = make_snapshot(self.client, one, "d")
        for each in (base, middle, target):
            self.assertEqual(self.client.delta(each, newest), ([], 4 * MIB))
        # A volume that only its snapshots keep goes with the last of them, marks or not.
        self.client.DeleteVolume(volume_id=one)
        self.assertEqual(self.client.delta(base, newest), ([], 4 * MIB))
        self.client.DeleteSnapshot(snapshot_id=newest)
        self.assertFalse(os.path.exists(os.path.join(self.driver.state, "volumes", one)))


class ProcessTest(parts.DriverTest):
    def test_e22_marks_are_limited(self):
        driver = self.start("--marks", 2)
        volume = make_volume(driver.client, "v")
        taken = [make_snapshot(driver.client, volume, f"s{i}") for i in range(5)]
        for snapshot in taken[:4]:
            driver.client.DeleteSnapshot(snapshot_id=snapshot)
        for snapshot in taken[:2]:
            self.fails(Code.NOT_FOUND, driver.client.delta, snapshot, taken[4])
        for snapshot in taken[2:4]:
            self.assertEqual(driver.client.delta(snapshot, taken[4]), ([], 4 * MIB))
        for options in (("--marks", 0), ("--mark-days", 0), ("--mark-bytes", 0)):
            driver.stop()
            driver = self.start(*options)
            more = [make_snapshot(driver.client, volume, f"{options}{i}") for i in range(2)]
            driver.client.DeleteSnapshot(snapshot_id=more[0])
            for snapshot in (*taken[2:4], more[0]):
                self.fails(Code.NOT_FOUND, driver.client.delta, snapshot, more[1])

    def test_a_second_driver_is_refused(self):
        self.start()
        for endpoint in ("other.sock", "csi.sock"):
            state = "state" if endpoint == "other.sock" else "other"
            second = subprocess.run(
                [DRIVER, "driver", "--endpoint", f"unix://{self.folder}/{endpoint}", "--state-dir",
                 f"{self.folder}/{state}", "--node-id", "n"], capture_output=True, text=True)
            self.assertNotEqual(second.returncode, 0)
            self.assertRegex(second.stderr, r"^cbt-driver: driver: .*(in use|another|open)")

    def test_the_limit_of_capacity(self):
        client = self.start("--capacity", "10M").client
        self.assertLessEqual(client.GetCapacity().available_capacity, 10 * MIB)
        volume = make_volume(client, "a", 6 * MIB)
        self.fails(Code.RESOURCE_EXHAUSTED, make_volume, client, "b", 5 * MIB)
        self.assertEqual(client.GetCapacity().available_capacity, 4 * MIB)
        self.fails(Code.RESOURCE_EXHAUSTED, client.ControllerExpandVolume, volume_id=volume,
                   capacity_range=size(11 * MIB))
        client.ControllerExpandVolume(volume_id=volume, capacity_range=size(10 * MIB))
        self.assertEqual(client.GetCapacity().available_capacity, 0)
        self.assertEqual(client.GetCapacity(volume_capabilities=[
            block(Mode.MULTI_NODE_MULTI_WRITER)]).available_capacity, 0)
        client.DeleteVolume(volume_id=volume)
        self.assertEqual(client.GetCapacity(accessible_topology=csi.Topology(
            segments={f"topology.{parts.NAME}/node": "node-2"})).available_capacity, 0)
        make_volume(client, "b", 10 * MIB)

    def test_metrics_and_probes(self):
        token = os.path.join(self.folder, "token")
        with open(token, "w", encoding="ascii") as file:
            file.write("of the scraper\n")
        driver = self.start("--http-endpoint", "127.0.0.1:0", "--log-level", "info",
                            "--metrics-token", token)
        client = driver.client
        volume = make_volume(client, "a")
        snapshot = make_snapshot(client, volume, "s")
        client.allocated(snapshot)
        self.fails(Code.NOT_FOUND, client.GetSnapshot, snapshot_id="snap-unknown")
        # The kernel knows the port.
        port = listening_port(driver.process.pid)
        for page in ("healthz", "livez", "readyz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
                self.assertEqual(answer.read().strip(), b"ok")
        with self.assertRaisesRegex(urllib.error.HTTPError, "401"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
        with urllib.request.urlopen(urllib.request.Request(
                f"http://127.0.0.1:{port}/metrics",
                headers={"Authorization": "Bearer of the scraper"})) as answer:
            text = answer.read().decode()
        self.assertIn('csi_sidecar_operations_seconds_count{driver_name="cbt.csi.example.com",'
                      'grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1',
                      text.replace(', ', ','))
        self.assertIn('grpc_status_code="NotFound"', text)
        self.assertIn('cbt_streams_total', text)
        self.assertNotIn("snap-unknown", text)

    def test_metrics_over_tls(self):
        certificate, key = (os.path.join(self.folder, name) for name in ("tls.crt", "tls.key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        driver = self.start("--http-endpoint", "127.0.0.1:0", "--metrics-tls-cert", certificate,
                            "--metrics-tls-key", key)
        address = f"https://127.0.0.1:{listening_port(driver.process.pid)}"
        trust = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(f"{address}/readyz", context=trust) as answer:
            self.assertEqual(answer.read().strip(), b"ok")
        with urllib.request.urlopen(f"{address}/metrics", context=trust) as answer:
            (end,) = re.findall(r'^cbt_certificate_expiry_timestamp_seconds{file="[^"]*"} (.*)$',
                                answer.read().decode(), re.MULTILINE)
        self.assertAlmostEqual(float(end), time.time() + 2 * 86400, delta=3600)
        with self.assertRaises(urllib.error.URLError):
            urllib.request.urlopen(f"{address}/metrics", context=ssl.create_default_context())

    def test_wrong_options_are_usage_errors(self):
        for wrong in (["--driver-name", "1.example.com"], ["--driver-name", "x" * 64],
                      ["--node-id", ""], ["--state-dir", "relative"],
                      ["--endpoint", "127.0.0.1:1"], ["--capacity", "much"],
                      ["--state-dir", "/tmp/" + "x" * 60]):
            options = {"--node-id": "n", "--state-dir": f"{self.folder}/state",
                       "--endpoint": f"unix://{self.folder}/csi.sock"}
            options.update([wrong])
            done = subprocess.run([DRIVER, "driver", *[part for pair in options.items()
                                                    for part in pair]],
                                  capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 2, (wrong, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_stop_ends_cleanly_and_state_remains(self):
        driver = self.start()
        volume = make_volume(driver.client, "a")
        snapshot = make_snapshot(driver.client, volume, "s")
        self.assertEqual(driver.stop(), 0)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "csi.sock")))
        for how in (signal.SIGKILL, signal.SIGTERM):
            driver = self.start()
            self.assertEqual(make_volume(driver.client, "a"), volume)
            self.assertEqual(make_snapshot(driver.client, volume, "s"), snapshot)
            driver.stop(how)

    def test_conform_has_no_complaint(self):
        driver = self.start()
        volume = make_volume(driver.client, "a", 16 * MIB)
        names = [make_snapshot(driver.client, volume, name) for name in ("one", "two")]
        foreign = make_snapshot(driver.client, make_volume(driver.client, "b", 16 * MIB), "other")
        command = [CBT, "conform", driver.address, "--base", names[0], "--snapshot", names[1],
                   "--foreign-base", foreign]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The driver alone knows of which volume a deleted snapshot was.
        driver.client.DeleteSnapshot(snapshot_id=foreign)
        done = subprocess.run([*command, "--verbose"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("base-foreign", done.stdout)


def listening_port(pid):
    """The port of the process's only listening TCP socket."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return int(fields[1].split(":")[1], 16)
    raise AssertionError("the driver listens on no TCP port")


if __name__ == "__main__":
    parts.main()
