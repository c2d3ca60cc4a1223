#!/bin/bash
# The kernels on processors that this machine is not, under qemu-user: 64-bit ARM, x86-64 without
# SSE4.2, without AVX, and without AVX-512. An instruction that leaks out of its variant ends the
# program there with SIGILL.
#
#   run.sh SOURCE BUILD [CBT]     CBT: the cbtctl command of this machine, run on the oldest processor too
#
# Exits with 77 where a tool is missing.
set -euo pipefail

source=$1
build=$2
cbt=${3:-}

for tool in qemu-x86_64 qemu-aarch64 aarch64-linux-gnu-g++; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: no $tool (packages g++-aarch64-linux-gnu and qemu-user)"
    exit 77
  fi
done

check() {  # check NAME COMMAND...
  echo "--- $1"
  shift
  local status=0
  timeout 300 "$@" || status=$?
  if ((status == 132)); then
    echo "an instruction that this processor does not have"
    exit 1
  fi
  ((status == 0)) || exit 1
}

if [[ $(uname -m) == x86_64 ]]; then
  cmake -S "$source/tests/emulation" -B "$build/x86" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  cmake --build "$build/x86" --parallel 2 >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  check "x86-64 without SSE4.2" qemu-x86_64 -cpu Conroe "$build/x86/kernel_check" 'extract_runs=!sse42'
  check "x86-64 without AVX" qemu-x86_64 -cpu Nehalem "$build/x86/kernel_check" \
    extract_runs=sse42 'extract_runs=!avx2'
  check "x86-64 without AVX-512" qemu-x86_64 -cpu Haswell "$build/x86/kernel_check" \
    extract_runs=avx2 decode_tuples=avx2 'extract_runs=!avx512'
  if [[ -n $cbt ]]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    head -c 100000 /dev/zero >"$folder/base"
    cp "$folder/base" "$folder/target"
    printf x | dd of="$folder/target" bs=1 seek=70000 conv=notrunc status=none
    check "the command without SSE4.2" qemu-x86_64 -cpu Conroe "$cbt" --version
    check "the command's delta there" sh -c \
      "qemu-x86_64 -cpu Conroe '$cbt' delta '$folder/base' '$folder/target' --format csv | tee '$folder/out' &&
       grep -q 69632,4096 '$folder/out'"
  fi
fi

cmake -S "$source/tests/emulation" -B "$build/arm" -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ >"$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
cmake --build "$build/arm" --parallel 2 >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
check "64-bit ARM" qemu-aarch64 "$build/arm/kernel_check" \
  extract_runs=neon compare_blocks=neon count_bits=neon load_bits=neon check_tuples=neon digest_tuples=neon \
  list_blocks=neon containers=neon
