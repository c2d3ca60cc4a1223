"""What the tests of the aggregated API server have in common: a control plane with the manifests, a plugin,
the two programs, and requests of users. Not a test; sys.argv is that of the tests.
"""

import base64
import http.client
import http.server
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.abspath(os.path.join(HERE, "..", "..", "..", "deploy", "kubernetes", "aggregated"))
sys.path.insert(0, MESSAGES)
sys.path.append(os.path.join(HERE, "..", "..", "support"))
sys.path.append(os.path.join(HERE, "..", "..", "sidecar"))

# pylint: disable=wrong-import-position
import cluster  # noqa: E402
import grpc  # noqa: E402
import list_snapshot_deltas_pb2 as deltas_pb2  # noqa: E402
import parts  # noqa: E402

DRIVER = "paged.example.com"
API = "cbt.storage.k8s.io/v1alpha1"
PATH = f"/apis/{API}/namespaces/prod/volumesnapshotdeltas"
NAMESPACE = "cbt-aggregated-api"
BLOCK = 4096
COMPLETED, CONTINUE, FAILED = 0, 1, 2


class PagedPlugin(parts.Plugin):
    """A plugin of the second revision: ListSnapshotDeltas and nothing else."""

    def __init__(self, address, name=DRIVER, capacity=64 * BLOCK, blocks=((0, BLOCK), (40960, BLOCK))):
        self.capacity = capacity
        self.blocks = list(blocks)
        self.error = None  # (code, text) of every page
        self.data_tokens = False
        self.generation = 0  # tokens of others are unknown
        super().__init__(address, name, capability=False)

    def service(self, details):
        if details.method == "/csi.v1.Controller/ListSnapshotDeltas":
            return grpc.unary_unary_rpc_method_handler(
                self.page, request_deserializer=deltas_pb2.ListSnapshotDeltasRequest.FromString,
                response_serializer=lambda message: message.SerializeToString())
        return super().service(details) if "Identity" in details.method else None

    def page(self, request, context):
        self.requests.append({"base": request.from_snapshot_id, "target": request.to_snapshot_id,
                              "secrets": dict(request.secrets), "most": request.max_entries,
                              "token": request.starting_token})
        if self.error:
            context.abort(*self.error)
        start = 0
        if request.starting_token:
            generation, start = (int(part) for part in request.starting_token.split("-"))
            if generation != self.generation:
                context.abort(grpc.StatusCode.ABORTED, "an unknown token")
        most = request.max_entries or len(self.blocks)
        answer = deltas_pb2.ListSnapshotDeltasResponse(volume_size_bytes=self.capacity)
        for offset, size in self.blocks[start:start + most]:
            block = answer.changed_blocks.add(offset=offset, block_size_bytes=size)
            if self.data_tokens:
                block.token.token = f"data-{offset}"
                block.token.issuance_time.seconds = 1_700_000_000
                block.token.ttl_seconds = 10_800
        if start + most < len(self.blocks):
            answer.next_token = f"{self.generation}-{start + most}"
        return answer


class Program(parts.Component):
    """A process, with its port."""

    def __init__(self, folder, name, *arguments, port=None):
        self.port = port or parts.free_port()
        super().__init__(folder, name, parts.cluster(CBT), *arguments, f"--listen=127.0.0.1:{self.port}",
                         "--grace=2", f"--identity={name}")

    def wait_started(self):
        """Until it listens, which comes after the endpoint for probes."""
        def listens():
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return True
            except OSError:
                return False

        if not parts.wait_until(listens, 60):
            raise AssertionError(f"{self.name} did not start:\n" + self.log())
        return self


class Balancer:
    """A Service: connections go to the processes that take them, in turns."""

    def __init__(self):
        self.backends = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.turn = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = self.connect()
            if server is None:
                client.close()
                continue
            threading.Thread(target=self.forward, args=(client, server), daemon=True).start()

    def connect(self):
        for _ in range(len(self.backends)):
            self.turn += 1
            try:
                return socket.create_connection(
                    ("127.0.0.1", self.backends[self.turn % len(self.backends)]), timeout=5)
            except OSError:
                continue
        return None

    @staticmethod
    def forward(client, server):
        with client, server:
            server.settimeout(None)
            others = {client: server, server: client}
            while True:
                for source in select.select(list(others), [], [])[0]:
                    try:
                        data = source.recv(65536)
                        others[source].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return


class Service:
    """The HTTPS service of a driver that does what a test wants: `answer` gets path and body, and returns code
    and text, or None to hang up."""

    def __init__(self, folder):
        service = self
        self.answer = lambda path, body: (404, "")
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                self.reply(body)

            def do_GET(self):
                self.reply("")

            def reply(self, body):
                certificate = self.connection.getpeercert()
                service.asked.append((self.path, body, certificate["subject"]))
                code, text = service.answer(self.path, body)
                data = text.encode()
                self.send_response(code)
                # One byte more than there is: the connection breaks in the middle.
                cut = code == 299
                self.send_header("Content-Type", "application/x-ndjson")
                self.send_header("Content-Length", str(len(data) + cut))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = cut

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/localhost.crt", f"{folder}/localhost.key")
        context.load_verify_locations(f"{folder}/clients.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


class World:
    """The control plane that all tests share, with the manifests, a driver and a few users."""

    def __init__(self):
        self.plane = cluster.ControlPlane(CONTROL_PLANE)
        self.folder = tempfile.mkdtemp(prefix="cbt-aggregated-")
        for authority in ("ca", "clients", "strangers"):
            parts.make_certificate(self.folder, authority)
        parts.make_certificate(self.folder, "localhost", "ca")
        parts.make_certificate(self.folder, "aggregated-api", "ca",
                               f"DNS:aggregated-api.{NAMESPACE}.svc,DNS:localhost")
        parts.make_certificate(self.folder, NAMESPACE, "clients")
        parts.make_certificate(self.folder, "another-client", "clients")
        parts.make_certificate(self.folder, "front-proxy-client", "strangers")
        self.plane.install(os.path.join(DEPLOY, "crd", "driverdiscoveries.yaml"))
        for file in ("namespace", "service-account", "cluster-role", "cluster-role-bindings",
                     "lease-role", "flow-schema"):
            self.plane.apply(os.path.join(DEPLOY, file + ".yaml"))
        for namespace in ("csi-driver", "prod", "other", "backup"):
            self.plane.create({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": namespace}})
        for file in ("publish-role", "lease-role", "secret-role"):
            self.apply_for_driver(file)
        self.plane.account("csi-driver", "csi-snapshot-metadata")
        self.plane.create(parts.snapshot_class(driver=DRIVER))
        self.api_kubeconfig = self.plane.kubeconfig_of(NAMESPACE, "aggregated-api", self.folder)
        self.driver_kubeconfig = self.plane.kubeconfig_of("csi-driver", "csi-snapshot-metadata",
                                                          self.folder)
        for account in ("app", "blind"):
            self.plane.account("backup", account)
        self.bind("prod", "app")
        self.tokens = {account: self.plane.token("backup", account) for account in ("app", "blind")}
        self.socket = os.path.join(self.folder, "csi.sock")
        self.plugin = PagedPlugin("unix://" + self.socket)
        self.balancer = Balancer()
        self.register()

    def apply_for_driver(self, file):
        text = parts.read(os.path.join(DEPLOY, "sidecar", file + ".yaml")).decode()
        self.plane.apply_text(text.replace("folder.example.com", DRIVER))

    def bind(self, namespace, account):
        self.plane.create({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": account, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "cbt-volume-snapshot-delta-creator"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "backup"}]})

    def register(self):
        """The APIService of the manifests; there is no network of Services here."""
        self.plane.create({"apiVersion": "v1", "kind": "Service",
                           "metadata": {"name": "aggregated-api", "namespace": NAMESPACE},
                           "spec": {"type": "ExternalName", "externalName": "localhost"}})
        made = json.loads(self.plane.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                             os.path.join(DEPLOY, "api-service.yaml")).stdout)
        made["spec"]["caBundle"] = base64.b64encode(parts.read(f"{self.folder}/ca.crt")).decode()
        made["spec"]["service"]["port"] = self.balancer.port
        self.plane.apply_text(json.dumps(made))

    def aggregated(self, name, *flags):
        return Program(self.folder, name, "aggregated-api",
                       f"--kubeconfig={self.api_kubeconfig}", "--leader-elect",
                       f"--lease-namespace={NAMESPACE}", "--check-time=1s",
                       *(f"--{option}={self.folder}/{file}" for option, file in (
                           ("tls-cert", "aggregated-api.crt"), ("tls-key", "aggregated-api.key"),
                           ("client-cert", f"{NAMESPACE}.crt"), ("client-key", f"{NAMESPACE}.key"))),
                       *flags)

    def sidecar(self, name, *flags, elect=True, port=None, plugin=None):
        return Program(self.folder, name, "http-sidecar", f"--csi-address={plugin or self.socket}",
                       f"--kubeconfig={self.driver_kubeconfig}", f"--client-ca={self.folder}/clients.crt",
                       f"--client-name={NAMESPACE}", f"--tls-cert={self.folder}/localhost.crt",
                       f"--tls-key={self.folder}/localhost.key", "--lease-namespace=csi-driver",
                       *(["--leader-elect"] if elect else []), *flags, port=port)

    def user(self, account="app"):
        return User(self.plane.facts, self.tokens[account])


class User:
    """Requests of an account over one connection."""

    def __init__(self, facts, token):
        host = facts["url"].removeprefix("https://")
        self.connection = http.client.HTTPSConnection(
            host, context=ssl.create_default_context(cafile=facts["ca"]), timeout=90)
        self.headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        self.last = {}
        self.used = time.monotonic()

    def send(self, method, path, body=None, headers=None):
        # The API server closes a connection that was idle for 90 seconds.
        if time.monotonic() - self.used > 30:
            self.connection.close()
        self.used = time.monotonic()
        self.connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body,
                                {**self.headers, **(headers or {})})
        answer = self.connection.getresponse()
        self.last = {name.lower(): value for name, value in answer.getheaders()}
        text = answer.read().decode()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def ask(self, target, base=None, **spec):
        return self.send("POST", PATH, delta(target, base, **spec))


def delta(target, base=None, namespace="prod", **spec):
    spec["targetVolumeSnapshotName"] = target
    if base is not None:
        spec["baseVolumeSnapshotName"] = base
    return {"apiVersion": API, "kind": "VolumeSnapshotDelta",
            "metadata": {"name": "question", "namespace": namespace}, "spec": spec}


def discovery(name, driver, port, folder, **spec):
    authorities = base64.b64encode(parts.read(f"{folder}/ca.crt")).decode()
    return {"apiVersion": "cbt.storage.k8s.io/v1alpha2", "kind": "DriverDiscovery",
            "metadata": {"name": name},
            "spec": {"driverName": driver, "clientConfig": {"url": f"https://localhost:{port}",
                                                            "caBundle": authorities}, **spec}}


SHARED = []


def shared():
    if not cluster.available():
        raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                "kube-apiserver")
    if not SHARED:
        SHARED.append(World())
    return SHARED[0]


def stop():
    for one in SHARED:
        one.balancer.listener.close()
        one.plugin.stop()
        one.plane.stop()


class Base(unittest.TestCase):
    """A driver with one sidecar, and two replicas of the server."""

    flags = ()  # of the replicas
    counter = 0

    @classmethod
    def setUpClass(cls):
        cls.world = shared()
        cls.plane = cls.world.plane
        cls.plugin = cls.world.plugin
        cls.apis = [cls.world.aggregated(f"{cls.__name__}-{i}", *cls.flags) for i in range(2)]
        port = parts.free_port()
        cls.sidecar = cls.world.sidecar(f"{cls.__name__}-sidecar",
                                        f"--publish=https://localhost:{port}",
                                        f"--publish-ca={cls.world.folder}/ca.crt", port=port)
        for one in (*cls.apis, cls.sidecar):
            cls.addClassCleanup(one.stop)
        for one in (*cls.apis, cls.sidecar):
            one.wait_ready()
        cls.world.balancer.backends = [one.port for one in cls.apis]
        cls.plane.kubectl("wait", f"apiservice/{API.split('/')[1]}.{API.split('/')[0]}",
                          "--for=condition=Available", "--timeout=60s")
        # Until it is published, the address is that of an earlier class's sidecar.
        def published():
            one = cls.plane.get("driverdiscovery", DRIVER) or {"spec": {"clientConfig": {}}}
            return one["spec"]["clientConfig"].get("url") == f"https://localhost:{port}"

        if not parts.wait_until(published, 60):
            raise AssertionError(f"{DRIVER}: not published\n" + cls.sidecar.log()[-2000:])
        cls.wait_reachable(DRIVER)
        cls.user = cls.world.user()
        cls.addClassCleanup(cls.user.connection.close)

    def setUp(self):
        self.plugin.error = None
        self.plugin.data_tokens = False
        self.plugin.capacity = 64 * BLOCK
        self.plugin.blocks = [(0, BLOCK), (10 * BLOCK, BLOCK)]
        self.plugin.requests.clear()

    @classmethod
    def condition(cls, name):
        one = cls.plane.get("driverdiscovery", name) or {}
        found = [c for c in one.get("status", {}).get("conditions", []) if c["type"] == "Reachable"]
        return found[0] if found else {}

    @classmethod
    def wait_reachable(cls, name, status="True", reason=None):
        def reached():
            condition = cls.condition(name)
            return condition.get("status") == status and reason in (None, condition["reason"])

        if not parts.wait_until(reached, 60):
            raise AssertionError(f"{name}: {cls.condition(name)}\n" + cls.apis[0].log()[-2000:])

    def name(self):
        Base.counter += 1
        return f"n{Base.counter}"

    def snapshot(self, namespace="prod", driver=DRIVER, at=1_700_000_000_000_000_000, **more):
        name = self.name()
        self.plane.snapshot(name, namespace, volume="volume-1", created=at, driver=driver, **more)
        return name

    def ask(self, target, base=None, user=None, **spec):
        code, answer = (user or self.user).ask(target, base, **spec)
        self.assertEqual(code, 201, answer)
        return answer["status"]

    def refused(self, code, text, target, base=None, user=None, **spec):
        got, answer = (user or self.user).ask(target, base, **spec)
        self.assertEqual((got, answer["kind"]), (code, "Status"), answer)
        self.assertIn(text, answer["message"])
        return answer

    def offsets(self, status):
        return [entry["offset"] for entry in status["changedBlockDeltas"]]

    def kubectl_as(self, account, *arguments, text=""):
        path = self.plane.kubectl_kubeconfig(
            os.path.join(self.world.folder, account + ".user"), self.world.tokens[account], "prod")
        return subprocess.run([os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"),
                               "--kubeconfig", path, *arguments], input=text, capture_output=True,
                              text=True, check=False)
