"""The sidecar on a real kube-apiserver: tokens, roles, snapshots, rotation, restarts, publishing; with
grpcio as the client.

Usage: cluster_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import base64
import json
import os
import sys
import tempfile
import threading
import time
import unittest

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(HERE, "..", "..")
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402
from parts import AUDIENCE, CODES, DRIVER  # noqa: E402


class ClusterTest(unittest.TestCase):
    """One control plane and one sidecar, whose service account has the shipped role and no more."""

    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        cls.plane = cluster.ControlPlane(CONTROL_PLANE)
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.install(os.path.join(PROJECT, "deploy/kubernetes/crd/snapshotmetadataservices.yaml"))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-cluster-"))
        parts.make_certificate(cls.folder, "ca")
        parts.make_certificate(cls.folder, "tls", "ca")
        cls.plugin = parts.Plugin(f"unix:{cls.folder}/csi.sock")
        cls.addClassCleanup(cls.plugin.stop)
        for namespace in ("csi-driver", "backup", "ns", "other"):
            cls.plane.create({"apiVersion": "v1", "kind": "Namespace",
                              "metadata": {"name": namespace}})
        cls.plane.account("csi-driver", "csi-snapshot-metadata")
        for file in ("cluster-role.yaml", "cluster-role-binding.yaml"):
            cls.plane.apply(os.path.join(PROJECT, "deploy/kubernetes/sidecar", file))
        cls.kubeconfig = cls.plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", cls.folder)
        cls.plane.create(parts.service())
        cls.plane.create(parts.snapshot_class())
        cls.plane.account("backup", "reader")
        cls.plane.role("ns", "reader", "backup", "reader")
        cls.sidecar = parts.Sidecar(CBT, cls.folder, cls.kubeconfig)
        cls.addClassCleanup(cls.sidecar.stop)
        cls.channel = cls.sidecar.channel()
        cls.addClassCleanup(cls.channel.close)
        cls.token = cls.plane.token("backup", "reader", AUDIENCE)

    counter = 0

    def make(self, namespace="ns", volume="volume-1", created=1_700_000_000_000_000_000, **content):
        """A bound snapshot, as the controllers make it; returns its name."""
        type(self).counter += 1
        name = f"s{self.counter}"
        self.plane.snapshot(name, namespace, volume=volume, created=created, **content)
        return name

    def ask(self, token=None, **request):
        return parts.ask(self.channel, self.token if token is None else token, **request)

    def expect(self, code, **request):
        got, text = self.ask(**request)
        self.assertEqual(got, code, f"{text}\n{self.sidecar.log()[-1500:]}")
        return text

    def eventually(self, code, **request):
        self.assertTrue(parts.wait_until(lambda: self.ask(**request)[0] == code),
                        f"{self.ask(**request)}\n{self.sidecar.log()[-1500:]}")

    def test_a_snapshot_is_served_at_once_and_a_deleted_one_never(self):
        name = self.make()
        self.assertEqual(self.expect(CODES.OK, snapshot=name), parts.TRUTH)
        self.assertEqual(self.plugin.requests[-1]["target"], f"handle-ns-{name}")
        self.plane.delete("volumesnapshot", "ns", name)
        self.eventually(CODES.NOT_FOUND, snapshot=name)
        self.expect(CODES.NOT_FOUND, snapshot="never")

    def test_tokens(self):
        name = self.make()
        for token in (self.plane.token("backup", "reader", "another.example.com"),
                      self.plane.token("backup", "reader"), "no.such.token", self.token[:-4] + "AAAA",
                      self.plane.admin_token):
            self.expect(CODES.UNAUTHENTICATED, token=token, snapshot=name)
        self.plane.account("backup", "gone")
        token = self.plane.token("backup", "gone", AUDIENCE)
        self.expect(CODES.PERMISSION_DENIED, token=token, snapshot=name)
        self.plane.delete("serviceaccount", "backup", "gone")
        # Kept for seconds, and no longer.
        self.eventually(CODES.UNAUTHENTICATED, token=token, snapshot=name)

    def test_an_expired_token(self):
        # The API server gives none for less than ten minutes: one of its own signature, in the past.
        name = self.make()
        token = self.plane.signed_token("backup", "reader", AUDIENCE, expires=time.time() - 60)
        self.expect(CODES.UNAUTHENTICATED, token=token, snapshot=name)
        token = self.plane.signed_token("backup", "reader", AUDIENCE, expires=time.time() + 600)
        self.expect(CODES.OK, token=token, snapshot=name)

    def test_roles(self):
        here, elsewhere = self.make(), self.make("other")
        self.expect(CODES.PERMISSION_DENIED, namespace="other", snapshot=elsewhere)
        self.plane.account("backup", "named")
        named = self.plane.token("backup", "named", AUDIENCE)
        self.plane.role("ns", "named", "backup", "named", names=[here])
        self.expect(CODES.PERMISSION_DENIED, token=named, snapshot=here)
        self.plane.role("other", "named-other", "backup", "named")
        self.expect(CODES.PERMISSION_DENIED, token=named, snapshot=here)
        # What is granted counts within seconds; what is taken away, too.
        self.plane.role("ns", "named-all", "backup", "named")
        self.eventually(CODES.OK, token=named, snapshot=here)
        self.plane.delete("rolebinding", "ns", "named-all")
        self.eventually(CODES.PERMISSION_DENIED, token=named, snapshot=here)

    def test_snapshots_that_are_not_ready_or_not_bound(self):
        for change in ({"status": False}, {"ready": False}, {"content_status": False},
                       {"content_ready": False}, {"uid": "another"}, {"ref": "another"},
                       {"content": False}):
            self.expect(CODES.UNAVAILABLE, snapshot=self.make(**change))
        self.expect(CODES.INVALID_ARGUMENT, snapshot=self.make(driver="another.example.com"))

    def test_bases(self):
        base = self.make(created=1_600_000_000_000_000_000)
        target = self.make()
        far = self.make("other", created=1_600_000_000_000_000_000)
        another = self.make(volume="volume-2", created=1_600_000_000_000_000_000)
        newer = self.make(created=1_800_000_000_000_000_000)
        self.expect(CODES.OK, snapshot=target, base=f"handle-ns-{base}")
        self.assertEqual(self.plugin.requests[-1]["base"], f"handle-ns-{base}")
        self.expect(CODES.NOT_FOUND, snapshot=target, base=f"handle-other-{far}")
        self.expect(CODES.NOT_FOUND, snapshot=target, base="handle-nowhere")
        self.expect(CODES.INVALID_ARGUMENT, snapshot=target, base=f"handle-ns-{another}")
        self.expect(CODES.INVALID_ARGUMENT, snapshot=target, base=f"handle-ns-{newer}")

    def test_e21_a_base_that_is_gone_goes_to_a_driver_that_needs_none(self):
        def needs(value):
            self.plane.kubectl("patch", "snapshotmetadataservice", DRIVER, "--type=merge", "-p",
                               json.dumps({"spec": {"requireBaseSnapshotForDelta": value}}))
        target = self.make()
        far = self.make("other", created=1_600_000_000_000_000_000)
        another = self.make(volume="volume-2", created=1_600_000_000_000_000_000)
        self.expect(CODES.NOT_FOUND, snapshot=target, base="handle-gone")
        needs(False)
        self.addCleanup(needs, None)
        self.eventually(CODES.OK, snapshot=target, base="handle-gone")
        self.assertEqual(self.plugin.requests[-1]["base"], "handle-gone")
        # What exists is checked as before; the target, too.
        self.expect(CODES.NOT_FOUND, snapshot=target, base=f"handle-other-{far}")
        self.expect(CODES.INVALID_ARGUMENT, snapshot=target, base=f"handle-ns-{another}")
        self.expect(CODES.NOT_FOUND, snapshot="never", base="handle-gone")
        self.expect(CODES.PERMISSION_DENIED, namespace="other", snapshot=far, base="handle-gone")
        needs(True)
        self.eventually(CODES.NOT_FOUND, snapshot=target, base="handle-gone")

    def test_secrets_of_classes(self):
        for name, default in (("templates", False), ("the-default", True)):
            self.plane.create(parts.snapshot_class(name, default=default, parameters={
                "csi.storage.k8s.io/snapshotter-secret-name": "${volumesnapshot.name}-" + name,
                "csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}"}))
        named = self.make(klass="templates")
        default = self.make(klass=None)
        # The role that is shipped lets the sidecar read no secret.
        self.plane.create(parts.secret(f"{named}-templates", "ns", key="value"))
        self.plane.create(parts.secret(f"{default}-the-default", "ns", key="default"))
        self.expect(CODES.FAILED_PRECONDITION, snapshot=named)
        self.plane.role("ns", "secrets", "csi-driver", "csi-snapshot-metadata", group="",
                        resource="secrets", names=[f"{named}-templates", f"{default}-the-default"])
        self.eventually(CODES.OK, snapshot=named)
        self.assertEqual(self.plugin.requests[-1]["secrets"], {"key": "value"})
        self.expect(CODES.OK, snapshot=default)
        self.assertEqual(self.plugin.requests[-1]["secrets"], {"key": "default"})
        self.plane.delete("volumesnapshotclass", None, "the-default")

    def events(self, kind, name):
        """What `kubectl describe` shows: those with the object's UID."""
        uid = self.plane.get(kind, name)["metadata"]["uid"]
        found = json.loads(self.plane.kubectl("get", "events", "-n", "default", "-o", "json",
                                              f"--field-selector=involvedObject.uid={uid}").stdout)
        return {event["reason"]: event["message"] for event in found["items"]}

    def test_what_an_operator_must_see_becomes_an_event(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-cluster-"))
        parts.make_certificate(folder, "ca")
        parts.make_certificate(folder, "tls", "ca")
        plugin = parts.Plugin(f"unix:{folder}/csi.sock")
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write("of the scraper")
        sidecar = parts.Sidecar(CBT, folder, self.kubeconfig, "--events",
                                f"--metrics-token={folder}/token")
        self.addCleanup(sidecar.stop)
        self.assertEqual([sidecar.get(path)[0] for path in ("/metrics", "/livez")], [401, 200])
        self.plane.create(parts.snapshot_class("no-secret", parameters={
            "csi.storage.k8s.io/snapshotter-secret-name": "missing",
            "csi.storage.k8s.io/snapshotter-secret-namespace": "ns"}))
        names = [self.make(klass="no-secret") for _ in range(2)]
        with sidecar.channel() as channel:
            for name in names:
                code, _ = parts.ask(channel, self.token, snapshot=name)
                self.assertEqual(code, CODES.FAILED_PRECONDITION, sidecar.log())
            # A snapshot that does not exist is the client's affair.
            self.assertEqual(parts.ask(channel, self.token, snapshot="never")[0], CODES.NOT_FOUND)
        self.assertTrue(parts.wait_until(
            lambda: self.events("volumesnapshotclass", "no-secret")), sidecar.log())
        events = self.events("volumesnapshotclass", "no-secret")
        self.assertEqual(list(events), ["SecretNotRead"])
        for name in names:
            self.assertNotIn(name, events["SecretNotRead"])
        plugin.stop()
        kind = "snapshotmetadataservice"
        self.assertTrue(parts.wait_until(lambda: self.events(kind, DRIVER)), sidecar.log())
        self.assertEqual(list(self.events(kind, DRIVER)), ["PluginNotReady"])
        self.assertIn("PluginNotReady", self.plane.kubectl("describe", kind, DRIVER).stdout)
        self.assertEqual(sidecar.stop(), 0)

    def test_the_audience_follows_the_object(self):
        name = self.make()
        self.expect(CODES.OK, snapshot=name)
        new = self.plane.token("backup", "reader", "new.example.com")
        self.plane.replace(parts.service(audience="new.example.com"))
        try:
            self.eventually(CODES.OK, token=new, snapshot=name)
            self.eventually(CODES.UNAUTHENTICATED, snapshot=name)
        finally:
            self.plane.replace(parts.service())
            self.eventually(CODES.OK, snapshot=name)

    def test_objects_may_change_while_streams_run(self):
        name = self.make()
        self.plugin.hold.clear()
        results = []
        thread = threading.Thread(target=lambda: results.append(self.ask(snapshot=name)))
        before = len(self.plugin.requests)
        thread.start()
        self.assertTrue(parts.wait_until(lambda: len(self.plugin.requests) > before))
        self.plane.delete("volumesnapshot", "ns", name)
        self.eventually(CODES.NOT_FOUND, snapshot=name)
        self.plugin.hold.set()
        thread.join()
        self.assertEqual(results, [(CODES.OK, parts.TRUTH)])

    def test_certificates_rotate(self):
        name = self.make()
        parts.make_certificate(self.folder, "new-ca")
        parts.make_certificate(self.folder, "tls", "new-ca")
        try:
            def served():
                with self.sidecar.channel("new-ca") as channel:
                    return parts.ask(channel, self.token, snapshot=name)[0] == CODES.OK
            self.assertTrue(parts.wait_until(served))
            # Connections that exist stay.
            self.expect(CODES.OK, snapshot=name)
        finally:
            parts.make_certificate(self.folder, "tls", "ca")

    def test_a_thousand_opens_do_not_run_into_limits(self):
        name = self.make()
        self.expect(CODES.OK, snapshot=name)
        begin = time.monotonic()
        codes = []

        def many():
            codes.extend(self.ask(snapshot=name)[0] for _ in range(125))

        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(codes), {CODES.OK})
        print(f"1000 opens in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        self.assertLess(time.monotonic() - begin, 60)

    def test_an_api_server_that_goes_away_lets_no_one_in(self):
        name = self.make()
        self.expect(CODES.OK, snapshot=name)
        self.plane.command("kill")
        try:
            self.eventually(CODES.UNAVAILABLE, snapshot=name)
            self.expect(CODES.UNAVAILABLE, token="another", snapshot=name)
            # The sidecar itself is well.
            self.assertEqual(self.sidecar.health(), 200)
        finally:
            self.plane.command("start")
        self.eventually(CODES.OK, snapshot=name)
        self.plane.command("pause")
        try:
            self.eventually(CODES.UNAVAILABLE, snapshot=name)
        finally:
            self.plane.command("continue")
        self.eventually(CODES.OK, snapshot=name)
        self.eventually(CODES.NOT_FOUND, snapshot="never")

    def test_two_sidecars_publish_and_follow_their_files(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-cluster-"))
        parts.make_certificate(folder, "ca")
        parts.make_certificate(folder, "tls", "ca")
        plugin = parts.Plugin(f"unix:{folder}/csi.sock", name="published.example.com",
                              manifest={"cbt.requireBaseSnapshotForDelta": "false"})
        self.addCleanup(plugin.stop)
        self.plane.apply_text(json.dumps(publish_role("published.example.com")))
        flags = ("--publish=published.csi-driver:6443", "--kube-api-qps=50")
        sidecars = [parts.Sidecar(CBT, folder, self.kubeconfig, *flags, name=f"publisher{i}")
                    for i in range(2)]
        for sidecar in sidecars:
            self.addCleanup(sidecar.stop)

        def published():
            found = self.plane.get("snapshotmetadataservice", "published.example.com")
            return found and found["spec"]

        def is_current():
            spec = published()
            return spec == {"address": "published.csi-driver:6443",
                            "audience": "published.example.com",
                            "requireBaseSnapshotForDelta": False,  # as the plugin says
                            "caCert": base64.b64encode(parts.read(f"{folder}/ca.crt")).decode()}

        self.assertTrue(parts.wait_until(is_current), (published(), sidecars[0].log()))
        # Rotation, and somebody who changes the object.
        parts.make_certificate(folder, "ca")
        self.assertTrue(parts.wait_until(is_current), published())
        self.plane.kubectl("patch", "snapshotmetadataservice", "published.example.com",
                           "--type=merge", "-p", '{"spec":{"address":"elsewhere:1"}}')
        self.assertTrue(parts.wait_until(is_current), published())
        self.plane.delete("snapshotmetadataservice", None, "published.example.com")
        self.assertTrue(parts.wait_until(is_current), published())
        # A plugin that says something else, though it was never seen to be away.
        plugin.manifest = {}
        self.assertTrue(parts.wait_until(
            lambda: "requireBaseSnapshotForDelta" not in published()), published())
        # A file that holds no certificate changes nothing.
        with open(f"{folder}/ca.crt", "w", encoding="utf-8") as file:
            file.write("nothing")
        time.sleep(3)
        self.assertNotIn(base64.b64encode(b"nothing").decode(), published()["caCert"])
        # The published audience is that of the tokens.
        name = self.make(driver="published.example.com")
        token = self.plane.token("backup", "reader", "published.example.com")
        with sidecars[1].channel("tls") as channel:
            self.assertEqual(parts.ask(channel, token, snapshot=name)[0], CODES.FAILED_PRECONDITION)

    def test_the_cluster_s_token_rotates(self):
        kubeconfig = self.plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", self.folder,
                                              name="rotating")
        sidecar = parts.Sidecar(CBT, self.folder, kubeconfig, name="rotating")
        self.addCleanup(sidecar.stop)
        name = self.make()
        with sidecar.channel() as channel:
            self.assertEqual(parts.ask(channel, self.token, snapshot=name)[0], CODES.OK)
            path = os.path.join(self.folder, "rotating.token")
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(self.plane.token("csi-driver", "csi-snapshot-metadata"))
            os.replace(path + ".new", path)
            for _ in range(3):
                self.assertEqual(parts.ask(channel, self.token, snapshot=name)[0], CODES.OK)

    def test_the_authority_of_the_api_server_rotates(self):
        trusted = os.path.join(self.folder, "trusted.crt")
        with open(trusted, "wb") as file:
            file.write(parts.read(self.plane.facts["ca"]))
        kubeconfig = self.plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata", self.folder,
                                              name="left-behind", ca=trusted)
        behind = parts.Sidecar(CBT, self.folder, kubeconfig, name="left-behind")
        self.addCleanup(behind.stop)
        name = self.make()
        with behind.channel() as channel:
            self.assertEqual(parts.ask(channel, self.token, snapshot=name)[0], CODES.OK)
            old = parts.read(trusted)
            self.plane.command("rotate-authority")
            self.assertNotEqual(parts.read(self.plane.facts["ca"]), old)
            # One reads the file that has the new authority.
            self.eventually(CODES.OK, snapshot=name)
            newer = self.make()
            self.expect(CODES.OK, token=self.plane.token("backup", "reader", AUDIENCE),
                        snapshot=newer)
            # The other does not trust this server: it lets no one in, nor says that it is sick.
            token = self.plane.token("backup", "reader", AUDIENCE)
            self.assertEqual(parts.ask(channel, token, snapshot=newer)[0], CODES.UNAVAILABLE)
            self.assertTrue(parts.wait_until(lambda: parts.ask(
                channel, self.token, snapshot=name)[0] == CODES.UNAVAILABLE))
            self.assertEqual(behind.health(), 200)
            self.assertIn("certificate", behind.log())
            # Both authorities in one file, as administrators do it.
            with open(trusted + ".new", "wb") as file:
                file.write(old + parts.read(self.plane.facts["ca"]))
            os.replace(trusted + ".new", trusted)
            self.assertTrue(parts.wait_until(lambda: parts.ask(
                channel, token, snapshot=newer)[0] == CODES.OK), behind.log()[-1500:])

    def test_without_leave_to_watch_objects_are_got(self):
        self.plane.account("csi-driver", "getter")
        self.plane.cluster_role("getter", "csi-driver", "getter", [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"],
             "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"],
             "verbs": ["create"]},
            {"apiGroups": ["snapshot.storage.k8s.io"],
             "resources": ["volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"],
             "verbs": ["get", "list"]},
            {"apiGroups": ["cbt.storage.k8s.io"], "resources": ["snapshotmetadataservices"],
             "verbs": ["get"]}])
        kubeconfig = self.plane.kubeconfig_of("csi-driver", "getter", self.folder, name="getter")
        sidecar = parts.Sidecar(CBT, self.folder, kubeconfig, name="getter")
        self.addCleanup(sidecar.stop)
        base, target = self.make(), self.make()
        with sidecar.channel() as channel:
            self.assertEqual(parts.ask(channel, self.token, snapshot=target,
                                       base=f"handle-ns-{base}")[0], CODES.OK)
        # What that costs is said, once, when a probe comes.
        self.assertTrue(parts.wait_until(
            lambda: sidecar.health() and 'event="objects not watched"' in sidecar.log()), sidecar.log())
        self.assertEqual(sidecar.health(), 200)
        self.assertEqual(sidecar.log().count("objects not watched"), 1)


def publish_role(driver):
    meta = {"name": "publish-" + driver}
    return {"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta,
         "rules": [{"apiGroups": ["cbt.storage.k8s.io"], "resources": ["snapshotmetadataservices"],
                    "resourceNames": [driver], "verbs": ["create", "patch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta,
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta},
         "subjects": [{"kind": "ServiceAccount", "name": "csi-snapshot-metadata",
                       "namespace": "csi-driver"}]}]}


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
