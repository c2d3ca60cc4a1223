#!/bin/bash
# What knows CRoaring, built against Debian's newest package of it, which is unpacked into BUILD and not
# installed: the test that each reads what the other wrote, and the benchmarks, once.
#
#   newest_croaring.sh SOURCE BUILD [SUITE]     SUITE: sid
#
# Needs apt and Debian's mirror (MIRROR, deb.debian.org). CMAKE_ARGUMENTS go to the configuration; JOBS is 2.
set -euo pipefail

if (($# < 2)); then
  echo "usage: $0 SOURCE BUILD [SUITE]" >&2
  exit 2
fi
source=$(cd "$1" && pwd)
mkdir -p "$2"
build=$(cd "$2" && pwd)
suite=${3:-sid}

root=$build/$suite
if [[ ! -e $root/complete ]]; then
  # Package lists of that suite; the machine's own stay unchanged.
  apt=$build/apt
  packages=$build/packages
  rm -rf "$apt" "$packages" "$root"
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$packages"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${MIRROR:-http://deb.debian.org/debian} $suite main" >"$apt/sources"
  options=(-q -o Dir::Etc::SourceList="$apt/sources" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$apt/lists"
           -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  # The library's soname has its ABI version, which differs from the installed one.
  version=$(apt-cache "${options[@]}" madison libroaring-dev | awk '{ print $3; exit }')
  library=$(apt-cache "${options[@]}" show "libroaring-dev=$version" | sed -n 's/^Depends: \(libroaring[0-9]*\).*/\1/p')
  (cd "$packages" && apt-get "${options[@]}" download "libroaring-dev=$version" "$library=$version")
  for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$root"; done
  touch "$root/complete"
fi

header=$root/usr/include/roaring/roaring.h
found=$(find "$root/usr/lib" -name libroaring.so)
[[ -e $header && -n $found ]] || { echo "newest_croaring: no CRoaring in $root" >&2; exit 1; }
sed -n 's/#define ROARING_VERSION /CRoaring /p' "$root"/usr/include/roaring/*version.h

tree=$build/tree
# shellcheck disable=SC2086
cmake -S "$source" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCBT_WERROR=ON -DCBT_WITH_RPC=OFF -DCBT_BUILD_TOOLS=OFF \
  -DCMAKE_CXX_FLAGS="-isystem $root/usr/include" -DCBT_ROARING_LIBRARY="$found" ${CMAKE_ARGUMENTS:-}
cmake --build "$tree" --parallel "${JOBS:-2}" --target map_tests bench_map bench_diff bench_roaring
"$tree/tests/map_tests" --file=map/interchange_test
"$tree/tests/map_tests" --file=map/roaring_test
for bench in map diff roaring; do
  "$tree/bin/bench_$bench" --benchmark_min_time=0.01 '--benchmark_filter=croaring|roaring|add_' >"$build/bench" 2>&1 ||
    { cat "$build/bench"; exit 1; }
  measured=$(grep -c '^[a-z].*/.* ns' "$build/bench") || { echo "bench_$bench measured nothing" >&2; exit 1; }
  echo "bench_$bench: $measured benchmarks of CRoaring ran"
done
