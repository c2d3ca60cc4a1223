#!/bin/bash
# The golden files on 64-bit ARM under qemu-user: the core library built by the cross compiler, with abseil
# and GoogleTest from this Debian's arm64 packages, which are unpacked into BUILD and not installed.
#
#   run_golden.sh SOURCE BUILD
#
# Exits with 77 where a tool or the packages can't be had.
set -euo pipefail

source=$(cd "$1" && pwd)
mkdir -p "$2"
build=$(cd "$2" && pwd)

for tool in qemu-aarch64 aarch64-linux-gnu-g++ apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done

foreign=$build/root
if [[ ! -e $foreign/complete ]]; then
  # Package lists of arm64 beside the machine's own, which stay unchanged.
  apt=$build/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$build/packages"
  options=(-q -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root
           -o APT::Architectures::=amd64 -o APT::Architectures::=arm64)
  apt-get "${options[@]}" update >"$build.log" 2>&1 ||
    { echo "skipped: no lists of arm64 packages"; exit 77; }
  library=$(apt-cache "${options[@]}" depends libabsl-dev:arm64 |
    sed -n 's/.*Depends: \(libabsl[0-9][^:]*\).*/\1/p' | head -n 1)
  (cd "$build/packages" &&
    apt-get "${options[@]}" download libabsl-dev:arm64 "$library:arm64" libgtest-dev:arm64) \
    >"$build.log" 2>&1 || { echo "skipped: no arm64 packages of abseil and GoogleTest"; exit 77; }
  for package in "$build/packages"/*.deb; do dpkg-deb -x "$package" "$foreign"; done
  touch "$foreign/complete"
fi

{
  cmake -S "$source/tests/emulation/golden" -B "$build/tree" -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DCBT_FOREIGN_ROOT="$foreign"
  cmake --build "$build/tree" --parallel "${JOBS:-2}"
} >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
echo "--- 64-bit ARM, golden files"
timeout 300 qemu-aarch64 -L /usr/aarch64-linux-gnu \
  -E LD_LIBRARY_PATH="$foreign/usr/lib/aarch64-linux-gnu" "$build/tree/golden_test"
