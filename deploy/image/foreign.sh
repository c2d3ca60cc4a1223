#!/bin/bash
# Cross-builds the programs for another architecture, and their images.
#
#   foreign.sh ARCHITECTURE BUILD OUTPUT JOBS
#
# The packages are in BUILD/root, the programs in BUILD/tree/bin, the images in OUTPUT.
set -euo pipefail

declare -A processors=([arm64]=aarch64 [amd64]=x86_64)
arch=$1
processor=${processors[$arch]:?"foreign.sh: unknown architecture $arch: ${!processors[*]}"}
mkdir -p "$2"
build=$(cd "$2" && pwd)
output=$3
project=$(cd "$(dirname "$0")/../.." && pwd)
image=$project/deploy/image

command -v "$processor-linux-gnu-g++" >/dev/null || { echo "skipped: no $processor-linux-gnu-g++"; exit 77; }
"$image/foreign_root.sh" "$arch" "$build/root"
cmake -S "$project" -B "$build/tree" -G Ninja --toolchain "$project/cmake/foreign.cmake" \
  -DCBT_FOREIGN_PROCESSOR="$processor" -DCBT_FOREIGN_ROOT="$build/root" -DCMAKE_BUILD_TYPE=Release \
  -DCBT_WERROR=ON -DCBT_BUILD_TESTS=OFF -DCBT_BUILD_BENCH=OFF -DCBT_WITH_C=OFF -DCBT_INSTALL=OFF
cmake --build "$build/tree" --parallel "$4" \
  --target cbt_tool cbt_cluster_tool cbt_driver_tool cbt_nbdkit_plugin
for pair in cbt-cluster=csi-snapshot-metadata cbtctl=cbtctl cbt-driver=csi-driver; do
  "$image/build.py" --foreign "$build/root" --program "$build/tree/bin/${pair%=*}" \
    --output "$output/${pair#*=}.tar"
done
