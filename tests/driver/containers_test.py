"""The driver and its volume host in containers of their own, as deploy/kubernetes/driver has them:
what uses a volume only waits when one of them is restarted.

Played are the node and the containers: namespaces of mounts that share what is mounted, and of
processes, whose end ends all that runs in them. tests/driver/real_node_test.py has real ones.
"""

import contextlib
import glob
import os
import signal
import subprocess
import time
import unittest

import driver_parts as parts
import node_test
from driver_parts import MIB, block, csi, make_volume, mount
from host_test import Writer
from node_test import BLOCK

INIT = 'mount --make-rprivate /proc && mount -t proc proc /proc && exec "$@"'


def child_of(process):
    """The first child, once there is one."""
    while True:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            children = file.read().split()
        if children:
            return int(children[0])
        time.sleep(0.01)


class Container:
    def __init__(self, node, log, *command):
        with open(log, "ab") as errors:
            self.outside = subprocess.Popen(
                ["nsenter", "--target", str(node), "--mount", "--", "unshare", "--mount", "--pid",
                 "--fork", "--propagation", "unchanged", "sh", "-c", INIT, "sh", *command],
                stdin=subprocess.DEVNULL, stderr=errors)
        self.first = child_of(self.outside.pid)

    def end(self, how):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, how)
        self.outside.wait(60)

    def zombies(self):
        found = []
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
                if state == "Z" and int(parent) == self.first:
                    found.append(path)
        return found


@unittest.skipIf(node_test.lacks(), node_test.lacks())
class ContainersTest(parts.DriverTest):
    def setUp(self):
        super().setUp()
        self.state = os.path.join(self.folder, "state")
        self.address = f"unix://{self.folder}/csi.sock"
        os.mkdir(self.state)
        node = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
             "mount --make-rshared / && echo && exec sleep 10000"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        node.stdout.readline()
        node.stdout.close()
        self.node = node.pid
        self.addCleanup(self.detach_what_is_left)
        self.start_host()
        self.start_driver()
        self.addCleanup(lambda: self.host.end(signal.SIGKILL))
        self.addCleanup(lambda: self.driver.end(signal.SIGKILL))

    def detach_what_is_left(self):
        listed = subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
                                check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in listed.splitlines():
            if self.folder in line:
                subprocess.run(["losetup", "--detach", line.split()[0]], check=False)

    def start_host(self):
        self.host = Container(self.node, self.log, parts.DRIVER, "volume-host", "--state-dir",
                              self.state, "--nbdkit-plugin", parts.PLUGIN, "--grace", "30")

    def start_driver(self):
        self.driver = Container(self.node, self.log, parts.DRIVER, "driver", "--endpoint", self.address,
                                "--state-dir", self.state, "--node-id", "node-1", "--volume-host",
                                "external")
        late = time.monotonic() + 60
        while not self.answers():
            self.assertLess(time.monotonic(), late, self.logged())
            time.sleep(0.05)

    def answers(self):
        with contextlib.suppress(parts.grpc.RpcError):
            return self.ask("Probe").ready.value
        return False

    def ask(self, method, **fields):
        client = parts.csi_client.Client(csi, self.address)
        try:
            return getattr(client, method)(**fields)
        finally:
            client.close()

    def in_node(self, path):
        return f"/proc/{self.node}/root{path}"

    def attach(self, name, capability):
        volume = make_volume(self, name, 64 * MIB, volume_capabilities=[capability])
        staging, target = (os.path.join(self.folder, f"{kind}-{name}")
                           for kind in ("staging", "target"))
        self.ask("NodeStageVolume", volume_id=volume, staging_target_path=staging,
                 volume_capability=capability)
        self.ask("NodePublishVolume", volume_id=volume, staging_target_path=staging,
                 target_path=target, volume_capability=capability)
        return volume, staging, target

    # For make_volume().
    def CreateVolume(self, **fields):  # pylint: disable=invalid-name
        return self.ask("CreateVolume", **fields)

    def kill_servers(self):
        killed = 0
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                words = file.read().split(b"\0")
                if words[0] == b"nbdkit" and any(self.state.encode() in word for word in words):
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
                    killed += 1
        self.assertEqual(killed, 2)

    def restart_driver(self, how):
        self.driver.end(how)
        self.start_driver()

    def restart_host(self, how):
        self.host.end(how)
        self.start_host()

    def test_na_containers_of_driver_and_host_are_restarted_under_a_writer(self):
        volume, staging, target = self.attach("disk", block())
        files = self.attach("files", mount())
        writer = Writer(self.in_node(target))
        self.addCleanup(writer.stop)
        ends = [("servers", self.kill_servers),
                ("driver killed", lambda: self.restart_driver(signal.SIGKILL)),
                ("driver replaced", lambda: self.restart_driver(signal.SIGTERM)),
                ("host replaced", lambda: self.restart_host(signal.SIGTERM)),
                ("servers again", self.kill_servers)]
        if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 9):
            ends += [("host killed", lambda: self.restart_host(signal.SIGKILL)),
                     ("servers once more", self.kill_servers)]
        for number, (what, end) in enumerate(ends):
            with self.subTest(what):
                writer.wait(20)
                end()
                with open(self.in_node(f"{files[2]}/{number}"), "wb") as file:
                    file.write(bytes([number + 1]) * MIB)
                    os.fsync(file.fileno())
                writer.wait(20)
                self.assertIsNone(writer.error)
                self.assertEqual(self.host.zombies(), [])
        writer.stop()
        for number in range(len(ends)):
            with open(self.in_node(f"{files[2]}/{number}"), "rb") as file:
                self.assertEqual(file.read(), bytes([number + 1]) * MIB)
        for each in ((volume, staging, target), files):
            self.ask("NodeUnpublishVolume", volume_id=each[0], target_path=each[2])
            self.ask("NodeUnstageVolume", volume_id=each[0], staging_target_path=each[1])
        with open(f"{self.state}/volumes/{volume}/volume/data", "rb") as data:
            for at, byte in writer.written.items():
                data.seek(at * BLOCK)
                self.assertEqual(data.read(BLOCK), bytes([byte]) * BLOCK)


class ManifestsTest(unittest.TestCase):
    def pod_of(self, file):
        with open(os.path.join(parts.HERE, "..", "..", "deploy", "kubernetes", "driver", file),
                  encoding="utf-8") as text:
            return text.read().split("\n  template:\n")[1]

    def test_na_a_drained_node_keeps_its_driver(self):
        # Evicted, it must come back where Pods wait for it to give their volumes back; and neither
        # of the two makes room for another Pod.
        driver, host = self.pod_of("stateful-set.yaml"), self.pod_of("daemon-set.yaml")
        self.assertRegex(driver, r"(?m)^      tolerations:\n(      [#-].*\n)*      - \{key: "
                                 r"node.kubernetes.io/unschedulable, operator: Exists, "
                                 r"effect: NoSchedule\}$")
        for pod in (driver, host):
            self.assertRegex(pod, r"(?m)^      priorityClassName: system-node-critical$")


if __name__ == "__main__":
    parts.main()
