"""A COSI driver of the proposal's first revision, in memory, on grpcio. Not a test.

It keeps the rules C32 to C36, and counts what it is asked. `fail` and `slow` make it refuse or delay
calls by method; `lose` lets it act and lose the answer.
"""

import json
import threading
import time
from concurrent import futures

import cosi_v1alpha1_pb2 as cosi
import grpc

CODES = grpc.StatusCode
SERVICE = "/cosi.v1alpha1.Provisioner/Provisioner"


class Driver(grpc.GenericRpcHandler):
    def __init__(self, path, name):
        self.path, self.name = path, name
        self.lock = threading.Lock()
        self.buckets = {}   # id: (name, protocol, parameters)
        self.accounts = {}  # (bucket, account): (policy, secret)
        self.minted = 0
        self.calls = []     # (method, request)
        self.fail = {}      # method: (code, text)
        self.lose = set()   # methods
        self.slow = {}      # method: seconds
        self.info = None    # the name that it says instead
        self.start()

    def start(self):
        self.server = grpc.server(futures.ThreadPoolExecutor(64))
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port("unix:" + self.path)
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()

    def service(self, details):
        if not details.method.startswith(SERVICE):
            return None
        method = details.method[len(SERVICE):]
        request = getattr(cosi, f"Provisioner{method}Request")
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: self.call(method, message, context),
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString())

    def call(self, method, request, context):
        with self.lock:
            self.calls.append((method, request))
        time.sleep(self.slow.get(method, 0))
        if method in self.fail:
            context.abort(*self.fail[method])
        with self.lock:
            code, answer = getattr(self, "on_" + method)(request)
        if code is not CODES.OK:
            context.abort(code, answer)
        if method in self.lose:
            context.abort(CODES.UNAVAILABLE, "the answer was lost")
        return answer

    def on_GetInfo(self, _):
        return CODES.OK, cosi.ProvisionerGetInfoResponse(name=self.info or self.name)

    def on_CreateBucket(self, request):
        if not request.name or request.protocol.WhichOneof("type") is None:
            return CODES.INVALID_ARGUMENT, "name and protocol are required"
        bucket = (request.name, request.protocol.SerializeToString(), dict(request.parameters))
        there = self.buckets.get("id-" + request.name)
        if there is not None and there != bucket:
            return CODES.ALREADY_EXISTS, "the bucket has other parameters"
        self.buckets["id-" + request.name] = bucket
        return CODES.OK, cosi.ProvisionerCreateBucketResponse(bucket_id="id-" + request.name)

    def on_DeleteBucket(self, request):
        if not request.bucket_id:
            return CODES.INVALID_ARGUMENT, "bucket_id is required"
        self.buckets.pop(request.bucket_id, None)
        return CODES.OK, cosi.ProvisionerDeleteBucketResponse()

    def on_GrantBucketAccess(self, request):
        if not request.bucket_id or not request.access_policy:
            return CODES.INVALID_ARGUMENT, "bucket_id and access_policy are required"
        if request.bucket_id not in self.buckets:
            return CODES.NOT_FOUND, "there is no such bucket"
        account = "account-" + request.account_name
        key = (request.bucket_id, account)
        if key in self.accounts and self.accounts[key][0] != request.access_policy:
            return CODES.ALREADY_EXISTS, "the account has another policy"
        if key not in self.accounts:
            self.minted += 1
            self.accounts[key] = (request.access_policy, f"very-secret-{self.minted}")
        answer = cosi.ProvisionerGrantBucketAccessResponse(account_id=account)
        if not any(name.endswith("service-account-name") for name in request.parameters):
            answer.credentials = json.dumps({
                "endpoint": "http://s3.example.com:9000", "region": "eu",
                "accessKeyID": "key-" + account, "accessSecretKey": self.accounts[key][1]})
        else:
            answer.credentials = json.dumps({"endpoint": "http://s3.example.com:9000"})
        return CODES.OK, answer

    def on_RevokeBucketAccess(self, request):
        if not request.bucket_id or not request.account_id:
            return CODES.INVALID_ARGUMENT, "bucket_id and account_id are required"
        self.accounts.pop((request.bucket_id, request.account_id), None)
        return CODES.OK, cosi.ProvisionerRevokeBucketAccessResponse()

    def count(self, method, text=""):
        with self.lock:
            return sum(1 for name, request in self.calls if name == method and text in str(request))
