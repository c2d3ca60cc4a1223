"""Rows of `cbt-driver driver`: its processor time with many snapshots, and with many volumes."""

import pathlib
import sys
import tempfile

import used

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
ENTRIES = 10_000


def parts_of(build):
    """The parts of the driver's tests, which take their programs from the command line."""
    sys.path.insert(0, str(PROJECT / "tests" / "driver"))
    given, sys.argv = sys.argv, ["growth", str(build / "bin" / "cbtctl"), str(build / "tests" / "driver"),
                                 str(build / "lib" / "nbdkit-cbt-plugin.so")]
    import driver_parts  # pylint: disable=import-outside-toplevel,import-error
    sys.argv = given
    return driver_parts


class Volumes:
    def __init__(self, build, folder):
        self.parts = parts_of(build)
        self.folder = folder
        self.driver = None
        self.worlds = {}

    def stop(self):
        if self.driver:
            self.driver.stop()
            self.driver = None

    def start(self, name):
        """The driver of a folder."""
        self.stop()
        # The path of a socket is short.
        self.worlds.setdefault(name, tempfile.mkdtemp(dir=self.folder))
        self.driver = self.parts.Driver(self.worlds[name])
        if not self.driver.up:
            raise SystemExit("the driver does not start")
        return self.driver.client

    def cost(self, work):
        before = used.clock(self.driver.process.pid)
        work()
        return used.clock(self.driver.process.pid) - before

    def with_snapshots(self, count):
        """Its only volume has so many."""
        new = f"snapshots-{count}" not in self.worlds
        client = self.start(f"snapshots-{count}")
        volume = self.parts.make_volume(client, "one", MIB)
        if new:
            for number in range(count):
                self.parts.make_snapshot(client, volume, f"there-{number}")
        return client, volume

    def snapshots(self, count):
        if not count:
            return None
        client, volume = self.with_snapshots(count)

        def run():
            made = []
            cost = self.cost(lambda: made.append(self.parts.make_snapshot(client, volume, "more")))
            client.DeleteSnapshot(snapshot_id=made[0])
            return cost, 0
        return run

    def snapshot_pages(self, count):
        if not count:
            return None
        client, _ = self.with_snapshots(count)
        return lambda: (self.pages(client.ListSnapshots, count), 0)

    def pages(self, call, count):
        """The cost of one list, from as many as have ENTRIES in all: a short run is disturbed less often than a
        long one, and the least of several would make the first amount look cheaper than it is."""
        def work():
            for _ in range(ENTRIES // count):
                token = ""
                while token := call(max_entries=100, starting_token=token).next_token:
                    pass
        return self.cost(work) / (ENTRIES // count)

    def with_volumes(self, count):
        new = f"volumes-{count}" not in self.worlds
        client = self.start(f"volumes-{count}")
        if new:
            for number in range(count):
                self.parts.make_volume(client, f"volume-{number}", MIB)
        return client

    def volumes(self, count):
        self.with_volumes(count)

        def run():
            client = self.start(f"volumes-{count}")
            client.ListVolumes(max_entries=1)
            return used.clock(self.driver.process.pid), 0
        return run

    def volume_pages(self, count):
        if not count:
            return None
        client = self.with_volumes(count)
        return lambda: (self.pages(client.ListVolumes, count), 0)
