"""The driver as sidecars of three revisions see it, with keys that are tried. Runs against a double, and as
tests/bucket/radosgw.sh starts it, against a real object gateway. Numbers are those of docs/reference/cosi.md."""

import concurrent.futures

import grpc

import driver_parts as parts
from driver_parts import BOTH, READ, WRITE, Proposal, V02, V1alpha2, fresh, v1, v2


class BucketsTest(parts.Case):
    def test_the_driver_says_its_name(self):
        """COSI-C32"""
        for sidecar in self.sidecars():
            self.assertEqual(sidecar.info(), parts.NAME)

    def test_a_bucket_is_created_once(self):
        """COSI-C33: the same name and parameters again are OK, other parameters ALREADY_EXISTS."""
        for sidecar in self.sidecars():
            name = fresh("br")
            self.assertEqual(sidecar.create(name, versioning="true"), name)
            self.assertEqual(sidecar.create(name, versioning="true"), name)
            self.assertEqual(self.owner().put(name, "key"), 200)
            self.assertEqual(sidecar.create(name, versioning="true"), name)
            self.refused("ALREADY_EXISTS", sidecar.create, name)
            self.refused("ALREADY_EXISTS", sidecar.create, name, other="parameter")
            sidecar.delete(name)

    def test_names_have_sixty_three_characters(self):
        for sidecar in self.sidecars():
            name = fresh("a" * 26)
            self.assertEqual(len(name), 63)
            self.assertEqual(sidecar.create(name), name)
            grant = sidecar.grant(fresh("ba"), name)
            self.assertEqual(grant.s3().put(name, "key"), 200)
            sidecar.revoke(grant.account, name)
            sidecar.delete(name)
            for wrong in ("", "ab", "a" * 64, "UPPER", "with_underscore", "dots..dots", "slash/slash", "-first"):
                self.refused("INVALID_ARGUMENT", sidecar.create, wrong)

    def test_what_is_not_understood_is_refused(self):
        for sidecar in self.sidecars():
            name = fresh("br")
            self.refused("INVALID_ARGUMENT", sidecar.create, name, versionning="true")
            self.refused("INVALID_ARGUMENT", sidecar.create, name, versioning="yes")
            sidecar.create(name)
            self.refused("INVALID_ARGUMENT", sidecar.grant, fresh("ba"), name, mod="ReadOnly")
            self.refused("INVALID_ARGUMENT", sidecar.grant, fresh("ba"), name, account="other")
            sidecar.delete(name)

    def test_protocols(self):
        """COSI-C33 and S10: a bucket of the proposal needs a protocol; another than S3 is refused."""
        proposal, new = Proposal(self.driver), V1alpha2(self.driver)
        for protocol in (None, v1.Protocol(), v1.Protocol(gcs=v1.GCS()), v1.Protocol(azureBlob=v1.AzureBlob()),
                         v1.Protocol(s3=v1.S3(region="elsewhere"))):
            self.refused("INVALID_ARGUMENT", proposal.method, "CreateBucket",
                         v1.ProvisionerCreateBucketRequest(name=fresh("br"), protocol=protocol))
        said = self.refused("INVALID_ARGUMENT", proposal.method, "CreateBucket", v1.ProvisionerCreateBucketRequest(
            name=fresh("br"), protocol=v1.Protocol(s3=v1.S3(region="elsewhere"))))
        self.assertIn("elsewhere; this driver's is us-east-1, and so is that of a class without a region", said)
        name = fresh("br")
        proposal.method("CreateBucket", v1.ProvisionerCreateBucketRequest(
            name=name, protocol=v1.Protocol(s3=v1.S3(region="us-east-1", signature_version=v1.S3V4))))
        proposal.delete(name)
        self.refused("INVALID_ARGUMENT", new.method, "CreateBucket", v2.DriverCreateBucketRequest(
            name=fresh("bc"), protocols=[v2.ObjectProtocol(type=v2.ObjectProtocol.GCS)]))

    def test_a_bucket_is_deleted_with_its_objects(self):
        """COSI-C34 and C22: gone already is OK."""
        for sidecar in self.sidecars():
            name = fresh("br")
            sidecar.create(name, versioning="true")
            for key in ("a", "b/c"):
                self.assertEqual(self.owner().put(name, key), 200)
            sidecar.delete(name)
            self.assertEqual(self.owner().get(name, "a"), 404)
            sidecar.delete(name)
            sidecar.delete(fresh("never"))
            sidecar.delete("never/a_name")
            self.refused("INVALID_ARGUMENT", sidecar.delete, "")

    def test_what_others_made_is_neither_taken_nor_deleted(self):
        """COSI-C26"""
        for sidecar in self.sidecars():
            name = fresh("users")
            self.assertEqual(self.owner().request("PUT", f"/{name}")[0], 200)
            self.assertEqual(self.owner().put(name, "precious"), 200)
            self.refused("ALREADY_EXISTS", sidecar.create, name)
            self.refused("FAILED_PRECONDITION", sidecar.delete, name)
            self.assertEqual(self.owner().get(name, "precious"), 200)
            # Access to it can be given: brownfield.
            grant = sidecar.grant(fresh("ba"), name, READ)
            self.assertEqual(grant.s3().get(name, "precious"), 200)
            sidecar.revoke(grant.account, name)
            self.assertEqual(grant.s3().get(name, "precious"), 403)

    def test_an_existing_bucket_is_found(self):
        sidecar = V1alpha2(self.driver)
        self.refused("NOT_FOUND", sidecar.find, fresh("bc"))
        self.refused("INVALID_ARGUMENT", sidecar.find, "")
        name = sidecar.create(fresh("bc"))
        self.assertEqual(sidecar.find(name), name)
        sidecar.delete(name)


class AccessTest(parts.Case):
    def allowed(self, grant, mode):
        """Reads, writes, deletions and lists are tried."""
        owner, client = self.owner(), grant.s3()
        self.assertEqual(owner.put(grant.bucket, "theirs", b"x"), 200)
        reads, writes = mode in (READ, BOTH), mode in (WRITE, BOTH)
        self.assertEqual(client.get(grant.bucket, "theirs"), 200 if reads else 403)
        self.assertEqual(client.list(grant.bucket), 200 if reads else 403)
        self.assertEqual(client.put(grant.bucket, "ours"), 200 if writes else 403)
        # Its writer owns an object.
        self.assertEqual(client.get(grant.bucket, "ours"), 200 if mode == BOTH else 403 if writes else 404)
        self.assertEqual(client.delete(grant.bucket, "theirs"), 204 if writes else 403)
        self.assertEqual(owner.get(grant.bucket, "theirs"), 404 if writes else 200)

    def test_keys_do_what_the_mode_says_and_nothing_else(self):
        """COSI-C35 and C16: the same account never gets second keys."""
        for sidecar in self.sidecars():
            other = sidecar.create(fresh("other"))
            for mode in (READ, WRITE, BOTH):
                bucket, account = sidecar.create(fresh("br")), fresh("ba")
                first = sidecar.grant(account, bucket, mode)
                self.assertEqual((first.account, first.region), (account, "us-east-1"))
                self.allowed(first, mode)
                again = sidecar.grant(account, bucket, mode)
                self.assertEqual((again.access, again.secret), (first.access, first.secret))
                client = first.s3()
                self.assertEqual(client.put(other, "key"), 403)
                self.assertEqual(client.request("DELETE", f"/{bucket}")[0], 403)
                self.assertEqual(client.request("GET", f"/{bucket}", {"policy": ""})[0], 403)
                self.assertEqual(client.request("PUT", f"/{bucket}", {"policy": ""}, b"{}")[0], 403)
                self.assertNotEqual(client.request("PUT", "/" + fresh("own"))[0], 200)
                self.assertEqual(client.request("GET", "/admin/user", {"uid": account})[0], 403)
                sidecar.revoke(account, bucket)
                sidecar.delete(bucket)
            sidecar.delete(other)

    def test_other_access_for_the_same_account_is_refused(self):
        """COSI-C16"""
        for sidecar in self.sidecars():
            bucket, account = sidecar.create(fresh("br")), fresh("ba")
            sidecar.grant(account, bucket, READ)
            self.refused("ALREADY_EXISTS", sidecar.grant, account, bucket, BOTH)
            self.allowed(sidecar.grant(account, bucket, READ), READ)
            sidecar.revoke(account, bucket)
            self.allowed(sidecar.grant(account, bucket, BOTH), BOTH)
            sidecar.revoke(account, bucket)
            sidecar.delete(bucket)

    def test_an_account_of_several_buckets(self):
        """COSI-C16 and C36: of a revocation from one bucket the other knows nothing."""
        for sidecar in self.sidecars():
            one, two, account = sidecar.create(fresh("br")), sidecar.create(fresh("br")), fresh("ba")
            first = sidecar.grant(account, one)
            second = sidecar.grant(account, two, READ)
            self.assertEqual((first.access, first.secret), (second.access, second.secret))
            self.allowed(first, BOTH)
            self.allowed(second, READ)
            sidecar.revoke(account, one)
            self.assertEqual(first.s3().get(one, "ours"), 403)
            self.allowed(second, READ)
            self.assertEqual(first.s3().put(one, "ours"), 403)
            # Access to the former bucket comes back.
            self.allowed(sidecar.grant(account, one), BOTH)
            sidecar.revoke(account, one)
            sidecar.revoke(account, two)
            self.assertEqual(second.s3().get(two, "theirs"), 403)
            for bucket in (one, two):
                self.assertEqual(self.owner().request("GET", f"/{bucket}", {"policy": ""})[0], 404)
            sidecar.delete(one)
            sidecar.delete(two)

    def test_revocation_revokes(self):
        """COSI-C36: gone already is OK, also after the bucket; the user is gone."""
        for sidecar in self.sidecars():
            bucket, account = sidecar.create(fresh("br")), fresh("ba")
            sidecar.revoke(account, bucket)
            grant = sidecar.grant(account, bucket)
            neighbour = sidecar.grant(fresh("ba"), bucket)
            sidecar.revoke(account, bucket)
            sidecar.revoke(account, bucket)
            self.assertEqual(grant.s3().get(bucket, "ours"), 403)
            self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": account})[0], 404)
            self.allowed(neighbour, BOTH)
            # S7: a revocation when the bucket is gone.
            sidecar.delete(bucket)
            sidecar.revoke(neighbour.account, bucket)
            self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": neighbour.account})[0], 404)
            for arguments in (("", bucket), (account, "")):
                self.refused("INVALID_ARGUMENT", sidecar.revoke, *arguments)

    def test_keys_come_again_only_by_a_new_grant(self):
        sidecar = V1alpha2(self.driver)
        bucket, account = sidecar.create(fresh("bc")), fresh("ba")
        first = sidecar.grant(account, bucket)
        sidecar.revoke(account, bucket)
        second = sidecar.grant(account, bucket)
        self.assertNotEqual(first.access, second.access)
        self.assertEqual(first.s3().list(bucket), 403)
        self.allowed(second, BOTH)
        sidecar.revoke(account, bucket)
        sidecar.delete(bucket)

    def test_buckets_that_are_missing(self):
        for sidecar in self.sidecars():
            account = fresh("ba")
            self.refused("NOT_FOUND", sidecar.grant, account, fresh("never"))
            self.refused("NOT_FOUND", sidecar.grant, account, "no/name")
            self.refused("INVALID_ARGUMENT", sidecar.grant, account, "")
            # Nothing is left behind.
            self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": account})[0], 404)

    def test_an_account_without_a_name(self):
        """COSI-S8: the proposal's driver chooses one; the others need one."""
        sidecar = Proposal(self.driver)
        bucket = sidecar.create(fresh("br"))
        grant = sidecar.grant("", bucket)
        self.assertRegex(grant.account, "^cosi-[0-9a-f]{32}$")
        self.allowed(grant, BOTH)
        sidecar.revoke(grant.account, bucket)
        for other in (V02(self.driver), V1alpha2(self.driver)):
            self.refused("INVALID_ARGUMENT", other.grant, "", bucket)
            self.refused("INVALID_ARGUMENT", other.grant, "a/b", bucket)
        sidecar.delete(bucket)

    def test_accounts_that_others_made(self):
        """COSI-C14 and S18: an administrator's account is enabled and outlives its access; one that may administer
        the gateway is not handed out."""
        owner = self.owner()
        account = fresh("legacy")
        self.assertEqual(owner.request("PUT", "/admin/user", {"uid": account, "display-name": "by hand"})[0], 200)
        for sidecar in self.sidecars():
            bucket = sidecar.create(fresh("br"))
            self.allowed(sidecar.grant(account, bucket, READ), READ)
            sidecar.revoke(account, bucket)
            self.assertEqual(owner.request("GET", "/admin/user", {"uid": account})[0], 200)
            for uid in ("admin", "test"):
                if owner.request("GET", "/admin/user", {"uid": uid})[0] == 200:
                    self.refused("PERMISSION_DENIED", sidecar.grant, uid, bucket)
            sidecar.delete(bucket)
        owner.request("DELETE", "/admin/user", {"uid": account})

    def test_policies_of_others_stay(self):
        for sidecar in self.sidecars():
            bucket = sidecar.create(fresh("br"))
            policy = (b'{"Version":"2012-10-17","Statement":[{"Sid":"of an administrator","Effect":"Deny","Principal":'
                      b'{"AWS":["arn:aws:iam:::user/other"]},"Action":["s3:GetObject"],"Resource":["arn:aws:s3:::' +
                      bucket.encode() + b'/*"]}]}')
            self.assertIn(self.owner().request("PUT", f"/{bucket}", {"policy": ""}, policy)[0], (200, 204))
            grant = sidecar.grant(fresh("ba"), bucket, READ)
            self.allowed(grant, READ)
            sidecar.revoke(grant.account, bucket)
            left = self.owner().request("GET", f"/{bucket}", {"policy": ""})[1]
            self.assertIn(b"of an administrator", left)
            self.assertNotIn(grant.account.encode(), left)
            sidecar.delete(bucket)

    def test_several_buckets_of_a_call(self):
        sidecar = V1alpha2(self.driver)
        buckets = {sidecar.create(fresh("bc")): mode for mode in (READ, WRITE, BOTH)}
        account = fresh("ba")
        grants = sidecar.grant_all(account, buckets)
        self.assertEqual(len({grant.access for grant in grants}), 1)
        for grant in grants:
            self.allowed(grant, buckets[grant.bucket])
        # Nothing changes unless all can be given.
        other = fresh("ba")
        self.refused("NOT_FOUND", sidecar.grant_all, other, {**buckets, fresh("never"): READ})
        self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": other})[0], 404)
        self.refused("INVALID_ARGUMENT", sidecar.grant_all, other, {})
        self.refused("INVALID_ARGUMENT", sidecar.grant_all, other, {next(iter(buckets)): "UNKNOWN"})
        sidecar.revoke(account, *buckets)
        for grant in grants:
            self.assertEqual(grant.s3().put(grant.bucket, "late"), 403)
            sidecar.delete(grant.bucket)

    def test_authentication(self):
        old, new = V02(self.driver), V1alpha2(self.driver)
        bucket = new.create(fresh("bc"))
        for kind in (v1.UnknownAuthenticationType, v1.IAM, 7):
            self.refused("INVALID_ARGUMENT", old.method, "GrantBucketAccess", v1.DriverGrantBucketAccessRequest(
                bucket_id=bucket, name=fresh("ba"), authentication_type=kind))
        for protocol, kind in ((1, 0), (1, 2), (0, 1), (2, 1), (9, 1)):
            request = v2.DriverGrantBucketAccessRequest(
                account_name=fresh("ba"), protocol=v2.ObjectProtocol(type=protocol),
                authentication_type=v2.AuthenticationType(type=kind))
            request.buckets.add(bucket_id=bucket, access_mode=v2.AccessMode(mode=1))
            self.refused("INVALID_ARGUMENT", new.method, "GrantBucketAccess", request)
        new.delete(bucket)


class PolicyTest(parts.Case):
    def test_a_policy_means_what_it_says(self):
        """COSI-S9: a statement, a list, a policy, and the data of a ConfigMap; its resource is replaced, and what
        stands behind the bucket is kept."""
        sidecar = Proposal(self.driver)
        bucket, other = sidecar.create(fresh("br")), sidecar.create(fresh("other"))
        read = '{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::profilepics/logs/*"}'
        for text in (read, f"[{read}]", f' {{"Version":"2012-10-17","Statement":[{read}]}}',
                     f'{{"Statement":{read}}}', '{"policy":' + repr(read).replace('"', '\\"').replace("'", '"') + "}"):
            grant = sidecar.grant_by(fresh("ba"), bucket, text)
            for key in ("logs/a", "other"):
                self.owner().put(bucket, key)
                self.owner().put(other, key)
            client = grant.s3()
            self.assertEqual(client.get(bucket, "logs/a"), 200, text)
            self.assertEqual(client.get(bucket, "other"), 403)
            self.assertEqual(client.put(bucket, "logs/b"), 403)
            self.assertEqual(client.get(other, "logs/a"), 403)
            sidecar.revoke(grant.account, bucket)
            self.assertEqual(client.get(bucket, "logs/a"), 403)
        sidecar.delete(bucket)
        sidecar.delete(other)

    def test_a_policy_that_denies(self):
        sidecar = Proposal(self.driver)
        bucket = sidecar.create(fresh("br"))
        grant = sidecar.grant_by(fresh("ba"), bucket, '[{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"]},'
                                 '{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::x/secret/*"}]')
        client = grant.s3()
        self.assertEqual((client.put(bucket, "open"), client.put(bucket, "secret/a")), (200, 403))
        sidecar.revoke(grant.account, bucket)
        policy = self.owner().request("GET", f"/{bucket}", {"policy": ""})
        self.assertEqual(policy[0], 404, policy)
        sidecar.delete(bucket)

    def test_a_policy_that_can_not_be_kept_is_refused(self):
        """COSI-S9"""
        sidecar = Proposal(self.driver)
        bucket, account = sidecar.create(fresh("br")), fresh("ba")
        allow = '"Effect":"Allow"'
        for text in ("", "{}", "[]", "no JSON", "\u201c{}\u201d", '{"Effect":"Allow"}',
                     '{"Effect":"Maybe","Action":"s3:GetObject"}', f'{{{allow},"Action":"ec2:Run"}}',
                     f'{{{allow},"Action":"s3:*"}}', f'{{{allow},"Action":"*"}}', f'{{{allow},"Action":"s3:Put*"}}',
                     f'{{{allow},"Action":"s3:putbucketPOLICY"}}', f'{{{allow},"Action":"s3:DeleteBucket"}}',
                     f'{{{allow},"NotAction":"s3:GetObject"}}', f'{{{allow},"Action":"s3:GetObject","Principal":"*"}}',
                     f'{{{allow},"Action":"s3:GetObject","Resource":"arn:aws:sns:::x"}}',
                     f'{{{allow},"Action":"s3:GetObject","Resource":[]}}',
                     f'{{{allow},"Action":"s3:GetObject","Condition":"none"}}',
                     '{"Statement":[]}', '{"Statement":[{}]}', '{"a":"{}"}', '{"a":"{\\"a\\":\\"{}\\"}"}',
                     f'{{{allow},"Action":"{"s3:GetObject" * 2000}"}}'):
            self.refused("INVALID_ARGUMENT", sidecar.grant_by, account, bucket, text)
        self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": account})[0], 404)
        self.assertEqual(self.owner().request("GET", f"/{bucket}", {"policy": ""})[0], 404)
        sidecar.delete(bucket)

    def test_a_full_policy_is_said(self):
        sidecar = V1alpha2(self.driver)
        bucket = sidecar.create(fresh("bc"))
        accounts = []
        while len(accounts) < 100:
            account = fresh("ba")
            try:
                sidecar.grant(account, bucket, READ)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                self.assertIn("20480", error.details())
                break
            accounts.append(account)
        self.assertGreater(len(accounts), 30)
        self.assertLess(len(accounts), 100)
        # No user without access is left.
        self.assertEqual(self.owner().request("GET", "/admin/user", {"uid": account})[0], 404)
        sidecar.revoke(accounts[0], bucket)
        sidecar.grant(account, bucket, READ)
        sidecar.delete(bucket)
        for each in accounts + [account]:
            sidecar.revoke(each, bucket)


class ManyTest(parts.Case):
    def test_calls_at_once(self):
        """One bucket, forty accounts of three revisions at once: none undoes another's, and each has one pair of
        keys."""
        sidecars = [kind(self.driver) for kind in parts.SIDECARS]
        bucket = sidecars[0].create(fresh("br"))
        accounts = [fresh("ba") for _ in range(40)]
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            grants = list(pool.map(lambda i: sidecars[i // 2 % 3].grant(accounts[i // 2], bucket), range(0, 80)))
        for i in range(0, 80, 2):
            self.assertEqual((grants[i].access, grants[i].secret), (grants[i + 1].access, grants[i + 1].secret))
            self.assertEqual(grants[i].s3().put(bucket, f"key{i}"), 200)
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            list(pool.map(lambda i: sidecars[i % 3].revoke(accounts[i], bucket), range(40)))
        for i in range(0, 80, 2):
            self.assertEqual(grants[i].s3().get(bucket, f"key{i}"), 403)
        self.assertEqual(self.owner().request("GET", f"/{bucket}", {"policy": ""})[0], 404)
        sidecars[0].delete(bucket)

    def test_the_same_bucket_at_once(self):
        sidecars = [kind(self.driver) for kind in parts.SIDECARS]
        name = fresh("br")
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertEqual(set(pool.map(lambda i: sidecars[i % 3].create(name), range(12))), {name})
            list(pool.map(lambda i: sidecars[i % 3].delete(name), range(12)))


if __name__ == "__main__":
    parts.main()
