#!/bin/bash
# Builds and tests the committed tree against the newest stable Debian's compiler and libraries, in a
# folder with a system of its own.
#
#   newest.sh SOURCE ROOT [SUITE [COMPILER...]]     SUITE: trixie; COMPILER: g++, clang++ (both)
#
# Needs root, debootstrap, and Debian's mirror (MIRROR, deb.debian.org); takes 4 GB in ROOT and half an hour
# on two cores. ROOT must be new or left by an earlier run, which is built upon. CMAKE_ARGUMENTS and
# CTEST_ARGUMENTS go to the configuration and to ctest; JOBS is 2.
set -euo pipefail

if (($# < 2)); then
  echo "usage: $0 SOURCE ROOT [SUITE [COMPILER...]]" >&2
  exit 2
fi
source=$(cd "$1" && pwd)
root=$2
suite=${3:-trixie}
shift $(($# < 3 ? $# : 3))
compilers=("$@")
((${#compilers[@]})) || compilers=(g++ clang++)
mirror=${MIRROR:-http://deb.debian.org/debian}

((EUID == 0)) || { echo "newest: needs root for debootstrap and chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "newest: no debootstrap (package debootstrap)" >&2; exit 2; }
# A private mount namespace: however this script ends, no mount is left in ROOT, so it can be
# removed safely.
if [[ -z ${NEWEST_OWN_MOUNTS:-} ]]; then
  NEWEST_OWN_MOUNTS=1 exec unshare --mount "$0" "$source" "$root" "$suite" "${compilers[@]}"
fi

if [[ ! -e $root/etc/debian_version || -d $root/debootstrap ]]; then
  debootstrap --variant=minbase --include=ca-certificates,ccache "$suite" "$root" "$mirror"
fi
root=$(cd "$root" && pwd)
[[ $root != / ]] || exit 2
grep -q "$suite" "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/* 2>/dev/null ||
  { echo "newest: $root holds another suite than $suite" >&2; exit 2; }

# Only what tests need: process and kernel information (btrfs reads its send features from /sys),
# devices, and a root that is a mount, below which tests mount real file systems.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
mount --rbind /dev "$root/dev"
# Packages must not start services here.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
# No file here needs to be flushed to disk.
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"

tree=/usr/src/cbt
mkdir -p "$root$tree"
find "$root$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -r {} +
# Current time stamps: a commit's own may be older than an earlier run's objects. ccache detects
# unchanged files.
git -C "$source" archive HEAD | tar -x -m -C "$root$tree"

groups="build test bench"
[[ ${compilers[*]} != *clang* ]] || groups+=" clang"
run() {
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
    CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=/var/cache/ccache JOBS="${JOBS:-2}" \
    CMAKE_ARGUMENTS="${CMAKE_ARGUMENTS:-}" CTEST_ARGUMENTS="${CTEST_ARGUMENTS:-}" \
    /bin/bash -euc "cd $tree; $1" </dev/null
}
run "cmake/install-packages.sh $groups"
run 'dpkg-query -W g++ clang cmake libabsl-dev libgrpc++-dev libprotobuf-dev libxsimd-dev libroaring-dev 2>/dev/null || true'
for compiler in "${compilers[@]}"; do
  preset=release
  [[ $compiler != clang* ]] || preset=clang
  run "cmake --preset $preset \$CMAKE_ARGUMENTS && cmake --build --preset $preset --parallel \$JOBS -- -k 0 &&
       ctest --preset $preset --parallel \$JOBS \$CTEST_ARGUMENTS"
done
