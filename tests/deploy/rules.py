"""What must hold for the objects of a built kustomization. Not a test.

Each function takes the objects in the order in which they are applied, and yields findings: texts.
"""

import os
import re
import sys

from pods import arguments, environment, is_sidecar, listens, selects, workloads

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(PROJECT, "deploy", "image"))

from images import IMAGES  # noqa: E402  pylint: disable=wrong-import-position

# Roles that every cluster has.
OWN_ROLES = {"system:auth-delegator"}
CLUSTER_KINDS = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
                 "CSIDriver", "StorageClass", "VolumeSnapshotClass", "VolumeGroupSnapshotClass",
                 "ValidatingWebhookConfiguration",
                 "APIService", "FlowSchema", "PriorityClass", "BucketClass", "BucketAccessClass",
                 "ClusterIssuer", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
IMAGE = re.compile(r"(?P<name>[a-z0-9.-]+\.[a-z]+(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)+)"
                   r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?P<digest>@sha256:[0-9a-f]{64})?")
VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:-[\w.]+)?")
# Its requests wait without it, so nothing ends it for memory.
UNLIMITED = {"volume-host"}
# Made by a folder of their own.
OTHER_ACCOUNTS = {("cbt-cosi-node", "cosi-node")}
# Their Secrets have the names of accesses, which come and go; a namespace has nothing else.
OWN_SECRETS = {"cosi-sidecar", "cosi-node-credentials"}


def of_kind(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def place(one):
    meta = one["metadata"]
    return f"{one['kind']} {meta.get('namespace', '')}/{meta['name']}".replace(" /", " ")


def namespace_of(one):
    return one["metadata"].get("namespace", "default")


def accounts_are_made(objects):
    made = {(namespace_of(one), one["metadata"]["name"]) for one in of_kind(objects, "ServiceAccount")}
    for one in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        for subject in one.get("subjects", []):
            account = (subject.get("namespace"), subject["name"])
            if subject["kind"] == "ServiceAccount" and account not in made | OTHER_ACCOUNTS:
                yield f"{place(one)}: the account {account[0]}/{account[1]} is not made here"
    for one in workloads(objects):
        account = one.pod.get("serviceAccountName")
        if account is None and one.pod.get("automountServiceAccountToken") is not False:
            yield f"{one}: has the token of the default account"
        if account is not None and (one.namespace, account) not in made:
            yield f"{one}: the account {one.namespace}/{account} is not made here"


def roles_are_made(objects):
    made = {(one["kind"], namespace_of(one) if one["kind"] == "Role" else None, one["metadata"]["name"])
            for one in of_kind(objects, "Role", "ClusterRole")}
    for one in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        role = one["roleRef"]
        where = namespace_of(one) if role["kind"] == "Role" else None
        if (role["kind"], where, role["name"]) not in made and role["name"] not in OWN_ROLES:
            yield f"{place(one)}: the {role['kind']} {role['name']} is not made here"


def rights_are_narrow(objects):
    for one in of_kind(objects, "Role", "ClusterRole"):
        for rule in one["rules"]:
            for field in ("apiGroups", "resources", "verbs"):
                if "*" in rule.get(field, []):
                    yield f"{place(one)}: {field} are *"
            secret = {"secrets", "serviceaccounts/token"} & set(rule.get("resources", []))
            if one["kind"] == "Role" and one["metadata"]["name"] in OWN_SECRETS:
                continue
            if secret and not rule.get("resourceNames"):
                yield f"{place(one)}: every one of {sorted(secret)}"


def namespaces_come_first(objects):
    made, used = set(), set()
    # What runs at times only is in the namespace of an application, which an overlay must not own.
    has_pods = any(pod.kind not in ("CronJob", "Job") for pod in workloads(objects))
    for one in objects:
        if one["kind"] == "Namespace":
            made.add(one["metadata"]["name"])
        elif "namespace" in one["metadata"] and one["kind"] not in CLUSTER_KINDS:
            used.add(namespace_of(one))
            if has_pods and namespace_of(one) not in made:
                yield f"{place(one)}: its namespace is not made before it"
        elif one["kind"] not in CLUSTER_KINDS:
            yield f"{place(one)}: has no namespace"
    if not has_pods and len(used) > 1:
        yield f"without Pods, and in several namespaces: {sorted(used)}"


def names_are_single(objects):
    seen = set()
    for one in objects:
        key = (one["apiVersion"].partition("/")[0], place(one))
        if key in seen:
            yield f"{place(one)}: is there twice"
        seen.add(key)


def services_are_single(objects):
    pods, seen = workloads(objects), {}
    for one in of_kind(objects, "Service"):
        spec = one["spec"]
        for port in spec["ports"]:
            key = (namespace_of(one), tuple(sorted(spec["selector"].items())), str(port["targetPort"]))
            if key in seen:
                yield f"{place(one)}: leads where {seen[key]} does"
            seen[key] = place(one)
        chosen = [pod for pod in pods if pod.namespace == namespace_of(one)
                  and selects(spec["selector"], pod.labels)]
        if pods and len(chosen) != 1:
            yield f"{place(one)}: selects {', '.join(map(str, chosen)) or 'nothing'}"
        for pod in chosen:
            for port in spec["ports"]:
                if port["targetPort"] not in pod.ports():
                    yield f"{place(one)}: {pod} has no port {port['targetPort']}"


def policies_of(objects, pod):
    return [one for one in of_kind(objects, "NetworkPolicy") if namespace_of(one) == pod.namespace
            and selects(one["spec"]["podSelector"], pod.labels)]


def ports_are_reachable(objects):
    for pod in workloads(objects):
        policies, ports = policies_of(objects, pod), pod.ports()
        if not policies:
            yield f"{pod}: no NetworkPolicy is for it"
        allowed = {ports.get(port.get("port")) for policy in policies
                   for rule in policy["spec"].get("ingress", []) for port in rule.get("ports", [])}
        served = {ports.get(port["targetPort"]) for one in of_kind(objects, "Service")
                  if namespace_of(one) == pod.namespace and selects(one["spec"]["selector"], pod.labels)
                  for port in one["spec"]["ports"]}
        for number in sorted(set(ports.values())):
            if number not in served:
                yield f"{pod}: no Service has port {number}"
            if number not in allowed:
                yield f"{pod}: no NetworkPolicy lets port {number} in"
        for policy in policies:
            for rule in policy["spec"].get("ingress", []):
                for port in rule.get("ports", []):
                    if port["port"] not in ports:
                        yield f"{place(policy)}: {pod} has no port {port['port']}"
        for container in pod.containers:
            declared = {port["containerPort"] for port in container.get("ports", [])}
            for number in sorted(listens(container) - declared):
                yield f"{pod}: {container['name']} listens at {number}, which is no port of it"


def pods_reach_the_cluster(objects):
    """The API server and names, where a policy speaks of the Pod's own connections."""
    for pod in workloads(objects):
        speaking = [one["spec"] for one in policies_of(objects, pod)
                    if "Egress" in one["spec"]["policyTypes"]]
        if not speaking or pod.pod.get("automountServiceAccountToken") is False:
            continue
        allowed = {(port["protocol"], port["port"]) for spec in speaking
                   for rule in spec.get("egress", []) for port in rule.get("ports", [])}
        for port in (("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443)):
            if port not in allowed:
                yield f"{pod}: can't reach {port[0]} {port[1]}"


def probes_are_ports(objects):
    for pod in workloads(objects):
        for container in pod.containers:
            ports = {value for port in container.get("ports", []) for value in port.values()}
            probes = {name: container[name] for name in
                      ("readinessProbe", "livenessProbe", "startupProbe") if name in container}
            for name, probe in probes.items():
                if "httpGet" in probe and probe["httpGet"]["port"] not in ports:
                    yield f"{pod}: {container['name']}: {name} of no port"
            if ports and "livenessProbe" not in probes:
                yield f"{pod}: {container['name']} has no livenessProbe"


def images_can_exist(objects):
    with open(os.path.join(PROJECT, "include", "cbt", "version.h"), encoding="utf-8") as file:
        version = re.search(r'kVersion\[\] = "([^"]*)"', file.read())[1]
    own = {image.title for image in IMAGES.values()}
    for pod in workloads(objects):
        for container in pod.pod.get("initContainers", []) + pod.containers:
            reference = container["image"]
            found = IMAGE.fullmatch(reference)
            if not found or not (found["tag"] or found["digest"]):
                yield f"{pod}: {reference}: no reference with a registry and a version"
                continue
            if found["tag"] and not VERSION.fullmatch(found["tag"]):
                yield f"{pod}: {reference}: the tag is no version"
            folder, name = found["name"].rsplit("/", 2)[-2:]
            if folder == "libcbt":
                if name not in own:
                    yield f"{pod}: {reference}: `make image` builds no {name}"
                if found["tag"] != version:
                    yield f"{pod}: {reference}: the version is {version}"
            if container.get("imagePullPolicy") == "Always":
                yield f"{pod}: {reference}: Always"


def levels_hold(objects):
    """Pod Security Standards, as the namespace's label has them."""
    levels = {one["metadata"]["name"]: one["metadata"].get("labels", {}).get(
        "pod-security.kubernetes.io/enforce") for one in of_kind(objects, "Namespace")}
    for name, level in levels.items():
        if level not in ("restricted", "baseline", "privileged"):
            yield f"Namespace {name}: no Pod Security level"
    for pod in workloads(objects):
        if levels.get(pod.namespace) == "restricted":
            for fault in restricted_faults(pod):
                yield f"{pod}: is not restricted: {fault}"


def restricted_faults(pod):
    own = pod.pod.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.pod.get(field):
            yield field
    for volume in pod.pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
                         "persistentVolumeClaim", "projected", "secret"}:
            yield f"volume {volume['name']}"
    for container in pod.containers:
        context = container.get("securityContext", {})
        name = container["name"]
        if not context.get("runAsNonRoot", own.get("runAsNonRoot")):
            yield f"{name} may be root"
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name} may gain rights"
        if "ALL" not in context.get("capabilities", {}).get("drop", []):
            yield f"{name} keeps capabilities"
        profile = context.get("seccompProfile", own.get("seccompProfile", {}))
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name} has no seccomp profile"


def containers_are_confined(objects):
    """Whatever the level: what each container must say."""
    for pod in workloads(objects):
        for container in pod.containers:
            name = container["name"]
            context = container.get("securityContext", {})
            resources = container.get("resources", {})
            if {"cpu", "memory"} - set(resources.get("requests", {})):
                yield f"{pod}: {name}: no requests of processor and memory"
            if "memory" not in resources.get("limits", {}) and name not in UNLIMITED:
                yield f"{pod}: {name}: no limit of memory"
            if not context.get("privileged") and not context.get("readOnlyRootFilesystem"):
                yield f"{pod}: {name}: its root can be written"
            if is_sidecar(container) and context.get("runAsUser", 65532) == 0:
                yield f"{pod}: {name}: is root"


def drains_are_survived(objects):
    pods = workloads(objects)
    asked = {(one["clientConfig"]["service"]["namespace"], one["clientConfig"]["service"]["name"])
             for hook in of_kind(objects, "ValidatingWebhookConfiguration") for one in hook["webhooks"]}
    asked |= {(one["spec"]["service"]["namespace"], one["spec"]["service"]["name"])
              for one in of_kind(objects, "APIService")}
    services = {(namespace_of(one), one["metadata"]["name"]): one for one in of_kind(objects, "Service")}
    for key in asked:
        if key not in services:
            yield f"the API server asks the Service {key[0]}/{key[1]}, which is not made here"
            continue
        for pod in pods:
            if pod.namespace == key[0] and selects(services[key]["spec"]["selector"], pod.labels) \
                    and pod.replicas < 2:
                yield f"{pod}: the API server asks it, and there is one"
    for pod in pods:
        budgets = [one for one in of_kind(objects, "PodDisruptionBudget")
                   if namespace_of(one) == pod.namespace and selects(one["spec"]["selector"], pod.labels)]
        if pod.replicas > 1 and len(budgets) != 1:
            yield f"{pod}: has {len(budgets)} disruption budgets"
        if pod.replicas > 1 and not pod.pod.get("topologySpreadConstraints"):
            yield f"{pod}: all replicas may be on one node"


def drivers_are_apart(objects):
    """Directories of a node, which the kubelet knows a driver by."""
    seen = {}
    for pod in workloads(objects):
        paths = {one["name"]: one["hostPath"]["path"] for one in pod.pod.get("volumes", [])
                 if "hostPath" in one}
        for name in ("socket-dir", "state"):
            if name in paths:
                other = seen.setdefault((pod.kind, paths[name]), str(pod))
                if other != str(pod):
                    yield f"{pod}: {paths[name]} belongs to {other}"
        for container in pod.containers:
            names = set(environment(container).get("DRIVER_NAME", "").split())
            for argument in arguments(container):
                flag, _, value = argument.partition("=")
                folder = os.path.dirname(value)
                if flag == "--kubelet-registration-path" and folder not in paths.values():
                    yield f"{pod}: registers {value}, and has no such directory"
                if flag == "--driver-name" and names != {value}:
                    yield f"{pod}: --driver-name is {value}"
    drivers = {one["metadata"]["name"] for one in of_kind(objects, "CSIDriver")}
    for one in of_kind(objects, "StorageClass", "VolumeSnapshotClass",
                       "VolumeGroupSnapshotClass"):
        if one.get("provisioner", one.get("driver")) not in drivers:
            yield f"{place(one)}: of no driver here"


def publications_are_right(objects):
    """The host that is published is a Service of the Pod, and a name in its certificate."""
    services = {(namespace_of(one), one["metadata"]["name"]): one for one in of_kind(objects, "Service")}
    certificates = {one["spec"]["secretName"]: set(one["spec"].get("dnsNames", []))
                    for one in of_kind(objects, "Certificate")}
    for pod in workloads(objects):
        for container in pod.containers:
            for argument in arguments(container):
                flag, _, value = argument.partition("=")
                value = value.replace("$(NAMESPACE)", pod.namespace)
                if flag in ("--publish", "--publish-sessions"):
                    name, _, port = value.partition(":")
                    service, _, space = name.partition(".")
                    wanted = {name}
                elif flag == "--publish-service":
                    space, _, service = value.partition("/")
                    port, wanted = "443", {f"{service}.{space}.svc"}
                else:
                    continue
                found = services.get((space, service))
                if found is None or not selects(found["spec"]["selector"], pod.labels):
                    yield f"{pod}: publishes {value}, which is no Service of it"
                elif int(port) not in {one["port"] for one in found["spec"]["ports"]}:
                    yield f"{pod}: publishes port {port}, which the Service has not"
                secrets = {one["secretName"] for one in pod.volumes("secret")} & set(certificates)
                if secrets and not any(wanted & certificates[one] for one in secrets):
                    yield f"{pod}: its certificate is not for {', '.join(sorted(wanted))}"


def resources_have_columns(objects):
    for one in of_kind(objects, "CustomResourceDefinition"):
        for version in one["spec"]["versions"]:
            names = [column["name"] for column in version.get("additionalPrinterColumns", [])]
            if len(names) < 2 or "Age" not in names:
                yield f"{place(one)} {version['name']}: kubectl shows only {', '.join(['Name'] + names)}"
            if not version["schema"]["openAPIV3Schema"].get("description"):
                yield f"{place(one)} {version['name']}: kubectl explains nothing"


RULES = (accounts_are_made, roles_are_made, rights_are_narrow, namespaces_come_first, names_are_single,
         services_are_single, ports_are_reachable, pods_reach_the_cluster, probes_are_ports,
         images_can_exist, levels_hold, containers_are_confined, drains_are_survived,
         drivers_are_apart, publications_are_right, resources_have_columns)


def check(objects):
    return [finding for rule in RULES for finding in rule(objects)]
