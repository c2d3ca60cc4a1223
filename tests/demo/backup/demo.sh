#!/bin/bash
# docs/tutorials/backup-to-a-bucket.md on this machine: a service over two images, and their backups
# in a bucket of a real radosgw, or in a directory where Ceph is not installed. Exits with an error
# if a byte differs.
#
#   tests/demo/backup/demo.sh BIN_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
if [[ -z ${CBT_TEST_S3-} ]]; then
  status=0
  "$here/../../bucket/radosgw.sh" "$here/demo.sh" "$bin" || status=$?
  # 77: Ceph is not installed.
  ((status == 77)) || exit "$status"
  echo "so the bucket is a directory"
fi

dir=$(mktemp -d)
server=
trap '[[ -n $server ]] && kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir "$dir/vol1"
image=$dir/vol1/monday.img
truncate -s 256M "$image"
for at in 0 3 7 100 101 200; do
  head -c 4M /dev/urandom | dd of="$image" bs=1M seek=$at conv=notrunc status=none
done
cp --sparse=always "$image" "$dir/vol1/tuesday.img"
head -c 300K /dev/urandom | dd of="$dir/vol1/tuesday.img" bs=1K seek=150000 conv=notrunc status=none

"$bin/cbtctl" serve --root "$dir" --listen "unix://$dir/cbt.sock" --ready-fd 3 3>"$dir/ready" 2>"$dir/log" &
server=$!
for _ in $(seq 300); do [[ -s $dir/ready ]] && break; sleep 0.1; done

export RESTIC_PASSWORD=demo RESTIC_REPOSITORY=$dir/repository RESTIC_CACHE_DIR=$dir/cache PATH=$bin:$PATH
if [[ -n ${CBT_TEST_S3-} ]]; then
  read -r endpoint bucket AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY <<<"$CBT_TEST_S3"
  export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY RESTIC_REPOSITORY=s3:$endpoint/$bucket/backups
fi
echo "repository: $RESTIC_REPOSITORY"
sh "$here/../../../examples/backup/backup.sh" "unix://$dir/cbt.sock" "$dir"
echo "every byte was restored"
