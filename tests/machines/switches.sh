#!/bin/bash
# Configures everything, then builds and installs libraries and command, without each option
# CBT_WITH_* in turn, and at last without all of them.
#
#   switches.sh FOLDER JOBS [NAME...]   (RPC, LIBNBD, ...; all by default)
#
# One tree: what a switch does not touch is not compiled again. Ends with a table.
set -uo pipefail
exec </dev/null
cd "$(dirname "$0")/../.."
folder=$1
jobs=$2
shift 2

configure() {
  cmake --preset release -B "$folder/tree" -DCBT_BUILD_TESTS=ON -DCBT_BUILD_BENCH=ON "$@" >"$folder/log" 2>&1 ||
    { tail -n 40 "$folder/log"; return 1; }
}
build() {
  cmake --build "$folder/tree" --parallel "$jobs" --target cbt_products >"$folder/log" 2>&1 &&
    rm -rf "$folder/installed" &&
    cmake --install "$folder/tree" --prefix "$folder/installed" >"$folder/log" 2>&1 &&
    "$folder/installed/bin/cbt" --version >"$folder/log" 2>&1 ||
    { tail -n 40 "$folder/log"; return 1; }
}

mkdir -p "$folder"
rm -rf "$folder/tree/CMakeCache.txt"
configure || exit 1
mapfile -t switches < <(sed -n 's/^CBT_WITH_\([A-Z0-9_]*\):BOOL=.*/\1/p' "$folder/tree/CMakeCache.txt" | sort)
all_on=("${switches[@]/#/-DCBT_WITH_}")
all_on=("${all_on[@]/%/=ON}")
table=
failed=0
check() { # NAME OPTIONS...
  local name=$1 outcome=works start=$SECONDS
  shift
  echo "=== without $name"
  configure "${all_on[@]}" "$@" && build || { outcome=FAILED; failed=1; }
  table+=$(printf '%6d s  %-6s  without %s' $((SECONDS - start)) $outcome "$name")$'\n'
}

wanted=("$@")
[[ $# -gt 0 ]] || wanted=("${switches[@]}")
for name in "${wanted[@]}"; do
  if [[ " ${switches[*]} " != *" $name "* ]]; then
    echo "switches: there is no CBT_WITH_$name; there are ${switches[*]}" >&2
    exit 2
  fi
  check "$name" "-DCBT_WITH_$name=OFF"
done
[[ $# -gt 0 ]] || check "all of them" "${all_on[@]/%ON/OFF}"
printf '%s' "$table"
exit $failed
