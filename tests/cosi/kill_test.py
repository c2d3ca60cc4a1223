"""Components of COSI that are killed at every step, an API server that is restarted, a thousand requests at once,
two drivers in one cluster, two processes of each kind.

Usage: kill_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import random
import sys
import threading
import time
import unittest

# pylint: disable=wrong-import-position
from world import DRIVER, P, SCALE, Base, Running, stop  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402

REQUESTS = 100 * SCALE


def tearDownModule():
    stop()


class KillTest(Running):
    def killing(self, seed):
        """Kills controller or sidecar at random moments until the answer is called."""
        chosen = random.Random(seed)
        over = threading.Event()
        killed = []

        def run():
            while not over.wait(chosen.uniform(0.05, 0.6)):
                one = chosen.choice((self.controller, self.sidecar))
                one.kill()
                one.start()
                killed.append(one)

        thread = threading.Thread(target=run)
        thread.start()

        def end():
            over.set()
            thread.join()
            self.controller.wait_ready()
            self.sidecar.wait_ready()
            return len(killed)

        return end

    def test_cosi_c38_every_flow_ends_although_everything_is_killed(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        rw = self.access_class()
        classes = {policy: self.bucket_class(policy) for policy in ("Delete", "Retain", "ForceDelete")}
        end = self.killing(seed)
        flows = []
        for number in range(4 * SCALE):
            for policy, klass in classes.items():
                request = self.bucket_request(klass)
                flows.append((policy, request, self.access_request(
                    rw, bucketRequestName=request["metadata"]["name"]), number))
        time.sleep(8)
        # Half of them are deleted while their creation is under way.
        for policy, request, wanted, number in flows:
            if number % 2:
                self.delete(request)
                if policy == "Delete":
                    self.delete(wanted)
        time.sleep(8)
        print(f"{end()} kills", file=sys.stderr)
        for policy, request, wanted, number in flows:
            if number % 2:
                self.gone(request, 120)
            else:
                self.available(request, 120)
                access = self.access_of(self.granted(wanted, 120))
                key = (self.bucket_of(request)["status"]["bucketID"], access["status"]["accountID"])
                self.assertEqual(self.secret_of(access)["COSI_S3_ACCESS_SECRET_KEY"],
                                 self.driver.accounts[key][1])
        self.expect_nothing_leaks(flows)

    def expect_nothing_leaks(self, flows):
        for _, request, wanted, _ in flows:
            self.delete(wanted)
            self.delete(request)
        for _, request, wanted, _ in flows:
            self.gone(wanted, 120)
            self.gone(request, 120)
        uids = [request["metadata"]["uid"] for _, request, _, _ in flows]
        retained = {request["metadata"]["uid"] for policy, request, _, _ in flows if policy == "Retain"}

        def left():
            buckets = {uid for uid in uids for one in list(self.driver.buckets) if uid in one}
            accounts = [key for key in list(self.driver.accounts) if any(uid in key[0] for uid in uids)]
            secrets = [one for one in self.all("Secret", "cosi-driver")
                       if one["metadata"]["annotations"].get(P + "bucket-id", "")[-36:] in uids]
            return buckets - retained, accounts, [one["metadata"]["name"] for one in secrets]

        self.assertTrue(parts.wait_until(lambda: not any(left()), 120), f"{left()}{self.logs()}")
        # Nothing that is retained was lost.
        made = {uid for uid in retained for method, one in self.driver.calls
                if method == "DeleteBucket" and uid in str(one)}
        self.assertEqual(made, set())


class ApiServerTest(Running):
    def test_the_api_server_is_restarted(self):
        klass, rw = self.bucket_class(), self.access_class()
        flows = [self.bucket_request(klass) for _ in range(10)]
        self.plane.command("stop")
        time.sleep(2)
        self.plane.command("start")
        for request in flows:
            self.available(request, 120)
        wanted = [self.access_request(rw, bucketRequestName=one["metadata"]["name"]) for one in flows]
        for one in wanted:
            self.granted(one, 120)


class ScaleTest(Running):
    def test_many_requests_at_once(self):
        klass, rw = self.bucket_class(), self.access_class()
        begin = time.monotonic()
        requests = [self.bucket_request(klass) for _ in range(REQUESTS)]
        wanted = [self.access_request(rw, bucketRequestName=one["metadata"]["name"]) for one in requests]
        made = time.monotonic()
        ours = {one["metadata"]["uid"] for one in requests}

        def count(kind, field, uids):
            return sum(one["metadata"]["uid"] in uids and one.get("status", {}).get(field, False)
                       for one in self.all(kind, "prod"))

        self.assertTrue(parts.wait_until(
            lambda: count("BucketRequest", "bucketAvailable", ours) == REQUESTS, 300), self.logs())
        accesses = {one["metadata"]["uid"] for one in wanted}
        self.assertTrue(parts.wait_until(
            lambda: count("BucketAccessRequest", "accessGranted", accesses) == REQUESTS, 300), self.logs())
        granted = time.monotonic()
        for one in wanted + requests:
            self.delete(one)
        self.assertTrue(parts.wait_until(lambda: not ours & {
            one["metadata"]["uid"] for one in self.all("BucketRequest", "prod")}, 300), self.logs())
        print(f"{REQUESTS} requests of each kind: made in {made - begin:.1f} s, granted after "
              f"{granted - made:.1f} s more, deleted in {time.monotonic() - granted:.1f} s", file=sys.stderr)
        self.assertEqual([one for one in self.driver.buckets if one[-36:] in ours], [])
        self.assertEqual([key for key in self.driver.accounts if key[0][-36:] in ours], [])
        # Each bucket was created once, and each account has one key.
        self.assertEqual(sum(method == "CreateBucket" and one.name[-36:] in ours
                             for method, one in self.driver.calls), REQUESTS)
        self.assertEqual(self.driver.minted, REQUESTS)


class TwoDriversTest(Running):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.world.driver("other.example.com")
        cls.addClassCleanup(cls.other.stop)
        cls.second = cls.world.sidecar(cls.other, namespace="other-driver", name="second-sidecar")
        cls.addClassCleanup(cls.second.stop)
        cls.second.wait_ready()

    def test_none_acts_for_the_other(self):
        here = self.bucket()
        there = self.available(self.bucket_request(self.bucket_class(provisioner="other.example.com")))
        accesses = [self.access_of(self.access(one)) for one in (here, there)]
        self.assertEqual([one["status"]["credentials"]["namespace"] for one in accesses],
                         ["cosi-driver", "other-driver"])
        for driver, mine, foreign in ((self.driver, here, there), (self.other, there, here)):
            said = " ".join(str(one) for _, one in driver.calls)
            self.assertIn(mine["metadata"]["uid"], said)
            self.assertNotIn(foreign["metadata"]["uid"], said)
        # Neither does one whose label lies: the Bucket's own field counts.
        lying = self.make("BucketAccess", {
            "bucketName": there["status"]["bucketName"],
            "bucketAccessRequest": {"name": "absent", "namespace": "prod"}},
            labels={P + "provisioner": DRIVER}, annotations={P + "bucket-id": "x"})
        self.wait_event(lying, "OtherDriver", "is not of driver rgw.example.com")
        for one in (here, there):
            self.delete(one)
        for one in accesses:
            self.delete(one)
        for one in (here, there):
            self.gone(one)

    def test_a_driver_with_another_name_is_not_served(self):
        self.driver.info = "stranger.example.com"
        self.addCleanup(setattr, self.driver, "info", None)
        self.assertTrue(parts.wait_until(lambda: self.sidecar.get("/readyz")[0] != 200, 30))
        self.assertIn("another name than before", self.sidecar.log())
        request = self.bucket_request(self.bucket_class())
        time.sleep(2)
        self.assertEqual(self.driver.count("CreateBucket", request["metadata"]["uid"]), 0)
        self.driver.info = None
        self.available(request)


class LeaderTest(Base):
    def test_one_of_two_acts(self):
        driver = self.world.driver()
        self.addCleanup(driver.stop)
        pairs = []
        for number in "12":
            pairs.append((self.world.controller("--leader-elect", f"--identity=c{number}", name="c" + number),
                          self.world.sidecar(driver, "--leader-elect", f"--identity=s{number}", name="s" + number)))
        for pair in pairs:
            for one in pair:
                self.addCleanup(one.stop)
                one.wait_ready()
        request = self.available(self.bucket_request(self.bucket_class()))
        self.assertEqual(driver.count("CreateBucket", request["metadata"]["uid"]), 1)
        active = [[one.metric("cbt_cosi_controller_active"), other.metric("cbt_cosi_sidecar_active")]
                  for one, other in pairs]
        self.assertEqual([sum(column) for column in zip(*active)], [1, 1])
        # The leaders end, and the others go on.
        pairs[[row[0] for row in active].index(1)][0].stop()
        pairs[[row[1] for row in active].index(1)][1].stop()
        self.available(self.bucket_request(self.bucket_class()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], testRunner=runner.Runner)
