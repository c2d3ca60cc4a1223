"""csi-sanity against `cbt-driver driver`, with volumes as file systems and as devices."""

import os
import subprocess
import unittest

import node_test
import driver_parts as parts


class SanityTest(parts.DriverTest):
    def setUp(self):
        self.program = os.path.join(os.environ.get("KUBEBUILDER_ASSETS", ""), "csi-sanity")
        if not os.environ.get("KUBEBUILDER_ASSETS") or not os.path.exists(self.program):
            raise unittest.SkipTest("KUBEBUILDER_ASSETS names no folder with csi-sanity")
        super().setUp()

    def sanity(self, access):
        driver = self.start()
        # It compares two messages with what protobuf's library keeps in them, and so refuses every
        # driver that names a snapshot's topology. codes_test.py compares them.
        skip = "should succeed when creating a snapshot with accessibility requirements"
        # What needs mounts is left out where there are none.
        if node_test.lacks():
            skip += "|Node Service.*(should work|idempotent|volume)"
        done = subprocess.run(
            [self.program, "-csi.endpoint", driver.address, "-csi.mountdir",
             f"{self.folder}/mount", "-csi.stagingdir", f"{self.folder}/stage",
             "-csi.testvolumesize", str(64 << 20), "-csi.testvolumeexpandsize", str(128 << 20),
             "-csi.testvolumeaccesstype", access, "-ginkgo.no-color",
             "-ginkgo.skip", skip],
            capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout[-20000:] + self.logged()[-2000:])
        print(access, next(line for line in done.stdout.splitlines() if "Passed" in line),
              flush=True)
        self.assertEqual(len(driver.client.ListVolumes().entries), 0)
        self.assertEqual(os.listdir(os.path.join(driver.state, "volumes")), [])

    def test_mount(self):
        self.sanity("mount")

    def test_block(self):
        self.sanity("block")


if __name__ == "__main__":
    parts.main()
