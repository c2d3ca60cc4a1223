"""The order of the sidecar's checks, with the code of each, against an API server that is strict about what it
is asked, and that is slow, gone or wrong.

Usage: checks_test.py CBT FOLDER_OF_MESSAGES
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

CBT, MESSAGES = sys.argv[1:3]
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

# pylint: disable=wrong-import-position
import parts  # noqa: E402
import runner  # noqa: E402
from parts import CODES, DRIVER, content, secret, service, snapshot, snapshot_class  # noqa: E402


class ChecksTest(unittest.TestCase):
    """One sidecar for all tests; each has users of its own, since reviews are kept for seconds."""

    users = 0

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-sidecar-"))
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.api = parts.FakeApi()
        cls.addClassCleanup(cls.api.stop)
        cls.plugin = parts.Plugin(f"unix:{cls.folder}/csi.sock")
        cls.addClassCleanup(cls.plugin.stop)
        cls.sidecar = cls.start()
        cls.channel = cls.sidecar.channel()
        cls.addClassCleanup(cls.channel.close)

    @classmethod
    def start(cls, *flags, **options):
        sidecar = parts.Sidecar(CBT, cls.folder, cls.api.kubeconfig(cls.folder), *flags, **options)
        cls.addClassCleanup(sidecar.stop)
        return sidecar

    def calm(self):
        """The API server answers as it should."""
        self.api.say = self.as_it_should
        self.api.objects = {}
        self.api.put(service(), snapshot(), content(), snapshot_class())

    @staticmethod
    def as_it_should(method, path, body):
        del method, path, body

    def setUp(self):
        self.calm()
        self.api.complaints = []
        self.plugin.requests.clear()

    def tearDown(self):
        self.assertEqual(self.api.complaints, [])
        if self.api.say != self.as_it_should:
            # What it refused may be repeated for a while, and the sidecar asks only so much a second.
            self.calm()
            self.assertTrue(parts.wait_until(lambda: self.ask()[0] == CODES.OK))

    @classmethod
    def token(cls, kind="good-user"):
        # The sidecar asks about 50 new tokens a second.
        time.sleep(0.025)
        cls.users += 1
        return f"{kind}{cls.users}"

    def ask(self, token=None, channel=None, **request):
        self.api.asked.clear()
        return parts.ask(channel or self.channel, self.token() if token is None else token, **request)

    def expect(self, code, words="", **request):
        """The code and words of the text; the plugin is not asked unless the code is OK."""
        before = len(self.plugin.requests)
        got, text = self.ask(**request)
        self.assertEqual(got, code, text)
        if code == CODES.OK:
            self.assertEqual(text, parts.TRUTH)
        else:
            self.assertIn(words, text)
            self.assertNotIn("canary", text)
            self.assertEqual(len(self.plugin.requests), before)
        return text

    # --- The table, from top to bottom.

    def test_requests_that_lack_something_cost_no_call(self):
        for request, field in (({"token": ""}, "security_token"),
                               ({"namespace": ""}, "namespace"),
                               ({"snapshot": ""}, "snapshot_name"),
                               ({"base": ""}, "base_snapshot_id"),
                               ({"base": "handle", "snapshot": ""}, "target_snapshot_name"),
                               ({"max_results": -1}, "max_results")):
            self.expect(CODES.INVALID_ARGUMENT, field, **request)
            self.assertEqual(self.api.asked, [])

    def test_a_good_request_reaches_the_plugin_with_handles(self):
        self.expect(CODES.OK)
        self.assertEqual(self.plugin.requests, [
            {"target": "handle-snap", "base": None, "secrets": {}}])

    def test_nothing_is_looked_up_for_who_may_not(self):
        for token, code in ((self.token("bad"), CODES.UNAUTHENTICATED),
                            (self.token("other-user"), CODES.UNAUTHENTICATED),
                            (self.token("good-no"), CODES.PERMISSION_DENIED),
                            (self.token("good-noopinion"), CODES.PERMISSION_DENIED),
                            (self.token("good-nodenied"), CODES.PERMISSION_DENIED)):
            texts = {self.expect(code, token=token, snapshot=name) for name in ("snap", "missing")}
            self.assertEqual(len(texts), 1)
            self.assertFalse([path for _, path in self.api.asked
                              if path.startswith(parts.SNAPSHOTS)])
        self.expect(CODES.PERMISSION_DENIED, namespace="elsewhere")

    def test_every_kind_of_wrong_review_is_no_leave(self):
        def says(path, body, code=201):
            def say(method, asked, sent):
                if asked != path:
                    return None
                return code, body(sent) if callable(body) else body
            return say

        user = {"username": "somebody"}
        for status in ({"authenticated": True, "user": user},
                       {"authenticated": True, "user": user, "audiences": []},
                       {"authenticated": True, "user": user, "audiences": ["another"]},
                       {"authenticated": False, "user": user, "audiences": [parts.AUDIENCE]},
                       {"user": user, "audiences": [parts.AUDIENCE]}, {}):
            self.api.say = says(parts.TOKEN_REVIEWS, lambda sent, s=status: {**sent, "status": s})
            self.expect(CODES.UNAUTHENTICATED)
        for path in (parts.TOKEN_REVIEWS, parts.ACCESS_REVIEWS):
            for body, code in ((b"", 201), (b"{", 201), (b"[]", 201), (b"null", 201), (b"{}", 201),
                               (b'{"kind":"Status","status":"Success"}', 200),
                               (b'{"status":{"authenticated":"yes","allowed":"yes"}}', 201),
                               (self.api.status(500, "InternalError"), 500),
                               (self.api.status(403, "Forbidden"), 403),
                               (self.api.status(401, "Unauthorized"), 401),
                               (b"<html>", 200), (b"", 302)):
                self.api.say = says(path, body, code)
                got, text = self.ask()
                self.assertIn(got, (CODES.UNAVAILABLE, CODES.UNAUTHENTICATED), (path, body, text))
                if body != b"{}":
                    self.assertEqual(got, CODES.UNAVAILABLE, (path, body, text))
        self.api.say = says(parts.ACCESS_REVIEWS, lambda sent: {**sent, "status": {"denied": False}})
        self.expect(CODES.PERMISSION_DENIED)
        self.assertEqual(self.plugin.requests, [])

    def test_snapshots_that_are_not_there_or_not_ready(self):
        self.expect(CODES.NOT_FOUND, "ns/missing", snapshot="missing")
        for name in ("../secrets", "Upper", "a/b", "x" * 254, "a?watch=1", "."):
            self.expect(CODES.NOT_FOUND, snapshot=name)
        for broken in (snapshot(status=False), snapshot(ready=None), snapshot(ready=False)):
            self.api.put(broken)
            self.expect(CODES.UNAVAILABLE, "not ready")
        unbound = snapshot()
        del unbound["status"]["boundVolumeSnapshotContentName"]
        self.api.put(unbound)
        self.expect(CODES.UNAVAILABLE, "not bound")
        self.api.put(snapshot(content="gone"))
        self.expect(CODES.UNAVAILABLE, "not bound")
        self.api.put(snapshot())
        for broken in (content(status=False), content(ready=None), content(ready=False),
                       content(handle="")):
            self.api.put(broken)
            self.expect(CODES.UNAVAILABLE, "not ready")
        self.api.put(content(driver="another.example.com"))
        self.expect(CODES.INVALID_ARGUMENT, DRIVER)

    def test_a_content_must_name_the_snapshot_too(self):
        for other in ({"namespace": "elsewhere"}, {"name": "another"}, {"uid": "reused"},
                      {"driver": "another.example.com", "namespace": "elsewhere"}):
            self.api.put(content(own_name="content-ns-snap", **other))
            self.expect(CODES.UNAVAILABLE, "not bound")

    def test_the_base_is_one_of_the_namespace_and_of_the_volume(self):
        self.api.put(snapshot("base"), content("base", created=1_600_000_000_000_000_000))
        self.expect(CODES.OK, base="handle-base")
        self.assertEqual(self.plugin.requests[-1],
                         {"target": "handle-snap", "base": "handle-base", "secrets": {}})
        self.expect(CODES.OK, base="handle-snap")  # of a snapshot to itself: nothing, or not
        # Elsewhere, nowhere, and unbound in either direction: all alike but for what is not ready.
        self.api.put(snapshot("far", "elsewhere"), content("far", "elsewhere"))
        self.api.put(content("orphan"))
        self.api.put(snapshot("stolen", content="content-elsewhere-far"))
        texts = {self.expect(CODES.NOT_FOUND, "base", base=handle)
                 for handle in ("handle-far", "handle-nowhere", "handle-orphan", "../x")}
        self.assertEqual(len(texts), 1)
        self.api.put(content("foreign", driver="another.example.com"), snapshot("foreign"))
        self.expect(CODES.NOT_FOUND, "base", base="handle-foreign")
        self.api.put(content("base", uid="reused"))
        self.expect(CODES.UNAVAILABLE, "not bound", base="handle-base")
        self.api.put(content("base", ready=False))
        self.expect(CODES.UNAVAILABLE, "not ready", base="handle-base")
        # Another volume; newer than the target; unknown of both.
        self.api.put(content("base", volume="volume-2"))
        self.expect(CODES.INVALID_ARGUMENT, "different volumes", base="handle-base")
        self.api.put(content("base", created=1_800_000_000_000_000_000))
        self.expect(CODES.INVALID_ARGUMENT, "newer", base="handle-base")
        self.api.put(content("base", volume=None, handle="handle-base"))
        self.expect(CODES.OK, base="handle-base")
        # Two contents with one handle: the good one counts.
        self.api.put(content("base"), content("base2", handle="handle-base"))
        self.expect(CODES.OK, base="handle-base")

    def test_fd_secrets_come_from_the_class(self):
        name, namespace = (f"csi.storage.k8s.io/snapshotter-secret-{end}"
                           for end in ("name", "namespace"))
        self.api.put(secret("s-snap-content-ns-snap", "ns", key="canary-value", other="x"))
        self.api.put(snapshot_class(parameters={
            name: "s-${volumesnapshot.name}-${volumesnapshotcontent.name}",
            namespace: "${volumesnapshot.namespace}"}))
        self.expect(CODES.OK)
        self.assertEqual(self.plugin.requests[-1]["secrets"], {"key": "canary-value", "other": "x"})
        for parameters in ({name: "s"}, {namespace: "ns"}, {name: "", namespace: ""},
                           {name: "s", namespace: "${volumesnapshot.name}"},
                           {name: "${pvc.name}", namespace: "ns"}, {name: "${", namespace: "ns"},
                           {name: "$volumesnapshot.name", namespace: "ns"},
                           {name: "a/../b", namespace: "ns"}, {name: "s", namespace: "a.b"},
                           {name: "missing", namespace: "ns"}):
            self.api.put(snapshot_class(parameters=parameters))
            self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")
        self.api.put(snapshot_class(driver="another.example.com"))
        self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")
        self.assertNotIn("canary-value", self.sidecar.log())

    def test_fd_without_a_class_the_default_one_counts(self):
        self.api.put(snapshot(klass=None))
        self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")
        self.api.put(snapshot_class("another", "another.example.com", default=True))
        self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")
        self.api.put(snapshot_class("default", default=True))
        self.expect(CODES.OK)
        self.api.put(snapshot_class("second", default=True))
        self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")
        self.api.put(snapshot(klass="missing"))
        self.expect(CODES.FAILED_PRECONDITION, "VolumeSnapshotClass")

    # --- The API server.

    def test_an_api_server_that_fails_anywhere_is_unavailable(self):
        self.api.put(snapshot("base"), content("base"))
        self.ask(base="handle-base")
        steps = list(dict.fromkeys(self.api.asked))
        self.assertGreaterEqual(len(steps), 6)

        def drop(handler):
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        def half(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"metadata":')
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        for step in steps:
            for answer in ((500, self.api.status(500, "InternalError")),
                           (403, self.api.status(403, "Forbidden")),
                           (401, self.api.status(401, "Unauthorized")),
                           (410, self.api.status(410, "Expired")),
                           (200, b'{"apiVersion":'), (200, b"[]"), (200, b'{"metadata":1,"items":1}'),
                           (200, drop), (200, half)):
                if "snapshotmetadataservices" in step[1]:
                    time.sleep(1.1)  # the audience is kept that long
                self.api.say = lambda method, path, body: answer if (method, path) == step else None
                with self.subTest(step=step, answer=answer):
                    self.expect(CODES.UNAVAILABLE, base="handle-base")

    def test_a_slow_api_server_is_unavailable_in_time(self):
        for path in (parts.TOKEN_REVIEWS, parts.ACCESS_REVIEWS,
                     parts.SNAPSHOTS + "/namespaces/ns/volumesnapshots/snap"):
            gate = threading.Event()

            def say(method, asked, body):
                if asked == path:
                    gate.wait(60)

            self.api.say = say
            begin = time.monotonic()
            try:
                self.expect(CODES.UNAVAILABLE)
            finally:
                gate.set()
            self.assertLess(time.monotonic() - begin, 30)

    # --- Keeping answers.

    def test_reviews_are_kept_for_seconds_and_objects_are_not(self):
        token = self.token()
        self.expect(CODES.OK, token=token)
        self.expect(CODES.OK, token=token)
        self.assertNotIn(("POST", parts.TOKEN_REVIEWS), self.api.asked)
        self.assertNotIn(("POST", parts.ACCESS_REVIEWS), self.api.asked)
        # What was deleted is not served from memory.
        self.api.objects.pop(parts.SNAPSHOTS + "/namespaces/ns/volumesnapshots/snap")
        self.expect(CODES.NOT_FOUND, token=token)
        # Nor is another token a kept one, or another namespace.
        self.expect(CODES.UNAUTHENTICATED, token="bad" + token)
        self.expect(CODES.PERMISSION_DENIED, token=token, namespace="elsewhere")

        def gone(method, path, body):
            return 500, self.api.status(500, "InternalError")

        self.api.put(snapshot())
        self.api.say = gone
        self.assertTrue(parts.wait_until(
            lambda: parts.ask(self.channel, token)[0] == CODES.UNAVAILABLE))
        # Not even after that: nothing old is let in again.
        self.assertEqual(parts.ask(self.channel, token)[0], CODES.UNAVAILABLE)

    def test_one_question_for_many_who_ask_the_same(self):
        token = self.token()
        self.api.asked.clear()
        results = []
        threads = [threading.Thread(target=lambda: results.append(parts.ask(self.channel, token)[0]))
                   for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(results), {CODES.OK})
        self.assertLessEqual(self.api.asked.count(("POST", parts.TOKEN_REVIEWS)), 2)

    # --- What it shows of itself.

    def test_metrics_name_each_rpc_and_no_snapshot(self):
        before = parts.seconds_of(self.sidecar.get("/metrics")[1])
        self.expect(CODES.OK)
        self.api.put(snapshot("base"), content("base"))
        self.expect(CODES.OK, base="handle-base")
        self.expect(CODES.UNAUTHENTICATED, token=self.token("bad"))
        self.expect(CODES.NOT_FOUND, snapshot="secret-name")

        def counted():
            now = parts.seconds_of(self.sidecar.get("/metrics")[1])
            return {key: now[key] - before.get(key, 0) for key in now}

        wanted = {("MetadataAllocated", "OK"): 1, ("MetadataDelta", "OK"): 1,
                  ("MetadataAllocated", "Unauthenticated"): 1, ("MetadataAllocated", "NotFound"): 1}
        self.assertTrue(parts.wait_until(lambda: all(counted().get(k) == v for k, v in wanted.items())),
                        counted())
        code, text = self.sidecar.get("/metrics")
        self.assertEqual(code, 200)
        self.assertNotIn("secret-name", text)
        self.assertNotIn("handle-", text)
        self.assertIn(f'driver_name="{DRIVER}"', text)
        self.assertIn('method_name="/csi.v1.Identity/Probe"', text)
        self.assertIn("process_start_time_seconds", text)
        self.assertIn("cbt_sidecar_ready 1", text)
        (end,) = re.findall(r'^cbt_certificate_expiry_timestamp_seconds{file="[^"]*"} (.*)$', text, re.MULTILINE)
        self.assertGreater(float(end), time.time())
        self.assertEqual(self.sidecar.get("/other")[0], 404)

    def test_no_token_is_logged(self):
        for token in (self.token(), self.token("bad"), self.token("good-no")):
            self.ask(token=token)
            self.assertNotIn(token, self.sidecar.log())

    # --- Flags.

    def test_base_policies(self):
        self.api.put(snapshot("base"), content("base"))
        other = self.start("--base-policy=handle", "--missing-snapshot-code=unavailable", name="any")
        with other.channel() as channel:
            self.expect(CODES.OK, channel=channel, base="whatever")
            self.assertEqual(self.plugin.requests[-1]["base"], "whatever")
            self.expect(CODES.UNAVAILABLE, "does not exist", channel=channel, snapshot="missing")
        other.stop()
        other = self.start("-base-policy", "name", "-audience", parts.AUDIENCE, name="name")
        self.api.objects.pop(parts.PLURALS["SnapshotMetadataService"] + "/" + DRIVER)
        with other.channel() as channel:
            self.expect(CODES.OK, channel=channel, base="base")
            self.assertEqual(self.plugin.requests[-1]["base"], "handle-base")
            self.expect(CODES.NOT_FOUND, channel=channel, base="handle-base")
        other.stop()

    def test_without_an_audience_no_token_is_reviewed(self):
        other = self.start(name="audience")
        with other.channel() as channel:
            for broken in (None, service(audience="")):
                self.api.objects.pop(parts.PLURALS["SnapshotMetadataService"] + "/" + DRIVER, None)
                if broken is not None:
                    self.api.put(broken)
                self.expect(CODES.UNAVAILABLE, channel=channel)
                self.assertNotIn(("POST", parts.TOKEN_REVIEWS), self.api.asked)
            self.api.put(service())
            # The answer is kept for a second: tokens of strangers must not have it asked each time.
            self.assertTrue(parts.wait_until(
                lambda: self.ask(channel=channel) == (CODES.OK, parts.TRUTH), 5))
        other.stop()

    def test_streams_end_in_time(self):
        # A minute at least; the stall of the plugin ends it earlier here.
        other = self.start("--max-streaming-duration-min=1", "--plugin-stall-time=1s", name="stall")
        self.plugin.hold.clear()
        try:
            with other.channel() as channel:
                self.assertEqual(self.ask(channel=channel)[0], CODES.DEADLINE_EXCEEDED)
        finally:
            self.plugin.hold.set()
        other.stop()

    # --- The plugin.

    def test_a_plugin_may_come_late_and_go(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-sidecar-"))
        parts.make_certificate(folder, "ca")
        parts.make_certificate(folder, "tls", "ca")
        sidecar = parts.Sidecar(CBT, folder, self.api.kubeconfig(folder), wait=False)
        self.addCleanup(sidecar.stop)
        self.assertTrue(parts.wait_until(lambda: sidecar.health() == 503))
        # The kubelet must not restart a sidecar that waits.
        self.assertEqual(sidecar.get("/livez"), (200, "ok"))
        with sidecar.channel() as channel:
            self.expect(CODES.UNAVAILABLE, channel=channel)
            plugin = parts.Plugin(f"unix:{folder}/csi.sock")
            plugin.ready = False
            time.sleep(1.5)
            self.assertEqual(sidecar.health(), 503)
            plugin.ready = True
            self.assertTrue(parts.wait_until(lambda: sidecar.health() == 200))
            self.expect(CODES.OK, channel=channel)
            plugin.stop()
            self.assertTrue(parts.wait_until(lambda: sidecar.health() == 503))
            self.expect(CODES.UNAVAILABLE, channel=channel)
            # Another driver on the same socket is not served.
            other = parts.Plugin(f"unix:{folder}/csi.sock", name="another.example.com")
            time.sleep(2.5)
            self.assertEqual(sidecar.health(), 503)
            other.stop()
            plugin = parts.Plugin(f"unix:{folder}/csi.sock")
            self.addCleanup(plugin.stop)
            self.assertTrue(parts.wait_until(lambda: sidecar.health() == 200))
            self.assertTrue(parts.wait_until(
                lambda: self.ask(channel=channel)[0] == CODES.OK))
        self.assertEqual(sidecar.stop(), 0)

    def test_a_plugin_that_can_never_be_served_ends_the_sidecar(self):
        for wrong, words in (({"capability": False}, "SNAPSHOT_METADATA_SERVICE"),
                             ({"name": ""}, "name")):
            folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-sidecar-"))
            parts.make_certificate(folder, "ca")
            parts.make_certificate(folder, "tls", "ca")
            plugin = parts.Plugin(f"unix:{folder}/csi.sock", **wrong)
            self.addCleanup(plugin.stop)
            sidecar = parts.Sidecar(CBT, folder, self.api.kubeconfig(folder), wait=False)
            self.addCleanup(sidecar.stop)
            self.assertEqual(sidecar.process.wait(30), 2)
            self.assertIn(words, sidecar.log().splitlines()[-1])

    def test_stop_signals_drain(self):
        for number in (1, 2, 3, 15):
            sidecar = self.start(name=f"signal{number}")
            with sidecar.channel() as channel:
                self.plugin.hold.clear()
                stream = parts.method_of(channel, False)(
                    parts.snapshotmetadata_pb2.GetMetadataAllocatedRequest(
                        security_token=self.token(), namespace="ns", snapshot_name="snap"))
                next(stream)
                sidecar.process.send_signal(number)
                self.assertTrue(parts.wait_until(lambda: sidecar.health() == 503))
                self.plugin.hold.set()
                self.assertEqual(len(list(stream)), len(parts.TRUTH) - 1)
            self.assertEqual(sidecar.process.wait(30), 0)

    def test_it_is_ready_once_its_watches_have_listed(self):
        """Until then, each open would ask the API server for every object."""
        listed = threading.Event()

        class Slow(parts.FakeApi):
            def answer(self, method, path, body):
                if "/volumesnapshotcontents?" in path and "watch=" in path:
                    listed.wait(60)
                return super().answer(method, path, body)

        api = Slow()
        self.addCleanup(api.stop)
        self.addCleanup(listed.set)
        api.put(service(), snapshot(), content(), snapshot_class())
        folder = os.path.join(self.folder, "cold")
        os.mkdir(folder)
        sidecar = parts.Sidecar(CBT, self.folder, api.kubeconfig(folder), wait=False, name="cold")
        self.addCleanup(sidecar.stop)
        with sidecar.channel() as channel:
            self.assertTrue(parts.wait_until(
                lambda: parts.ask(channel, self.token())[0] == CODES.OK))
        self.assertEqual(sidecar.health(), 503)
        # A right to watch that is missing is no reason to wait.
        listed.set()
        self.assertTrue(parts.wait_until(sidecar.ready), sidecar.log())


class FlagsTest(unittest.TestCase):
    def run_it(self, *flags, program=None):
        return subprocess.run([*(program or [parts.cluster(CBT), "sidecar"]), *flags], capture_output=True, text=True,
                              timeout=60, check=False)

    def test_wrong_flags_end_with_status_2(self):
        for flags, words in ((["--unknown"], "flag provided but not defined: -unknown"),
                             (["--port"], "flag needs an argument: -port"),
                             (["--port=x"], 'invalid value "x" for flag -port: parse error'),
                             (["---port=1"], "bad flag syntax: ---port=1"),
                             (["word", "--port=1"], "unexpected argument: word"),
                             (["--disable-metrics", "true"], "unexpected argument: true"),
                             ([], "-tls-cert"),
                             (["--tls-cert=a"], "-tls-key"),
                             (["--tls-cert=a", "--tls-key=b", "--port=0"], "-port"),
                             (["--tls-cert=a", "--tls-key=b", "--timeout=0"], "-timeout"),
                             (["--tls-cert=a", "--tls-key=b", "--csi-address="], "-csi-address"),
                             (["--tls-cert=a", "--tls-key=b", "--tls-min-version=VersionTLS11"],
                              "-tls-min-version"),
                             (["--tls-cert=a", "--tls-key=b",
                               "--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
                              "-tls-cipher-suites"),
                             (["--tls-cert=a", "--tls-key=b", "--tls-curve-preferences=P256"],
                              "-tls-curve-preferences"),
                             (["--tls-cert=a", "--tls-key=b", "--api=csi"], "-api")):
            result = self.run_it(*flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(words, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_version_and_help(self):
        with tempfile.TemporaryDirectory(prefix="cbt-sidecar-") as folder:
            link = os.path.join(folder, "csi-snapshot-metadata")
            os.symlink(parts.cluster(CBT), link)
            for program in ([parts.cluster(CBT), "sidecar"], [link]):
                result = self.run_it("-version", program=program)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn("csi-snapshot-metadata", result.stdout)
                result = self.run_it("--help", program=program)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                for flag in ("--csi-address", "--kube-api-qps", "--publish", "--v ", "--logtostderr"):
                    self.assertIn(flag, result.stdout)

    def test_klog_flags_are_accepted(self):
        result = self.run_it("-logtostderr=false", "--alsologtostderr", "-vmodule=a=1", "-v=2",
                             "--stderrthreshold", "WARNING", "--skip_headers", "--version")
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
