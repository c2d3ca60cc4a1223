"""A volume of `cbt-driver driver` that is served over NBD: it grows while it is written to, control clients
vanish, and what is secret stays so."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

import driver_parts as parts
import grpc
from driver_parts import MIB, Code, from_snapshot, make_volume, mount, size
from served_parts import BLOCK, Model, Served, ServedTest, blocks_of, differing, read_blocks


class Writer(threading.Thread):
    """Writes to blocks of its own, over connections of its own, until it is stopped. Where the
    volume ends, a new connection finds."""

    def __init__(self, served, number, count):
        super().__init__(daemon=True)
        self.served, self.number, self.count = served, number, count
        self.random = random.Random(number)
        self.version = number << 32
        self.blocks = {}  # acknowledged
        self.highest = 0
        self.error = None
        self.stopping = threading.Event()
        self.hold = threading.Lock()  # held while it writes

    def run(self):
        try:
            while not self.stopping.is_set():
                with self.hold:
                    nbd = self.served.connect()
                    blocks = nbd.size // BLOCK
                    for _ in range(5):
                        at = self.random.randrange(blocks // self.count) * self.count + self.number
                        self.version += 1
                        nbd.write(at * BLOCK, Model.data(self.version, 1))
                        self.blocks[at] = self.version
                        self.highest = max(self.highest, at)
                    nbd.close()
                time.sleep(0.001)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error


class GrowthTest(ServedTest):
    def test_a_volume_grows_while_it_is_written_to(self):
        driver = self.start()
        capacity = 2 * MIB
        volume = make_volume(driver.client, "a", capacity)
        served = Served(self, driver, volume)
        self.assertTrue(served.up, self.logged())
        old = served.connect()  # keeps the size that it found
        writers = [Writer(served, number, 3) for number in range(3)]
        known = []

        def snapshot(name):
            # While nothing is written, a delta is exactly what was written before and after.
            for writer in writers:
                writer.hold.acquire()
            made = self.snapshot(driver.client, volume, name)
            held = {at: version for writer in writers for at, version in writer.blocks.items()}
            known.append((made, held, capacity))
            for writer in writers:
                writer.hold.release()

        snapshot("empty")
        for writer in writers:
            writer.start()
        for step in range(8):
            before = [writer.version for writer in writers]
            while any(writer.version < mark + 10 for writer, mark in zip(writers, before)):
                self.assertFalse([writer.error for writer in writers if writer.error])
                time.sleep(0.001)
            if step % 2 == 1:
                snapshot(str(step))
            capacity += 3 * MIB // 2
            grown = driver.client.ControllerExpandVolume(
                volume_id=volume, capacity_range=size(capacity))
            self.assertEqual(grown.capacity_bytes, capacity)
            # Old connections write on. The block is one of the first writer's, who must not write it
            # between this write and its record.
            block = 3 * step
            with writers[0].hold:
                old.write(block * BLOCK, Model.data(1 << 40 | step, 1))
                writers[0].blocks[block] = 1 << 40 | step
        while any(writer.highest * BLOCK < capacity // 2 for writer in writers):
            self.assertFalse([writer.error for writer in writers if writer.error])
            time.sleep(0.001)
        snapshot("last")
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join()
            self.assertIsNone(writer.error)
        images = []
        for made, held, bytes_ in known:
            images.append(read_blocks(self.file_of(driver, volume, made)))
            self.assertEqual(len(images[-1]) * BLOCK, bytes_)
            for at, block in enumerate(images[-1]):
                self.assertEqual(block, Model.data(held.get(at, 0), 1), f"block {at}")
        for i in range(len(known)):
            for j in range(i, len(known)):
                found, bytes_ = driver.client.delta(known[i][0], known[j][0])
                self.assertEqual(bytes_, known[j][2])
                self.assertEqual(blocks_of(found), differing(images[i], images[j]), f"{i} to {j}")
        old.close()
        self.assertEqual(served.stop(), 0)


class AtOnceTest(ServedTest):
    def test_snapshots_are_taken_at_once(self):
        """Of several names, and twice of each, while a writer goes on."""
        driver = self.start()
        volume = make_volume(driver.client, "a", 2 * MIB)
        served = Served(self, driver, volume)
        writer = Writer(served, 0, 1)
        writer.start()
        names = [str(number) for number in range(4)]
        made, codes = {name: set() for name in names}, set()

        def take(name):
            while True:
                try:
                    one = driver.client.CreateSnapshot(source_volume_id=volume, name=name).snapshot
                except grpc.RpcError as error:
                    codes.add(error.code())
                    if error.code() != Code.ABORTED:
                        return
                    continue
                made[name].add((one.snapshot_id, one.creation_time.ToNanoseconds()))
                if one.ready_to_use:
                    return

        threads = [threading.Thread(target=take, args=(name,)) for name in names * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.stopping.set()
        writer.join()
        self.assertIsNone(writer.error)
        self.assertLessEqual(codes, {Code.ABORTED})
        self.assertEqual([len(made[name]) for name in names], [1] * 4)
        order = [one[0] for one in sorted((one for name in names for one in made[name]),
                                          key=lambda one: one[1])]
        self.assertEqual(len(set(order)), 4)
        order.append(self.snapshot(driver.client, volume, "last"))
        images = [read_blocks(self.file_of(driver, volume, one)) for one in order]
        for i in range(len(order)):
            for j in range(i + 1, len(order)):
                reported = blocks_of(driver.client.delta(order[i], order[j])[0])
                self.assertLessEqual(differing(images[i], images[j]), reported, f"{i} to {j}")
        for at, block in enumerate(images[-1]):
            self.assertEqual(block, Model.data(writer.blocks.get(at, 0), 1), f"block {at}")
        self.assertEqual(served.stop(), 0)


class ToolsTest(ServedTest):
    def test_tools_of_libnbd(self):
        if shutil.which("nbdcopy") is None:
            raise unittest.SkipTest("no nbdcopy")
        driver = self.start()
        volume = make_volume(driver.client, "a", 8 * MIB)
        served = Served(self, driver, volume)
        url = f"nbd+unix:///?socket={served.nbd_path}"
        image = os.path.join(self.folder, "image")
        with open(image, "wb") as file:
            file.truncate(8 * MIB)
            for at in (0, 5 * MIB):
                file.seek(at)
                file.write(random.Random(at).randbytes(MIB))

        def run(*command):
            return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

        base = self.snapshot(driver.client, volume, "empty")
        run("nbdcopy", "--destination-is-zero", image, url)
        run("nbdcopy", url, image + ".back")
        with open(image, "rb") as wanted, open(image + ".back", "rb") as back:
            self.assertEqual(back.read(), wanted.read())
        export = json.loads(run("nbdinfo", "--json", url))["exports"][0]
        self.assertEqual(export["export-size"], 8 * MIB)
        for what in ("can_trim", "can_zero", "can_fua", "can_flush", "can_multi_conn"):
            self.assertTrue(export[what], what)
        held = [(one["offset"], one["length"])
                for one in json.loads(run("nbdinfo", "--json", "--map", url)) if one["type"] == 0]
        self.assertEqual(blocks_of(held), blocks_of([(0, MIB), (5 * MIB, MIB)]))
        target = self.snapshot(driver.client, volume, "copied")
        self.assertEqual(driver.client.delta(base, target),
                         ([(0, MIB), (5 * MIB, MIB)], 8 * MIB))
        self.assertEqual(driver.client.allocated(target)[0], [(0, MIB), (5 * MIB, MIB)])
        self.assertEqual(served.stop(), 0)


class VanishingTest(ServedTest):
    def dial(self, served):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(60)
        client.connect(served.control_path)
        return client

    def test_control_clients_vanish(self):
        """Some in the middle of a request, some before the answer; others ask and do not read. The
        volume serves on, and what was asked for is done."""
        driver = self.start()
        volume = make_volume(driver.client, "a", 2 * MIB)
        served = Served(self, driver, volume)
        self.assertTrue(served.up, self.logged())
        model = Model(2 * MIB // BLOCK)
        silent, wanted = [], set()
        for number in range(24):
            model.version += 1
            model.attempt(number, 1, model.version)
            served.nbd.write(number * BLOCK, Model.data(model.version, 1))
            model.done(number, 1, model.version)
            client = self.dial(served)
            name = f"gone-{number}"
            request = b'{"request":"snapshot","id":"%s"}\n' % name.encode()
            if number % 3 == 0:
                client.sendall(request[:len(request) // 2])
                client.close()
                continue
            client.sendall(request)
            wanted.add(name)
            if number % 3 == 1:
                client.close()
            else:
                silent.append(client)
            while not self.is_ready(served, name):
                time.sleep(0.01)
        found = {one["id"] for one in served.control({"request": "list"})["snapshots"]}
        self.assertEqual(found, wanted)
        # So many that the driver is refused: its client repeats the call.
        refused = 0
        while refused < 3:
            silent.append(self.dial(served))
            silent[-1].settimeout(0.1)
            try:
                self.assertIn(b"RESOURCE_EXHAUSTED", silent[-1].recv(1000))
                refused += 1
            except TimeoutError:
                refused = 0
        self.fails(Code.RESOURCE_EXHAUSTED, driver.client.CreateSnapshot, source_volume_id=volume,
                   name="after")
        served.nbd.write(0, served.nbd.read(0, BLOCK))
        for client in silent:
            client.close()
        model.take("after", self.snapshot(driver.client, volume, "after"))
        model.take("again", self.snapshot(driver.client, volume, "again"))
        self.check(driver, volume, model, exact=True)
        self.assertEqual(served.stop(), 0)

    @staticmethod
    def is_ready(served, name):
        return served.control({"request": "find", "id": name}).get(
            "snapshots", [{"ready": False}])[0]["ready"]

    def test_the_driver_vanishes_while_it_waits(self):
        """It is killed in the middle of CreateSnapshot, on which nbdkit works on."""
        driver = self.start()
        volume = make_volume(driver.client, "a", 2 * MIB)
        served = Served(self, driver, volume)
        model = Model(2 * MIB // BLOCK)
        rng = random.Random(7)
        for number in range(10):
            for _ in range(5):
                at = rng.randrange(512)
                model.version += 1
                served.nbd.write(at * BLOCK, Model.data(model.version, 1))
                model.attempt(at, 1, model.version)
                model.done(at, 1, model.version)
            call = threading.Thread(target=self.ask, args=(driver.client, volume, str(number)))
            call.start()
            time.sleep(rng.random() * 0.02)
            driver.stop(signal.SIGKILL)
            call.join()
            driver = self.start()
            model.take(str(number), self.snapshot(driver.client, volume, str(number)))
        self.check(driver, volume, model, exact=True)
        self.assertEqual(served.stop(), 0)

    @staticmethod
    def ask(client, volume, name):
        try:
            client.CreateSnapshot(source_volume_id=volume, name=name)
        except (grpc.RpcError, ValueError):
            pass


class SecretsTest(ServedTest):
    SECRET = "k9vR2-never-to-be-seen"

    def test_secrets_are_accepted_and_kept_nowhere(self):
        secrets = {"password": self.SECRET, self.SECRET + "-key": self.SECRET}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            page = f"127.0.0.1:{probe.getsockname()[1]}"
        driver = self.start("--log-level", "debug", "--http-endpoint", page)
        client = driver.client
        volume = make_volume(client, "a", 2 * MIB, secrets=secrets)
        served = Served(self, driver, volume)
        served.nbd.write(0, Model.data(1, 1))
        made = [client.CreateSnapshot(source_volume_id=volume, name=name, secrets=secrets).snapshot
                for name in ("first", "second")]
        while not all(one.ready_to_use for one in made):
            made = [client.CreateSnapshot(source_volume_id=volume, name=name,
                                          secrets=secrets).snapshot
                    for name in ("first", "second")]
        first, second = (one.snapshot_id for one in made)
        restored = make_volume(client, "b", 2 * MIB, secrets=secrets,
                               volume_content_source=from_snapshot(first))
        self.assertEqual(len(client.ListSnapshots(secrets=secrets).entries), 2)
        client.ControllerExpandVolume(volume_id=restored, capacity_range=size(4 * MIB),
                                      secrets=secrets)
        client.ValidateVolumeCapabilities(volume_id=volume, volume_capabilities=[mount()],
                                          secrets=secrets)
        self.assertEqual(client.tuples("GetMetadataDelta", base_snapshot_id=first,
                                       target_snapshot_id=second, secrets=secrets), ([], 2 * MIB))
        client.tuples("GetMetadataAllocated", snapshot_id=first, secrets=secrets)
        # What fails is logged.
        with self.assertRaises(grpc.RpcError) as failed:
            client.CreateSnapshot(source_volume_id="vol-none", name="x", secrets=secrets)
        texts = [failed.exception.details()]
        for call, fields in ((client.CreateVolume, {"name": "c"}),
                             (client.DeleteVolume, {}), (client.DeleteSnapshot, {}),
                             (client.NodeStageVolume, {"volume_id": volume}),
                             (client.NodePublishVolume, {"volume_id": volume}),
                             (client.NodeExpandVolume, {"volume_id": volume})):
            with self.assertRaises(grpc.RpcError) as failed:
                call(secrets=secrets, **fields)
            self.assertEqual(failed.exception.code(), Code.INVALID_ARGUMENT)
            texts.append(failed.exception.details())
        with urllib.request.urlopen(f"http://{page}/metrics", timeout=60) as answer:
            texts.append(answer.read().decode())
        texts.append(json.dumps(served.control({"request": "status"})))
        with open(f"/proc/{served.process.pid}/cmdline", encoding="utf-8") as command:
            texts.append(command.read())
        client.DeleteSnapshot(snapshot_id=second, secrets=secrets)
        self.assertNotIn(self.SECRET, "\n".join(texts))
        self.kept_nowhere()
        served.stop()
        client.DeleteVolume(volume_id=volume, secrets=secrets)
        self.assertEqual(driver.stop(), 0)
        self.assertIn("/csi.v1.Controller/CreateSnapshot", self.logged())
        self.kept_nowhere()

    def kept_nowhere(self):
        looked = 0
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                self.assertNotIn(self.SECRET, path)
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        self.assertNotIn(self.SECRET.encode(), file.read(), path)
                        looked += 1
        self.assertGreater(looked, 5)


if __name__ == "__main__":
    parts.main(sys.argv[5:])
