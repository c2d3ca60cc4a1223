"""Kustomizations of the tree, built as an operator builds them. Not a test."""

import os
import shutil
import subprocess

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
DEPLOY = os.path.join(PROJECT, "deploy", "kubernetes")
OVERLAYS = os.path.join(HERE, "overlays")
BUILTIN = "builtin"  # the apiVersion of transformers


def kubectl():
    """The program, or None."""
    own = os.path.join(os.environ.get("KUBEBUILDER_ASSETS", ""), "kubectl")
    return own if os.path.exists(own) else shutil.which("kubectl")


def folders(root):
    """Every folder below `root` with a kustomization, and its kind."""
    found = {}
    for folder, _, files in sorted(os.walk(root)):
        if "kustomization.yaml" in files:
            with open(os.path.join(folder, "kustomization.yaml"), encoding="utf-8") as file:
                found[folder] = yaml.safe_load(file)
    return found


def build(folder):
    """The objects of a kustomization, in the order in which they are applied."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"{os.path.relpath(folder, PROJECT)}: {done.stderr.strip()}")
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def applied():
    """Folders that an operator applies by themselves: no components, which change other objects, and no
    transformers."""
    chosen = []
    for folder, content in folders(DEPLOY).items():
        if content["kind"] == "Component":
            continue
        if not any(one["apiVersion"] == BUILTIN for one in build(folder)):
            chosen.append(folder)
    # An overlay's own folders are its parts.
    return chosen + sorted(entry.path for entry in os.scandir(OVERLAYS) if entry.is_dir())
