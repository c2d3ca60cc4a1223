#!/bin/bash
# Packages of this Debian for another architecture, unpacked into a folder and not installed: what programs
# are cross-built against, and what their images take files from. dpkg-query reads the folder's list
# of packages (--admindir).
#
#   foreign_root.sh ARCHITECTURE ROOT
#
# Exits with 77 where the packages can't be had.
set -euo pipefail

arch=$1
mkdir -p "$2"
root=$(cd "$2" && pwd)
project=$(cd "$(dirname "$0")/../.." && pwd)
[[ ! -e $root/complete ]] || exit 0

# The libraries of the build, without the tools that run on this machine, and the driver's tools.
mapfile -t wanted < <(awk '$1 ~ /-dev$/ && $2 ~ /(^|,)build(,|$)/ { print $1 }' "$project/cmake/packages.txt")
wanted+=(libc6-dev libstdc++6 libcurl4 ca-certificates nbdkit util-linux mount e2fsprogs xfsprogs nbd-client)

# An empty machine of that architecture, which has the package sources of this one.
apt=$root.apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
options=(-q -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
         -o APT::Sandbox::User=root -o APT::Architecture="$arch" -o APT::Architectures="$arch"
         -o APT::Install-Recommends=false)
log=$root.log
{ apt-get "${options[@]}" update && apt-get "${options[@]}" --yes --download-only install "${wanted[@]}"; } \
  >"$log" 2>&1 || { tail -n 5 "$log"; echo "skipped: no packages of $arch"; exit 77; }

mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root/var/lib/dpkg/info"
for name in bin sbin lib lib64; do ln -sfn "usr/$name" "$root/$name"; done
: >"$root/var/lib/dpkg/status"
echo 1 >"$root/var/lib/dpkg/info/format"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
  # What dpkg would have noted.
  name=$(dpkg-deb --field "$package" Package)
  [[ $(dpkg-deb --field "$package" Multi-Arch) != same ]] || name=$name:$arch
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed 's|^\./$|/.|; s|^\./|/|; s|/$||' >\
    "$root/var/lib/dpkg/info/$name.list"
  { echo "Status: install ok installed"; dpkg-deb --field "$package"; echo; } >>"$root/var/lib/dpkg/status"
done

# Absolute links would lead out of the root.
find "$root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfnr "$root$(readlink "$link")" "$link"
done
# gRPC's description of itself names its generators; those of this machine are run.
for tool in /usr/bin/grpc_*_plugin; do ln -sf "$tool" "$root/usr/bin/"; done
rm -rf "$apt"
touch "$root/complete"
