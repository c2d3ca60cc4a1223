#!/usr/bin/env python3
"""Makes charts for Helm of the folders in deploy/kubernetes: what `kubectl kustomize` prints, with the values that
operators change most as templates. What a chart has no value for is an overlay's.

  deploy/chart/chart.py --output build/chart
  helm install cbt-driver build/chart/cbt-driver --namespace csi-driver

KUBECTL names the program; default: kubectl.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KUBERNETES = os.path.join(PROJECT, "deploy", "kubernetes")
REGISTRY = "registry.example.com/libcbt"
IMAGE = re.compile(re.escape(REGISTRY) + r"/([a-z0-9-]+):([0-9.]+)")


@dataclasses.dataclass(frozen=True)
class Chart:
    description: str
    folder: str  # of deploy/kubernetes
    namespace: str  # in the folder
    definitions: tuple = ()  # folders of CustomResourceDefinitions that the folder lacks


CHARTS = {
    "cbt-driver": Chart("CSI driver of volumes that know their changes, with its sidecars", "driver",
                        "csi-driver", ("crd",)),
    "cbt-session-manager": Chart("Session manager of the first revision of snapshot metadata", "sessions",
                                 "cbt-session-manager"),
    "cbt-aggregated-api": Chart("Aggregated API of the second revision of snapshot metadata", "aggregated",
                                "cbt-aggregated-api"),
}

HELPERS = """{{- define "cbt.image" -}}
{{- $image := index . 0 }}{{ $values := (index . 1).Values.image -}}
{{ $values.registry }}/{{ $image }}:{{ $values.tag }}{{ with index $values.digests $image }}@{{ . }}{{ end }}
{{- end -}}
"""


def read(*path):
    with open(os.path.join(PROJECT, *path), encoding="utf-8") as file:
        return file.read()


def kustomize(folder):
    said = subprocess.run([os.environ.get("KUBECTL", "kubectl"), "kustomize", folder], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [one for one in yaml.safe_load_all(said) if one]


def with_certificates(folder):
    """The objects of the folder with cert-manager's."""
    with tempfile.TemporaryDirectory() as overlay:
        there = os.path.relpath(os.path.join(KUBERNETES, folder), os.path.realpath(overlay))
        with open(os.path.join(overlay, "kustomization.yaml"), "w", encoding="utf-8") as file:
            json.dump({"resources": [there, f"{there}/cert-manager"],
                       "transformers": [f"{there}/cert-manager/names"]}, file)
        return kustomize(overlay)


def identity(one):
    return one["apiVersion"], one["kind"], one["metadata"]["name"]


class Template:
    """Objects as text in which some values are Helm's, and those values."""

    def __init__(self, chart):
        self.chart = chart
        self.expressions = []
        self.values = {"image": {"registry": REGISTRY, "tag": "", "digests": {}}, "replicas": {},
                       "resources": {}}

    def text(self, one):
        dumped = yaml.safe_dump(self.of(one), sort_keys=True, width=1 << 20)
        dumped = dumped.replace("{{", '{{ "{{" }}')
        return re.sub(r"HELM(\d+)END", lambda found: self.expressions[int(found[1])], dumped)

    def helm(self, expression):
        self.expressions.append(f"{{{{ {expression} }}}}")
        return f"HELM{len(self.expressions) - 1}END"

    def of(self, value, key="", parent=None):
        if isinstance(value, list):
            return [self.of(one, key, value) for one in value]
        if isinstance(value, str):
            return self.of_text(value, key)
        if not isinstance(value, dict):
            return value
        made = {name: self.of(one, name, value) for name, one in value.items()}
        if value.get("kind") == "Namespace":
            made["metadata"]["name"] = self.helm(".Release.Namespace")
        if "image" in value and "resources" in value:
            self.values["resources"][value["name"]] = value["resources"]
            made["resources"] = self.helm(f'toJson (index .Values.resources "{value["name"]}")')
        if key == "spec" and "replicas" in value:
            name = parent["metadata"]["name"]
            self.values["replicas"][name] = value["replicas"]
            made["replicas"] = self.helm(f'index .Values.replicas "{name}"')
        return made

    def of_text(self, text, key):
        if key == "namespace" and text in (self.chart.namespace, "monitoring"):
            return self.helm(".Release.Namespace")
        image = IMAGE.fullmatch(text)
        if image:
            self.values["image"]["tag"] = image[2]
            self.values["image"]["digests"][image[1]] = ""
            return self.helm(f'include "cbt.image" (list "{image[1]}" $)')
        # Hosts of Services, and names of objects for cert-manager.
        name = re.escape(self.chart.namespace)
        return re.sub(rf"(?<=\.){name}(?=$|\.svc)|^{name}(?=/)",
                      lambda _: self.helm(".Release.Namespace"), text)


def templates(chart, template):
    """{the file's name: its text}"""
    files = {"_helpers.tpl": HELPERS}

    def add(one, *lines):
        kind, name = one["kind"].lower(), one["metadata"]["name"].replace(".", "-")
        files[f"{kind}-{name}.yaml"] = "\n".join(lines) + "\n"

    plain = {identity(one): one for one in kustomize(os.path.join(KUBERNETES, chart.folder))}
    certified = {identity(one): one for one in with_certificates(chart.folder)}
    for key, one in certified.items():
        if one["kind"] == "CustomResourceDefinition":
            continue
        if one["kind"] == "Namespace":
            add(one, "{{- if .Values.namespace.create }}", template.text(one) + "{{- end }}")
        elif key not in plain:
            add(one, "{{- if .Values.certManager }}", template.text(one) + "{{- end }}")
        elif one != plain[key]:
            add(one, "{{- if .Values.certManager }}", template.text(one) + "{{- else }}",
                template.text(plain[key]) + "{{- end }}")
        else:
            add(one, template.text(one))
    for one in kustomize(os.path.join(KUBERNETES, "monitoring")):
        add(one, "{{- if .Values.monitoring }}", template.text(one) + "{{- end }}")
    return files


def values_text(values):
    def dump(name, comment):
        return f"# {comment}\n" + yaml.safe_dump({name: values[name]}, default_flow_style=False)
    return "\n".join((
        dump("image", "Where the images are. A digest pins one of them."),
        dump("replicas", "Of each workload."),
        dump("resources", "Of each container; what you give is merged with these."),
        "# Makes the Namespace with its level of Pod Security. Helm wants a namespace that exists: for\n"
        "# `helm template` only. Otherwise label it as docs/guides/install.md says.\n"
        "namespace:\n  create: false\n",
        "# Certificates by cert-manager, with an authority of their own; otherwise their Secrets are yours.\n"
        "certManager: false\n",
        "# Objects of the Prometheus operator; of one chart in a cluster.\nmonitoring: false\n"))


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make(name, chart, folder, version):
    template = Template(chart)
    for file, text in templates(chart, template).items():
        write(folder, f"templates/{file}", text)
    for part in (chart.folder, *chart.definitions):
        for one in kustomize(os.path.join(KUBERNETES, part)):
            if one["kind"] == "CustomResourceDefinition":
                write(folder, f"crds/{one['metadata']['name']}.yaml", yaml.safe_dump(one, width=1 << 20))
    write(folder, "values.yaml", values_text(template.values))
    write(folder, "Chart.yaml", yaml.safe_dump({
        "apiVersion": "v2", "name": name, "description": chart.description, "type": "application",
        "version": version, "appVersion": version}, sort_keys=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the folder of the charts' folders, which are replaced")
    arguments = parser.parse_args()
    version = re.search(r'kVersion\[\] = "([^"]*)"', read("include", "cbt", "version.h"))[1]
    for name, chart in CHARTS.items():
        folder = os.path.join(arguments.output, name)
        shutil.rmtree(folder, ignore_errors=True)
        make(name, chart, folder, version)
        print(folder)


if __name__ == "__main__":
    sys.exit(main())
