#!/bin/sh
# From two disk images to a verified change stream, on a real file system. Usage: demo.sh BINDIR
#
# Needs e2fsprogs and what every Debian has; works in a temporary folder and removes it. Fails when
# any of its comparisons does.
set -eu
LC_ALL=C.UTF-8  # the pictures; numbers as in C
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH

if [ $# -ne 1 ] || [ ! -x "$1/cbt" ]; then
  echo "usage: demo.sh BINDIR (the folder with the cbt command)" >&2
  exit 2
fi
cbt=$(cd "$1" && pwd)/cbt
for tool in mke2fs debugfs e2fsck; do
  command -v "$tool" >/dev/null || { echo "demo: $tool is missing: install e2fsprogs" >&2; exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cbt-demo-XXXXXX")
servers=
cleanup() {
  for pid in $servers; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$work"

# --- small helpers ---

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
heading() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
say() { printf '  %s\n' "$*"; }
die() { echo "demo: $*" >&2; exit 1; }
size() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
now() { date +%s%N; }
# took START: the time since then.
took() { awk -v start="$1" -v end="$(now)" 'BEGIN { printf "%.2f s", (end - start) / 1e9 }'; }
# Tuples of an ndjson stream as "offset size" lines.
tuples() { sed -n 's/^{"byte_offset":\([0-9]*\),"size_bytes":\([0-9]*\)}$/\1 \2/p' "$1"; }
total() { tuples "$1" | awk '{ sum += $2 } END { printf "%d", sum }'; }
count() { tuples "$1" | wc -l; }

# serve NAME OPTION...: starts a server and waits until it is up. Sets $address.
serve() {
  name=$1
  shift
  mkfifo "$name.ready"
  "$cbt" serve --root snapshots --listen "unix://$work/$name.sock" --ready-fd 3 "$@" \
    3>"$name.ready" 2>"$name.log" &
  server=$!
  servers="$servers $server"
  read -r address <"$name.ready" || { cat "$name.log" >&2; die "the server did not start"; }
}

# --- the demo ---

printf '%slibcbt: from two disk images to a verified change stream%s\n' "$bold" "$plain"
start=$(now)

heading '1. A volume with real files, and a snapshot of it'
mkdir -p files/tree snapshots/vol1
# About 60 MB of documentation, headers and programs of this machine.
find /usr/include /usr/share/doc /usr/share /usr/lib /usr/bin -xdev -type f -size -2048k -readable \
  -printf '%s %p\n' 2>/dev/null |
  awk '!seen[$0]++ { sum += $1; if (sum > 60e6 || ++n > 6000) exit; print substr($0, index($0, " ") + 1) }' >list
tar --create --files-from=list --no-recursion --absolute-names --file=- 2>/dev/null |
  tar --extract --no-same-owner --strip-components=1 --directory=files/tree --file=- 2>/dev/null || true
monday=snapshots/vol1/monday.img
tuesday=snapshots/vol1/tuesday.img
step=$(now)
truncate -s 512M $monday
mke2fs -q -F -t ext4 -d files $monday
say "$(size 536870912) of ext4 with $(find files -type f | wc -l) files   ($(took "$step"))"
cp --sparse=always $monday $tuesday

heading '2. A day passes: files come, go and change'
head -c 9000000 /dev/urandom >new.bin
seq 1 400000 >new.txt
victims=$(find files/tree -type f -name '[A-Za-z]*' -size +2k ! -name '*[!A-Za-z0-9._+-]*' |
  sed 's,^files,,' | grep -v '[^A-Za-z0-9._+/-]' | awk 'NR % 97 == 1' | head -n 25)
changed=$(printf '%s\n' "$victims" | head -n 1)
{
  echo "mkdir /inbox"
  echo "write new.bin /inbox/new.bin"
  echo "write new.txt /inbox/new.txt"
  for file in $victims; do echo "rm $file"; done
  [ -z "$changed" ] || echo "write new.txt $changed"
} >changes
debugfs -w -f changes $tuesday >debugfs.log 2>&1 || { cat debugfs.log >&2; die "debugfs failed"; }
debugfs -R 'cat /inbox/new.bin' $tuesday 2>/dev/null | cmp - new.bin
say "2 new files, $(printf '%s\n' "$victims" | wc -w) removed, 1 of them rewritten"
for image in $monday $tuesday; do
  e2fsck -fn $image >e2fsck.log 2>&1 || { cat e2fsck.log >&2; die "$image is damaged"; }
done
say 'e2fsck: both are sound file systems'

heading '3. Both are served over a Unix socket; a client asks what changed'
serve extents
extents=$address
serve blocks --style blocks --block-size 4096
blocks=$address
pair='--base vol1/monday --snapshot vol1/tuesday'
step=$(now)
# shellcheck disable=SC2086 # several words
"$cbt" list "$extents" $pair --format ndjson >extents.ndjson
say "as extents: $(count extents.ndjson) tuples, $(size "$(total extents.ndjson)")   ($(took "$step"))"
step=$(now)
# shellcheck disable=SC2086
"$cbt" list "$blocks" $pair --format ndjson >blocks.ndjson
say "as blocks:  $(count blocks.ndjson) tuples, $(size "$(total blocks.ndjson)")   ($(took "$step"))"
[ "$(total extents.ndjson)" -gt 9000000 ] || die 'less is reported than was written'
[ "$(total extents.ndjson)" = "$(total blocks.ndjson)" ] || die 'the two styles differ'
tuples extents.ndjson | awk '{ for (b = $1; b < $1 + $2; b += 4096) printf "%d 4096\n", b }' >expanded
tuples blocks.ndjson | cmp - expanded
# All but the head, which names what was asked for.
tail -n +2 extents.ndjson >body
"$cbt" delta $monday $tuesday --format ndjson | tail -n +2 | cmp - body
say 'both say the same, and the same as cbt delta on the files'
# shellcheck disable=SC2086
"$cbt" list "$extents" $pair --format table | tail -n 3 | sed 's/^/  /'

heading '4. The reader hangs up in the middle and comes back'
# shellcheck disable=SC2086
"$cbt" list "$blocks" $pair --format ndjson --max-results 64 2>cut.log |
  head -n 1001 >first.ndjson
stopped=$(tuples first.ndjson | awk 'END { printf "%d", $1 + $2 }')
version=$(head -n 1 first.ndjson | sed 's/.*"source_version":"\([^"]*\)".*/\1/')
# shellcheck disable=SC2086
"$cbt" list "$blocks" $pair --format ndjson --starting-offset "$stopped" --source-version "$version" >rest.ndjson
! grep -q '"complete":true' first.ndjson || die 'what was cut says that it is complete'
tail -n 1 rest.ndjson | grep -q '"complete":true' || die 'what is whole does not say so'
{ tuples first.ndjson; tuples rest.ndjson; } >joined
tuples blocks.ndjson | cmp - joined
say "cut after $(count first.ndjson) tuples, resumed at byte $stopped with $(count rest.ndjson) more: together the complete answer"

heading '5. The delta turns Monday into Tuesday'
step=$(now)
say "$("$cbt" apply $monday $tuesday restored.img)   ($(took "$step"))"
wanted=$(sha256sum <$tuesday)
restored=$(sha256sum <restored.img)
say "tuesday   ${wanted%% *}"
say "restored  ${restored%% *}"
[ "$wanted" = "$restored" ] || die 'the restored image differs from the target'
cmp restored.img $tuesday

heading '6. What a backup has to read'
"$cbt" list "$extents" --snapshot vol1/tuesday --format ndjson >allocated.ndjson
capacity=536870912
for row in "every byte:$capacity" "full, allocated only:$(total allocated.ndjson)" \
  "incremental:$(total extents.ndjson)"; do
  printf '  %-21s %10s  %5.1f %%\n' "${row%%:*}" "$(size "${row##*:}")" \
    "$(awk -v part="${row##*:}" -v whole=$capacity 'BEGIN { print 100 * part / whole }')"
done

heading '7. A sidecar stands between: tokens in front, every tuple checked on the way'
"$cbt" token >token
printf '%s backup vol1\n' "$(cat token)" >tokens
mkfifo relay.ready
"$cbt" relay --plugin "$extents" --listen "unix://$work/relay.sock" --tokens tokens --ready-fd 3 \
  3>relay.ready 2>relay.log &
servers="$servers $!"
read -r relay <relay.ready || { cat relay.log >&2; die 'the relay did not start'; }
as_pod='--api kubernetes --token-file token --namespace vol1 --snapshot tuesday --base vol1/monday'
# shellcheck disable=SC2086
"$cbt" list "$relay" $as_pod --format ndjson --prove | tail -n +2 | cmp - body
say 'the same stream through the Kubernetes API, and the proof that it is complete'
# shellcheck disable=SC2086
say "verified against the data: $("$cbt" verify $monday $tuesday --service "$relay" $as_pod)"
# shellcheck disable=SC2086
say "conformance: $("$cbt" conform "$relay" $as_pod | tail -n 1)"

heading '8. Monday goes, the map of the change stays'
map=$(dirname $monday)/tuesday.cbm
"$cbt" delta $monday $tuesday --output "$map"
"$cbt" map show "$map" --rows 2 | sed 's/^/  /'
bytes=$(wc -c <"$map")
say "the map takes $bytes bytes; a list of the extents takes $((16 * $(count extents.ndjson)))"
rm $monday
# shellcheck disable=SC2086
"$cbt" list "$extents" $pair --format ndjson | tail -n +2 | cmp - body
say 'the service answers as before, from the map and without reading data'

for pid in $servers; do
  kill -TERM "$pid"
  wait "$pid" || die "a server ended with $?"
done
servers=
heading "All comparisons hold; the whole took $(took "$start")."
