"""Sessions from end to end on a real kube-apiserver: a backup application opens one, and calls the sidecar with
its token by generated messages.

Usage: sidecar_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import base64
import json
import os
import sys
import tempfile
import threading
import time
import unittest

from world import API, CBT, DEPLOY, DRIVER, Base, stop

# pylint: disable=wrong-import-order
import first_revision_pb2
import grpc
import parts
import runner
from parts import BLOCK, CODES

PROJECT = os.path.join(DEPLOY, "..", "..", "..")
ADDRESS = "service.csi-driver:6443"
OLD, NEW = 1_600_000_000_000_000_000, 1_700_000_000_000_000_000


def tearDownModule():
    stop()


class SidecarTest(Base):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-sessions-"))
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.plugin = parts.Plugin(f"unix:{cls.folder}/csi.sock", name=DRIVER)
        cls.addClassCleanup(cls.plugin.stop)
        cls.plane.install(os.path.join(PROJECT, "deploy/kubernetes/crd/snapshotmetadataservices.yaml"))
        cls.plane.account("csi-driver", "csi-snapshot-metadata")
        for path in ("deploy/kubernetes/sidecar/cluster-role.yaml",
                     "deploy/kubernetes/sidecar/cluster-role-binding.yaml",
                     "deploy/kubernetes/sessions/sidecar/data-role.yaml"):
            cls.plane.apply(os.path.join(PROJECT, path))
        # That of the manifests, for this driver's object.
        text = parts.read(os.path.join(DEPLOY, "sidecar", "publish-role.yaml")).decode()
        cls.plane.apply_text(text.replace("folder.example.com", "the-driver"))
        cls.plane.create(parts.snapshot_class(driver=DRIVER))
        cls.kubeconfig = cls.plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", cls.folder)
        cls.sidecar = cls.start()
        cls.channel = cls.sidecar.channel()
        cls.addClassCleanup(cls.channel.close)
        # The manager must see the sidecar's own object.
        if not parts.wait_until(lambda: cls.configuration()["spec"]["caCert"] != "UEVN"):
            raise AssertionError("the configuration was not published:\n" + cls.sidecar.log())

    @classmethod
    def start(cls, *flags, name="sidecar"):
        sidecar = parts.Sidecar(CBT, cls.folder, cls.kubeconfig, "--api=session",
                                "--session-namespace=csi-driver",
                                f"--publish-sessions={ADDRESS}",
                                "--session-configuration=the-driver", *flags, name=name)
        cls.addClassCleanup(sidecar.stop)
        return sidecar

    @classmethod
    def configuration(cls):
        return cls.plane.get("snapshotservicesconfigurations", "the-driver")

    def session(self, *snapshots):
        return self.token_of(self.ready(self.open(*snapshots)))

    def ask(self, token, snapshot, base=None, offset=0, max_results=0, channel=None):
        """(OK, tuples) or (code, text)."""
        if base is None:
            name = "GetAllocated"
            message = first_revision_pb2.GetAllocatedRequest(
                session_token=token, volume_id="volume-1", snapshot=snapshot, starting_offset=offset,
                max_results=max_results)
        else:
            name = "GetDelta"
            message = first_revision_pb2.GetDeltaRequest(
                session_token=token, volume_id="volume-1", base_snapshot=base,
                target_snapshot=snapshot, starting_byte_offset=offset, max_results=max_results)
        call = (channel or self.channel).unary_stream(
            f"/SnapshotMetadata/{name}",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=getattr(first_revision_pb2, name + "Response").FromString)
        self.messages = []
        try:
            self.messages.extend(call(message, timeout=60))
            return CODES.OK, [(t.byte_offset, t.size_bytes)
                              for one in self.messages for t in one.block_metadata]
        except grpc.RpcError as error:
            return error.code(), error.details()

    def expect(self, code, *arguments, **request):
        got, text = self.ask(*arguments, **request)
        self.assertEqual(got, code, f"{text}\n{self.sidecar.log()[-1500:]}")
        return text

    def expect_refused(self, *arguments, **request):
        """UNAUTHENTICATED, the plugin is not asked, and the text says nothing about snapshots."""
        before = len(self.plugin.requests)
        text = self.expect(CODES.UNAUTHENTICATED, *arguments, **request)
        self.assertEqual(text, "the token is invalid or does not grant access")
        self.assertEqual(len(self.plugin.requests), before)

    def data(self, *snapshots, namespace="csi-driver", expiry="2099-01-01T00:00:00Z"):
        """A session as a manager makes it; returns the token."""
        name = os.urandom(32).hex()
        self.plane.create({"apiVersion": API, "kind": "SnapshotSessionData",
                           "metadata": {"name": name, "namespace": namespace},
                           "spec": {"expiryTime": expiry, "snapshotNamespace": "prod",
                                    "snapshots": list(snapshots)}})
        return name

    def test_s6_the_messages_on_the_wire(self):
        def fields(name):
            message = first_revision_pb2.DESCRIPTOR.message_types_by_name[name]
            return {field.name: field.number for field in message.fields}

        self.assertEqual(fields("GetAllocatedRequest"),
                         {"session_token": 1, "volume_id": 2, "snapshot": 3, "starting_offset": 4,
                          "max_results": 5})
        self.assertEqual(fields("GetDeltaRequest"),
                         {"session_token": 1, "volume_id": 2, "base_snapshot": 3,
                          "target_snapshot": 4, "starting_byte_offset": 5, "max_results": 6})
        snapshot = self.snapshot()
        self.assertEqual(self.ask(self.session(snapshot), snapshot), (CODES.OK, parts.TRUTH))
        for message in self.messages:
            self.assertEqual(message.volume_size_bytes, parts.CAPACITY)
            # 1 here, where the plugin has 2: the first revision knows no UNKNOWN.
            self.assertEqual(message.block_metadata_type, 1)

    def test_s7_codes(self):
        snapshot = self.snapshot()
        token = self.session(snapshot)
        self.expect(CODES.INVALID_ARGUMENT, token, "")
        self.expect(CODES.INVALID_ARGUMENT, "", snapshot)
        gone = self.snapshot()
        token_of_gone = self.session(gone)
        self.plane.delete("volumesnapshot", "prod", gone)
        self.assertTrue(parts.wait_until(
            lambda: self.ask(token_of_gone, gone)[0] == CODES.NOT_FOUND))
        self.expect_refused(token[:-1] + ("0" if token[-1] != "0" else "1"), snapshot)
        self.assertEqual(self.expect(CODES.OK, token, snapshot, max_results=1), parts.TRUTH)
        self.assertEqual([len(m.block_metadata) for m in self.messages if m.block_metadata], [1, 1])

    def test_s17_the_arguments(self):
        # Address, certificate, configuration and socket are in the command line; see start().
        one = self.configuration()
        self.assertEqual(one["spec"]["address"], ADDRESS)
        self.assertEqual(self.ready(self.open(self.snapshot()))["status"]["sessionURL"], ADDRESS)
        # What does not fit together is an error.
        for flags in (["--publish-sessions=a:1"], ["--api=session", "--session-configuration=x"],
                      ["--api=session", "--sessions=/dev/null", "--session-namespace=x"]):
            sidecar = parts.Sidecar(CBT, self.folder, self.kubeconfig, *flags, wait=False,
                                    name="wrong")
            self.assertEqual(sidecar.process.wait(30), 2, flags)

    def test_s18_the_session_is_that_of_the_token(self):
        snapshot, other = self.snapshot(), self.snapshot()
        token = self.session(snapshot)
        # At once: the application may be faster than the sidecar's watch.
        self.assertEqual(self.expect(CODES.OK, token, snapshot), parts.TRUTH)
        self.expect_refused(token, other)
        self.expect_refused(token, snapshot, base=other)
        self.expect_refused(token, other, base=snapshot)
        for wrong in ("x", "../" + token, token.upper(), token + "a", "a" * 64, "a" * 5000):
            self.expect_refused(wrong, snapshot)
        # Data of another namespace is not this sidecar's.
        self.expect_refused(self.data(snapshot, namespace="other"), snapshot)
        # Nor is a name in use by another kind of object, or one that could be guessed.
        self.plane.create({"apiVersion": API, "kind": "SnapshotSessionData",
                           "metadata": {"name": "guessable", "namespace": "csi-driver"},
                           "spec": {"expiryTime": "2099-01-01T00:00:00Z", "snapshotNamespace": "prod",
                                    "snapshots": [snapshot]}})
        self.expect_refused("guessable", snapshot)
        self.assertNotIn(token, self.sidecar.log())

    def test_s18_an_expired_session_opens_nothing(self):
        snapshot = self.snapshot()
        self.expect_refused(self.data(snapshot, expiry="2020-01-01T00:00:00Z"), snapshot)
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4))
        token = self.data(snapshot, expiry=soon)
        self.plugin.hold.clear()
        results = []
        thread = threading.Thread(target=lambda: results.append(self.ask(token, snapshot)))
        before = len(self.plugin.requests)
        thread.start()
        try:
            self.assertTrue(parts.wait_until(lambda: len(self.plugin.requests) > before))
            time.sleep(5)
        finally:
            # A stream that runs is not cut; a call that begins is refused, also one that resumes.
            self.plugin.hold.set()
            thread.join()
        self.assertEqual(results, [(CODES.OK, parts.TRUTH)])
        self.expect_refused(token, snapshot, offset=BLOCK)

    def test_s18_who_deletes_the_request_ends_the_session(self):
        snapshot = self.snapshot()
        name = self.open(snapshot)
        token = self.token_of(self.ready(name))
        self.expect(CODES.OK, token, snapshot)
        self.as_user("app", "delete", "snapshotsessionrequest", name)
        self.assertTrue(parts.wait_until(
            lambda: self.ask(token, snapshot)[0] == CODES.UNAUTHENTICATED))

    def test_s19_names_become_handles(self):
        base = self.snapshot(at=OLD)
        target = self.snapshot(at=NEW)
        token = self.session(base, target)
        self.assertEqual(self.expect(CODES.OK, token, target, base=base), parts.TRUTH)
        self.assertEqual(self.plugin.requests[-1]["target"], f"handle-prod-{target}")
        self.assertEqual(self.plugin.requests[-1]["base"], f"handle-prod-{base}")
        # The base must precede the target, and be of its volume.
        self.assertIn("newer", self.expect(CODES.INVALID_ARGUMENT, token, base, base=target))
        elsewhere = self.snapshot(at=OLD, volume="volume-2")
        token = self.session(elsewhere, target)
        self.assertIn("different volumes",
                      self.expect(CODES.INVALID_ARGUMENT, token, target, base=elsewhere))
        # A handle is no name here.
        token = self.data(target, f"handle-prod-{base}")
        self.expect(CODES.NOT_FOUND, token, target, base=f"handle-prod-{base}")

    def test_s20_the_configuration_is_published_and_kept(self):
        one = self.configuration()
        self.assertEqual(one["metadata"]["labels"]["cbt.storage.k8s.io/driver"], DRIVER)
        self.assertEqual(one["spec"], {
            "address": ADDRESS, "driverNamespace": "csi-driver",
            "caCert": base64.b64encode(parts.read(f"{self.folder}/ca.crt")).decode()})
        # The token stays here: the plugin gets none.
        snapshot = self.snapshot()
        token = self.session(snapshot)
        self.expect(CODES.OK, token, snapshot)
        self.assertNotIn(token, json.dumps(self.plugin.requests))
        # The CA is renewed.
        parts.make_certificate(self.folder, "ca")
        try:
            self.assertTrue(parts.wait_until(
                lambda: self.configuration()["spec"]["caCert"] ==
                base64.b64encode(parts.read(f"{self.folder}/ca.crt")).decode()))
        finally:
            parts.make_certificate(self.folder, "tls", "ca")
            type(self).channel = self.sidecar.channel()
            type(self).addClassCleanup(self.channel.close)
            self.assertTrue(parts.wait_until(
                lambda: self.ask(token, snapshot)[0] == CODES.OK))

    def test_s21_a_stream_resumes_by_its_offset(self):
        snapshot = self.snapshot()
        token = self.session(snapshot)
        # What ends at or before the offset is not sent again.
        self.assertEqual(self.expect(CODES.OK, token, snapshot, offset=BLOCK), parts.TRUTH[1:])
        self.assertEqual(self.expect(CODES.OK, token, snapshot, offset=parts.CAPACITY), [])
        # While other calls of the session run.
        self.plugin.hold.clear()
        results = []
        before = len(self.plugin.requests)
        threads = [threading.Thread(target=lambda: results.append(
            SidecarTest.ask(self, token, snapshot)[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.assertTrue(parts.wait_until(lambda: len(self.plugin.requests) >= before + 4))
        self.plugin.hold.set()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [CODES.OK] * 4)

    def test_an_api_server_that_goes_away_opens_no_session(self):
        snapshot = self.snapshot()
        token = self.session(snapshot)
        self.expect(CODES.OK, token, snapshot)
        self.plane.command("kill")
        try:
            self.assertTrue(parts.wait_until(
                lambda: self.ask("b" * 64, snapshot)[0] == CODES.UNAVAILABLE))
            self.assertTrue(parts.wait_until(
                lambda: self.ask(token, snapshot)[0] == CODES.UNAVAILABLE))
        finally:
            self.plane.command("start")
        self.assertTrue(parts.wait_until(lambda: self.ask(token, snapshot)[0] == CODES.OK, 60))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
