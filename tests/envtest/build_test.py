"""build.sh with a played Go toolchain: what is built once, and what is left after a failure."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CRDS = "github.com/kubernetes-csi/external-snapshotter/client/v8"

# Notes each installation, and makes files with the names of the programs.
GO = f"""#!/bin/bash
case "$*" in
  version) echo go version go1.2 ;;
  "env GOPROXY") echo a.proxy ;;
  "list -m") [[ ! -e $PLAYED/old ]] ;;
  *{CRDS}) echo "$PLAYED/client" ;;
  "list -m -f "*) echo v1.2.3 ;;
  install*)
    [[ ! -e $PLAYED/offline ]] || {{ echo no such host; exit 1; }}
    echo "$(basename "$PWD") $*" >>"$PLAYED/calls"
    for word; do
      [[ $word != */cmd/* ]] || touch "$GOBIN/${{word##*/}}"
    done
    [[ $PWD != */etcd ]] || touch "$GOBIN/server" ;;
esac
"""


class BuildTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cbt-envtest-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/go").write_text(GO, encoding="utf-8")
        (self.folder / "bin/go").chmod(0o755)
        crds = self.folder / "client/config/crd"
        crds.mkdir(parents=True)
        for name in ("snapshot.storage.k8s.io_volumesnapshots", "kustomization",
                     "groupsnapshot.storage.k8s.io_volumegroupsnapshots"):
            (crds / f"{name}.yaml").write_text("kind: K\n", encoding="utf-8")

    def build(self, *arguments, path=None, **more):
        environment = {"PATH": path or f"{self.folder}/bin:{os.environ['PATH']}",
                       "PLAYED": str(self.folder), "XDG_CACHE_HOME": f"{self.folder}/cache", **more}
        return subprocess.run(["/bin/bash", HERE / "build.sh", *arguments], env=environment,
                              capture_output=True, text=True, check=False)

    def calls(self):
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def folder_of(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        return pathlib.Path(done.stdout.strip())

    def test_parts_are_built_once(self):
        assets = self.folder_of(self.build("control-plane", "etcd"))
        self.assertEqual(assets.parent, self.folder / "cache/cbt-envtest")
        self.assertEqual(sorted(os.listdir(assets)),
                         [".control-plane", ".etcd", "etcd", "kube-apiserver",
                          "kube-controller-manager", "kubectl"])
        self.assertEqual([call.split()[0] for call in self.calls()], ["kubernetes", "etcd"])
        self.assertIn("version.gitVersion=v1.2.3", self.calls()[0])
        self.assertEqual(self.folder_of(self.build("etcd", "node")), assets)
        self.assertEqual([call.split()[0] for call in self.calls()],
                         ["kubernetes", "etcd", "kubernetes"])
        self.assertTrue((assets / "kubelet").exists())

    def test_crds_come_from_the_module(self):
        assets = self.folder_of(self.build("snapshotter"))
        # kubectl would take a kustomization for an object.
        self.assertEqual(os.listdir(assets / "crds"),
                         ["snapshot.storage.k8s.io_volumesnapshots.yaml"])

    def test_without_parts_every_module_is_built(self):
        self.folder_of(self.build())
        self.assertEqual({call.split()[0] for call in self.calls()},
                         {module for module in os.listdir(HERE / "modules") if "-" not in module})

    def test_an_older_control_plane(self):
        newest = self.folder_of(self.build("control-plane"))
        older = self.folder_of(self.build("control-plane", "etcd", ENVTEST_KUBERNETES="1.36"))
        self.assertNotEqual(older, newest)
        self.assertEqual([call.split()[0] for call in self.calls()], ["kubernetes", "kubernetes-1.36", "etcd"])
        self.assertEqual(self.folder_of(self.build("--built", "etcd", ENVTEST_KUBERNETES="1.36")), older)

    def test_older_snapshot_controllers(self):
        newest = self.folder_of(self.build("snapshotter"))
        older = self.folder_of(self.build("snapshotter", "etcd", ENVTEST_SNAPSHOTTER="8.6"))
        self.assertNotEqual(older, newest)
        self.assertEqual([call.split()[0] for call in self.calls()], ["snapshotter", "snapshotter-8.6", "etcd"])
        done = self.build("etcd", ENVTEST_SNAPSHOTTER="1.2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no snapshotter 1.2; older ones are 8.6", done.stderr)

    def test_what_an_older_one_lacks_is_named(self):
        done = self.build("node", ENVTEST_KUBERNETES="1.36")
        self.assertIn("there is no part node; the parts are control-plane etcd", done.stderr)
        done = self.build("etcd", ENVTEST_KUBERNETES="1.2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no Kubernetes 1.2; older ones are 1.35 1.36", done.stderr)

    def test_built_looks_only(self):
        done = self.build("--built", "etcd")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", ""))
        assets = self.folder_of(self.build("etcd"))
        self.assertEqual(self.folder_of(self.build("--built", "etcd")), assets)
        self.assertEqual(self.build("--built", "etcd", "sanity").returncode, 1)
        self.assertEqual(self.build("--built").returncode, 1)

    def test_without_network_nothing_counts_as_built(self):
        (self.folder / "offline").touch()
        done = self.build("etcd", "sanity")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no such host", done.stderr)
        self.assertIn("envtest: can't build sanity; modules come from a.proxy", done.stderr)
        self.assertIn("envtest: not built: etcd sanity", done.stderr)
        (self.folder / "offline").unlink()
        self.folder_of(self.build("etcd", "sanity"))

    def test_without_go_it_says_so(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("cat", "cut", "dirname", "flock", "mkdir", "sha256sum"):
            (tools / name).symlink_to(shutil.which(name))
        done = self.build("etcd", path=str(tools))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("envtest: there is no Go toolchain here; it needs Go 1.26 or newer",
                      done.stderr)

    def test_an_old_go_is_named(self):
        (self.folder / "old").touch()
        done = self.build("etcd")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it needs Go 1.26 or newer: go version go1.2", done.stderr)

    def test_an_unknown_part_is_named(self):
        done = self.build("kubelets")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no part kubelets; the parts are control-plane etcd", done.stderr)


if __name__ == "__main__":
    unittest.main()
