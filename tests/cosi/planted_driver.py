"""A COSI driver of three revisions over the double, with one fault: each breaks the rule of its name of
`cbtctl conform --cosi`. No code of the project."""

import concurrent.futures
import json
import threading
import time

import grpc

import cosi_v1alpha1_pb2 as v1
import cosi_v1alpha2_pb2 as v2
from rgw_double import Bucket, Gateway

CODE = grpc.StatusCode
READS = ["s3:GetObject", "s3:ListBucket", "s3:ListBucketVersions"]
WRITES = ["s3:PutObject", "s3:DeleteObject"]
FAULTS = (
    "name", "protocols", "create", "create-again", "create-other", "create-63", "create-at-once", "find",
    "create-nameless", "create-protocol", "find-missing", "grant-missing", "grant-authentication", "grant",
    "grant-again", "grant-other", "grant-at-once", "grant-63", "neighbour", "several", "keys-write", "keys-read",
    "keys-list", "read-only-reads", "read-only-refuses", "write-only-writes", "write-only-refuses", "revoke",
    "revoke-neighbour", "revoke-again", "revoke-unknown", "grant-after", "delete", "delete-again", "delete-unknown")
# What a revision can't break, since it has no such message or field.
ABSENT = {"proposal": {"protocols", "find", "find-missing", "grant-authentication", "several"},
          "v0.2": {"protocols", "find", "find-missing", "create-protocol", "grant-other", "several", "read-only-reads",
                   "read-only-refuses", "write-only-writes", "write-only-refuses"},
          "v1alpha2": set()}


class Refused(Exception):
    def __init__(self, code, text="refused"):
        super().__init__(text)
        self.code, self.text = code, text


class Backend:
    """What a driver does, with a fault."""

    def __init__(self, fault):
        self.fault, self.gateway = fault, Gateway()
        self.lock = threading.RLock()
        self.parameters, self.access, self.busy, self.revoked, self.deleted = {}, {}, set(), set(), set()

    def is_fault(self, *names):
        return self.fault in names

    def once_at_a_time(self, key, fault):
        """A driver that does not expect two calls at once fails the second."""
        with self.lock:
            if key in self.busy and self.is_fault(fault):
                raise Refused(CODE.INTERNAL, "not twice")
            self.busy.add(key)
        if self.is_fault(fault):
            time.sleep(0.3)
        with self.lock:
            self.busy.discard(key)

    def create(self, name, protocols, parameters):
        if not name and not self.is_fault("create-nameless"):
            raise Refused(CODE.INVALID_ARGUMENT)
        if any(each != 1 for each in protocols) and not self.is_fault("create-protocol"):
            raise Refused(CODE.INVALID_ARGUMENT)
        if len(name) > 60 and self.is_fault("create-63"):
            raise Refused(CODE.INVALID_ARGUMENT)
        self.once_at_a_time(name, "create-at-once")
        with self.lock:
            if name in self.parameters and self.is_fault("create-again"):
                raise Refused(CODE.ALREADY_EXISTS)
            if self.parameters.setdefault(name, parameters) != parameters and not self.is_fault("create-other"):
                raise Refused(CODE.ALREADY_EXISTS)
            self.gateway.buckets.setdefault(name, Bucket("admin"))
        return "bad/" + name if self.is_fault("create") and "create" in name else name

    def find(self, bucket):
        if self.is_fault("find") or (bucket not in self.gateway.buckets and not self.is_fault("find-missing")):
            raise Refused(CODE.NOT_FOUND)

    def delete(self, bucket):
        with self.lock:
            known = bucket in self.gateway.buckets
            if not known and self.is_fault("delete-unknown") and bucket not in self.deleted:
                raise Refused(CODE.INTERNAL)
            if bucket in self.deleted and self.is_fault("delete-again"):
                raise Refused(CODE.NOT_FOUND)
            self.deleted.add(bucket)
            if known and not self.is_fault("delete"):
                del self.gateway.buckets[bucket]

    def actions(self, mode):
        names = {2: "read-only", 3: "write-only"}
        name = names.get(mode, "keys")
        if name != "keys" and self.is_fault(name + "-refuses"):
            return READS + WRITES
        if self.is_fault("read-only-reads", "write-only-writes") and self.fault.startswith(name):
            return ["s3:GetBucketLocation"]
        reads, writes = READS if mode != 3 else [], WRITES if mode != 2 else []
        if mode == 1 and self.is_fault("keys-write"):
            writes = []
        if mode == 1 and self.is_fault("keys-read"):
            reads = []
        if mode == 1 and self.is_fault("keys-list"):
            reads = READS[:1]
        return reads + writes

    def write_policies(self):
        gateway = self.gateway
        for name, bucket in gateway.buckets.items():
            statements = []
            for (account, granted), mode in self.access.items():
                if granted != name and not self.is_fault("neighbour"):
                    continue
                actions = self.actions(mode)
                resource = [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
                principal = {"AWS": [f"arn:aws:iam:::user/{account}"]}
                statements.append({"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": resource})
                if "s3:GetObject" not in actions:
                    statements.append({"Effect": "Deny", "Principal": principal, "Action": ["s3:GetObject"],
                                       "Resource": resource})
            bucket.policy = json.dumps({"Statement": statements}) if statements else None

    def grant(self, account, buckets, authentication=1):
        if authentication != 1 and not self.is_fault("grant-authentication"):
            raise Refused(CODE.INVALID_ARGUMENT)
        if len(buckets) > 1 and self.is_fault("several"):
            raise Refused(CODE.INVALID_ARGUMENT)
        if len(account) > 60 and self.is_fault("grant-63"):
            raise Refused(CODE.INVALID_ARGUMENT)
        self.once_at_a_time(account, "grant-at-once")
        with self.lock, self.gateway.lock:
            if account in self.revoked and self.is_fault("grant-after"):
                raise Refused(CODE.ALREADY_EXISTS)
            for bucket, mode in buckets.items():
                if bucket not in self.gateway.buckets and not self.is_fault("grant-missing"):
                    raise Refused(CODE.NOT_FOUND)
                if self.access.get((account, bucket), mode) != mode and not self.is_fault("grant-other"):
                    raise Refused(CODE.ALREADY_EXISTS)
                self.access[account, bucket] = mode
            if account not in self.gateway.users:
                self.gateway.users[account] = self.gateway.user(account, account)
                self.gateway.new_key(account)
            elif self.is_fault("grant-again"):
                self.gateway.new_key(account)
            self.write_policies()
            return self.gateway.users[account]["keys"][-1]

    def revoke(self, account, buckets):
        with self.lock, self.gateway.lock:
            if account not in self.gateway.users:
                again = account in self.revoked
                if self.is_fault("revoke-again" if again else "revoke-unknown"):
                    raise Refused(CODE.NOT_FOUND)
                return
            self.revoked.add(account)
            if self.is_fault("revoke"):
                return
            for bucket in buckets:
                self.access.pop((account, bucket), None)
            if self.is_fault("revoke-neighbour"):
                self.access = {key: mode for key, mode in self.access.items() if key[1] not in buckets}
            if not any(key[0] == account for key in self.access):
                del self.gateway.users[account]
            self.write_policies()

    @property
    def endpoint(self):
        return "" if self.is_fault("grant") else self.gateway.endpoint


def serve(path, backend, revisions):
    """A server of `revisions` at a Unix socket."""
    endpoint = backend.gateway.endpoint
    mode_of = {tuple(sorted(["s3:GetObject", "s3:ListBucket"])): 2,
               tuple(sorted(["s3:PutObject", "s3:DeleteObject"])): 3}

    def name():
        return "-bad-" if backend.is_fault("name") else "planted.example.com"

    def bucket_info(bucket):
        style = v2.S3AddressingStyle(style=v2.S3AddressingStyle.PATH)
        return v2.ObjectProtocolAndBucketInfo(s3=v2.S3BucketInfo(
            bucket_id=bucket, endpoint=backend.endpoint, region="us-east-1", addressing_style=style))

    # --- The proposal.

    def proposal_create(request):
        kind = request.protocol.WhichOneof("type")
        protocols = [{"s3": 1, "azureBlob": 2, "gcs": 3, None: 0}[kind]]
        return v1.ProvisionerCreateBucketResponse(
            bucket_id=backend.create(request.name, protocols, dict(request.parameters)))

    def proposal_grant(request):
        actions = tuple(sorted(json.loads(request.access_policy)["Action"]))
        key = backend.grant(request.account_name, {request.bucket_id: mode_of.get(actions, 1)})
        return v1.ProvisionerGrantBucketAccessResponse(account_id=request.account_name, credentials=json.dumps(
            {"endpoint": backend.endpoint, "region": "us-east-1", "accessKeyID": key["access_key"],
             "accessSecretKey": key["secret_key"]}))

    # --- v0.2.

    def old_create(request):
        return v1.DriverCreateBucketResponse(bucket_id=backend.create(request.name, [], dict(request.parameters)),
                                             bucket_info=v1.Protocol(s3=v1.S3(region="us-east-1")))

    def old_grant(request):
        key = backend.grant(request.name, {request.bucket_id: 1}, request.authentication_type)
        return v1.DriverGrantBucketAccessResponse(
            account_id=request.name, credentials={"s3": v1.CredentialDetails(secrets={
                "endpoint": backend.endpoint, "region": "us-east-1", "accessKeyID": key["access_key"],
                "accessSecretKey": key["secret_key"]})})

    # --- v1alpha2.

    def new_info(_request):
        protocols = [] if backend.is_fault("protocols") else [v2.ObjectProtocol(type=1)]
        return v2.DriverGetInfoResponse(name=name(), supported_protocols=protocols)

    def new_create(request):
        bucket = backend.create(request.name, [each.type for each in request.protocols], dict(request.parameters))
        return v2.DriverCreateBucketResponse(bucket_id=bucket, protocols=bucket_info(bucket))

    def new_find(request):
        backend.find(request.existing_bucket_id)
        return v2.DriverGetExistingBucketResponse(bucket_id=request.existing_bucket_id,
                                                  protocols=bucket_info(request.existing_bucket_id))

    def new_grant(request):
        key = backend.grant(request.account_name, {each.bucket_id: each.access_mode.mode for each in request.buckets},
                            request.authentication_type.type)
        return v2.DriverGrantBucketAccessResponse(
            account_id=request.account_name,
            buckets=[v2.DriverGrantBucketAccessResponse.BucketInfo(bucket_id=each.bucket_id,
                                                                   bucket_info=bucket_info(each.bucket_id))
                     for each in request.buckets],
            credentials=v2.CredentialInfo(s3=v2.S3CredentialInfo(access_key_id=key["access_key"],
                                                                 access_secret_key=key["secret_key"])))

    def done(kind, call):
        return lambda request: (call(request), kind())[1]

    old, new = "cosi.v1alpha1", "sigs.k8s.io.cosi.v1alpha2"
    tables = {
        "proposal": {
            f"/{old}.Provisioner/ProvisionerGetInfo":
                (v1.ProvisionerGetInfoRequest, lambda _: v1.ProvisionerGetInfoResponse(name=name())),
            f"/{old}.Provisioner/ProvisionerCreateBucket": (v1.ProvisionerCreateBucketRequest, proposal_create),
            f"/{old}.Provisioner/ProvisionerDeleteBucket":
                (v1.ProvisionerDeleteBucketRequest,
                 done(v1.ProvisionerDeleteBucketResponse, lambda r: backend.delete(r.bucket_id))),
            f"/{old}.Provisioner/ProvisionerGrantBucketAccess":
                (v1.ProvisionerGrantBucketAccessRequest, proposal_grant),
            f"/{old}.Provisioner/ProvisionerRevokeBucketAccess":
                (v1.ProvisionerRevokeBucketAccessRequest,
                 done(v1.ProvisionerRevokeBucketAccessResponse, lambda r: backend.revoke(r.account_id, [r.bucket_id]))),
        },
        "v0.2": {
            f"/{old}.Identity/DriverGetInfo":
                (v1.DriverGetInfoRequest, lambda _: v1.DriverGetInfoResponse(name=name())),
            f"/{old}.Provisioner/DriverCreateBucket": (v1.DriverCreateBucketRequest, old_create),
            f"/{old}.Provisioner/DriverDeleteBucket":
                (v1.DriverDeleteBucketRequest,
                 done(v1.DriverDeleteBucketResponse, lambda r: backend.delete(r.bucket_id))),
            f"/{old}.Provisioner/DriverGrantBucketAccess": (v1.DriverGrantBucketAccessRequest, old_grant),
            f"/{old}.Provisioner/DriverRevokeBucketAccess":
                (v1.DriverRevokeBucketAccessRequest,
                 done(v1.DriverRevokeBucketAccessResponse, lambda r: backend.revoke(r.account_id, [r.bucket_id]))),
        },
        "v1alpha2": {
            f"/{new}.Identity/DriverGetInfo": (v2.DriverGetInfoRequest, new_info),
            f"/{new}.Provisioner/DriverCreateBucket": (v2.DriverCreateBucketRequest, new_create),
            f"/{new}.Provisioner/DriverGetExistingBucket": (v2.DriverGetExistingBucketRequest, new_find),
            f"/{new}.Provisioner/DriverDeleteBucket":
                (v2.DriverDeleteBucketRequest,
                 done(v2.DriverDeleteBucketResponse, lambda r: backend.delete(r.bucket_id))),
            f"/{new}.Provisioner/DriverGrantBucketAccess": (v2.DriverGrantBucketAccessRequest, new_grant),
            f"/{new}.Provisioner/DriverRevokeBucketAccess":
                (v2.DriverRevokeBucketAccessRequest,
                 done(v2.DriverRevokeBucketAccessResponse,
                      lambda r: backend.revoke(r.account_id, [each.bucket_id for each in r.buckets]))),
        },
    }
    methods = {}
    for revision in revisions:
        methods.update(tables[revision])
    assert endpoint

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method not in methods:
                return None
            kind, call = methods[details.method]

            def run(request, context):
                try:
                    return call(request)
                except Refused as refused:
                    context.abort(refused.code, refused.text)

            return grpc.unary_unary_rpc_method_handler(
                run, request_deserializer=kind.FromString,
                response_serializer=lambda message: message.SerializeToString())

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port("unix:" + path)
    server.start()
    return server
