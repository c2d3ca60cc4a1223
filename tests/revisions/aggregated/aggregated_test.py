"""The aggregated API server and the HTTPS sidecar behind a real kube-apiserver, with the rights of their
manifests and no more: discovery, users, pages, limits, leaders.

Usage: aggregated_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import base64
import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import unittest

# pylint: disable=wrong-import-position
from world import (API, BLOCK, CBT, COMPLETED, CONTINUE, DRIVER, FAILED, NAMESPACE, PATH,  # noqa: E402
                   Base, Service, User, delta, discovery, stop)
import grpc  # noqa: E402
import parts  # noqa: E402
import runner  # noqa: E402


def tearDownModule():
    stop()


class ApiTest(Base):
    def test_a1_the_aggregator_serves_it(self):
        raw = json.loads(self.plane.kubectl("get", "--raw", f"/apis/{API}").stdout)
        self.assertEqual([(r["name"], r["namespaced"], r["verbs"]) for r in raw["resources"]],
                         [("volumesnapshotdeltas", True, ["create"])])
        # The definition of the same group lives beside it.
        self.assertTrue(parts.wait_until(lambda: "volumesnapshotdeltas" in self.plane.kubectl(
            "api-resources", "--api-group=cbt.storage.k8s.io", "--no-headers", "-o", "name").stdout))
        resources = self.plane.kubectl("api-resources", "--api-group=cbt.storage.k8s.io", "-o",
                                       "wide", "--no-headers").stdout
        self.assertRegex(resources, r"volumesnapshotdeltas\s+cbt.storage.k8s.io/v1alpha1\s+true\s+"
                                    r"VolumeSnapshotDelta\s+create\s")
        self.assertRegex(resources, r"driverdiscoveries\s+cbt.storage.k8s.io/v1alpha2\s+false")

    def test_a2_create_is_the_query_and_nothing_is_stored(self):
        target = self.snapshot()
        result = self.kubectl_as("app", "create", "-f", "-", "-o", "json",
                                 text=json.dumps(delta(target)))
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["kind"], "VolumeSnapshotDelta")
        self.assertEqual(answer["spec"]["targetVolumeSnapshotName"], target)
        self.assertEqual(answer["status"]["state"], COMPLETED)
        self.assertEqual(self.offsets(answer["status"]), [0, 10])
        # Again, under the same name.
        self.assertEqual(self.ask(target)["state"], COMPLETED)

    def test_a17_only_create_works(self):
        admin = User(self.plane.facts, self.plane.admin_token)
        self.addCleanup(admin.connection.close)
        one = PATH + "/question"
        for method, path in (("GET", PATH), ("GET", one), ("DELETE", PATH), ("DELETE", one),
                             ("PUT", one), ("GET", PATH + "?watch=1"), ("POST", one),
                             ("GET", f"/apis/{API}/volumesnapshotdeltas")):
            code, answer = admin.send(method, path, delta("x") if method in ("PUT", "POST") else None)
            self.assertEqual((code, answer["reason"]), (405, "MethodNotAllowed"), (method, path))
        code, answer = admin.send("PATCH", one, {}, {"Content-Type": "application/merge-patch+json"})
        self.assertEqual(code, 405)
        self.assertEqual(admin.send("GET", f"/apis/{API}/namespaces/prod/others")[0], 404)

    def test_a17_without_snapshot_or_discovery_it_fails_and_else_entries_come_through(self):
        self.refused(404, "VolumeSnapshot prod/never does not exist", "never")
        self.refused(404, "no DriverDiscovery names the driver absent.example.com",
                     self.snapshot(driver="absent.example.com"))
        self.plugin.data_tokens = True
        status = self.ask(self.snapshot())
        self.assertEqual(status["changedBlockDeltas"], [
            {"offset": index, "blockSizeBytes": BLOCK,
             "dataToken": {"token": f"data-{index * BLOCK}", "issuanceTime": "2023-11-14T22:13:20Z",
                           "ttl": "3h0m0s"}} for index in (0, 10)])

    def test_a8_missing_objects_fail_the_request(self):
        # A content that is not there and one of another snapshot look alike.
        self.refused(503, "is not bound", self.snapshot(content=False))
        self.refused(503, "is not ready", self.snapshot(status=False))
        self.refused(503, "is not ready", self.snapshot(ready=False))
        self.refused(503, "is not bound", self.snapshot(uid="another"))
        target = self.snapshot()
        self.refused(404, "VolumeSnapshot prod/never does not exist", target, "never")
        # That of another namespace is not there.
        self.refused(404, "does not exist", self.snapshot("other"))
        self.refused(409, "different drivers", target, self.snapshot(driver="x.example.com"))
        self.refused(409, "newer than the target", target,
                     self.snapshot(at=1_800_000_000_000_000_000))

    def test_a8_handles_are_sent_on(self):
        base, target = self.snapshot(), self.snapshot()
        self.ask(target, base)
        self.assertEqual((self.plugin.requests[-1]["base"], self.plugin.requests[-1]["target"]),
                         (f"handle-prod-{base}", f"handle-prod-{target}"))
        self.ask(target)
        self.assertEqual(self.plugin.requests[-1]["base"], "")

    def test_a7_pages(self):
        target = self.snapshot()
        self.plugin.capacity = 4000 * BLOCK
        self.plugin.blocks = [(i * 3 * BLOCK, BLOCK) for i in range(1000)]
        status = self.ask(target)
        self.assertEqual((status["limit"], len(status["changedBlockDeltas"]), status["state"]),
                         (256, 256, CONTINUE))
        self.assertEqual(status["continue"], 255 * 3 + 1)
        seen = self.offsets(status)
        while status["state"] == CONTINUE:
            status = self.ask(target, limit=300, offset=status["continue"])
            self.assertEqual(status["limit"], 300)
            seen += self.offsets(status)
        self.assertEqual(seen, [3 * i for i in range(1000)])
        # Larger pages than the server makes are cut, and say so.
        self.assertEqual(self.ask(target, limit=1 << 40)["limit"], 16384)
        self.assertEqual(self.ask(target, offset=4000)["state"], COMPLETED)
        status = self.ask(target, offset=4001)
        self.assertEqual(status["state"], FAILED)
        self.assertIn("past the volume's end", status["error"])

    def test_a3_fields(self):
        target = self.snapshot()
        self.assertEqual(self.ask(target, mode="block")["state"], COMPLETED)
        for spec, text in (({"limit": -1}, "spec.limit"), ({"mode": "file"}, "spec.mode"),
                           ({"base": "x"}, "unknown field"), ({"offset": "1"}, "spec.offset")):
            code, answer = self.user.send("POST", PATH, {**delta(target), "spec": {
                "targetVolumeSnapshotName": target, **spec}})
            self.assertEqual(code, 400, answer)
            self.assertIn(text, answer["message"])
        self.assertEqual(self.user.send("POST", PATH, "{", )[0], 400)
        self.assertEqual(self.user.send("POST", PATH, "a: b", {"Content-Type": "application/yaml"})[0],
                         415)

    def test_a3_secrets(self):
        """Of the class, which the driver's sidecar may read; or one that the caller may read."""
        self.plane.create(parts.secret("storage-login", "csi-driver", password="of-the-class"))
        self.plane.create(parts.snapshot_class("with-secret", DRIVER, {
            "csi.storage.k8s.io/snapshotter-secret-name": "storage-login",
            "csi.storage.k8s.io/snapshotter-secret-namespace": "csi-driver"}))
        target = self.snapshot(klass="with-secret")
        self.ask(target)
        self.assertEqual(self.plugin.requests[-1]["secrets"], {"password": "of-the-class"})
        # The caller's own: not without the right to get it.
        self.plane.create(parts.secret("mine", "prod", password="of-the-caller"))
        self.refused(403, "cannot get resource \"secrets\"", target,
                     volumeSnapshotDeltaSecretRef={"name": "mine"})
        self.plane.role("prod", "mine", "backup", "app", ["mine"], "", "secrets")
        self.assertTrue(parts.wait_until(lambda: self.user.ask(
            target, volumeSnapshotDeltaSecretRef={"name": "mine"})[0] != 403))
        # Nor without that of the sidecar.
        status = self.ask(target, volumeSnapshotDeltaSecretRef={"name": "mine"})
        self.assertEqual(status["state"], FAILED)
        self.assertIn("the driver's secret can't be read", status["error"])
        self.plane.role("prod", "sidecar", "csi-driver", "csi-snapshot-metadata", ["mine"], "",
                        "secrets")
        self.assertTrue(parts.wait_until(lambda: self.ask(
            target, volumeSnapshotDeltaSecretRef={"name": "mine"})["state"] == COMPLETED))
        self.assertEqual(self.plugin.requests[-1]["secrets"], {"password": "of-the-caller"})
        for one in (*self.apis, self.sidecar):
            self.assertNotIn("of-the-", one.log())

    def test_a9_users_without_rights(self):
        target = self.snapshot()
        blind = self.world.user("blind")
        self.addCleanup(blind.connection.close)
        self.assertEqual(blind.ask(target)[0], 403)
        result = self.kubectl_as("blind", "create", "-f", "-", text=json.dumps(delta(target)))
        self.assertIn("Forbidden", result.stderr)
        # In this namespace, and in no other.
        code, _ = self.user.send("POST", PATH.replace("prod", "other"), delta(target, namespace="other"))
        self.assertEqual(code, 403)
        self.assertEqual(self.user.send("POST", PATH, delta(target, namespace="other"))[0], 400)

    def direct(self, certificate=None, headers=None, path=PATH, method="POST"):
        """A request past the API server."""
        context = ssl.create_default_context(cafile=f"{self.world.folder}/ca.crt")
        if certificate:
            context.load_cert_chain(certificate + ".crt", certificate + ".key")
        connection = http.client.HTTPSConnection("localhost", self.apis[0].port, context=context,
                                                 timeout=30)
        connection.request(method, path, json.dumps(delta("x")),
                           {"Content-Type": "application/json", **(headers or {})})
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def test_a9_a_forged_header_is_not_believed(self):
        forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        for certificate in (None, f"{self.world.folder}/front-proxy-client",
                            f"{self.world.folder}/{NAMESPACE}"):
            for path in (PATH, f"/apis/{API}", "/apis", "/metrics"):
                code, text = self.direct(certificate, forged, path)
                self.assertEqual(code, 401, (certificate, path, text))
        # A token is for the API server, not for this one.
        self.assertEqual(self.direct(headers={"Authorization": "Bearer " + self.world.tokens["app"]})[0],
                         401)
        for path in ("/healthz", "/livez", "/readyz"):
            self.assertEqual(self.direct(path=path, method="GET"), (200, "ok"))
        # The real one is.
        proxy = os.path.join(self.plane.facts["folder"], "front-proxy-client")
        self.assertEqual(self.direct(proxy, forged)[0], 404)
        self.assertEqual(self.direct(proxy, {"X-Remote-User": "blind"})[0], 403)
        self.assertEqual(self.direct(proxy)[0], 401)

    def test_a9_the_proxys_config_map_is_watched(self):
        """Who the proxy is may change at any time."""
        def allowed_names(names):
            self.plane.kubectl("patch", "configmap", "extension-apiserver-authentication", "-n",
                               "kube-system", "--type=merge", "-p",
                               json.dumps({"data": {"requestheader-allowed-names": names}}))

        proxy = os.path.join(self.plane.facts["folder"], "front-proxy-client")
        forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        allowed_names('["another"]')
        try:
            self.assertTrue(parts.wait_until(lambda: self.direct(proxy, forged)[0] == 401))
            allowed_names("not a list")
            self.assertTrue(parts.wait_until(lambda: self.direct(proxy, forged)[0] == 503))
            self.assertEqual(self.apis[0].get("/readyz")[0], 503)
        finally:
            allowed_names('["front-proxy-client"]')
        self.assertTrue(parts.wait_until(lambda: self.direct(proxy, forged)[0] == 404))

    def test_a10_limits_are_hit(self):
        limited = self.world.aggregated("limited", "--qps=1", "--burst=2")
        self.addCleanup(limited.stop)
        limited.wait_ready()
        proxy = os.path.join(self.plane.facts["folder"], "front-proxy-client")
        context = ssl.create_default_context(cafile=f"{self.world.folder}/ca.crt")
        context.load_cert_chain(proxy + ".crt", proxy + ".key")
        connection = http.client.HTTPSConnection("localhost", limited.port, context=context)
        self.addCleanup(connection.close)

        def get(user):
            connection.request("GET", f"/apis/{API}", headers={
                "X-Remote-User": user, "X-Remote-Group": "system:masters"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Retry-After"), json.loads(answer.read())

        codes = [get("greedy")[0] for _ in range(5)]
        self.assertEqual(codes, [200, 200, 429, 429, 429])
        code, wait, answer = get("greedy")
        self.assertEqual((code, answer["reason"]), (429, "TooManyRequests"))
        self.assertGreaterEqual(int(wait), 1)
        self.assertEqual(answer["details"]["retryAfterSeconds"], int(wait))
        # Another user is not made to wait for the first.
        self.assertEqual(get("modest")[0], 200)
        self.assertGreaterEqual(limited.metric('cbt_aggregated_requests_total{answer="limited"}'), 4)

    def test_certificates_are_renewed(self):
        parts.make_certificate(self.world.folder, "aggregated-api", "ca",
                               f"DNS:aggregated-api.{NAMESPACE}.svc,DNS:localhost")
        parts.make_certificate(self.world.folder, NAMESPACE, "clients")
        self.assertEqual(self.ask(self.snapshot())["state"], COMPLETED)


class DiscoveryTest(Base):
    def test_a11_definition(self):
        spec = self.plane.get("crd", "driverdiscoveries.cbt.storage.k8s.io")["spec"]
        self.assertEqual((spec["group"], spec["scope"]), ("cbt.storage.k8s.io", "Cluster"))
        good = discovery("good", "good.example.com", 1, self.world.folder)
        self.plane.create(good)
        self.plane.kubectl("delete", "driverdiscovery", "good")
        service = {"service": {"namespace": "n", "name": "s"}}
        url = good["spec"]["clientConfig"]
        for client, text in (({}, "either url or service"), ({**url, **service}, "either url or service"),
                             ({"url": "http://h"}, "url"), ({"service": {"name": "s"}}, "namespace")):
            one = {**good, "spec": {"driverName": "d", "clientConfig": client}}
            result = self.plane.kubectl("create", "-f", "-", text=json.dumps(one), check=False)
            self.assertNotEqual(result.returncode, 0, client)
            self.assertIn(text, result.stderr)
        made = self.plane.create({**good, "spec": {"driverName": "d", "clientConfig": service}})
        self.assertEqual(made["spec"]["clientConfig"]["service"]["port"], 443)
        self.assertEqual(made["spec"]["blockSizeBytes"], BLOCK)
        # Offsets that clients have kept would mean other places.
        result = self.plane.kubectl("patch", "driverdiscovery", "good", "--type=merge", "-p",
                                    '{"spec":{"blockSizeBytes":8192}}', check=False)
        self.assertIn("the size of blocks can't be changed", result.stderr)
        self.plane.kubectl("delete", "driverdiscovery", "good")

    def test_a12_the_sidecar_publishes_itself(self):
        one = self.plane.get("driverdiscovery", DRIVER)
        self.assertEqual(one["spec"]["driverName"], DRIVER)
        self.assertEqual(one["spec"]["clientConfig"]["url"], f"https://localhost:{self.sidecar.port}")
        self.assertEqual(base64.b64decode(one["spec"]["clientConfig"]["caBundle"]),
                         parts.read(f"{self.world.folder}/ca.crt"))
        # Again when somebody removes it.
        self.plane.kubectl("delete", "driverdiscovery", DRIVER)
        self.assertTrue(parts.wait_until(lambda: self.plane.get("driverdiscovery", DRIVER)))
        self.wait_reachable(DRIVER)

    def test_a12_the_controller_says_whether_it_is_reachable(self):
        condition = self.condition(DRIVER)
        self.assertEqual((condition["status"], condition["reason"]), ("True", "Answers"))
        absent = parts.free_port()
        self.plane.create(discovery("absent", "absent-2.example.com", absent, self.world.folder))
        self.wait_reachable("absent", "False", "NoAnswer")
        service = Service(self.world.folder)
        service.answer = lambda path, body: (503, json.dumps(
            {"kind": "Status", "apiVersion": "v1", "message": "not now", "code": 503}))
        self.plane.kubectl("patch", "driverdiscovery", "absent", "--type=merge", "-p", json.dumps(
            {"spec": {"clientConfig": {"url": f"https://localhost:{service.port}"}}}))
        self.wait_reachable("absent", "False", "NotReady")
        self.assertIn("not now", self.condition("absent")["message"])
        service.answer = lambda path, body: (200, "ok")
        self.wait_reachable("absent")
        self.plane.kubectl("delete", "driverdiscovery", "absent")

    def test_a11_two_objects_of_one_driver_are_refused(self):
        self.plane.create(discovery("twice", DRIVER, 1, self.world.folder))
        target = self.snapshot()
        self.assertTrue(parts.wait_until(lambda: self.user.ask(target)[0] == 409))
        self.refused(409, "more than one DriverDiscovery names the driver", target)
        self.plane.kubectl("delete", "driverdiscovery", "twice")
        self.assertTrue(parts.wait_until(lambda: self.user.ask(target)[0] == 201))


class SidecarTest(Base):
    def call(self, sidecar, body, certificate=NAMESPACE, path="/v1alpha1/delta-pages", method="POST"):
        context = ssl.create_default_context(cafile=f"{self.world.folder}/ca.crt")
        if certificate:
            file = f"{self.world.folder}/{certificate}"
            context.load_cert_chain(file + ".crt", file + ".key")
        connection = http.client.HTTPSConnection("localhost", sidecar.port, context=context, timeout=30)
        connection.request(method, path, json.dumps(body))
        with contextlib.closing(connection):
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status == 200 and answer.getheader("Content-Type") == "application/x-ndjson":
            return 200, [json.loads(line) for line in text.splitlines()]
        return answer.status, text

    def test_a13_json_over_https(self):
        self.plugin.capacity = 40960 + 100
        ask = {"target_snapshot_id": "handle", "block_size_bytes": BLOCK, "max_blocks": 10}
        self.assertEqual(self.call(self.sidecar, ask), (200, [
            {"block_size_bytes": BLOCK, "volume_size_bytes": 41060}, {"block": 0}, {"block": 10},
            {"complete": True, "blocks": 2, "next_block": 11, "more": False}]))
        code, lines = self.call(self.sidecar, {**ask, "max_blocks": 1})
        self.assertEqual(lines[-1], {"complete": True, "blocks": 1, "next_block": 1, "more": True})
        for body, text in (({**ask, "max_blocks": 0}, "max_blocks"), ({**ask, "x": 1}, "unknown field"),
                           ({}, "target_snapshot_id"), ("", "object")):
            code, answer = self.call(self.sidecar, body)
            self.assertEqual(code, 400, answer)
            self.assertIn(text, answer)
        self.assertEqual(self.call(self.sidecar, ask, path="/other")[0], 404)
        self.assertEqual(self.call(self.sidecar, ask, method="PUT")[0], 405)
        self.assertEqual(self.call(self.sidecar, "", path="/readyz", method="GET"), (200, "ok\n"))

    def test_a13_only_the_aggregated_server_is_answered(self):
        ask = {"target_snapshot_id": "handle", "block_size_bytes": BLOCK, "max_blocks": 10}
        for certificate in (None, "another-client", "front-proxy-client"):
            for path in ("/v1alpha1/delta-pages", "/readyz", "/"):
                self.assertEqual(self.call(self.sidecar, ask, certificate, path)[0], 401, certificate)
        self.assertEqual(self.plugin.requests, [])

    def test_a14_numbers_become_tokens(self):
        target = self.snapshot()
        handle = f"handle-prod-{target}"
        self.plugin.blocks = [(i * BLOCK, BLOCK) for i in range(40)]
        status = self.ask(target, limit=10)
        status = self.ask(target, limit=10, offset=status["continue"])
        self.assertEqual(self.offsets(status), list(range(10, 20)))
        # One call to the plugin for each page, the second where the first has ended.
        self.assertEqual([(r["token"], r["most"]) for r in self.plugin.requests],
                         [("", 10), ("0-10", 10)])
        # Anywhere else, also before: from the last page that is known.
        self.assertEqual(self.offsets(self.ask(target, limit=3, offset=35)), [35, 36, 37])
        self.assertEqual(self.offsets(self.ask(target, limit=3, offset=5)), [5, 6, 7])
        # Tokens that the plugin has forgotten.
        self.plugin.generation += 1
        self.plugin.requests.clear()
        self.assertEqual(self.offsets(self.ask(target, limit=3, offset=20)), [20, 21, 22])
        self.assertEqual([r["target"] for r in self.plugin.requests][:2], [handle, handle])
        self.assertEqual([r["token"] for r in self.plugin.requests][:2][1], "")

    def test_a14_ten_thousand_pages_are_the_stream(self):
        """Of cbt's own plugin, which has both RPCs: a page a block, and the stream as `cbtctl list` reads it."""
        images, root = (os.path.join(self.world.folder, name, "vol") for name in ("images", "many"))
        os.makedirs(images)
        os.makedirs(root)
        for name, changed in (("base", 0), ("target", 10_000)):
            with open(os.path.join(images, name + ".img"), "wb") as file:
                file.truncate(30_001 * BLOCK)
                for i in range(changed):
                    file.seek((i * 3 + i * i % 2) * BLOCK)
                    file.write(b"x" * BLOCK)
        subprocess.run([CBT, "delta", f"{images}/base.img", f"{images}/target.img", "--output",
                        f"{root}/delta.cbm"], check=True, capture_output=True)
        plugin = self.serve("many", os.path.dirname(root), "csi,paged", "--style", "blocks")
        listed = subprocess.run([CBT, "list", "unix://" + plugin, "--snapshot", "vol/target", "--base",
                                 "vol/base", "--format", "ndjson"], capture_output=True, text=True,
                                check=True)
        stream = [json.loads(line)["byte_offset"] // BLOCK
                  for line in listed.stdout.splitlines()[1:-1]]
        self.assertEqual(len(stream), 10_000)
        sidecar = self.world.sidecar("many-sidecar", elect=False, plugin=plugin)
        self.addCleanup(sidecar.stop)
        server = self.world.aggregated("unlimited", "--qps=0")
        self.addCleanup(server.stop)
        self.plane.create(discovery("many", "many.example.com", sidecar.port, self.world.folder))
        self.addCleanup(self.plane.kubectl, "delete", "driverdiscovery", "many")
        self.plane.create(parts.snapshot_class("many", "many.example.com"))
        base, target = (self.snapshot(driver="many.example.com", klass="many", handle="vol/" + name)
                        for name in ("base", "target"))
        sidecar.wait_ready()
        server.wait_ready()
        proxy = os.path.join(self.plane.facts["folder"], "front-proxy-client")
        context = ssl.create_default_context(cafile=f"{self.world.folder}/ca.crt")
        context.load_cert_chain(proxy + ".crt", proxy + ".key")
        connection = http.client.HTTPSConnection("localhost", server.port, context=context)
        self.addCleanup(connection.close)
        headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters",
                   "Content-Type": "application/json"}
        question = delta(target, base, limit=1)
        seen, pages = [], 0
        while True:
            connection.request("POST", PATH, json.dumps(question), headers)
            status = json.loads(connection.getresponse().read())["status"]
            self.assertIn(status["state"], (COMPLETED, CONTINUE), status)
            pages += 1
            seen += self.offsets(status)
            if status["state"] == COMPLETED:
                break
            question["spec"]["offset"] = status["continue"]
        self.assertEqual(seen, stream)
        self.assertEqual(pages, 10_000)

    def serve(self, name, root, api, *flags):
        """The socket of cbt's own plugin."""
        path = os.path.join(self.world.folder, name + ".sock")
        with open(os.path.join(self.world.folder, name + ".log"), "wb") as log:
            server = subprocess.Popen([CBT, "serve", "--root", root, "--listen", "unix://" + path,
                                       "--api", api, *flags], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.assertTrue(parts.wait_until(lambda: os.path.exists(path)))
        return path

    def test_a14_a_plugin_that_has_only_streams(self):
        """GetMetadataAllocated and GetMetadataDelta, of cbt's own server."""
        root = os.path.join(self.world.folder, "streamed")
        os.makedirs(os.path.join(root, "vol"))
        for name, changed in (("base", ()), ("target", (0, 5, 6, 99))):
            with open(os.path.join(root, "vol", name + ".img"), "wb") as file:
                for block in range(100):
                    data = b"x" * BLOCK if block in changed else b"a" * BLOCK
                    # The last block is a part of one.
                    file.write(data[:100] if block == 99 else data)
        plugin = self.serve("stream", root, "csi")
        sidecar = self.world.sidecar("stream-sidecar", elect=False, plugin=plugin)
        self.addCleanup(sidecar.stop)
        sidecar.wait_ready()
        ask = {"base_snapshot_id": "vol/base", "target_snapshot_id": "vol/target",
               "block_size_bytes": BLOCK, "max_blocks": 2}
        seen, more = [], True
        while more:
            code, lines = self.call(sidecar, ask)
            self.assertEqual(code, 200, lines)
            self.assertEqual(lines[0]["volume_size_bytes"], 99 * BLOCK + 100)
            seen += [line["block"] for line in lines[1:-1]]
            more = lines[-1]["more"]
            ask["starting_block"] = lines[-1]["next_block"]
        self.assertEqual(seen, [0, 5, 6, 99])
        # After the last block, and past the end.
        self.assertEqual(self.call(sidecar, ask)[1][-1]["blocks"], 0)
        self.assertEqual(self.call(sidecar, {**ask, "starting_block": 101})[0], 422)
        allocated = {**ask, "max_blocks": 1000, "starting_block": 0}
        del allocated["base_snapshot_id"]
        self.assertEqual(len(self.call(sidecar, allocated)[1]), 102)
        self.assertEqual(self.call(sidecar, {**ask, "target_snapshot_id": "vol/never"})[0], 404)

    def test_a15_only_the_leader_is_ready(self):
        second = self.world.sidecar("second")
        self.addCleanup(second.stop)
        ask = {"target_snapshot_id": "handle", "block_size_bytes": BLOCK, "max_blocks": 10}
        second.wait_started()
        self.assertEqual(second.get("/livez"), (200, "ok"))
        self.assertEqual(second.get("/readyz"), (503, "not ready"))
        self.assertEqual(self.call(second, ask)[0], 503)
        self.assertEqual(self.call(second, "", path="/readyz", method="GET")[0], 503)
        self.assertTrue(self.sidecar.ready())
        # It gives the lease up when it ends.
        first = self.sidecar
        first.stop()
        second.wait_ready()
        self.assertEqual(self.call(second, ask)[0], 200)
        again = self.world.sidecar("again", f"--publish=https://localhost:{first.port}",
                                   f"--publish-ca={self.world.folder}/ca.crt", port=first.port)
        type(self).addClassCleanup(again.stop)
        second.stop()
        type(self).sidecar = again.wait_ready()

    def test_a_plugin_that_fails_fails_the_page(self):
        target = self.snapshot()
        for code, text in ((grpc.StatusCode.NOT_FOUND, "it does not have the snapshot"),
                           (grpc.StatusCode.INTERNAL, "it failed"),
                           (grpc.StatusCode.FAILED_PRECONDITION, "does not allow this request")):
            self.plugin.error = (code, "no such snapshot")
            status = self.ask(target)
            self.assertEqual((status["state"], status["changedBlockDeltas"]), (FAILED, []))
            self.assertIn(text, status["error"])
            # The driver's own text is in the log alone, under the number.
            self.assertNotIn("no such snapshot", status["error"])
            self.assertIn("no such snapshot", self.sidecar.log())
        self.plugin.error = None
        for blocks in ([(BLOCK, BLOCK), (0, BLOCK)], [(0, 0)], [(64 * BLOCK, BLOCK)]):
            self.plugin.blocks = blocks
            status = self.ask(target)
            self.assertEqual((status["state"], status["changedBlockDeltas"]), (FAILED, []), blocks)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
