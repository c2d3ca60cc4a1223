#!/bin/bash
# Installs the packages of debian/build.sh in a minimal Debian, uses them as an outsider would, and
# removes them.
#
#   debian/test.sh PACKAGES ROOT [SUITE]     SUITE: bookworm
#
# Needs root, mmdebstrap and Debian's mirror (MIRROR, SECURITY_MIRROR). Wipes ROOT; takes 2 GB there
# and a few minutes.
set -euo pipefail

if (($# < 2)); then
  echo "usage: $0 PACKAGES ROOT [SUITE]" >&2
  exit 2
fi
packages=$(cd "$1" && pwd)
root=$2
suite=${3:-bookworm}
# Includes updates since the release: the packages may have been built against them.
mirror=${MIRROR:-http://deb.debian.org/debian}
security=${SECURITY_MIRROR:-http://deb.debian.org/debian-security}
source=$(cd "$(dirname "$0")/.." && pwd)
((EUID == 0)) || { echo "deb-test: needs root to set up a system" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "deb-test: no mmdebstrap (package mmdebstrap)" >&2; exit 2; }
# A private mount namespace: however this script ends, no mount is left.
if [[ -z ${DEB_TEST_OWN_MOUNTS:-} ]]; then
  DEB_TEST_OWN_MOUNTS=1 exec unshare --mount "$0" "$packages" "$root" "$suite"
fi

# Only removes a folder that an earlier run left.
if [[ -e $root ]]; then
  [[ -f $root/etc/cbt-deb-test ]] || { echo "deb-test: $root was not made by an earlier run; not removing it" >&2; exit 2; }
  rm -rf --one-file-system "$root"
fi
mmdebstrap --quiet --variant=apt --aptopt='Acquire::Languages "none"' \
  --dpkgopt=force-unsafe-io "$suite" "$root" \
  "deb $mirror $suite main" "deb $mirror $suite-updates main" "deb $security $suite-security main"
touch "$root/etc/cbt-deb-test"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages"
cp -r "$source/tests/consumer/project" "$root/project"

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive "$@"; }
step() { printf '\n=== %s\n' "$*"; }

inside sh -c 'apt-get -q update >/dev/null'
step "install cbtctl alone, and use it"
inside sh -c 'apt-get -q -y install --no-install-recommends /packages/cbtctl_*.deb >/dev/null'
# The command's package must not bring a compiler or headers.
if inside dpkg-query -W g++ 2>/dev/null; then echo "deb-test: cbtctl brings a compiler" >&2; exit 1; fi
inside sh -euc '
  cd /tmp
  cbtctl --version
  head -c 1048576 /dev/zero >base.img
  cp base.img target.img
  printf x | dd of=target.img bs=1 seek=409600 conv=notrunc status=none
  cbtctl delta base.img target.img --from image --format ndjson | tee delta
  grep -q "\"byte_offset\":409600,\"size_bytes\":4096" delta
  cbtctl apply base.img target.img out.img >/dev/null
  cmp target.img out.img'

step "what it loads is only recommended, and is named where it is missing"
inside sh -euc '
  cd /tmp
  ! cbtctl allocated nbd://localhost/volume 2>refusal
  grep -q "package libnbd0" refusal
  ! cbtctl sidecar 2>refusal
  grep -q "cbt-cluster sidecar" refusal'

step "the servers of a cluster, a package of its own, and what they need in Kubernetes"
inside sh -c 'apt-get -q -y install --no-install-recommends /packages/cbt-cluster_*.deb >/dev/null'
inside sh -euc '
  cd /tmp
  csi-snapshot-metadata --help | grep -q -e --csi-address
  # Go spells flags with one dash too, and an unknown one is an error.
  ! csi-snapshot-metadata -no-such-flag 2>refusal
  grep -q no-such-flag refusal
  test -s /usr/share/doc/cbt-cluster/examples/kubernetes/sidecar/cluster-role.yaml'

step "the driver, a package of its own"
inside sh -euc '
  cd /tmp
  apt-get -q -y install --no-install-recommends /packages/cbt-driver_*.deb >/dev/null
  cbt-driver driver --endpoint unix:///tmp/csi.sock --node-id n --state-dir /tmp/state &
  for _ in $(seq 100); do test -S csi.sock && break; sleep 0.1; done
  test -S csi.sock
  kill $!
  wait'

step "read its man pages, and complete a line in each shell"
inside sh -c 'apt-get -q -y install --no-install-recommends man-db bash-completion zsh fish >/dev/null'
inside sh -euc '
  man -w cbtctl cbtctl-delta cbtctl-map-info cbt-cluster-sidecar cbt-driver-volume-host
  MANWIDTH=80 man --warnings cbtctl-delta 2>/tmp/warnings | grep -q -e --block-size
  if [ -s /tmp/warnings ]; then cat /tmp/warnings >&2; exit 1; fi
  fish -c "complete -C \"cbtctl delta --format nd\"" | grep -q ^ndjson'
# Loads it as an interactive shell does: by the command's name.
inside bash -euc '
  . /usr/share/bash-completion/bash_completion || true
  _completion_loader cbtctl || [ $? = 124 ]
  COMP_WORDS=(cbtctl delta --format nd) COMP_CWORD=3
  _cbtctl || true  # compopt fails outside a completion
  [ "${COMPREPLY[*]}" = ndjson ]'
inside zsh -fec 'autoload -U compinit; compinit -D -u; [[ $_comps[cbtctl] = _cbtctl ]]'

step "install libcbt-dev and cbt-doc, and build against every component"
inside sh -c 'apt-get -q -y install /packages/libcbt1_*.deb /packages/libcbt-dev_*.deb /packages/cbt-doc_*.deb >/dev/null'
inside sh -c 'apt-get -q -y install --no-install-recommends g++ cmake ninja-build >/dev/null'
for program in core all grpc roaring kube; do
  case $program in
    core) components=core ;;
    all) components='core;source;rpc;ops' ;;
    grpc) components='source;grpc' ;;
    roaring | kube) components=$program ;;
  esac
  inside sh -euc "
    cmake -S /project -B /tmp/$program -G Ninja -DPROGRAM=$program '-DCOMPONENTS=$components' >/dev/null
    cmake --build /tmp/$program >/dev/null
    cd /tmp
    echo $program: && ./$program/consumer"
done
inside sh -euc '
  cd /tmp
  while read -r program packages; do
    g++ -std=c++20 "/project/$program.cc" -o "${program}_pc" $(pkg-config --cflags --libs $packages)
    echo "$program by pkg-config:" && "./${program}_pc"
  done <<END
core cbt-core
all cbt-source cbt-rpc cbt-ops
grpc cbt-source cbt-grpc
roaring cbt-roaring
kube cbt-kube
END
  # Those in other languages have no CMakeLists.txt.
  for example in /usr/share/doc/libcbt-dev/examples/*/CMakeLists.txt; do
    example=${example%/*}
    cmake -S "$example" -B "example_${example##*/}" -G Ninja >/dev/null
    cmake --build "example_${example##*/}" >/dev/null
    echo "example ${example##*/} is built"
  done
  cc /usr/share/doc/libcbt-dev/examples/from-c/plugin.c -o plugin $(pkg-config --cflags --libs cbt-c)
  ./plugin | grep "complete, and proven"
  for file in go/go.mod rust/cbt/Cargo.toml cbt-*.tar.gz; do test -s /usr/share/cbt/bindings/$file; done
  protoc --proto_path=/usr/share/cbt/proto --descriptor_set_out=/dev/null csi.proto
  test -s /usr/share/doc/cbt-doc/html/index.html
  test -s /usr/share/doc/cbt-doc/README.md'
python3 -B "$source/tests/lint/links.py" --root "$root/usr/share/doc/cbt-doc"

step "remove them: nothing is left"
# Files only: folders are shared with other packages.
inside sh -c 'for file in $(dpkg -L cbtctl cbt-cluster cbt-driver libcbt1 libcbt-dev cbt-doc); do [ -d "$file" ] || echo "$file"; done' >"$root/installed"
(($(wc -l <"$root/installed") > 500)) || { echo "deb-test: too few files are installed" >&2; exit 1; }
inside sh -c 'apt-get -q -y purge cbtctl cbt-cluster cbt-driver libcbt1 libcbt-dev cbt-doc >/dev/null'
left=$(cd "$root"
  while read -r file; do [[ ! -e .$file ]] || echo "$file"; done <installed
  find usr etc var/lib -xdev \( -name 'libcbt*' -o -name 'cbt*' -o -name 'cbt-doc' \) ! -path etc/cbt-deb-test -print)
if [[ -n $left ]]; then
  printf 'deb-test: left after removal:\n%s\n' "$left" >&2
  exit 1
fi
echo "deb-test: installed, used and removed in a clean $suite"
