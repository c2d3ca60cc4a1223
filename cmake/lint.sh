#!/bin/sh
# Checks of the sources. Exit status 1 when one finds something; all that are asked for run.
#
#   cmake/lint.sh BUILD_TREE JOBS CHECK...
#
#   format    clang-format, check only: every C++ file of the tree
#   tidy      clang-tidy: src/, programs/ and, through what it includes, include/
#   cppcheck  the same with cppcheck
# BUILD_TREE is a configured and built tree: its compile_commands.json says how files are compiled.
set -eu

if [ $# -lt 3 ] || [ ! -f "$1/compile_commands.json" ]; then
  echo "usage: $0 BUILD_TREE JOBS format|tidy|cppcheck... (BUILD_TREE has a compile_commands.json)" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
jobs=$2
shift 2
checks=" $* "
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
failed=0

# for_each FILES_AT_A_TIME COMMAND...: runs the command on the files listed on standard input. The
# output of one run stays together, and is omitted if it found nothing.
for_each() {
  at_a_time=$1
  shift
  # shellcheck disable=SC2016
  xargs -P "$jobs" -n "$at_a_time" \
    sh -c 'said=$("$@" 2>&1 </dev/null) || { printf "%s\n" "$said"; exit 1; }' lint "$@"
}

asked() { case $checks in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

if asked format; then
  # Files of the tree, including those that git does not know yet, without deleted ones.
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    files=$(git ls-files --cached --others --exclude-standard -- '*.cc' '*.h')
  else
    files=$(find include src programs tests bench fuzz -name '*.cc' -o -name '*.h')
  fi
  files=$(for file in $files; do [ ! -f "$file" ] || echo "$file"; done)
  echo "clang-format: $(echo "$files" | wc -l) files"
  echo "$files" | for_each 16 clang-format --dry-run -Werror || failed=1
fi

# clang-tidy and cppcheck read each file by itself, without GCC's precompiled headers.
commands=$build/lint
mkdir -p "$commands"
cmake/compile_commands.py "$build" "$commands/compile_commands.json"

if asked tidy; then
  sources=$(sed -n "s|^ *\"file\": \"\\($root/\\(src\\|programs\\)/.*\\.cc\\)\",*\$|\\1|p" \
    "$commands/compile_commands.json" | sort -u)
  echo "clang-tidy: $(echo "$sources" | wc -l) files"
  echo "$sources" | for_each 1 clang-tidy --quiet -p "$commands" --extra-arg=-Wno-unknown-warning-option ||
    failed=1
fi

if asked cppcheck; then
  # Tests are excluded: it does not understand the macros of property tests. cppcheck.txt lists,
  # with reasons, what it must not report. It caches results of unchanged files.
  echo "cppcheck: src/, programs/ and include/"
  cppcheck --quiet -j "$jobs" --std=c++20 --enable=warning,performance,portability,style \
    --suppressions-list=cmake/cppcheck.txt --inline-suppr --cppcheck-build-dir="$commands" \
    --project="$commands/compile_commands.json" --file-filter="$root/src/*" --file-filter="$root/programs/*" --error-exitcode=1 \
    --template='{file}:{line}: {severity}: {message} [{id}]' || failed=1
fi

[ "$failed" -eq 0 ] || echo "lint: findings above" >&2
exit "$failed"
