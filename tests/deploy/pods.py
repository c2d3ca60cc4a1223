"""What manifests say of Pods: containers, ports, labels. Not a test."""

import re

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod")
# Where a program listens if no flag says otherwise, by the program's name.
SIDECAR_PORTS = {"--port": 50051, "--http-endpoint": 8080}


class Workload:
    def __init__(self, thing):
        self.thing = thing
        self.kind = thing["kind"]
        self.name = thing["metadata"]["name"]
        self.namespace = thing["metadata"].get("namespace", "default")
        spec = thing["spec"]
        if self.kind == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        self.template = thing if self.kind == "Pod" else spec["template"]
        self.labels = self.template["metadata"].get("labels", {})
        self.pod = self.template["spec"]
        self.containers = self.pod["containers"]
        self.replicas = spec.get("replicas", 1)

    def __str__(self):
        return f"{self.kind} {self.namespace}/{self.name}"

    def ports(self):
        """{name or number: number} of the declared ports."""
        found = {}
        for container in self.containers:
            for port in container.get("ports", []):
                found[port["containerPort"]] = port["containerPort"]
                if "name" in port:
                    found[port["name"]] = port["containerPort"]
        return found

    def volumes(self, kind):
        return [one[kind] for one in self.pod.get("volumes", []) if kind in one]


def environment(container):
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


def arguments(container):
    """The arguments, with the variables that have a value in place."""
    values = environment(container)
    return [re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1]) or found[0], one)
            for one in container.get("args", [])]


def is_sidecar(container):
    return "/csi-snapshot-metadata:" in container["image"] and "command" not in container


def listens(container):
    """The ports that the container's flags open."""
    found = dict(SIDECAR_PORTS) if is_sidecar(container) else {}
    for argument in arguments(container):
        name, _, value = argument.partition("=")
        port = re.fullmatch(r"(?:0\.0\.0\.0|\[::\])?:(\d+)", value)
        if port:
            found[name] = int(port[1])
        elif name == "--port" and value.isdigit():
            found[name] = int(value)
    return set(found.values())


def workloads(objects):
    return [Workload(one) for one in objects if one["kind"] in WORKLOADS]


def selects(selector, labels):
    """Whether a selector of labels, or the plain map of a Service, matches."""
    if not set(selector) - {"matchLabels", "matchExpressions"}:
        if selector.get("matchExpressions"):
            raise ValueError("matchExpressions are not read here")
        selector = selector.get("matchLabels", {})
    return all(labels.get(name) == value for name, value in selector.items())
