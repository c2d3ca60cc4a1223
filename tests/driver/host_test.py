"""`cbt-driver volume-host`: servers, host and driver end, and what uses a volume only waits."""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import driver_parts as parts
from driver_parts import MIB, Code, block, make_snapshot, make_volume, mount
from node_test import BLOCK, AttachedCase, is_running


class Writer:
    """Writes blocks of the device at `path`, one after the other and each synced, in a thread."""

    def __init__(self, path):
        self.path = path
        self.written = {}
        self.error = None
        self.stopping = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        device = os.open(self.path, os.O_RDWR)
        try:
            for number in range(1 << 30):
                if self.stopping:
                    break
                at = number * 37 % (64 * MIB // BLOCK)
                byte = number % 251 + 1
                os.pwrite(device, bytes([byte]) * BLOCK, at * BLOCK)
                os.fsync(device)
                self.written[at] = byte
        except OSError as error:
            self.error = error
        finally:
            os.close(device)

    @staticmethod
    def once(path):
        device = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(device, bytes(BLOCK), 0)
            os.fsync(device)
        finally:
            os.close(device)

    def wait(self, more):
        """Until so many more have been written."""
        until = len(self.written) + more
        late = time.monotonic() + 60
        while len(self.written) < until:
            if self.error is not None:
                raise self.error
            if time.monotonic() > late:
                raise AssertionError("no write ends")
            time.sleep(0.005)

    def stop(self):
        self.stopping = True
        self.thread.join(60)


class HostTest(AttachedCase):
    def pid_of_server(self, volume):
        with open(os.path.join(self.driver.state, "volumes", volume, "nbdkit.pid"),
                  encoding="ascii") as file:
            return int(file.read())

    def pid_of_host(self):
        for process in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
                if "volume-host" in words and self.driver.state in words:
                    return int(process)
        return None

    def wait_for(self, what, seconds=60):
        late = time.monotonic() + seconds
        while True:
            found = what()
            if found:
                return found
            self.assertLess(time.monotonic(), late)
            time.sleep(0.01)

    def health(self, volume):
        def of(answer):
            return [(one.status, one.reason, one.message)
                    for one in answer.volume_health.health_statuses]
        node = of(self.client.NodeGetVolumeHealth(volume_id=volume))
        controller = of(self.client.ControllerGetVolumeHealth(volume_id=volume))
        listed = self.client.ControllerListVolumeHealth().entries
        # It may have changed from one call to the next.
        if of(self.client.NodeGetVolumeHealth(volume_id=volume)) == node:
            self.assertEqual([one[:2] for one in controller], [one[:2] for one in node])
            self.assertEqual(volume in [one.volume_id for one in listed], bool(node))
        return controller

    def written_while(self, volume, harm):
        """Writes, each synced, go on through everything that `harm` does; no one fails or is lost,
        and the delta has them all."""
        first = make_snapshot(self.client, volume, "first")
        writer = Writer(self.target)
        self.addCleanup(writer.stop)
        try:
            harm(writer)
            writer.wait(20)
        finally:
            writer.stop()
        self.assertIsNone(writer.error)
        second = make_snapshot(self.client, volume, "second")
        changed = {at // BLOCK + i for at, length in self.client.delta(first, second)[0]
                   for i in range(length // BLOCK)}
        self.assertLessEqual(set(writer.written), changed)
        self.unpublish(volume)
        self.unstage(volume)
        with open(os.path.join(self.driver.state, "volumes", volume, "volume", "data"),
                  "rb") as data:
            for at, byte in writer.written.items():
                data.seek(at * BLOCK)
                self.assertEqual(data.read(BLOCK), bytes([byte]) * BLOCK)

    def test_na_the_end_of_its_server_costs_nobody_the_volume(self):
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())

        def harm(writer):
            for _ in range(4):
                writer.wait(20)
                pid = self.pid_of_server(volume)
                os.kill(pid, signal.SIGKILL)
                self.wait_for(lambda pid=pid: not is_running(pid))
                writer.wait(20)
                self.assertNotEqual(self.pid_of_server(volume), pid)

        self.written_while(volume, harm)

    def test_na_a_volume_that_grows_keeps_its_size_through_every_end(self):
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())
        capacity = os.stat(os.path.join(self.driver.state, "volumes", volume, "volume", "data")).st_size

        def harm(writer):
            nonlocal capacity
            for pid_of, how in ((self.pid_of_host, signal.SIGKILL), (self.pid_of_host, signal.SIGTERM),
                                (lambda: self.pid_of_server(volume), signal.SIGKILL)):
                writer.wait(20)
                capacity *= 2
                self.client.ControllerExpandVolume(volume_id=volume, capacity_range=parts.size(capacity))
                self.client.NodeExpandVolume(volume_id=volume, volume_path=self.target)
                pid = pid_of()
                os.kill(pid, how)
                self.wait_for(lambda pid=pid: not is_running(pid))
                device = os.open(self.target, os.O_RDWR | os.O_DSYNC)
                try:
                    self.assertEqual(os.lseek(device, 0, os.SEEK_END), capacity)
                    os.pwrite(device, bytes(BLOCK), capacity - BLOCK)
                finally:
                    os.close(device)

        self.written_while(volume, harm)

    def test_na_the_end_of_the_host_costs_nobody_the_volume(self):
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())

        def harm(writer):
            for how in 4 * (signal.SIGKILL, signal.SIGTERM):
                writer.wait(20)
                pid = self.pid_of_host()
                os.kill(pid, how)
                self.wait_for(lambda pid=pid: not is_running(pid))
                writer.wait(20)

        self.written_while(volume, harm)

    def test_na_host_servers_and_driver_restarted_one_after_the_other(self):
        volume = self.volume("a")
        self.stage(volume, mount())
        self.publish(volume, mount())
        os.mkdir(os.path.join(self.target, "kept"))
        first = make_snapshot(self.client, volume, "first")
        for round_ in range(3):
            self.driver.stop(signal.SIGKILL)
            self.driver = self.start()
            self.client = self.driver.client
            pid = self.pid_of_host()
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                os.kill(self.pid_of_server(volume), signal.SIGKILL)
            with open(os.path.join(self.target, f"kept/{round_}"), "wb") as file:
                file.write(bytes([round_ + 1]) * MIB)
                os.fsync(file.fileno())
        second = self.wait_for(lambda: self.try_snapshot(volume, "second"))
        self.assertGreaterEqual(sum(length for _, length in self.client.delta(first, second)[0]),
                                3 * MIB)
        for round_ in range(3):
            with open(os.path.join(self.target, f"kept/{round_}"), "rb") as file:
                self.assertEqual(file.read(), bytes([round_ + 1]) * MIB)

    def try_snapshot(self, volume, name):
        try:
            return make_snapshot(self.client, volume, name)
        except parts.grpc.RpcError as error:
            self.assertEqual(error.code(), Code.UNAVAILABLE, error.details())
            return None

    def take_away(self, plugin):
        """Until it is renamed back, or the test has failed: then its writers must not wait."""
        os.rename(plugin, plugin + ".away")

        def bring_back():
            with contextlib.suppress(FileNotFoundError):
                os.rename(plugin + ".away", plugin)
        self.addCleanup(bring_back)

    def test_na_a_call_waits_for_a_server_that_is_being_started_again(self):
        programs = os.path.join(self.folder, "programs")
        slow = os.path.join(self.folder, "slow")
        os.mkdir(programs)
        with open(os.path.join(programs, "nbdkit"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nif [ -e '{slow}' ]; then sleep 1; fi\n"
                       f"exec '{shutil.which('nbdkit')}' \"$@\"\n")
        os.chmod(file.name, 0o755)
        self.driver.stop()
        self.wait_for(lambda: self.pid_of_host() is None)
        self.driver = self.start(environment={"PATH": programs + ":" + os.environ["PATH"]})
        self.client = self.driver.client
        volume = self.volume("a")
        self.stage(volume, block())
        with open(slow, "w", encoding="utf-8"):
            pass
        os.kill(self.pid_of_server(volume), signal.SIGKILL)
        self.wait_for(lambda: self.health(volume))
        self.stage(volume, block())
        self.assertEqual(self.health(volume), [])
        # Nor is a snapshot refused, whether the server is back at once or the host.
        os.kill(self.pid_of_server(volume), signal.SIGKILL)
        self.wait_for(lambda: self.health(volume))
        make_snapshot(self.client, volume, "after its server")
        host = self.pid_of_host()
        os.kill(host, signal.SIGKILL)
        self.wait_for(lambda: self.pid_of_host() not in (None, host))
        make_snapshot(self.client, volume, "after its host")
        self.assertNotEqual(self.pid_of_host(), host)

    def test_na_a_server_that_can_not_start_is_told_and_waited_for(self):
        plugin = os.path.join(self.folder, "plugin.so")
        shutil.copy(parts.PLUGIN, plugin)
        self.driver.stop()
        self.wait_for(lambda: self.pid_of_host() is None)
        self.driver = self.start(plugin=plugin)
        self.client = self.driver.client
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())
        self.assertEqual(self.health(volume), [])
        writer = Writer(self.target)
        self.addCleanup(writer.stop)
        writer.wait(20)
        self.take_away(plugin)
        os.kill(self.pid_of_server(volume), signal.SIGKILL)
        found = self.wait_for(lambda: self.health(volume))
        self.assertEqual(found[0][1], "ServerNotRunning")
        self.wait_for(lambda: "plugin" in self.health(volume)[0][2])
        # Only the writer waits.
        text = self.fails(Code.UNAVAILABLE, make_snapshot, self.client, volume, "s")
        self.assertIn("plugin", text)
        os.rename(plugin + ".away", plugin)
        self.wait_for(lambda: not self.health(volume))
        writer.wait(20)
        writer.stop()
        self.assertIsNone(writer.error)
        make_snapshot(self.client, volume, "s")
        self.assertIn("volume not served", self.logged())
        self.assertIn("volume served again", self.logged())

    def test_na_a_server_that_can_not_start_after_its_host_is_waited_for(self):
        plugin = os.path.join(self.folder, "plugin.so")
        shutil.copy(parts.PLUGIN, plugin)
        self.driver.stop()
        self.wait_for(lambda: self.pid_of_host() is None)
        self.driver = self.start(plugin=plugin)
        self.client = self.driver.client
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())
        writer = Writer(self.target)
        self.addCleanup(writer.stop)
        writer.wait(20)
        server, host = self.pid_of_server(volume), self.pid_of_host()
        self.take_away(plugin)
        os.kill(host, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        self.wait_for(lambda: self.pid_of_host() not in (None, host))
        self.wait_for(lambda: "plugin" in self.logged())
        # Until it is served by the new host, it is not well.
        self.assertEqual(self.health(volume)[0][1], "ServerNotRunning")
        os.rename(plugin + ".away", plugin)
        self.wait_for(lambda: not self.health(volume))
        writer.wait(20)
        writer.stop()
        self.assertIsNone(writer.error)

    def test_na_a_host_of_its_own_process(self):
        self.driver.stop()
        self.wait_for(lambda: self.pid_of_host() is None)
        host = subprocess.Popen([parts.DRIVER, "volume-host", "--state-dir", self.driver.state,
                                 "--nbdkit-plugin", parts.PLUGIN], stderr=subprocess.DEVNULL)
        self.addCleanup(host.wait)
        self.addCleanup(host.terminate)
        self.driver = self.start("--volume-host", "external")
        self.client = self.driver.client
        volume = self.volume("a")
        self.stage(volume, block())
        self.publish(volume, block())

        def harm(writer):
            # A node is upgraded: one after the other.
            self.driver.stop()
            writer.wait(20)
            self.driver = self.start("--volume-host", "external")
            self.client = self.driver.client

        self.written_while(volume, harm)

    def metric(self, address, name):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        return None

    def free_address(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{free.getsockname()[1]}"

    def own(self, listed):
        """Lines that name this test's folder."""
        return [line for line in listed.splitlines() if self.folder in line]

    def loops(self):
        return self.own(subprocess.run(["losetup", "--list", "--noheadings", "--output",
                                        "NAME,BACK-FILE"], check=True, stdout=subprocess.PIPE,
                                       text=True).stdout)

    def fuses(self):
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            return [line for line in self.own(file.read()) if " fuse.cbt " in line]

    def test_na_the_end_of_driver_and_host_together_is_reported(self):
        address = self.free_address()
        self.driver.stop()
        self.driver = self.start("--http-endpoint", address)
        self.client = self.driver.client
        for capability in (block(), mount()):
            volume = self.volume(f"a{capability.HasField('block')}")
            self.stage(volume, capability)
            self.publish(volume, capability)
            loops, fuses, host = self.loops(), self.fuses(), self.pid_of_host()
            self.driver.stop(signal.SIGKILL)
            os.kill(host, signal.SIGKILL)
            self.wait_for(lambda host=host: not is_running(host))
            self.driver = self.start("--http-endpoint", address)
            self.client = self.driver.client
            self.wait_for(lambda volume=volume: [one[1] for one in self.health(volume)]
                          == ["DeviceFailed"])
            self.assertEqual(self.metric(address, "cbt_volumes_not_served"), 1)
            self.assertIn("delete the Pods", self.health(volume)[0][2])
            reports = [line for line in self.logged().splitlines()
                    if volume in line and "volume not served" in line]
            self.assertEqual(len(reports), 1, reports)
            # Nothing that looks like a device that works is put behind it.
            self.assertEqual((self.loops(), self.fuses()), (loops, fuses))
            path = self.target if capability.HasField("block") else self.target + "/file"
            with self.assertRaises(OSError):
                Writer.once(path)
            # The next Pods get a new one, and nothing is left of the old one.
            self.unpublish(volume)
            self.stage(volume, capability)
            self.publish(volume, capability)
            self.assertEqual(self.health(volume), [])
            self.assertEqual(self.metric(address, "cbt_volumes_not_served"), 0)
            self.assertEqual((len(self.loops()), len(self.fuses())), (1, 1))
            Writer.once(path)
            self.unpublish(volume)
            self.unstage(volume)
            self.assertEqual((self.loops(), self.fuses()), ([], []))

    def test_na_what_no_host_has_said_yet_is_not_known(self):
        address = self.free_address()
        volumes = sorted(make_volume(self.client, f"v{number}", 64 * MIB) for number in range(300))
        first, volume = self.attached = [volumes[0], volumes[-1]]
        self.stage(volume, mount())
        self.publish(volume, mount())
        os.mkdir(self.staging + "2")
        self.client.NodeStageVolume(volume_id=first, staging_target_path=self.staging + "2",
                                    volume_capability=block())
        attached = self.loops(), self.fuses()
        host = self.pid_of_host()
        self.driver.stop(signal.SIGKILL)
        os.kill(host, signal.SIGSTOP)
        self.addCleanup(os.kill, host, signal.SIGCONT)
        self.driver = self.start("--http-endpoint", address)
        self.client = self.driver.client
        self.assertEqual([one[1] for one in self.health(volume)], ["VolumeHostNotRunning"])
        self.assertEqual(self.metric(address, "cbt_volumes_not_served"), 2)
        page = self.client.ControllerListVolumeHealth(max_entries=1)
        last = self.client.ControllerListVolumeHealth(starting_token=page.next_token)
        self.assertEqual([[one.volume_id for one in each.entries] for each in (page, last)], [[first], [volume]])
        # A volume that may be alive is not detached.
        self.fails(Code.UNAVAILABLE, self.stage, volume, mount())
        self.fails(Code.UNAVAILABLE, self.unstage_again, volume)
        self.assertEqual((self.loops(), self.fuses()), attached)
        os.kill(host, signal.SIGCONT)
        self.wait_for(lambda: not self.health(volume) and not self.health(first), 120)
        self.assertEqual(self.metric(address, "cbt_volumes_not_served"), 0)
        Writer.once(os.path.join(self.target, "file"))
        self.client.NodeUnstageVolume(volume_id=first, staging_target_path=self.staging + "2")

    def unstage_again(self, volume):
        """As a kubelet whose Pod has gone."""
        self.unpublish(volume)
        try:
            self.unstage(volume)
        finally:
            self.publish(volume, mount())

    def test_mc_a_mounted_volume_is_not_reverted(self):
        volume = self.volume("a")
        self.stage(volume, mount())
        self.publish(volume, mount())
        snapshot = make_snapshot(self.client, volume, "s")
        Writer.once(os.path.join(self.target, "file"))
        server = self.pid_of_server(volume)
        os.kill(server, signal.SIGKILL)
        # Nothing is asked for, so no one is connected.
        self.wait_for(lambda: self.is_served_by_another(volume, server))
        with socket.socket(socket.AF_UNIX) as asked, asked.makefile("rwb") as lines:
            asked.connect(os.path.join(self.driver.state, "volumes", volume, "control.sock"))
            lines.write(json.dumps({"request": "revert", "id": snapshot}).encode() + b"\n")
            lines.flush()
            answer = json.loads(lines.readline())
        self.assertEqual(answer.get("code"), "FAILED_PRECONDITION", answer)
        self.assertIn("unstage", answer["message"])
        self.wait_for(lambda: not self.health(volume))

    def is_served_by_another(self, volume, server):
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asked:
            asked.connect(os.path.join(self.driver.state, "volumes", volume, "control.sock"))
            return self.pid_of_server(volume) != server
        return False

    def kubeconfig(self, api):
        config = os.path.join(self.folder, "kubeconfig")
        with open(config, "w", encoding="ascii") as file:
            json.dump({"current-context": "c",
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                       "clusters": [{"name": "c", "cluster": {"server": api.address}}],
                       "users": [{"name": "u", "user": {}}]}, file)
        return config

    def test_na_a_change_is_reported_once(self):
        api = FakeApi(parts.NAME)
        self.addCleanup(api.stop)
        plugin = os.path.join(self.folder, "plugin.so")
        shutil.copy(parts.PLUGIN, plugin)
        options = ("--events", "--kubeconfig", self.kubeconfig(api))
        self.driver.stop()
        self.wait_for(lambda: self.pid_of_host() is None)
        self.driver = self.start(*options, plugin=plugin)
        self.client = self.driver.client
        volume = self.volume("a")
        api.handle = volume
        self.stage(volume, block())
        self.publish(volume, block())
        api.events.clear()

        def reasons():
            return [event["reason"] for event in api.events]

        # However often it is tried.
        self.take_away(plugin)
        os.kill(self.pid_of_server(volume), signal.SIGKILL)
        self.wait_for(lambda: self.health(volume) and "plugin" in self.health(volume)[0][2])
        time.sleep(3)
        self.assertLessEqual(len(api.events), 2, reasons())
        self.assertEqual(set(reasons()), {"VolumeServerNotRunning"})
        # The cure is another host, which counts from the beginning.
        api.events.clear()
        host = self.pid_of_host()
        os.kill(host, signal.SIGKILL)
        self.wait_for(lambda: self.pid_of_host() not in (None, host))
        os.rename(plugin + ".away", plugin)
        self.wait_for(lambda: not self.health(volume))
        self.wait_for(lambda: "VolumeServerRestarted" in reasons())
        self.assertEqual([one for one in reasons() if one.startswith("VolumeHost")],
                         ["VolumeHostNotRunning", "VolumeHostRunning"])
        # A driver that comes later has nothing to report.
        server = self.pid_of_server(volume)
        os.kill(server, signal.SIGKILL)
        self.wait_for(lambda: self.is_served_by_another(volume, server))
        self.wait_for(lambda: not self.health(volume))
        self.driver.stop()
        api.events.clear()
        os.truncate(self.log, 0)
        self.driver = self.start(*options, plugin=plugin)
        self.client = self.driver.client
        self.wait_for(lambda: not self.health(volume))
        time.sleep(0.5)
        self.assertEqual(reasons(), [])
        self.assertNotIn("served", self.logged())

    def test_na_an_event_says_that_a_server_does_not_run(self):
        api = FakeApi(parts.NAME)
        self.addCleanup(api.stop)
        self.driver.stop()
        self.driver = self.start("--events", "--kubeconfig", self.kubeconfig(api))
        self.client = self.driver.client
        for claimed in (True, False):
            volume = self.volume(f"claimed {claimed}")
            api.handle = volume if claimed else "another"
            api.events.clear()
            self.stage(volume, block())
            os.kill(self.pid_of_server(volume), signal.SIGKILL)
            self.wait_for(lambda: len(api.events) >= 2)
            for event, reason, kind in zip(api.events,
                                           ("VolumeServerNotRunning", "VolumeServerRestarted"),
                                           ("Warning", "Normal")):
                self.assertEqual((event["reason"], event["type"]), (reason, kind))
                self.assertIn(volume, event["message"])
                about = event["involvedObject"]
                self.assertEqual(
                    (about["kind"], about["name"], event["metadata"]["namespace"]),
                    ("PersistentVolumeClaim", "data", "ns") if claimed
                    else ("Node", "node-1", "default"))
            self.unstage(volume)


class FakeApi:
    """An API server with one persistent volume, which keeps the Events that it gets."""

    def __init__(self, driver):
        self.handle = ""
        self.events = []
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, code, value):
                body = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(200, {
                    "kind": "PersistentVolumeList", "apiVersion": "v1",
                    "metadata": {"resourceVersion": "1"}, "items": [{
                        "metadata": {"name": "pv"},
                        "spec": {"csi": {"driver": driver, "volumeHandle": api.handle},
                                 "claimRef": {"kind": "PersistentVolumeClaim", "name": "data",
                                              "namespace": "ns", "uid": "1"}}}]})

            def do_POST(self):
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(201, {**event, "metadata": {**event["metadata"], "name": "e"}})
                api.events.append(event)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    parts.main()
