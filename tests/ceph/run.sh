#!/bin/bash
# RBD sources against a real Ceph: one monitor and one OSD on the loopback interface, in a folder of
# their own, gone afterwards. Takes half a minute; see `make ceph`.
#
#   tests/ceph/run.sh CBT SOURCE_DIR BUILD_DIR
set -euo pipefail
cbt=$(realpath "$1")
source_dir=$(realpath "$2")
build_dir=$(realpath "$3")
source "$source_dir/tests/ceph/cluster.sh"
dir=$(mktemp -d)
cd "$dir"
cleanup() {
  cd "$dir"
  end_ceph
  rm -rf "$dir"
}
trap cleanup EXIT

say() { printf '\n== %s\n' "$*"; }

say "a Ceph of one monitor and one OSD"
configure_ceph none 1073741824
{
  start_ceph
  timeout 30 ceph osd pool create rbd 8
  timeout 30 ceph osd pool application enable rbd rbd
} >setup.log 2>&1 || { cat setup.log; exit 1; }

say "an image with three snapshots"
size=$((64 << 20))
timeout 60 rbd create vol --size 64M --object-size 1M
# The expected volume, to compare bytes with.
truncate -s $size now.img
put() {  # OFFSET LENGTH BYTE
  head -c "$2" /dev/zero | tr '\0' "$3" >piece
  dd if=piece of=now.img bs=1M oflag=seek_bytes seek="$1" conv=notrunc status=none
  timeout 60 /usr/bin/python3 "$source_dir/tests/ceph/image.py" write vol "$1" piece
}
drop() {  # OFFSET LENGTH
  fallocate --punch-hole -o "$1" -l "$2" now.img
  timeout 60 /usr/bin/python3 "$source_dir/tests/ceph/image.py" discard vol "$1" "$2"
}
snapshot() {
  cp --sparse=always now.img "$1.img"
  timeout 60 rbd snap create --no-progress "vol@$1"
}
put 0 8192 a
put $((5 << 20)) 3000000 b
snapshot mon
put 4096 100 c
put $((40 << 20)) 65536 d
drop $((6 << 20)) $((1 << 20))
snapshot tue
put $((63 << 20)) 1048576 e
snapshot wed

say "the command"
check() {  # BASE TARGET SOURCE...
  local base=$1 target=$2
  shift 2
  "$cbt" verify ${base:+"$base.img"} "$target.img" --map "$@"
}
for pair in "mon tue" "tue wed" "mon wed"; do
  read -r base target <<<"$pair"
  timeout 60 rbd export-diff --no-progress --from-snap "$base" "vol@$target" "$base-$target.diff"
  check "$base" "$target" "$base-$target.diff"
  timeout 60 rbd diff --from-snap "$base" --format json "vol@$target" >list.json
  check "$base" "$target" list.json --as delta --capacity $size
done
timeout 60 rbd export-diff --no-progress vol@tue tue.full
check "" tue tue.full
timeout 60 rbd export --no-progress --export-format 2 vol all.rbd
check mon wed all.rbd --from rbd-diff:base=mon,target=wed
check "" mon all.rbd --from rbd-diff:target=mon

say "the cursor over librbd"
"${CXX:-c++}" -std=c++20 -O1 -I "$source_dir/include" "$source_dir/tests/ceph/live_test.cc" \
  -o live_test "$build_dir/lib/libcbt_core.a" \
  $(pkg-config --libs absl_statusor absl_status absl_strings) -lrbd -lrados
for pair in "mon tue" "tue wed" "mon wed" "- mon"; do
  read -r base target <<<"$pair"
  for whole in 0 1; do
    timeout 60 ./live_test vol "$base" "$target" $whole >live.csv
    "$cbt" map convert --from rbd-json live.csv --as delta --capacity $size --base-name x \
      --output live.cbm
    base_image=$base
    [[ $base == - ]] && base_image=""
    check "$base_image" "$target" live.cbm
  done
done
if ./live_test vol wed mon 0 >/dev/null 2>error; then echo "wed to mon should fail"; exit 1; fi
cat error

echo
echo "everything that Ceph says holds against the bytes"
