#!/bin/bash
# Builds a real control plane and Kubernetes' storage components for tests. They are Go modules of
# pinned versions (modules/*/go.mod and go.sum); `go` fetches them from where GOPROXY points.
#
#   tests/envtest/build.sh [PART...]          builds the parts, or all; prints their folder
#   tests/envtest/build.sh --built [PART...]  builds nothing; prints the folder if it has the parts
#
# The folder is what KUBEBUILDER_ASSETS names, and CBT_SNAPSHOT_CRDS names `crds` in it. It lies in
# XDG_CACHE_HOME/cbt-envtest and has another name for other versions. A part is built once; one that
# fails leaves the others usable.
#
# ENVTEST_KUBERNETES=MINOR (1.36, 1.35) takes an older control plane; nodes are of the newest only.
# ENVTEST_SNAPSHOTTER=MINOR (8.6) takes older snapshot-controller, csi-snapshotter and definitions.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
ALL="control-plane etcd snapshotter sanity provisioner node containerd resizer"
# Drivers of containerd that need kernel features or headers, and that no test uses.
readonly TAGS=no_btrfs,no_devmapper,no_zfs

give_up() {
  echo "envtest: $*" >&2
  exit 1
}

built_only=
if [[ ${1:-} == --built ]]; then
  built_only=1
  shift
fi
if [[ -n ${ENVTEST_KUBERNETES:-} ]]; then
  ALL=${ALL/ node containerd/}
fi
readonly ALL
read -ra parts <<<"${*:-$ALL}"
for part in "${parts[@]}"; do
  [[ " $ALL " == *" $part "* ]] || give_up "there is no part $part; the parts are $ALL"
done

readonly KUBERNETES=kubernetes${ENVTEST_KUBERNETES:+-$ENVTEST_KUBERNETES}
[[ -d $here/modules/$KUBERNETES ]] || give_up "there is no Kubernetes $ENVTEST_KUBERNETES; older ones are $(cd "$here/modules" && echo kubernetes-* | sed "s/kubernetes-//g")"
readonly SNAPSHOTTER=snapshotter${ENVTEST_SNAPSHOTTER:+-$ENVTEST_SNAPSHOTTER}
[[ -d $here/modules/$SNAPSHOTTER ]] || give_up "there is no snapshotter $ENVTEST_SNAPSHOTTER; older ones are $(cd "$here/modules" && echo snapshotter-* | sed "s/snapshotter-//g")"

sources=("$0")
for module in "$here"/modules/*; do
  name=${module##*/}
  [[ $name == kubernetes* && $name != "$KUBERNETES" ]] && continue
  [[ $name == snapshotter* && $name != "$SNAPSHOTTER" ]] || sources+=("$module/go.mod" "$module/go.sum")
done
key=$(cat "${sources[@]}" | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-${HOME:?is not set, nor is XDG_CACHE_HOME}/.cache}/cbt-envtest/$key

if [[ -n $built_only ]]; then
  for part in "${parts[@]}"; do
    [[ -e $folder/.$part ]] || exit 1
  done
  echo "$folder"
  exit
fi

# Of the module Kubernetes, tests of the API need the first three programs only.
module_of() {
  case $1 in
    control-plane | node) echo "$KUBERNETES" ;;
    snapshotter) echo "$SNAPSHOTTER" ;;
    *) echo "$1" ;;
  esac
}
packages_of() {
  case $1 in
    control-plane) echo k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kubectl} ;;
    node) echo k8s.io/kubernetes/cmd/{kubelet,kube-scheduler,kube-proxy} ;;
    *) echo tool ;;
  esac
}

# In the folder of a part's module.
build() {
  local part=$1 flags="-s -w" packages client
  if [[ $(module_of "$part") == "$KUBERNETES" ]]; then
    # kubectl, and readers of /version, ask for it.
    local version
    version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) || return
    flags+=" -X k8s.io/component-base/version.gitVersion=$version"
    flags+=" -X k8s.io/client-go/pkg/version.gitVersion=$version"
  fi
  read -ra packages <<<"$(packages_of "$part")"
  GOBIN=$folder go install -trimpath -tags "$TAGS" -ldflags "$flags" "${packages[@]}" || return
  case $part in
    etcd)
      # Its package is called so.
      mv "$folder/server" "$folder/etcd" || return
      ;;
    snapshotter)
      # The CRDs of these controllers are part of the module of their types.
      client=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8) || return
      mkdir -p "$folder/crds" || return
      install -m 644 "$client"/config/crd/snapshot.storage.k8s.io_*.yaml "$folder/crds" || return
      ;;
  esac
  touch "$folder/.$part"
}

mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
export GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off
failed=
for part in "${parts[@]}"; do
  [[ -e $folder/.$part ]] && continue
  command -v go >/dev/null || give_up "there is no Go toolchain here; it needs Go 1.26 or newer"
  cd "$here/modules/$(module_of "$part")"
  go list -m >/dev/null || give_up "this Go is not usable; it needs Go 1.26 or newer: $(go version)"
  echo "envtest: building $part" >&2
  started=$SECONDS
  if build "$part" >&2; then
    echo "envtest: built $part in $((SECONDS - started)) s" >&2
  else
    echo "envtest: can't build $part; modules come from $(go env GOPROXY)" >&2
    failed+=" $part"
  fi
done
[[ -z $failed ]] || give_up "not built:$failed"
echo "$folder"
