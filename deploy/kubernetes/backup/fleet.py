#!/usr/bin/env python3
"""Prints the objects that back up claims: accounts and rights for each of their namespaces, and for each claim
its CronJobs, at a minute of its own.

kubectl get pvc -A -l backup=nightly -o json | fleet.py [FIRST_HOUR HOURS] | kubectl apply -f -

Reads claims from standard input, and what `kubectl kustomize` makes of this folder, or of the overlay that the
variable OVERLAY names. The Secret is a matter of each namespace. Claims whose size changed need the objects anew.
Needs PyYAML.
"""

import hashlib
import json
import os
import subprocess
import sys

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
# CronJobs have names of up to 52 characters.
MAX_NAME = 52 - len("backup-")


def minute(namespace, claim, first_hour, hours):
    """The same each time, and spread evenly over the hours."""
    digest = hashlib.sha256(f"{namespace}/{claim}".encode()).digest()
    at = (first_hour * 60 + int.from_bytes(digest[:8], "big") % (hours * 60)) % 1440
    return f"{at % 60} {at // 60} * * *"


def short(claim):
    """The claim's name, or the beginning of a longer one and a hash."""
    if len(claim) <= MAX_NAME:
        return claim
    return claim[:MAX_NAME - 9].rstrip("-.") + "-" + hashlib.sha256(claim.encode()).hexdigest()[:8]


def shared_objects(template, own, namespaces):
    """What the cluster has once, and each namespace in place of `own`."""
    made = [one for one in template if "namespace" not in one["metadata"] and one["kind"] != "ClusterRoleBinding"]
    for namespace in namespaces:
        for one in json.loads(json.dumps(template)):
            if "namespace" in one["metadata"]:
                one["metadata"]["namespace"] = namespace
            elif one["kind"] == "ClusterRoleBinding":
                one["metadata"]["name"] += "-" + namespace
            else:
                continue
            for subject in one.get("subjects", []):
                if subject.get("namespace") == own:
                    subject["namespace"] = namespace
            made.append(one)
    return made


def objects_of(claim, template, first_hour, hours):
    meta, spec = claim["metadata"], claim["spec"]
    namespace, name = meta["namespace"], short(meta["name"])
    text = json.dumps(template).replace("backup-data", f"backup-{name}").replace("store-data", f"store-{name}")
    made = json.loads(text.replace("persistentVolumeClaimName: data", f"persistentVolumeClaimName: {meta['name']}"))
    for one in made:
        one["metadata"]["namespace"] = namespace
        if one["kind"] != "CronJob":
            continue
        if one["metadata"]["name"].startswith("backup-"):
            one["spec"]["schedule"] = minute(namespace, meta["name"], first_hour, hours)
            continue
        pod = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for variable in pod["containers"][0]["env"]:
            if variable["name"] == "CLAIM":
                variable["value"] = name
        for volume in pod["volumes"]:
            if "ephemeral" in volume:
                own = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
                own["resources"]["requests"]["storage"] = claim["status"]["capacity"]["storage"]
                if "storageClassName" in spec:
                    own["storageClassName"] = spec["storageClassName"]
    return made


def main():
    first_hour, hours = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (0, 24)
    folder = os.environ.get("OVERLAY", HERE)
    built = subprocess.run(["kubectl", "kustomize", folder], stdout=subprocess.PIPE, check=True).stdout
    template = [one for one in yaml.safe_load_all(built) if one and one["kind"] != "Namespace"]
    nightly = [one for one in template if one["metadata"]["name"] in ("backup-data", "store-data")]
    claims = []
    for claim in json.load(sys.stdin)["items"]:
        if claim.get("status", {}).get("phase") == "Bound":
            claims.append(claim)
        else:
            print(f"fleet.py: {claim['metadata']['name']}: is not bound, and left out", file=sys.stderr)
    made = shared_objects([one for one in template if one not in nightly], nightly[0]["metadata"]["namespace"],
                          sorted({claim["metadata"]["namespace"] for claim in claims}))
    for claim in claims:
        made += objects_of(claim, nightly, first_hour, hours)
    json.dump({"apiVersion": "v1", "kind": "List", "items": made}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
