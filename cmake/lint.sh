#!/bin/sh
# clang-format (check only) over every C++ file of the tree, then clang-tidy and cppcheck over src/
# and, through what it includes, include/. Exit status 1 when any finds something; all always run.
#
#   cmake/lint.sh BUILD_TREE [JOBS [SECONDS]]
#
# With SECONDS, clang-tidy begins no file after these. It takes those that were changed last first, and
# the number of those that it left is printed.
# BUILD_TREE is a configured and built tree: its compile_commands.json says how files are compiled.
set -eu

if [ $# -lt 1 ] || [ ! -f "$1/compile_commands.json" ]; then
  echo "usage: $0 BUILD_TREE [JOBS [SECONDS]] (BUILD_TREE has a compile_commands.json)" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
jobs=${2:-2}
seconds=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
failed=0

# for_each FILES_AT_A_TIME COMMAND...: runs the command on the files that standard input names. What one
# run says stays together, and is left out when it found nothing.
for_each() {
  at_a_time=$1
  shift
  # shellcheck disable=SC2016
  xargs -P "$jobs" -n "$at_a_time" \
    sh -c 'said=$("$@" 2>&1 </dev/null) || { printf "%s\n" "$said"; exit 1; }' lint "$@"
}

# Files of the tree, also those that git does not know yet, without those that were just deleted.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  files=$(git ls-files --cached --others --exclude-standard -- '*.cc' '*.h')
else
  files=$(find include src tests bench fuzz -name '*.cc' -o -name '*.h')
fi
files=$(for file in $files; do [ ! -f "$file" ] || echo "$file"; done)
echo "clang-format: $(echo "$files" | wc -l) files"
echo "$files" | for_each 16 clang-format --dry-run -Werror || failed=1

sources=$(sed -n "s|^ *\"file\": \"\\($root/src/.*\\.cc\\)\",*\$|\\1|p" \
  "$build/compile_commands.json" | sort -u)
echo "clang-tidy: $(echo "$sources" | wc -l) files"
left=$(mktemp)
trap 'rm -f "$left"' EXIT
if [ -n "$seconds" ]; then
  # Those of the last commits, newest first, then all; each once.
  recent=$(git log -n 100 --format= --name-only -- 'src/*.cc' 2>/dev/null | sed "s|^|$root/|" || true)
  sources=$(printf '%s\n%s\n' "$recent" "$sources" | awk -v all="$sources" '
    BEGIN { count = split(all, list, "\n"); for (i = 1; i <= count; i++) known[list[i]] = 1 }
    known[$0] && !seen[$0]++')
  end=$(($(date +%s) + seconds))
else
  end=
fi
# GCC's warning flags stand in the commands; clang does not know all of them.
# shellcheck disable=SC2016
echo "$sources" | for_each 1 sh -c '
  if [ -n "$1" ] && [ "$(date +%s)" -ge "$1" ]; then echo "$4" >>"$2"; exit 0; fi
  exec clang-tidy --quiet -p "$3" --extra-arg=-Wno-unknown-warning-option "$4"
' tidy "$end" "$left" "$build" || failed=1
[ ! -s "$left" ] || echo "clang-tidy: time is over, $(wc -l <"$left") files were not looked at"

# Of tests it says nothing: it has no notion of the macros of the property tests. What it must not find
# stands, with reasons, in cppcheck.txt. It remembers files that have not changed.
echo "cppcheck: src/ and include/"
mkdir -p "$build/cppcheck"
cppcheck --quiet -j "$jobs" --std=c++20 --enable=warning,performance,portability,style \
  --suppressions-list=cmake/cppcheck.txt --inline-suppr --cppcheck-build-dir="$build/cppcheck" \
  --project="$build/compile_commands.json" --file-filter="$root/src/*" --error-exitcode=1 \
  --template='{file}:{line}: {severity}: {message} [{id}]' || failed=1

[ "$failed" -eq 0 ] || echo "lint: findings above" >&2
exit "$failed"
