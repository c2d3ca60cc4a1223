#!/bin/sh
# Builds the Debian packages of the working tree in OUTPUT, and checks them with lintian.
#
#   debian/build.sh OUTPUT JOBS
#
# The packages are in OUTPUT/packages. Compiles in a copy of the tree; ccache, if installed, reuses
# the objects of earlier runs.
set -eu

if [ $# -ne 2 ]; then
  echo "usage: $0 OUTPUT JOBS" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
mkdir -p "$1"
output=$(cd "$1" && pwd)

rm -rf "$output/libcbt" "$output/packages" "$output"/*.deb
mkdir "$output/libcbt" "$output/packages"
git ls-files --cached --others --exclude-standard -z | tar --create --null --files-from=- --ignore-failed-read \
  2>/dev/null | tar --extract --directory="$output/libcbt"

# The version is defined in the header; the changelog must match.
version=$(sed -n 's/.*kVersion\[\] = "\([^"]*\)".*/\1/p' include/cbt/version.h)
packaged=$(dpkg-parsechangelog -l debian/changelog -S Version)
if [ "$version" != "$packaged" ]; then
  echo "deb: debian/changelog says $packaged, include/cbt/version.h $version" >&2
  exit 1
fi

# debhelper gives the build a private home folder, which would hide the cache.
if command -v ccache >/dev/null; then
  CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)}
  export CCACHE_DIR
fi
# No packages of debug symbols, so none are compiled.
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-nocheck noautodbgsym parallel=$2}"
export DEB_CXXFLAGS_STRIP="${DEB_CXXFLAGS_STRIP:--g}"
(cd "$output/libcbt" && dpkg-buildpackage --build=binary --no-sign)
mv "$output"/*.deb "$output"/*.changes "$output"/*.buildinfo "$output/packages/"
lintian --fail-on error "$output"/packages/*.changes
ls -l "$output"/packages/*.deb
