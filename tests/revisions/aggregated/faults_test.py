"""The aggregated API server behind a real kube-apiserver when others fail: services of drivers that break in
every way, snapshots that are replaced, replicas that die.

Usage: faults_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import json
import sys
import threading
import unittest

# pylint: disable=wrong-import-position
from world import (BLOCK, COMPLETED, CONTINUE, DRIVER, FAILED, NAMESPACE, PATH, Base,  # noqa: E402
                   Service, discovery, stop)
import parts  # noqa: E402
import runner  # noqa: E402


def tearDownModule():
    stop()


def lines(*objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


class FaultyBase(Base):
    """The service of a driver that does what a test says."""

    HEAD = {"block_size_bytes": BLOCK, "volume_size_bytes": 100 * BLOCK}
    END = {"complete": True, "blocks": 1, "next_block": 6, "more": False}
    WHOLE = lines(HEAD, {"block": 5}, END)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.service = Service(cls.world.folder)
        cls.plane.create(discovery("faulty", "faulty.example.com", cls.service.port, cls.world.folder))
        cls.addClassCleanup(cls.plane.kubectl, "delete", "driverdiscovery", "faulty")
        cls.plane.create(parts.snapshot_class("faulty", "faulty.example.com"))
        cls.addClassCleanup(cls.plane.kubectl, "delete", "volumesnapshotclass", "faulty")


class BrokenPagesTest(FaultyBase):
    flags = ("--retry-time=0s",)

    def test_a5_no_broken_page_is_completed(self):
        target = self.snapshot(driver="faulty.example.com", klass="faulty")
        whole = self.WHOLE
        self.service.answer = lambda path, body: (200, whole)
        self.assertEqual(self.ask(target)["state"], COMPLETED)
        self.assertEqual(self.service.asked[-1][0], "/v1alpha1/delta-pages")
        self.assertIn((("commonName", NAMESPACE),), self.service.asked[-1][2])
        broken = [whole[:cut] for cut in range(len(whole))]
        broken += [lines(self.HEAD, {"block": 5}, {**self.END, "next_block": 7}),
                   lines(self.HEAD, {"block": 5}, {"block": 5}, self.END),
                   lines(self.HEAD, {"block": 100}, self.END),
                   lines({**self.HEAD, "block_size_bytes": 512}, self.END),
                   "x" * 20_000 + "\n", "<html>\n"]
        for text in broken:
            self.service.answer = lambda path, body, text=text: (200, text)
            status = self.ask(target)
            self.assertEqual((status["state"], status["changedBlockDeltas"]), (FAILED, []), text)
            self.assertTrue(status["error"])
        for code in (400, 401, 404, 409, 500, 501):
            self.service.answer = lambda path, body, code=code: (code, whole)
            self.assertEqual(self.ask(target)["state"], FAILED)


class FaultsTest(FaultyBase):
    def test_a15_a_service_that_comes_back_is_asked_again(self):
        target = self.snapshot(driver="faulty.example.com", klass="faulty")
        whole = self.WHOLE
        answers = [(503, ""), (299, whole), (429, ""), (200, whole)]

        def answer(path, body):
            return answers.pop(0) if path != "/readyz" else (200, "")

        self.service.answer = answer
        status = self.ask(target)
        # Each block once, whatever came before.
        self.assertEqual((status["state"], self.offsets(status)), (COMPLETED, [5]))
        self.assertEqual(answers, [])

    def test_a15_a_service_that_moves_is_found(self):
        """While a page waits for it."""
        self.service.answer = lambda path, body: (200, self.WHOLE)
        self.plane.create(discovery("moving", "moving.example.com", parts.free_port(),
                                    self.world.folder))
        self.addCleanup(self.plane.kubectl, "delete", "driverdiscovery", "moving")
        self.plane.create(parts.snapshot_class("moving", "moving.example.com"))
        self.addCleanup(self.plane.kubectl, "delete", "volumesnapshotclass", "moving")
        target = self.snapshot(driver="moving.example.com", klass="moving")
        self.wait_reachable("moving", "False", "NoAnswer")

        def retries():
            # None of a replica that was killed.
            return sum(one.metric("cbt_aggregated_page_retries_total") or 0 for one in self.apis)

        before = retries()

        def move():
            parts.wait_until(lambda: retries() > before)
            url = f"https://localhost:{self.service.port}"
            self.plane.kubectl("patch", "driverdiscovery", "moving", "--type=merge", "-p",
                               json.dumps({"spec": {"clientConfig": {"url": url}}}))

        mover = threading.Thread(target=move)
        mover.start()
        status = self.ask(target)
        mover.join()
        self.assertEqual((status["state"], self.offsets(status)), (COMPLETED, [5]), status)

    def test_a_snapshot_that_was_replaced_is_a_conflict(self):
        target = self.snapshot()
        code, first = self.user.ask(target, limit=1)
        self.assertEqual(first["status"]["state"], CONTINUE)
        first["spec"]["offset"] = first["status"]["continue"]
        code, second = self.user.send("POST", PATH, first)
        self.assertEqual((code, second["status"]["state"]), (201, COMPLETED), second)
        # Another snapshot under the same name.
        self.plane.kubectl("delete", "volumesnapshot", target, "-n", "prod")
        self.plane.kubectl("delete", "volumesnapshotcontent", f"content-prod-{target}")
        self.plane.snapshot(target, "prod", volume="volume-1", created=1_700_000_000_000_000_000,
                            driver=DRIVER)
        self.assertTrue(parts.wait_until(lambda: self.user.send("POST", PATH, first)[0] == 409))
        self.assertIn("start again from offset 0", self.user.send("POST", PATH, first)[1]["message"])

    def test_a15_a_replica_may_die(self):
        """While a client reads page after page."""
        self.plugin.capacity = 1000 * BLOCK
        self.plugin.blocks = [(i * BLOCK, BLOCK) for i in range(0, 1000, 2)]
        target = self.snapshot()
        seen, offset, killed = [], 0, False
        while True:
            if len(seen) >= 100 and not killed:
                killed = True
                self.apis[0].kill()
            code, answer = self.user.ask(target, limit=10, offset=offset)
            if code in (500, 502, 503):
                # The API server had a connection to it; the caller goes on where it was (A7).
                continue
            self.assertEqual(code, 201, answer)
            status = answer["status"]
            seen += self.offsets(status)
            if status["state"] != CONTINUE:
                break
            offset = status["continue"]
        self.assertEqual(status["state"], COMPLETED, status)
        self.assertEqual(seen, list(range(0, 1000, 2)))
        self.assertIsNone(self.apis[1].process.poll())

    def test_a15_replicas_are_drained(self):
        api = self.world.aggregated("drained")
        api.wait_ready()
        self.assertEqual(api.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
