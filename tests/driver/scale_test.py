"""`cbt-driver driver` with many volumes, and with many snapshots of one."""

import os
import time

import driver_parts as parts
from driver_parts import MIB, make_snapshot, make_volume

SCALE = max(1, int(os.environ.get("CBT_TEST_SCALE", "1") or "1"))


class ScaleTest(parts.DriverTest):
    def pages(self, call, entry):
        found, token = [], ""
        while True:
            page = call(max_entries=100, starting_token=token)
            found += [entry(one) for one in page.entries]
            token = page.next_token
            if not token:
                return found

    # A thousand with CBT_TEST_SCALE=5.
    def test_many_volumes(self):
        count = min(1000, 200 * SCALE)
        driver = self.start()
        begin = time.monotonic()
        made = {make_volume(driver.client, str(i), MIB) for i in range(count)}
        created = time.monotonic() - begin
        self.assertEqual(len(made), count)
        driver.stop()
        begin = time.monotonic()
        driver = self.start()
        started = time.monotonic() - begin
        begin = time.monotonic()
        found = self.pages(driver.client.ListVolumes, lambda one: one.volume.volume_id)
        listed = time.monotonic() - begin
        self.assertEqual(found, sorted(made))
        self.assertIn(make_volume(driver.client, str(count - 1), MIB), made)
        print(f"{count} volumes: created in {created:.1f} s, started in {started:.1f} s, "
              f"listed in {listed:.2f} s", flush=True)
        self.assertLess(started, 30)
        self.assertLess(listed, 5)

    # Ten thousand with CBT_TEST_SCALE=40.
    def test_many_snapshots_of_one_volume(self):
        count = min(10000, 250 * SCALE)
        driver = self.start()
        volume = make_volume(driver.client, "a", MIB)
        times, made = [], []
        for i in range(count):
            begin = time.monotonic()
            made.append(make_snapshot(driver.client, volume, str(i)))
            times.append(time.monotonic() - begin)
        early, late = sum(times[100:200]) / 100, sum(times[-100:]) / 100
        between = "".join(f"{sum(times[at - 100:at]) * 10:.1f} ms at the {at}th, "
                          for at in (1000, 5000) if at < count)
        driver.stop()
        begin = time.monotonic()
        driver = self.start()
        started = time.monotonic() - begin
        begin = time.monotonic()
        found = self.pages(driver.client.ListSnapshots, lambda one: one.snapshot.snapshot_id)
        listed = time.monotonic() - begin
        self.assertEqual(found, sorted(made))
        begin = time.monotonic()
        self.assertEqual(driver.client.delta(made[0], made[-1]), ([], MIB))
        delta = time.monotonic() - begin
        print(f"{count} snapshots: {early * 1000:.1f} ms each at first, {between}{late * 1000:.1f} ms at "
              f"last, started in {started:.1f} s, listed in {listed:.2f} s, delta in "
              f"{delta * 1000:.0f} ms", flush=True)
        self.assertLess(late, 1)
        self.assertLess(started, 30)
        self.assertLess(listed, 5)
        self.assertLess(delta, 5)


if __name__ == "__main__":
    parts.main()
