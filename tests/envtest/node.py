"""A whole Kubernetes node on this machine, for tests. Not a test.

In a network and a mount namespace of its own run etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kube-proxy, containerd and kubelet, from the folder that KUBEBUILDER_ASSETS names
(tests/envtest/build.sh). Pods run there, can be exec'ed into, and mount CSI volumes. Their network
is 192.0.2.128/25, which is reachable from inside only; Services work, and there is no DNS.

By hand, as root, until Enter is pressed:  node.py FOLDER
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import image  # noqa: E402

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-scheduler",
            "kube-proxy", "kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
TOOLS = ("runc", "busybox", "nft", "ip", "nsenter", "unshare", "openssl")
CNI = "/usr/lib/cni"
ADDRESS = "192.0.2.1"
SERVICES = "10.0.0.0/24"
URL = "https://127.0.0.1:6443"

# The shell that keeps the namespaces. It ends, and they with it, when its stdin does.
NAMESPACE = f"""
set -e
mount --make-rshared /
ip link set lo up
ip link add veth0 type veth peer name veth1
ip addr add {ADDRESS}/25 dev veth0
ip link set veth0 up
ip link set veth1 up
ip route add {SERVICES} dev veth0
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready
read -r _ || true
"""

NETWORK = {
    "cniVersion": "1.0.0", "name": "net",
    "plugins": [{"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": False,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": "192.0.2.128/25"}]]}}]}

CONTAINERD = """version = 3
root = "{folder}/run/containerd"
state = "{folder}/run/state"
[grpc]
  address = "{folder}/run/containerd.sock"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{folder}/cni"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:1"
"""


def lacks():
    """What is missing for a node; empty: nothing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        return "KUBEBUILDER_ASSETS is not set: no real node is tried"
    for program in PROGRAMS:
        if not os.path.exists(os.path.join(assets, program)):
            return f"KUBEBUILDER_ASSETS has no {program}"
    if os.geteuid() != 0:
        return "not root"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return "no " + tool
    if not os.path.exists(f"{CNI}/bridge"):
        return f"no {CNI}/bridge"
    return ""


def lacks_for_volumes(*programs):
    """What is missing for a node whose driver serves volumes by these programs; empty: nothing."""
    if lacks():
        return lacks()
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return "no " + device
    return next(("no " + program for program in programs if shutil.which(program) is None), "")


def run(*command, check=True, **more):
    done = subprocess.run(command, stdin=more.pop("stdin", subprocess.DEVNULL), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


class Authority:
    """A certificate authority whose files lie in `folder`."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.openssl("req", "-x509", *self.key(name), "-subj", "/CN=" + name, "-out", name + ".crt",
                     "-addext", "basicConstraints=critical,CA:TRUE",
                     "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    @staticmethod
    def key(name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                name + ".key", "-days", "30")

    def openssl(self, *arguments):
        run("openssl", *arguments, cwd=self.folder)

    def issue(self, name, subject, usage, alternatives=""):
        extensions = ["basicConstraints=CA:FALSE", "extendedKeyUsage=" + usage]
        if alternatives:
            extensions.append("subjectAltName=" + alternatives)
        added = [word for one in extensions for word in ("-addext", one)]
        self.openssl("req", "-x509", "-CA", self.name + ".crt", "-CAkey", self.name + ".key",
                     *self.key(name), "-subj", subject, "-out", name + ".crt", *added)


class Node:
    def __init__(self, folder):
        self.assets = os.environ["KUBEBUILDER_ASSETS"]
        self.folder = folder
        self.keys = f"{folder}/keys"
        self.kubeconfig = f"{folder}/admin.kubeconfig"
        self.kubelet = f"{folder}/run/kubelet"
        self.socket = f"{folder}/run/containerd.sock"
        self.log = f"{folder}/kubelet.log"
        self.namespace = None
        self.processes = {}

    # --- Commands inside.

    def enter(self, *command):
        return ["nsenter", "-t", str(self.namespace.pid), "-n", "-m", "--", *command]

    def inside(self, *command, **more):
        return run(*self.enter(*command), **more)

    def kubectl(self, *command, **more):
        return self.inside(f"{self.assets}/kubectl", f"--kubeconfig={self.kubeconfig}",
                           f"--cache-dir={self.folder}/kubectl", *command, **more)

    def ctr(self, *command):
        return self.inside(f"{self.assets}/ctr", "-a", self.socket, "-n", "k8s.io", *command)

    def import_image(self, name, entrypoint, files):
        path = f"{self.folder}/image.tar"
        image.write(path, name, entrypoint, files)
        self.ctr("images", "import", path)
        os.unlink(path)

    # --- Start.

    def start(self):
        for folder in (self.keys, f"{self.folder}/run", f"{self.folder}/cni"):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        # Mounts of this machine arrive inside, those of the node do not leave it.
        self.namespace = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "slave", "sh", "-c", NAMESPACE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.namespace.stdout.readline() != "ready\n":
            raise RuntimeError("no namespace for the node")
        self.make_keys()
        self.start_control_plane()
        self.start_containers()
        self.wait_for("the node is ready", lambda: "True" in self.kubectl(
            "get", "node", "node1", "-o",
            "jsonpath={.status.conditions[?(@.type=='Ready')].status}", check=False))
        self.wait_for("service accounts", lambda: self.kubectl(
            "get", "serviceaccount", "default", "-o", "name", check=False))

    def launch(self, name, *flags, **environment):
        with open(f"{self.folder}/{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                self.enter(f"{self.assets}/{name}", *flags), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **environment}, start_new_session=True)

    def wait_for(self, what, condition, seconds=120):
        latest = time.monotonic() + seconds
        while not condition():
            for name, process in self.processes.items():
                if process.poll() is not None or time.monotonic() > latest:
                    with open(f"{self.folder}/{name}.log", encoding="utf-8", errors="replace") as log:
                        text = log.read()[-3000:]
                    ended = "" if process.poll() is None else " has ended"
                    raise RuntimeError(f"waited for: {what}; {name}{ended}: {text}")
            time.sleep(0.2)

    def make_keys(self):
        ca = Authority(self.keys, "ca")
        ca.issue("apiserver", "/CN=kube-apiserver", "serverAuth",
                 "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
                 f"IP:127.0.0.1,IP:10.0.0.1,IP:{ADDRESS}")
        ca.issue("admin", "/O=system:masters/CN=admin", "clientAuth")
        front = Authority(self.keys, "front-proxy-ca")
        front.issue("front-proxy-client", "/CN=front-proxy-client", "clientAuth")
        ca.openssl("genrsa", "-out", "accounts.key", "2048")
        ca.openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
        self.write("admin.kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "clusters": [{"name": "node", "cluster": {
                "server": URL, "certificate-authority": f"{self.keys}/ca.crt"}}],
            "users": [{"name": "admin", "user": {
                "client-certificate": f"{self.keys}/admin.crt",
                "client-key": f"{self.keys}/admin.key"}}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "admin"}}]})

    def write(self, name, thing):
        """JSON, which is YAML too; or a text."""
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(thing if isinstance(thing, str) else json.dumps(thing))

    def start_control_plane(self):
        keys = self.keys
        # What is lost with the machine is lost on purpose.
        self.launch("etcd", f"--data-dir={self.folder}/run/etcd", "--unsafe-no-fsync")
        self.launch(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
            "--bind-address=0.0.0.0", f"--advertise-address={ADDRESS}",
            f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=Node,RBAC",
            "--endpoint-reconciler-type=lease", "--allow-privileged=true",
            f"--tls-cert-file={keys}/apiserver.crt", f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys}/accounts.pub",
            f"--service-account-signing-key-file={keys}/accounts.key",
            f"--requestheader-client-ca-file={keys}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys}/front-proxy-client.crt",
            f"--proxy-client-key-file={keys}/front-proxy-client.key",
            f"--kubelet-client-certificate={keys}/admin.crt",
            f"--kubelet-client-key={keys}/admin.key",
            "--kubelet-preferred-address-types=InternalIP")
        self.wait_for("the API server is ready", lambda: self.kubectl(
            "get", "--raw", "/readyz", check=False) == "ok")
        config = f"--kubeconfig={self.kubeconfig}"
        self.launch(
            "kube-controller-manager", config, "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--service-account-private-key-file={keys}/accounts.key",
            f"--root-ca-file={keys}/ca.crt", "--use-service-account-credentials=true")
        self.launch("kube-scheduler", config, "--leader-elect=false", "--bind-address=127.0.0.1")
        self.write("kube-proxy.yaml", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "nftables", "clientConnection": {"kubeconfig": self.kubeconfig},
            "clusterCIDR": "192.0.2.128/25", "bindAddress": ADDRESS, "hostnameOverride": "node1",
            "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
            # These are the machine's, and stay as they are.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"}})
        self.launch("kube-proxy", f"--config={self.folder}/kube-proxy.yaml")

    def start_containers(self):
        network = json.loads(json.dumps(NETWORK))
        network["plugins"][0]["ipam"]["dataDir"] = f"{self.folder}/run/ipam"
        self.write("cni/10-net.conflist", network)
        self.write("containerd.toml", CONTAINERD.format(folder=self.folder, cni=CNI))
        # It starts its shim by name.
        self.launch("containerd", "-c", f"{self.folder}/containerd.toml",
                    PATH=f"{self.assets}:{os.environ['PATH']}")
        self.wait_for("containerd's socket", lambda: os.path.exists(self.socket))
        busybox = shutil.which("busybox")
        files = {"/bin/busybox": busybox}
        # A sandbox is ended by SIGKILL, so what keeps it needs to do nothing.
        self.import_image("localhost/pause:1", ["/bin/busybox", "sleep", "2147483647"], files)
        for applet in run(busybox, "--list").split():
            files.setdefault(f"/bin/{applet}", image.Link("busybox"))
        self.import_image("localhost/busybox:1", ["/bin/sh"], files)
        self.write("kubelet.yaml", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": ADDRESS, "readOnlyPort": 0, "healthzPort": 0,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": f"{self.keys}/ca.crt"}},
            "authorization": {"mode": "Webhook"},
            # Any machine will do, and nothing of it is managed.
            "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [], "failSwapOn": False, "evictionHard": {},
            # The kubelet deletes no image when the machine's disk is nearly full: nothing brings it again.
            "imageGCHighThresholdPercent": 100,
            "oomScoreAdj": 0,
            "volumePluginDir": f"{self.folder}/run/volumeplugins",
            "podLogsDir": f"{self.folder}/run/podlogs"})
        self.start_kubelet()

    def start_kubelet(self):
        self.launch("kubelet", f"--config={self.folder}/kubelet.yaml",
                    f"--kubeconfig={self.kubeconfig}", f"--root-dir={self.kubelet}",
                    "--hostname-override=node1", f"--node-ip={ADDRESS}")

    # --- End.

    def stop(self):
        """Deletes workloads and Pods, then ends whatever runs in the mount namespace, which is the node's own."""
        if self.namespace is None:
            return
        if "kubelet" in self.processes:
            try:
                # Workloads first, or they make new Pods meanwhile.
                self.kubectl("delete", "daemonsets,statefulsets,deployments", "--all-namespaces",
                             "--all", check=False, timeout=60)
                self.kubectl("delete", "pods", "--all-namespaces", "--all", "--grace-period=1",
                             check=False, timeout=60)
            except subprocess.TimeoutExpired:
                pass
        own = os.readlink(f"/proc/{self.namespace.pid}/ns/mnt")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if os.readlink(f"/proc/{entry}/ns/mnt") == own and int(entry) != self.namespace.pid:
                        os.kill(int(entry), number)
                except OSError:
                    pass  # it has ended
            time.sleep(1)
        for process in self.processes.values():
            process.wait()
        self.namespace.stdin.close()
        self.namespace.stdout.close()
        self.namespace.wait()
        self.namespace = None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if lacks():
        sys.exit(f"node: {lacks()}")
    node = Node(os.path.abspath(sys.argv[1]))
    try:
        node.start()
        print(" ".join(node.enter(f"{node.assets}/kubectl", f"--kubeconfig={node.kubeconfig}")))
        input("runs until Enter: ")
    finally:
        node.stop()


if __name__ == "__main__":
    main()
