#!/bin/bash
# Runs fuzzers on their seeds and on what was found before, each for a while; stops at the first
# finding and prints it in base64, so that it survives a machine that does not.
#
#   fuzz/run.sh BIN_DIR SEEDS_DIR KEEP_DIR SECONDS [FUZZER...]
#
# BIN_DIR has fuzz_<name>, SEEDS_DIR/<name> is read only (see make_corpus.py), KEEP_DIR/<name> gets
# new inputs.
set -euo pipefail
bin=$1
seeds=$2
keep=$3
seconds=$4
shift 4
here=$(dirname "$0")
if (($# > 0)); then names=("$@"); else
  names=()
  for fuzzer in "$bin"/fuzz_*; do names+=("${fuzzer##*/fuzz_}"); done
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for name in "${names[@]}"; do
  mkdir -p "$keep/$name" "$keep/findings"
  corpora=("$keep/$name")
  [[ -d $seeds/$name ]] && corpora+=("$seeds/$name")
  options=()
  [[ -f $here/dictionaries/$name.dict ]] && options+=("-dict=$here/dictionaries/$name.dict")
  if ! "$bin/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -verbosity=0 \
      -print_final_stats=1 -artifact_prefix="$keep/findings/$name-" "${options[@]}" \
      "${corpora[@]}" >"$log" 2>&1; then
    cat "$log"
    for finding in "$keep/findings/$name"-*; do
      echo "$finding:"
      base64 "$finding"
    done
    exit 1
  fi
  printf '%-16s %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: */inputs: /p' "$log")"
done
