"""The driver when its gateway fails, lies or is slow, when it is killed, and its process: pages, options, and
buckets that were made by hand. Numbers are those of docs/reference/cosi.md."""

import concurrent.futures
import os
import signal
import socket
import unittest
import urllib.request

import grpc

import driver_parts as parts
from driver_parts import BOTH, READ, Proposal, V02, V1alpha2, fresh


class FaultsTest(parts.Case):
    def flow(self, sidecar, bucket, account):
        sidecar.create(bucket)
        grant = sidecar.grant(account, bucket)
        self.assertEqual(grant.s3().put(bucket, "key"), 200)
        sidecar.revoke(account, bucket)
        self.assertEqual(grant.s3().get(bucket, "key"), 403)
        sidecar.delete(bucket)

    def test_each_request_may_fail_once(self):
        """Each request to the gateway is lost, refused or answered with nonsense in turn: the sidecar's repetition
        ends well, and nothing is left."""
        for sidecar in self.sidecars():
            for fault in ("lost", "reset", (503, "<Error><Code>SlowDown</Code></Error>"), (403, ""), (200, "nonsense"),
                          (404, "<html>"), (500, "")):
                for at in range(40):
                    bucket, account, seen = fresh("br"), fresh("ba"), []

                    def once(method, path, _query, fault=fault, at=at, seen=seen):
                        if path.endswith("/key"):
                            return None
                        seen.append(method)
                        return fault if len(seen) == at + 1 else None

                    self.gateway.fault = once
                    for step in (lambda: sidecar.create(bucket), lambda: sidecar.grant(account, bucket),
                                 lambda: sidecar.revoke(account, bucket), lambda: sidecar.delete(bucket)):
                        for attempt in range(3):
                            try:
                                step()
                                break
                            except grpc.RpcError as error:
                                self.assertNotEqual(attempt, 2, (fault, at, error.details()))
                    self.gateway.fault = None
                    self.assertEqual((list(self.gateway.buckets), list(self.gateway.users)), ([], ["admin"]),
                                     (fault, at))
                    if at >= len(seen):
                        break

    def test_a_second_writer_is_noticed(self):
        sidecar = V1alpha2(self.driver)
        bucket = sidecar.create(fresh("bc"))

        def overwrite(method, _path, query):
            if method == "GET" and "policy" in query and self.gateway.buckets[bucket].policy:
                self.gateway.buckets[bucket].policy = None
            return None

        self.gateway.fault = overwrite
        self.assertIn("one driver", self.refused("ABORTED", sidecar.grant, fresh("ba"), bucket))

    def test_a_backend_that_is_down(self):
        self.gateway.fault = lambda *_: "reset"
        for sidecar in self.sidecars():
            self.refused("UNAVAILABLE", sidecar.create, fresh("br"))
        self.gateway.fault = lambda *_: (403, "<Error><Code>InvalidAccessKeyId</Code></Error>")
        for sidecar in self.sidecars():
            self.assertIn("keys", self.refused("UNAUTHENTICATED", sidecar.create, fresh("br")))

    def test_a_backend_that_lies(self):
        """An account that is another's, or that has no keys, is never answered with."""
        sidecar = V1alpha2(self.driver)
        bucket = sidecar.create(fresh("bc"))
        other = self.gateway.user("other", "other")
        other["keys"] = [{"user": "other", "access_key": "AKOTHER", "secret_key": "of another"}]
        for user in (other, {**other, "user_id": None}, {**other, "keys": "none"}, {**other, "caps": 7}):
            body = parts.json.dumps(user)
            self.gateway.fault = lambda method, path, _query, body=body: (
                (200, body) if method == "GET" and path == "/admin/user" else None)
            details = self.refused("UNAVAILABLE", sidecar.grant, fresh("ba"), bucket)
            self.assertNotIn("of another", details)

    def test_a_slow_backend_holds_up_no_other_call(self):
        """More calls wait than the driver has threads for one bucket; its end ends them."""
        sidecar = V1alpha2(self.driver)
        slow = sidecar.create(fresh("bc"))
        self.gateway.fault = lambda _method, path, _query: 3.0 if path == "/" + slow else None
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(sidecar.grant, fresh("ba"), slow) for _ in range(4)]
            other = sidecar.create(fresh("bc"))
            sidecar.delete(other)
            self.assertFalse(any(each.done() for each in waiting))
            for each in waiting:
                each.result()
        self.assertEqual(self.driver.stop(), 0)

    def test_a_killed_driver_is_started_again(self):
        """Its socket is replaced (rook#16208), and what it did half is finished."""
        for at in range(1, 14):
            seen = []

            def kill(method, path, query, seen=seen, at=at):
                seen.append((method, path, query))
                if len(seen) == at:
                    self.driver.process.send_signal(signal.SIGKILL)
                    self.driver.process.wait()
                return None

            bucket, account = fresh("br"), fresh("ba")
            self.gateway.fault = kill
            try:
                self.flow(Proposal(self.driver), bucket, account)
                killed = False
            except grpc.RpcError:
                killed = True
            self.gateway.fault = None
            if not killed:
                break
            self.driver.stop()
            self.assertTrue(os.path.exists(self.driver.socket))
            self.start()
            self.flow(Proposal(self.driver), bucket, account)
            self.assertEqual((list(self.gateway.buckets), list(self.gateway.users)), ([], ["admin"]), at)
        self.assertGreater(at, 8)

    def test_a_second_driver_is_refused(self):
        with self.assertRaises(RuntimeError):
            parts.Driver(self.folder, "--rgw", self.endpoint,
                         environment={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
        self.assertEqual(Proposal(self.driver).info(), parts.NAME)

    def test_another_driver_s_buckets(self):
        bucket = Proposal(self.driver).create(fresh("br"))
        self.driver.stop()
        self.options = ("--driver-name", "other.example.com")
        self.start()
        for sidecar in self.sidecars():
            self.refused("ALREADY_EXISTS", sidecar.create, bucket)
            self.refused("FAILED_PRECONDITION", sidecar.delete, bucket)

    def test_secrets_stay_secret(self):
        """No key is in a log, in an error's text or on a page, whatever fails."""
        secrets = {self.admin[1]}
        texts = []
        for sidecar in self.sidecars():
            bucket, account = sidecar.create(fresh("br")), fresh("ba")
            grant = sidecar.grant(account, bucket)
            secrets.add(grant.secret)
            echo = parts.json.dumps({"Code": grant.secret, "keys": self.gateway.users[account]["keys"]})
            for body in (echo, f"<Error><Code>{grant.secret}</Code><Message>{self.admin[1]}</Message></Error>",
                         f"<Tagging><TagSet><Tag><Key>{grant.secret}</Key></Tag></TagSet></Tagging>"):
                for code in (200, 400, 403, 404, 409):
                    self.gateway.fault = lambda *_, code=code, body=body: (code, body)
                    for call in ((sidecar.create, fresh("br")), (sidecar.grant, account, bucket),
                                 (sidecar.revoke, account, bucket), (sidecar.delete, bucket)):
                        try:
                            call[0](*call[1:])
                        except grpc.RpcError as error:
                            texts.append(error.details())
            self.gateway.fault = None
        self.assertEqual(self.driver.stop(), 0)
        with open(self.driver.log, encoding="utf-8") as log:
            texts += [log.read(), self.driver.stderr]
        self.assertGreater(len(texts), 50)
        for text in texts:
            for secret in secrets:
                self.assertNotIn(secret, text)


class ProcessTest(parts.Case):
    def setUp(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.options = ("--http-endpoint", f"127.0.0.1:{self.port}")
        super().setUp()

    def page(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def test_pages(self):
        """COSI-C39: calls are counted by method and code."""
        for sidecar in self.sidecars():
            sidecar.delete(sidecar.create(fresh("br")))
            self.refused("INVALID_ARGUMENT", sidecar.create, "")
        self.assertEqual(self.page("/readyz"), "ok")
        metrics = self.page("/metrics")
        for method in ("/cosi.v1alpha1.Provisioner/ProvisionerCreateBucket",
                       "/cosi.v1alpha1.Provisioner/DriverCreateBucket",
                       "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverCreateBucket"):
            for code in ("OK", "InvalidArgument"):
                self.assertTrue(any(method in line and f'"{code}"' in line and line.endswith(" 1")
                                    for line in metrics.splitlines()
                                    if line.startswith("cbt_cosi_driver_operations_seconds_count")), metrics)

    def test_unknown_methods_and_damaged_messages(self):
        raw = self.driver.channel.unary_unary
        for path in ("/cosi.v1alpha1.Provisioner/DriverGetExistingBucket", "/a.B/C"):
            with self.assertRaises(grpc.RpcError) as caught:
                raw(path)(b"", timeout=30)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        for path in ("/cosi.v1alpha1.Provisioner/ProvisionerCreateBucket",
                     "/cosi.v1alpha1.Provisioner/DriverGrantBucketAccess",
                     "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGrantBucketAccess"):
            for message in (b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x32\x02\x0a\x09"):
                with self.assertRaises(grpc.RpcError) as caught:
                    raw(path)(message, timeout=30)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT, (path, message))

    def test_options(self):
        for options, text in ((("--rgw", "ftp://x"), "--rgw"), ((), "--rgw, --static"),
                              (("--rgw", "http://h", "--static", "f"), "--rgw, --static"),
                              (("--rgw", "http://h", "--driver-name", "-x"), "driver name"),
                              (("--static", "/no/such/file"), "--static")):
            with self.assertRaises(RuntimeError) as caught:
                parts.Driver(self.folder + "x", *options,
                             environment={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
            self.assertIn(text, str(caught.exception))


class StaticTest(unittest.TestCase):
    refused = parts.Case.refused
    sidecars = parts.Case.sidecars

    def write(self, **changes):
        account = {"name": "web", "accessKeyID": "AKWEB", "accessSecretKey": "the secret of web",
                   "access": [{"bucket": "photos", "mode": "ReadOnly"}]}
        text = parts.json.dumps({"endpoint": "https://s3.example.com", "region": "us-east-1", "buckets": ["photos"],
                                 "accounts": [account], **changes})
        path = os.path.join(self.folder, "static.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)
        return path

    def setUp(self):
        folder = parts.tempfile.TemporaryDirectory(prefix="cosi")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.driver = parts.Driver(self.folder, "--static", self.write())
        self.addCleanup(self.driver.stop)

    def test_buckets_that_were_made_by_hand(self):
        """COSI-C9 and S14"""
        for sidecar in self.sidecars():
            self.assertEqual(sidecar.create("photos"), "photos")
            self.refused("ALREADY_EXISTS", sidecar.create, "photos", versioning="true")
            self.refused("FAILED_PRECONDITION", sidecar.create, fresh("br"))
            self.refused("FAILED_PRECONDITION", sidecar.delete, "photos")
            sidecar.delete(fresh("br"))
        self.assertEqual(V1alpha2(self.driver).find("photos"), "photos")

    def test_keys_that_were_made_by_hand(self):
        for sidecar in (V02(self.driver), V1alpha2(self.driver)):
            grant = sidecar.grant("web", "photos", READ)
            self.assertEqual((grant.access, grant.secret, grant.endpoint),
                             ("AKWEB", "the secret of web", "https://s3.example.com"))
            named = sidecar.grant(fresh("ba"), "photos", READ, account="web")
            self.assertEqual((named.account, named.access), ("web", "AKWEB"))
            self.refused("ALREADY_EXISTS", sidecar.grant, "web", "photos", BOTH)
            self.refused("FAILED_PRECONDITION", sidecar.grant, fresh("ba"), "photos", READ)
            self.refused("NOT_FOUND", sidecar.grant, "web", "videos", READ)
            self.refused("FAILED_PRECONDITION", sidecar.revoke, "web", "photos")
            sidecar.revoke(fresh("ba"), "photos")
        self.write(accounts=[])
        V02(self.driver).revoke("web", "photos")

    def test_a_damaged_file(self):
        sidecar = V1alpha2(self.driver)
        with open(os.path.join(self.folder, "static.json"), "w", encoding="utf-8") as file:
            file.write('{"accounts": "the secret of web"')
        self.assertNotIn("the secret", self.refused("UNAVAILABLE", sidecar.grant, "web", "photos", READ))
        self.write()
        self.assertEqual(sidecar.grant("web", "photos", READ).access, "AKWEB")


if __name__ == "__main__":
    parts.main()
