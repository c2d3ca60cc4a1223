"""What the tests of the sidecar have in common: a plugin in Python, certificates, the sidecar's process, a
client on grpcio, and an API server that is strict about what it is asked and answers as a test wants it.

Not a test. The folder of generated messages must be on sys.path.
"""

import base64
import contextlib
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time
from concurrent import futures

# pylint: disable=wrong-import-position
import csi_pb2  # noqa: E402
import grpc  # noqa: E402
import snapshotmetadata_pb2  # noqa: E402

DRIVER = "python.example.com"
AUDIENCE = "metadata.example.com"
BLOCK = 4096
CAPACITY = 1 << 20
TRUTH = [(0, BLOCK), (10 * BLOCK, 2 * BLOCK)]
CODES = grpc.StatusCode


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, seconds=30):
    """Waits for what comes by itself; False if it does not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False


def make_certificate(folder, name="tls", authority=None, names="DNS:localhost,IP:127.0.0.1"):
    """name.crt and name.key in the folder, signed by the authority of that name, or an authority.
    `name` is its common name too, `names` are its alternatives.
    """
    key, crt = (os.path.join(folder, name + end) for end in (".key", ".crt"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "2", "-keyout", key + ".new", "-out", crt + ".new",
               "-subj", f"/CN={name}"]
    if authority is None:
        command += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    else:
        command += ["-addext", f"subjectAltName={names}",
                    "-addext", "basicConstraints=critical,CA:FALSE",
                    "-CA", os.path.join(folder, authority + ".crt"),
                    "-CAkey", os.path.join(folder, authority + ".key")]
    subprocess.run(command, check=True, capture_output=True)
    os.replace(key + ".new", key)
    os.replace(crt + ".new", crt)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Plugin(grpc.GenericRpcHandler):
    """A CSI plugin that keeps what it is asked."""

    def __init__(self, address, name=DRIVER, capability=True, manifest=None):
        self.name = name
        self.manifest = manifest or {}
        self.capability = capability
        self.ready = None  # None: Probe does not say
        self.hold = threading.Event()  # streams wait for it after their first message
        self.hold.set()
        self.requests = []
        self.server = grpc.server(futures.ThreadPoolExecutor(32))
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(address)
        self.server.start()

    def stop(self):
        self.hold.set()
        self.server.stop(None).wait()

    def service(self, details):
        service, name = details.method.rsplit("/", 1)
        if service == "/csi.v1.Identity":
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self.identity(name),
                response_serializer=lambda message: message.SerializeToString())
        if service != "/csi.v1.SnapshotMetadata":
            return None
        return grpc.unary_stream_rpc_method_handler(
            self.stream, request_deserializer=getattr(csi_pb2, name + "Request").FromString,
            response_serializer=lambda message: message.SerializeToString())

    def identity(self, name):
        if name == "GetPluginInfo":
            return csi_pb2.GetPluginInfoResponse(name=self.name, manifest=self.manifest)
        if name == "Probe":
            answer = csi_pb2.ProbeResponse()
            if self.ready is not None:
                answer.ready.value = self.ready
            return answer
        answer = csi_pb2.GetPluginCapabilitiesResponse()
        answer.capabilities.add().service.type = 1
        if self.capability:
            answer.capabilities.add().service.type = 4
        return answer

    def stream(self, request, context):
        delta = isinstance(request, csi_pb2.GetMetadataDeltaRequest)
        self.requests.append({
            "target": request.target_snapshot_id if delta else request.snapshot_id,
            "base": request.base_snapshot_id if delta else None,
            "secrets": dict(request.secrets)})
        for offset, size in TRUTH:
            message = csi_pb2.GetMetadataAllocatedResponse(
                block_metadata_type=csi_pb2.VARIABLE_LENGTH, volume_capacity_bytes=CAPACITY)
            message.block_metadata.add(byte_offset=offset, size_bytes=size)
            yield message
            self.hold.wait(60)


def cluster(cbt):
    """The program of a cluster's servers, which is beside the command."""
    return os.path.join(os.path.dirname(os.path.abspath(cbt)), "cbt-cluster")


class Component:
    """A process of cbt-cluster, with its pages and its log."""

    def __init__(self, folder, name, *command):
        self.name = name
        self.command = command
        self.log_path = os.path.join(folder, name + ".log")
        self.start()

    def start(self):
        self.http = free_port()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.command, f"--http-endpoint=127.0.0.1:{self.http}"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def log(self):
        return read(self.log_path).decode()

    def get(self, path):
        """The status and the text of a page, or None and nothing."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=10)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None, ""

    def ready(self):
        return self.get("/readyz")[0] == 200

    def wait_ready(self, seconds=60):
        if not wait_until(self.ready, seconds):
            self.stop()
            raise AssertionError(f"{self.name} did not become ready:\n" + self.log())
        return self

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\d+)$", self.get("/metrics")[1], re.MULTILINE)
        return int(found.group(1)) if found else None

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()


class Sidecar(Component):
    """The process, with its port."""

    def __init__(self, cbt, folder, kubeconfig, *flags, wait=True, program=None, name="sidecar"):
        self.port = free_port()
        self.folder = folder
        super().__init__(folder, name, *(program or [cluster(cbt), "sidecar"]), f"--csi-address={folder}/csi.sock",
                         f"--port={self.port}", f"-tls-cert={folder}/tls.crt", "-tls-key", f"{folder}/tls.key",
                         "--kubeconfig", kubeconfig, "--v=5", "--grace=2s", *flags)
        if wait:
            self.wait_ready(30)

    def health(self):
        return self.get("/health")[0]

    def ready(self):
        return self.health() == 200

    def channel(self, ca="ca"):
        return grpc.secure_channel(
            f"localhost:{self.port}",
            grpc.ssl_channel_credentials(read(os.path.join(self.folder, ca + ".crt"))),
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
                     ("grpc.max_reconnect_backoff_ms", 200)])


def method_of(channel, delta):
    """The RPC as generated stubs call it."""
    name = "GetMetadataDelta" if delta else "GetMetadataAllocated"
    return channel.unary_stream(
        f"/snapshotmetadata.SnapshotMetadata/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=getattr(snapshotmetadata_pb2, name + "Response").FromString)


def ask(channel, token, namespace="ns", snapshot="snap", base=None, **fields):
    """(OK, tuples) or (code, text)."""
    if base is None:
        request = snapshotmetadata_pb2.GetMetadataAllocatedRequest(
            security_token=token, namespace=namespace, snapshot_name=snapshot, **fields)
    else:
        request = snapshotmetadata_pb2.GetMetadataDeltaRequest(
            security_token=token, namespace=namespace, target_snapshot_name=snapshot,
            base_snapshot_id=base, **fields)
    try:
        tuples = [(t.byte_offset, t.size_bytes)
                  for message in method_of(channel, base is not None)(request, timeout=60)
                  for t in message.block_metadata]
        return CODES.OK, tuples
    except grpc.RpcError as error:
        return error.code(), error.details()


# --- Objects, as their controllers make them.


def snapshot(name="snap", namespace="ns", content=None, ready=True, uid=None, klass="class",
             status=True):
    made = {
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}"},
        "spec": {"source": {"persistentVolumeClaimName": "claim"}},
    }
    if klass is not None:
        made["spec"]["volumeSnapshotClassName"] = klass
    if status:
        made["status"] = {"boundVolumeSnapshotContentName": content or f"content-{namespace}-{name}"}
        if ready is not None:
            made["status"]["readyToUse"] = ready
    return made


def content(name="snap", namespace="ns", handle=None, driver=DRIVER, ready=True, uid=None,
            volume="volume-1", created=1_700_000_000_000_000_000, status=True, own_name=None):
    made = {
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": own_name or f"content-{namespace}-{name}", "uid": f"uid-content-{name}"},
        "spec": {"deletionPolicy": "Delete", "driver": driver,
                 "source": {"volumeHandle": volume},
                 "volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": namespace, "name": name,
                                       "uid": uid or f"uid-{namespace}-{name}"}},
    }
    if volume is None:
        made["spec"]["source"] = {"snapshotHandle": handle or f"handle-{name}"}
    if status:
        made["status"] = {"snapshotHandle": handle or f"handle-{name}", "creationTime": created}
        if handle == "":
            del made["status"]["snapshotHandle"]
        if ready is not None:
            made["status"]["readyToUse"] = ready
    return made


def snapshot_class(name="class", driver=DRIVER, parameters=None, default=False):
    made = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": {"name": name}, "driver": driver, "deletionPolicy": "Delete"}
    if parameters:
        made["parameters"] = parameters
    if default:
        made["metadata"]["annotations"] = {
            "snapshot.storage.kubernetes.io/is-default-class": "true"}
    return made


def secret(name, namespace, **data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "type": "Opaque",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


def service(name=DRIVER, audience=AUDIENCE):
    return {"apiVersion": "cbt.storage.k8s.io/v1beta1", "kind": "SnapshotMetadataService",
            "metadata": {"name": name},
            "spec": {"audience": audience, "address": "localhost:1", "caCert": "YQ=="}}


SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1"
PLURALS = {"VolumeSnapshot": SNAPSHOTS + "/namespaces/{}/volumesnapshots",
           "VolumeSnapshotContent": SNAPSHOTS + "/volumesnapshotcontents",
           "VolumeSnapshotClass": SNAPSHOTS + "/volumesnapshotclasses",
           "Secret": "/api/v1/namespaces/{}/secrets",
           "SnapshotMetadataService": "/apis/cbt.storage.k8s.io/v1beta1/snapshotmetadataservices"}
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def protobuf_fields(data):
    """{number: [values]} of a message: integers, and the bytes of all else."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        fields.setdefault(key >> 3, []).append(value)
    return fields


def review_of(data):
    """A TokenReview, TokenRequest or SubjectAccessReview as the API server's JSON, from JSON or from the protobuf that clients
    in Go send (k8s.io/api/*/generated.proto)."""
    if not data.startswith(b"k8s\0"):
        return json.loads(data)
    unknown = protobuf_fields(data[4:])
    types = protobuf_fields(unknown[1][0])
    spec = protobuf_fields(protobuf_fields(unknown[2][0])[2][0])

    def text(fields, number):
        return fields.get(number, [b""])[0].decode()

    body = {"apiVersion": text(types, 1), "kind": text(types, 2), "metadata": {"creationTimestamp": None}}
    if body["kind"] == "TokenReview":
        body["spec"] = {"token": text(spec, 1), "audiences": [one.decode() for one in spec.get(2, [])]}
        return body
    if body["kind"] == "TokenRequest":
        body["spec"] = {"audiences": [one.decode() for one in spec.get(1, [])]}
        return body
    attributes = protobuf_fields(spec[1][0])
    named = {name: text(attributes, number) for number, name in
             enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)}
    extra = {}
    for entry in map(protobuf_fields, spec.get(5, [])):
        extra[text(entry, 1)] = [one.decode() for one in protobuf_fields(entry[2][0]).get(1, [])]
    body["spec"] = {"resourceAttributes": {name: value for name, value in named.items() if value},
                    "user": text(spec, 3), "groups": [one.decode() for one in spec.get(4, [])],
                    "uid": text(spec, 6), "extra": extra}
    return body


class FakeApi:
    """The API server. `say` may answer any request itself: it gets method, path and body, and returns None or
    (code, body), where body is JSON, or bytes to send as they are, or a function that gets the handler."""

    def __init__(self):
        self.objects = {}
        self.lock = threading.Lock()
        self.asked = []  # (method, path) without watches
        self.complaints = []
        self.say = lambda method, path, body: None
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args):
                pass

            def do_GET(self):
                self.answer(None)

            def do_POST(self):
                data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.answer(review_of(data))

            do_PATCH = do_POST

            def answer(self, body):
                with contextlib.suppress(OSError):
                    code, text = api.answer(self.command, self.path, body)
                    if callable(text):
                        return text(self)
                    data = text if isinstance(text, bytes) else json.dumps(text).encode()
                    self.send_response(code)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def kubeconfig(self, folder):
        path = os.path.join(folder, "kubeconfig")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {
                    "server": f"http://127.0.0.1:{self.server.server_port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
        return path

    def put(self, *objects):
        for one in objects:
            meta = one["metadata"]
            path = PLURALS[one["kind"]].format(meta.get("namespace")) + "/" + meta["name"]
            self.objects[path] = one

    def answer(self, method, path, body):
        path, _, query = path.partition("?")
        if "watch=" in query:
            # The sidecar may not watch here: whatever it wants to know, it asks.
            return 403, self.status(403, "Forbidden")
        with self.lock:
            self.asked.append((method, path))
        said = self.say(method, path, body)
        if said is not None:
            return said
        if method == "POST" and path == TOKEN_REVIEWS:
            return 201, self.review_token(body)
        if method == "POST" and path == ACCESS_REVIEWS:
            return 201, self.review_access(body)
        if method != "GET":
            return 405, self.status(405, "MethodNotAllowed")
        if path in self.objects:
            return 200, self.objects[path]
        items = [one for at, one in sorted(self.objects.items())
                 if at.rsplit("/", 1)[0] == path]
        if path in PLURALS.values():
            kind = next(kind for kind, plural in PLURALS.items() if plural == path)
            return 200, {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind + "List",
                         "metadata": {"resourceVersion": "1"}, "items": items}
        return 404, self.status(404, "NotFound")

    @staticmethod
    def status(code, reason):
        return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": reason, "message": reason + " by the fake"}

    def complain(self, what, body):
        self.complaints.append(f"{what}: {json.dumps(body)}")

    def review_token(self, body):
        """Tokens are `good-USER`, `other-USER` (valid for another audience), anything else is bad."""
        spec = body.get("spec", {})
        if body.get("apiVersion") != "authentication.k8s.io/v1" or body.get("kind") != "TokenReview":
            self.complain("no TokenReview", body)
        if not spec.get("token") or len(spec.get("audiences", [])) != 1:
            self.complain("token or audience missing", body)
        kind, _, user = spec.get("token", "").partition("-")
        if kind == "good" and spec["audiences"] == [AUDIENCE]:
            body["status"] = {
                "authenticated": True, "audiences": [AUDIENCE],
                "user": {"username": f"system:serviceaccount:backup:{user}", "uid": "uid-" + user,
                         "groups": ["system:serviceaccounts", "system:authenticated"],
                         "extra": {"example.com/pod": ["pod-" + user, "second"]}}}
        else:
            body["status"] = {"error": "invalid bearer token"}
        return body

    def review_access(self, body):
        """Users whose names begin with `no` are not let in; nor is anybody outside of ns."""
        spec = body.get("spec", {})
        attributes = dict(spec.get("resourceAttributes", {}))
        namespace = attributes.pop("namespace", None)
        if attributes != {"verb": "get", "group": "snapshot.storage.k8s.io", "version": "v1",
                          "resource": "volumesnapshots"}:
            self.complain("wrong attributes", body)
        if body.get("metadata") not in (None, {}, {"creationTimestamp": None}):
            self.complain("metadata", body)
        user = spec.get("user", "").rsplit(":", 1)[-1]
        if (spec.get("uid") != "uid-" + user or
                spec.get("groups") != ["system:serviceaccounts", "system:authenticated"] or
                spec.get("extra") != {"example.com/pod": ["pod-" + user, "second"]}):
            self.complain("the user is not passed on", body)
        allowed = namespace == "ns" and not user.startswith("no")
        body["status"] = {"allowed": allowed}
        if user.startswith("noopinion"):
            body["status"] = {"allowed": False}
        if user.startswith("nodenied"):
            body["status"] = {"allowed": True, "denied": True, "reason": "canary-reason"}
        return body


def seconds_of(text):
    """The histogram of the Go sidecar: {(method, code): count}."""
    found = re.findall(
        r'^snapshot_metadata_controller_operations_seconds_count\{([^}]*)\} (\d+)', text, re.M)
    counts = {}
    for labels, count in found:
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[values["method_name"], values["grpc_status_code"]] = int(count)
    return counts
