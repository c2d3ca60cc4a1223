"""A real control plane for the sidecar's tests in Python, over the program of tests/kube/support. Not a test."""

import base64
import json
import os
import subprocess
import time

import parts


def available():
    return bool(os.environ.get("KUBEBUILDER_ASSETS")) and snapshot_crds() is not None


def snapshot_crds():
    """The folder of the CRDs of snapshot.storage.k8s.io, or None; see control_plane.h."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    for folder in (os.environ.get("CBT_SNAPSHOT_CRDS"), os.path.join(assets, "crds"),
                   os.path.join(assets, "..", "crds")):
        if folder and os.path.isdir(folder):
            return folder
    return None


def raw_signature(der):
    """Two numbers of 32 bytes each, of the two INTEGERs that OpenSSL writes for a short curve."""
    numbers = b""
    at = 2
    for _ in range(2):
        length = der[at + 1]
        numbers += der[at + 2:at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return numbers


class ControlPlane:
    def __init__(self, program, *flags):
        self.process = subprocess.Popen([program, "--crds", snapshot_crds(), *flags],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = {}
        for line in self.process.stdout:
            if line == "ready\n":
                break
            name, _, value = line.rstrip("\n").partition("=")
            self.facts[name] = value
        else:
            raise RuntimeError("the control plane did not start")
        self.admin_token = self.facts["token"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def command(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(f"{name}: {answer}")

    def kubectl(self, *arguments, text="", check=True):
        """Again while the server takes its time after a start."""
        for attempt in range(30):
            result = subprocess.run(
                [os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"), "--kubeconfig",
                 self.facts["kubeconfig"], *arguments], input=text, capture_output=True, text=True,
                check=False)
            if result.returncode == 0 or "reinitializing" not in result.stderr:
                break
            time.sleep(1)
        if check and result.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {result.stderr}")
        return result

    def apply(self, path):
        self.kubectl("apply", "-f", path)

    def apply_text(self, text):
        self.kubectl("apply", "-f", "-", text=text)

    def install(self, path):
        self.apply(path)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", path)

    def create(self, one):
        return json.loads(self.kubectl("create", "-o", "json", "-f", "-", text=json.dumps(one)).stdout)

    def replace(self, one):
        self.kubectl("replace", "-f", "-", text=json.dumps(one))

    def get(self, kind, name):
        result = self.kubectl("get", kind, name, "-o", "json", check=False)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def delete(self, kind, namespace, name):
        self.kubectl("delete", kind, name, "--wait=false", *(["-n", namespace] if namespace else []))

    def account(self, namespace, name):
        self.create({"apiVersion": "v1", "kind": "ServiceAccount",
                     "metadata": {"namespace": namespace, "name": name}})

    def role(self, namespace, name, account_namespace, account, names=None,
             group="snapshot.storage.k8s.io", resource="volumesnapshots"):
        rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get"]}
        if names:
            rule["resourceNames"] = names
        meta = {"name": name, "namespace": namespace}
        self.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
                     "rules": [rule]})
        self.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                     "metadata": meta, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                                                   "kind": "Role", "name": name},
                     "subjects": [{"kind": "ServiceAccount", "name": account,
                                   "namespace": account_namespace}]})

    def cluster_role(self, name, account_namespace, account, rules):
        self.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                     "metadata": {"name": name}, "rules": rules})
        self.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                     "metadata": {"name": name},
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                 "name": name},
                     "subjects": [{"kind": "ServiceAccount", "name": account,
                                   "namespace": account_namespace}]})

    def token(self, namespace, account, audience=None):
        return self.kubectl("create", "token", account, "-n", namespace,
                            *([f"--audience={audience}"] if audience else [])).stdout.strip()

    def signed_token(self, namespace, account, audience, expires):
        """A token as the API server signs them, with any time of expiry: a real one with other times."""
        def part(value):
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

        real = self.token(namespace, account, audience).split(".")
        head, claims = (json.loads(base64.urlsafe_b64decode(text + "==")) for text in real[:2])
        claims.update(exp=int(expires), iat=int(expires) - 3600, nbf=int(expires) - 3600)
        claims["kubernetes.io"].pop("warnafter", None)
        signed = ".".join(part(json.dumps(value).encode()) for value in (head, claims))
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self.service_account_key()],
            input=signed.encode(), capture_output=True, check=True).stdout
        if head["alg"] == "ES256":
            signature = raw_signature(signature)
        return f"{signed}.{part(signature)}"

    def service_account_key(self):
        for root, _, files in os.walk(self.facts["folder"]):
            for name in files:
                if name == "service-accounts.key":
                    return os.path.join(root, name)
        raise RuntimeError("the control plane's key for tokens is not found")

    def kubeconfig_of(self, namespace, account, folder, name=None, ca=None):
        """A kubeconfig of a service account, with the token in a file; `ca`: another file than the
        control plane's own."""
        path = os.path.join(folder, (name or account))
        with open(path + ".token", "w", encoding="utf-8") as file:
            file.write(self.token(namespace, account))
        with open(path + ".kubeconfig", "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {
                           "server": self.facts["url"],
                           "certificate-authority": ca or self.facts["ca"]}}],
                       "users": [{"name": "u", "user": {"tokenFile": path + ".token"}}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
        return path + ".kubeconfig"

    def kubectl_kubeconfig(self, path, token, namespace="default"):
        """The same as people make one: by kubectl, with the token and the CA inside of it."""
        for arguments in (
                ("set-cluster", "c", "--server=" + self.facts["url"], "--embed-certs",
                 "--certificate-authority=" + self.facts["ca"]),
                ("set-credentials", "u", "--token=" + token),
                ("set-context", "c", "--cluster=c", "--user=u", "--namespace=" + namespace),
                ("use-context", "c")):
            subprocess.run([os.path.join(os.environ["KUBEBUILDER_ASSETS"], "kubectl"),
                            "--kubeconfig", path, "config", *arguments], check=True,
                           capture_output=True)
        return path

    def snapshot(self, name, namespace, volume, created, klass="class", driver=parts.DRIVER,
                 status=True, ready=True, content=True, content_status=True, content_ready=True,
                 uid=None, ref=None, handle=None):
        """A snapshot with its content, bound as the arguments say."""
        made = parts.snapshot(name, namespace, klass=klass, ready=ready)
        wanted = made.pop("status")
        del made["metadata"]["uid"]
        real = self.create(made)["metadata"]["uid"]
        if content:
            body = parts.content(name, namespace, handle=handle or f"handle-{namespace}-{name}",
                                 driver=driver, volume=volume, created=created, uid=uid or real,
                                 ready=content_ready)
            if ref:
                body["spec"]["volumeSnapshotRef"]["name"] = ref
            content_wanted = body.pop("status")
            del body["metadata"]["uid"]
            self.create(body)
            if content_status:
                self.patch_status("volumesnapshotcontent", None, f"content-{namespace}-{name}",
                                  content_wanted)
        if status:
            self.patch_status("volumesnapshot", namespace, name, wanted)

    def patch_status(self, kind, namespace, name, status):
        self.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p",
                     json.dumps({"status": status}), *(["-n", namespace] if namespace else []))
