#!/bin/bash
# Runs fuzzers on their seeds and on inputs found earlier, each for a while and as many at once as
# there are processors. Stops at the first finding and prints it in base64, so that it survives the
# machine.
#
#   fuzz/run.sh BIN_DIR SEEDS_DIR KEEP_DIR LIMIT [FUZZER...]
#
# LIMIT of each: seconds (30), or a number of inputs (10000x). FUZZ_SEED in the environment: the same
# mutations in every run, up to LIMIT. FUZZ_JOBS: how many at once.
#
# BIN_DIR has fuzz_<name>, SEEDS_DIR/<name> is only read (see make_corpus.py), KEEP_DIR/<name>
# receives new inputs. Prints three figures for each fuzzer: inputs run, code edges covered by them
# (and by the corpora alone, before the first new one), findings.
set -euo pipefail
bin=$1
seeds=$2
keep=$3
case $4 in
  *x) limit=-runs=${4%x} ;;
  *) limit=-max_total_time=$4 ;;
esac
shift 4
# Besides the seed, what a fuzzer tries depends on the addresses of comparisons, and on inputs that it
# reads back each second.
steady=()
if [[ -n ${FUZZ_SEED:-} ]]; then
  ! setarch --addr-no-randomize true 2>/dev/null || steady=(setarch --addr-no-randomize)
  limit+=" -reload=0 -seed=$FUZZ_SEED"
fi
here=$(dirname "$0")
if (($# > 0)); then names=("$@"); else
  names=()
  for fuzzer in "$bin"/fuzz_*; do names+=("${fuzzer##*/fuzz_}"); done
fi

logs=$(mktemp -d)
# Ends the others too.
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$logs"' EXIT

# Runs one fuzzer, then prints its figures and findings.
run() {
  local name=$1 log=$logs/$1.log failed=0 fuzzer=
  mkdir -p "$keep/$name" "$keep/findings"
  local corpora=("$keep/$name") options=()
  [[ -d $seeds/$name ]] && corpora+=("$seeds/$name")
  [[ -f $here/dictionaries/$name.dict ]] && options+=("-dict=$here/dictionaries/$name.dict")
  "${steady[@]}" "$bin/fuzz_$name" $limit -timeout=20 -rss_limit_mb=1024 \
    -artifact_prefix="$keep/findings/$name-" "${options[@]}" "${corpora[@]}" >"$log" 2>&1 &
  fuzzer=$!
  # Without this, the fuzzer would go on when the script ends.
  trap 'kill $fuzzer 2>/dev/null; exit 1' TERM
  wait $fuzzer || failed=1
  # "#1234 DONE cov: 12 ft: 34 ... exec/s: 56": if the run found something, the last such line.
  local status started executions edges
  status=$(grep -E '^#[0-9]+.*cov: ' "$log" | tail -n 1 || true)
  started=$(grep -E '^#[0-9]+.*INITED cov: ' "$log" | head -n 1 || true)
  executions=$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$status")
  edges=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' <<<"$status")
  {
    printf '%-16s %s inputs, %s a second; %s edges, %s of them by the corpora\n' "$name" \
      "${executions:-0}" "$(sed -n 's/.*exec\/s: \([0-9]*\).*/\1/p' <<<"$status")" "${edges:-0}" \
      "$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' <<<"$started")"
    echo "figure: r6_${name}_executions ${executions:-0}"
    echo "figure: r6_${name}_edges ${edges:-0}"
    echo "figure: r6_${name}_findings $failed"
    if ((failed)); then
      cat "$log"
      for finding in "$keep/findings/$name"-*; do
        [[ -e $finding ]] || continue
        echo "$finding:"
        base64 "$finding"
      done
    fi
  } >"$logs/$name.said"
  cat "$logs/$name.said"
  return $failed
}

free=${FUZZ_JOBS:-$(nproc)}
running=0
for name in "${names[@]}"; do
  if ((running == free)); then
    wait -n || exit 1
    running=$((running - 1))
  fi
  run "$name" &
  running=$((running + 1))
done
for (( ; running > 0; --running)); do wait -n || exit 1; done
