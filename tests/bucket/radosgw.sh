#!/bin/bash
# The client of S3 against a real Ceph: one monitor, one OSD and a radosgw on the loopback interface,
# in a folder of their own, gone afterwards. Takes half a minute.
#
#   tests/bucket/radosgw.sh COMMAND...
#
# COMMAND runs with CBT_TEST_S3="ENDPOINT BUCKET ACCESS_KEY SECRET_KEY". Without Ceph's packages:
# exit status 77. CBT_S3_ADDRESS names another address than the loopback's.
set -euo pipefail
for program in ceph-mon ceph-osd radosgw radosgw-admin ceph-authtool monmaptool; do
  command -v "$program" >/dev/null || { echo "not installed: $program (ceph-mon, ceph-osd, radosgw)"; exit 77; }
done
here=$PWD
source "$(dirname "$0")/../ceph/cluster.sh"
dir=$(mktemp -d)
cd "$dir"
chmod 755 "$dir"
cleanup() {
  cd "$dir"
  end_ceph client.rgw.a
  rm -rf "$dir"
}
trap cleanup EXIT

http=${CBT_S3_ADDRESS:-127.0.0.1}:$(free_port)
# With `auth client required = none` radosgw 16.2 never connects.
configure_ceph cephx 4294967296
mkdir rgw
cat >>ceph.conf <<C
[client.rgw.a]
rgw frontends = beast endpoint=$http
rgw data = $dir/rgw
rgw run sync thread = false
rgw crypt require ssl = false
C
{
  start_ceph
  timeout 60 ceph auth get-or-create client.rgw.a mon 'allow rw' osd 'allow rwx' >>ceph.keyring
  radosgw -n client.rgw.a
  for _ in $(seq 300); do
    curl -s -o /dev/null "http://$http" && break
    sleep 0.2
  done
  radosgw-admin -n client.rgw.a user create --uid=test --display-name=test --caps="users=*;buckets=*;metadata=*" \
    --access-key=AKRADOS --secret-key='secret/of+radosgw'
  # A bucket, made by curl's own signature.
  curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user 'AKRADOS:secret/of+radosgw' -X PUT \
    -H "x-amz-content-sha256: $(printf '' | sha256sum | cut -d' ' -f1)" \
    "http://$http/bucket"
} >setup.log 2>&1 || { cat setup.log; tail -n 20 run/*.log; exit 1; }

cd "$here"
CBT_TEST_S3="http://$http bucket AKRADOS secret/of+radosgw" "$@"
