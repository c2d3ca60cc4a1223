"""What strangers and tenants can take from others: calls with tokens that mean nothing, bases that do not exist.

Usage: strangers_test.py CBT FOLDER_OF_MESSAGES
"""

import os
import sys
import tempfile
import threading
import time
import unittest
import uuid

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import parts  # noqa: E402
import runner  # noqa: E402
from parts import CODES, content, service, snapshot, snapshot_class  # noqa: E402

CONTENTS = parts.PLURALS["VolumeSnapshotContent"]
REVIEW_SECONDS = 0.3
STREAMS = 32


class StrangersTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-strangers-"))
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.api = parts.FakeApi()
        cls.addClassCleanup(cls.api.stop)
        cls.plugin = parts.Plugin(f"unix:{cls.folder}/csi.sock")
        cls.addClassCleanup(cls.plugin.stop)
        cls.sidecar = parts.Sidecar(CBT, cls.folder, cls.api.kubeconfig(cls.folder),
                                    f"--max-streams={STREAMS}")
        cls.addClassCleanup(cls.sidecar.stop)
        cls.channel = cls.sidecar.channel()
        cls.addClassCleanup(cls.channel.close)

    def setUp(self):
        self.api.say = lambda method, path, body: None
        self.api.objects = {}
        self.api.asked.clear()
        self.api.put(service(), snapshot(), content(), snapshot_class())

    def in_threads(self, number, work):
        """Until the returned function is called, which returns what `work` did."""
        stop = threading.Event()
        done = []

        def run(one):
            while not stop.is_set():
                done.append(work(one))

        threads = [threading.Thread(target=run, args=(one,)) for one in range(number)]
        for thread in threads:
            thread.start()

        def finish():
            stop.set()
            for thread in threads:
                thread.join()
            return done
        self.addCleanup(finish)
        return finish

    def test_y_tokens_of_strangers_keep_nobody_out(self):
        def slow_reviews(method, path, body):
            if path == parts.TOKEN_REVIEWS and body["spec"]["token"].startswith("junk"):
                time.sleep(REVIEW_SECONDS)

        # Who is known, from the same address as the strangers.
        self.assertEqual(parts.ask(self.channel, "good-known"), (CODES.OK, parts.TRUTH))
        self.api.say = slow_reviews
        channels = [self.sidecar.channel() for _ in range(4)]
        for channel in channels:
            self.addCleanup(channel.close)
        self.api.asked.clear()
        begin = time.monotonic()
        # More at once than there are streams.
        finish = self.in_threads(40, lambda one: parts.ask(
            channels[one % 4], f"junk-{uuid.uuid4()}")[0])
        self.assertTrue(parts.wait_until(lambda: len(self.api.asked) > 10))
        honest = []
        # Longer than an answer about a token is kept.
        while time.monotonic() < begin + 14:
            honest.append(parts.ask(self.channel, "good-known")[0])
            time.sleep(0.3)
        codes = finish()
        seconds = time.monotonic() - begin
        reviews = sum(path == parts.TOKEN_REVIEWS for _, path in self.api.asked)
        print(f"strangers: {len(codes)} calls in {seconds:.1f} s, {reviews / seconds:.0f} reviews a second; "
              f"honest: {honest.count(CODES.OK)} of {len(honest)}", file=sys.stderr)
        self.assertEqual(honest, [CODES.OK] * len(honest))
        self.assertGreater(len(codes), 100)
        self.assertNotIn(CODES.OK, codes)
        # The rate, the burst, and a few of those who are known.
        self.assertLess(reviews, 50 * seconds + 100 + 10)
        self.assertIn("too many unknown tokens", self.sidecar.log())
        # A newcomer finds a place once they are gone.
        self.assertTrue(parts.wait_until(
            lambda: parts.ask(self.channel, f"good-{uuid.uuid4()}")[0] == CODES.OK))

    def test_y_what_cant_be_a_token_costs_no_review(self):
        self.assertEqual(parts.ask(self.channel, "good-known"), (CODES.OK, parts.TRUTH))
        self.api.asked.clear()
        for token in ("two words", "line\n", "x" * 20000, "\u00e9"):
            self.assertEqual(parts.ask(self.channel, token)[0], CODES.UNAUTHENTICATED, token)
        self.assertEqual(self.api.asked, [])

    def test_fb_unknown_bases_of_one_tenant_are_its_own_affair(self):
        def slow_lists(method, path, body):
            if path == CONTENTS:
                time.sleep(0.2)
            if path == parts.ACCESS_REVIEWS:
                return 201, {**body, "status": {"allowed": True}}
            return None

        self.api.put(snapshot(namespace="hog"), content(namespace="hog"),
                     snapshot("old"), content("old"))
        self.api.say = slow_lists
        for namespace in ("ns", "hog"):
            self.assertEqual(parts.ask(self.channel, "good-tenant", namespace=namespace)[0], CODES.OK)
        finish = self.in_threads(16, lambda one: parts.ask(
            self.channel, "good-hog", namespace="hog", base=f"no-{uuid.uuid4()}")[0])
        self.assertTrue(parts.wait_until(lambda: ("GET", CONTENTS) in self.api.asked))
        begin = time.monotonic()
        self.api.asked.clear()
        codes = []
        while time.monotonic() < begin + 5:
            codes.append(parts.ask(self.channel, "good-tenant", base=f"no-{uuid.uuid4()}")[0])
            self.assertEqual(parts.ask(self.channel, "good-tenant", base="handle-old")[0], CODES.OK)
        hogs = finish()
        seconds = time.monotonic() - begin
        lists = sum(path == CONTENTS for _, path in self.api.asked)
        print(f"{len(hogs)} unknown bases of the hog, {len(codes)} of the other; {lists} lists in "
              f"{seconds:.1f} s", file=sys.stderr)
        # What does not exist is said to be so, and not that another attempt may help.
        self.assertEqual(codes, [CODES.NOT_FOUND] * len(codes))
        # Ten at once, and one a second.
        self.assertLessEqual(lists, seconds + 12)

    def test_fb_names_that_a_tenant_invents_are_its_own_affair(self):
        self.api.say = lambda method, path, body: (
            (201, {**body, "status": {"allowed": True}}) if path == parts.ACCESS_REVIEWS else None)
        self.assertEqual(parts.ask(self.channel, "good-tenant")[0], CODES.OK)
        channels = [self.sidecar.channel() for _ in range(2)]
        for channel in channels:
            self.addCleanup(channel.close)
        self.api.asked.clear()
        begin = time.monotonic()
        finish = self.in_threads(24, lambda one: parts.ask(
            channels[one % 2], "good-inventor", namespace="inventor", snapshot=f"no-{uuid.uuid4()}")[0])
        honest = []
        while time.monotonic() < begin + 5:
            # A token that is new costs a review.
            honest.append(parts.ask(self.channel, f"good-{uuid.uuid4()}")[0])
            time.sleep(0.1)
        hogs = finish()
        seconds = time.monotonic() - begin
        lookups = sum("/no-" in path for _, path in self.api.asked)
        print(f"{len(hogs)} unknown names of the hog, {lookups} lookups in {seconds:.1f} s; honest: "
              f"{honest.count(CODES.OK)} of {len(honest)}", file=sys.stderr)
        self.assertEqual(honest, [CODES.OK] * len(honest))
        # Those that are under way when the last one is counted come to it.
        self.assertLessEqual(lookups, 1.5 * (100 * seconds + 200) + 24)
        self.assertNotIn(CODES.OK, hogs)

    def test_fb_an_answer_no_is_kept_for_a_moment_and_has_a_reason_in_the_log(self):
        base = f"no-{uuid.uuid4()}"
        self.assertEqual(parts.ask(self.channel, "good-x", base=base)[0], CODES.NOT_FOUND)
        self.assertEqual(parts.ask(self.channel, "good-x", base=base)[0], CODES.NOT_FOUND)
        self.assertEqual(sum(path == CONTENTS for _, path in self.api.asked), 1)
        self.assertTrue(parts.wait_until(lambda: base in self.sidecar.log()))
        line = next(line for line in self.sidecar.log().splitlines() if base in line)
        self.assertIn("snapshots not resolved", line)
        self.assertIn("NOT_FOUND", line)
        # Once it exists it is found.
        self.api.put(snapshot("new"), content("new", handle=base))
        self.assertTrue(parts.wait_until(
            lambda: parts.ask(self.channel, "good-x", base=base)[0] == CODES.OK, 5))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
