"""deploy/kubernetes, and overlays of it as operators write them: kubectl builds each folder, the rules hold,
and a real API server takes it as it is.

Usage: overlays_test.py CBT FOLDER_OF_MESSAGES CONTROL_PLANE
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

CBT, MESSAGES, CONTROL_PLANE = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, MESSAGES)
sys.path.append(HERE)
for room in ("support", "sidecar"):
    sys.path.append(os.path.join(HERE, "..", room))

# pylint: disable=wrong-import-position
import built  # noqa: E402
import cluster  # noqa: E402
import pods  # noqa: E402
import rules  # noqa: E402
import runner  # noqa: E402

PROGRAMS = os.path.dirname(os.path.abspath(CBT))


def guide_text(name):
    with open(os.path.join(built.PROJECT, "docs", "guides", name + ".md"), encoding="utf-8") as file:
        return file.read()


def short(folder):
    return os.path.relpath(folder, built.PROJECT)


@unittest.skipIf(built.kubectl() is None, "no kubectl")
class BuiltTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = {folder: built.build(folder) for folder in built.applied()}

    def test_the_rules_hold(self):
        self.assertGreater(len(self.built), 20)
        for folder, objects in self.built.items():
            with self.subTest(short(folder)):
                self.assertEqual(rules.check(objects), [])

    def test_what_is_left_can_be_found(self):
        """By a label, which only objects of the operator's own lack."""
        for folder, objects in self.built.items():
            if os.path.basename(folder) in ("metrics-tls", "own-driver"):
                continue
            for one in objects:
                self.assertEqual(one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of"), "libcbt",
                                 (short(folder), rules.place(one)))

    def test_folders_do_not_change_what_another_one_made(self):
        """All of them may be in a cluster. Those of overlays are one cluster's only together."""
        made = {}
        for folder, objects in self.built.items():
            if folder.startswith(built.OVERLAYS):
                continue
            for one in objects:
                same = made.setdefault(rules.place(one), (folder, one))
                self.assertEqual(one, same[1], (short(folder), short(same[0])))

    def test_the_guides_of_buckets_agree(self):
        """Their overlay is built, and the driver in it makes the buckets of their classes."""
        blocks = [block for guide in ("cosi", "cosi-driver") for block in re.findall(
            "^```yaml\n(.*?)^```$", guide_text(guide), re.MULTILINE | re.DOTALL)]
        objects = [one for block in blocks for one in yaml.safe_load_all(block)]
        (overlay,) = [one for one in objects if one["kind"] == "Kustomization"]
        with tempfile.TemporaryDirectory() as folder:
            there = os.path.relpath(built.DEPLOY, os.path.realpath(folder))
            for field in ("resources", "components"):
                overlay[field] = [one.replace("../../deploy/kubernetes", there) for one in overlay[field]]
            with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
                json.dump(overlay, file)
            made = built.build(folder)
        self.assertEqual(rules.check(made), [])
        (driver,) = [pod for pod in pods.workloads(made)]
        values = [{one["name"]: one["value"] for one in container.get("env", [])}
                  for container in driver.template["spec"]["containers"] if container["name"] == "driver"]
        classes = [one for one in objects if one["kind"] == "BucketClass"]
        self.assertTrue(classes)
        for one in classes:
            self.assertEqual(one["provisioner"], values[0]["DRIVER_NAME"])
            self.assertIn(one["protocol"]["s3"].get("region"), (None, "us-east-1"))

    def test_users_may_read_why_they_wait(self):
        (user,) = [one for one in self.built[os.path.join(built.DEPLOY, "cosi", "controller")]
                   if one["metadata"]["name"] == "cbt-cosi-user"]
        self.assertIn("events", [resource for rule in user["rules"] for resource in rule["resources"]])

    def test_components_are_in_an_overlay(self):
        """And each folder of the tree is in one, or in another folder, or is applied by itself."""
        used = set()
        for root in (built.DEPLOY, built.OVERLAYS):
            for folder, content in built.folders(root).items():
                for field in ("resources", "components", "transformers"):
                    used |= {os.path.normpath(os.path.join(folder, one))
                             for one in content.get(field, [])}
        for folder, content in built.folders(built.DEPLOY).items():
            if folder not in self.built or content["kind"] == "Component":
                self.assertIn(folder, used, short(folder))

    def test_files_are_used(self):
        """What lies in a folder belongs to its kustomization; what is for some drivers only says so."""
        for folder, content in built.folders(built.DEPLOY).items():
            named = set(content.get("resources", []) + content.get("configurations", []))
            named |= {patch["path"] for patch in content.get("patches", []) if "path" in patch}
            for path in glob.glob(os.path.join(folder, "*.yaml")):
                name = os.path.basename(path)
                if name not in named | {"kustomization.yaml"}:
                    with open(path, encoding="utf-8") as file:
                        self.assertIn("Not part of the kustomization", file.read(), path)

    def test_flags_are_those_of_the_programs(self):
        usages = {}

        def usage(*command):
            if command not in usages:
                usages[command] = subprocess.run([os.path.join(PROGRAMS, command[0]), *command[1:],
                                                  "--help"], capture_output=True, text=True,
                                                 check=True).stdout
            return usages[command]

        for objects in self.built.values():
            for pod in pods.workloads(objects):
                for container in pod.containers:
                    image = container["image"].rpartition("/")[2].partition(":")[0]
                    arguments = container.get("args", [])
                    if pods.is_sidecar(container):
                        said = usage("cbt-cluster", "sidecar")
                    elif image in ("csi-snapshot-metadata", "csi-driver", "cbtctl"):
                        program = os.path.basename(container.get("command", ["cbtctl"])[0])
                        words = 2 if arguments[0] == "backup" else 1
                        said, arguments = usage(program, *arguments[:words]), arguments[words:]
                    else:
                        continue
                    for argument in arguments:
                        if not argument.startswith("--"):
                            continue
                        self.assertRegex(said, f"(?m){argument.partition('=')[0]}[ ,\n]", str(pod))

    def test_the_sidecars_of_kubernetes_are_those_that_are_tested(self):
        """Their tags are the versions that `make envtest` builds."""
        modules = os.path.join(built.PROJECT, "tests", "envtest", "modules")
        wanted = {}
        for name, module in (("csi-provisioner", "provisioner"), ("csi-resizer", "resizer"),
                             ("csi-snapshotter", "snapshotter")):
            with open(os.path.join(modules, module, "go.mod"), encoding="utf-8") as file:
                (line,) = [line for line in file if f"/external-{module}/v" in line
                           and " v" in line and "/cmd/" not in line]
            wanted[name] = line.split(" v")[1].split()[0]
        for pod in pods.workloads(self.built[os.path.join(built.DEPLOY, "driver")]):
            for container in pod.containers:
                if container["name"] in wanted:
                    self.assertTrue(container["image"].endswith(":v" + wanted.pop(container["name"])),
                                    container["image"])
        self.assertEqual(wanted, {})

    def test_the_drivers_sidecar_has_the_sidecars_rights(self):
        def of(folder, name):
            (found,) = [one["rules"] for one in self.built[os.path.join(built.DEPLOY, folder)]
                        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == name]
            return found
        self.assertEqual(of("driver", "csi-cbt-snapshot-metadata"),
                         of("sidecar", "csi-snapshot-metadata"))


@unittest.skipIf(built.kubectl() is None, "no kubectl")
class FleetTest(unittest.TestCase):
    """deploy/kubernetes/backup/fleet.py."""

    def fleet(self, claims, *arguments, **environment):
        path = f"{os.path.dirname(built.kubectl())}:{os.environ['PATH']}"
        done = subprocess.run([sys.executable, "-B", os.path.join(built.DEPLOY, "backup", "fleet.py"), *arguments],
                              input=json.dumps({"items": claims}), capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": path, **environment})
        return json.loads(done.stdout)["items"], done.stderr

    @staticmethod
    def claim(namespace, name, size="5Gi", phase="Bound", **spec):
        return {"metadata": {"namespace": namespace, "name": name}, "spec": spec,
                "status": {"phase": phase, "capacity": {"storage": size}}}

    def test_the_base_is_the_fleet_of_its_claim(self):
        folder = os.path.join(built.DEPLOY, "backup")
        made, said = self.fleet([self.claim("volume-backup", "data", "1Gi")], "2", "1")
        self.assertEqual(said, "")
        wanted = built.build(folder)
        for one in made + wanted:
            if one["kind"] == "CronJob":
                one["spec"]["schedule"] = ""
            if one["kind"] == "ClusterRoleBinding":
                one["metadata"]["name"] = "volume-backup-cluster"
        self.assertEqual(sorted(made, key=rules.place), sorted(wanted, key=rules.place))

    def test_each_namespace_has_its_rights(self):
        """And no other one: rights to snapshots are of its own namespace."""
        claims = [self.claim(*each) for each in (("shop", "orders"), ("shop", "carts"), ("mail", "boxes"))]
        made, _ = self.fleet(claims, OVERLAY=os.path.join(built.OVERLAYS, "backup"))
        self.assertEqual(list(rules.names_are_single(made)), [])
        for namespace in ("shop", "mail"):
            own = [one for one in made if one["metadata"].get("namespace", namespace) == namespace
                   and one.get("subjects", [{"namespace": namespace}])[0]["namespace"] == namespace]
            self.assertEqual(rules.check(own), [])
            (binding,) = [one for one in own if one["kind"] == "ClusterRoleBinding"]
            self.assertEqual(binding["roleRef"]["name"], "snapshot-metadata-client-cluster")
            self.assertEqual(binding["metadata"]["name"], "volume-backup-cluster-" + namespace)

    def test_each_claim_has_its_own(self):
        long_name = "data-of-a-database-with-a-long-name-0123456789"
        claims = [self.claim("shop", "orders", "20Gi", storageClassName="fast"), self.claim("shop", long_name),
                  self.claim("shop", "waits", phase="Pending")]
        made, said = self.fleet(claims, OVERLAY=os.path.join(built.OVERLAYS, "backup"))
        self.assertIn("waits", said)
        made = [one for one in made if one["kind"] in ("ConfigMap", "CronJob")]
        self.assertEqual(len(made), 6)
        self.assertEqual(len({(one["kind"], one["metadata"]["name"]) for one in made}), 6)
        for one in made:
            self.assertLessEqual(len(one["metadata"]["name"]), 52)
            self.assertEqual(one["metadata"]["namespace"], "shop")
        (store,) = [one for one in made if one["metadata"]["name"] == "store-orders"]
        (pod,) = pods.workloads([store])
        own = pod.volumes("ephemeral")[0]["volumeClaimTemplate"]["spec"]
        self.assertEqual((own["resources"]["requests"]["storage"], own["storageClassName"], own["dataSource"]["name"]),
                         ("20Gi", "fast", "backup-orders"))
        self.assertEqual(pods.environment(pod.containers[0])["CLAIM"], "orders")
        (snapshot,) = [one for one in made if one["kind"] == "ConfigMap" and one["metadata"]["name"] != "backup-orders"]
        self.assertIn(f"persistentVolumeClaimName: {long_name}\n", snapshot["data"]["snapshot.yaml"])
        name = snapshot["metadata"]["name"]
        self.assertIn(f"  name: {name}\n", snapshot["data"]["snapshot.yaml"])
        # The Pod asks about the snapshot that was made.
        (other,) = [one for one in pods.workloads(made) if one.name == name.replace("backup-", "store-", 1)]
        self.assertEqual("backup-" + pods.environment(other.containers[0])["CLAIM"], name)

    def test_the_times_are_spread(self):
        made, _ = self.fleet([self.claim("n", f"claim-{i}") for i in range(1000)], "22", "4")
        minutes = {}
        for one in made:
            if one["kind"] == "CronJob" and one["metadata"]["name"].startswith("backup-"):
                minute, hour = one["spec"]["schedule"].split()[:2]
                self.assertIn(int(hour), (22, 23, 0, 1))
                minutes[hour, minute] = minutes.get((hour, minute), 0) + 1
        # 240 minutes, some four claims in each.
        self.assertGreater(len(minutes), 210)
        self.assertLess(max(minutes.values()), 16)


class AppliedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not cluster.available():
            raise unittest.SkipTest("KUBEBUILDER_ASSETS is not set: nothing is tried on a real "
                                    "kube-apiserver")
        cls.plane = cluster.ControlPlane(CONTROL_PLANE, "--allow-privileged=true")
        cls.addClassCleanup(cls.plane.stop)
        foreign = os.environ.get("CBT_OPERATOR_CRDS", os.path.join(HERE, "crds"))
        for path in sorted(glob.glob(os.path.join(foreign, "*.yaml"))):
            # Some are too long for what `apply` keeps of them.
            cls.plane.kubectl("apply", "--server-side", "-f", path)
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cbt-overlays-"))

    def apply(self, thing):
        self.plane.apply_text(json.dumps(thing))

    def take(self, folder):
        """As a person does; once more for what needs definitions that were made just now."""
        for _ in range(2):
            result = self.plane.kubectl("apply", "--validate=strict", "-k", folder, check=False)
            if result.returncode == 0 or "ensure CRDs are installed first" not in result.stderr:
                break
            self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        self.assertEqual((result.returncode, result.stderr), (0, ""), short(folder))
        again = self.plane.kubectl("apply", "--validate=strict", "-k", folder)
        self.assertEqual(again.stderr, "", short(folder))
        # kubectl sends the selectors of budgets every time.
        changed = [line for line in again.stdout.splitlines() if not line.endswith(" unchanged")
                   and not line.startswith("poddisruptionbudget.policy/")]
        self.assertEqual(changed, [], short(folder))

    def test_an_api_server_takes_them(self):
        for name in ("csi-driver", "backup", "monitoring", "volume-backup", "shop"):
            # Where folders without Pods, or with those of an application's backups, are added to.
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for folder in built.applied():
            with self.subTest(short(folder)):
                self.take(folder)
            # The next driver's may have its name.
            self.plane.kubectl("delete", "storageclasses", "--all")

    def test_pods_are_admitted(self):
        """Pod Security says so of the Pods themselves; there is no controller to make them."""
        for name in ("driver", "example", "provider", "sessions", "aggregated", "backup",
                     "cosi/controller", "cosi/driver", "cosi/node"):
            objects = built.build(os.path.join(built.DEPLOY, name))
            if name == "backup":
                # The application's own; a block device in a Pod is root's.
                objects.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {
                    "name": "volume-backup", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
            for one in objects:
                if one["kind"] in ("Namespace", "ServiceAccount"):
                    self.apply(one)
                if one["kind"] == "Namespace":
                    self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
                        "name": "default", "namespace": one["metadata"]["name"]}})
            for pod in pods.workloads(objects):
                template = pod.template
                made = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                        "metadata": {"generateName": "x-", "namespace": pod.namespace,
                                     "labels": template["metadata"]["labels"]}}
                result = self.plane.kubectl("create", "--dry-run=server", "-f", "-",
                                            text=json.dumps(made), check=False)
                self.assertEqual((result.returncode, result.stderr), (0, ""), str(pod))

    def test_a_renamed_account_has_the_rights(self):
        self.take(os.path.join(built.OVERLAYS, "own-driver"))
        for account, verb, resource, yes in (
                ("acme-storage:acme-controller", "create", "tokenreviews.authentication.k8s.io", True),
                ("acme-storage:acme-controller", "list", "volumesnapshots.snapshot.storage.k8s.io", True),
                ("acme-storage:csi-snapshot-metadata", "create",
                 "tokenreviews.authentication.k8s.io", False),
                ("csi-driver:csi-snapshot-metadata", "create",
                 "tokenreviews.authentication.k8s.io", False),
                ("nightly:nightly-jobs", "get", "volumesnapshots.snapshot.storage.k8s.io", True),
                ("nightly:backup", "get", "volumesnapshots.snapshot.storage.k8s.io", False)):
            said = self.plane.kubectl("auth", "can-i", verb, resource, "-n", account.split(":")[0],
                                      "--as", "system:serviceaccount:" + account, check=False).stdout
            self.assertEqual(said.strip(), "yes" if yes else "no", (account, verb, resource))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
