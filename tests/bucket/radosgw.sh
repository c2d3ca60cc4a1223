#!/bin/bash
# The client of S3 against a real Ceph: one monitor, one OSD and a radosgw on the loopback interface,
# in a folder of their own, gone afterwards. Takes half a minute.
#
#   tests/bucket/radosgw.sh COMMAND...
#
# COMMAND runs with CBT_TEST_S3="ENDPOINT BUCKET ACCESS_KEY SECRET_KEY". Without Ceph's packages:
# exit status 77.
set -euo pipefail
for program in ceph-mon ceph-osd radosgw radosgw-admin ceph-authtool monmaptool; do
  command -v "$program" >/dev/null || { echo "not installed: $program (ceph-mon, ceph-osd, radosgw)"; exit 77; }
done
dir=$(mktemp -d)
here=$PWD
cd "$dir"
chmod 755 "$dir"

cleanup() {
  for name in client.rgw.a osd.0 mon.a; do
    if [[ -f run/$name.pid ]]; then
      pid=$(cat "run/$name.pid")
      kill -9 "$pid" 2>/dev/null || true
      while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    fi
  done
  rm -rf "$dir"
}
trap cleanup EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
mon=$(free_port)
http=$(free_port)
mkdir -p mon/ceph-a osd/ceph-0 rgw run
# With `auth client required = none` radosgw 16.2 never connects.
cat >ceph.conf <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon initial members = a
mon host = [v2:127.0.0.1:$mon]
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
run dir = $dir/run
admin socket = $dir/run/\$name.asok
log file = $dir/run/\$name.log
pid file = $dir/run/\$name.pid
keyring = $dir/ceph.keyring
ms bind ipv6 = false
[mon]
mon data = $dir/mon/ceph-\$id
[osd]
osd data = $dir/osd/ceph-\$id
osd objectstore = memstore
memstore device bytes = 4294967296
osd class load list = *
osd class default list = *
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:$http
rgw data = $dir/rgw
rgw run sync thread = false
rgw crypt require ssl = false
C
export CEPH_CONF=$dir/ceph.conf
{
  ceph-authtool --create-keyring ceph.keyring --gen-key -n mon. --cap mon 'allow *'
  ceph-authtool ceph.keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
  monmaptool --create --fsid "$(sed -n 's/^fsid = //p' ceph.conf)" \
    --addv a "[v2:127.0.0.1:$mon]" monmap
  ceph-mon --mkfs -i a --monmap monmap --keyring ceph.keyring
  ceph-mon -i a --public-addr 127.0.0.1:"$mon"
  osd=$(cat /proc/sys/kernel/random/uuid)
  timeout 60 ceph osd new "$osd"
  timeout 60 ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' >>ceph.keyring
  timeout 60 ceph auth get-or-create client.rgw.a mon 'allow rw' osd 'allow rwx' >>ceph.keyring
  ceph-osd -i 0 --mkfs --osd-uuid "$osd"
  ceph-osd -i 0
  radosgw -n client.rgw.a
  for _ in $(seq 300); do
    curl -s -o /dev/null "http://127.0.0.1:$http" && break
    sleep 0.2
  done
  radosgw-admin -n client.rgw.a user create --uid=test --display-name=test --caps="users=*;buckets=*;metadata=*" \
    --access-key=AKRADOS --secret-key='secret/of+radosgw'
  # A bucket, made by curl's own signature.
  curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user 'AKRADOS:secret/of+radosgw' -X PUT \
    -H "x-amz-content-sha256: $(printf '' | sha256sum | cut -d' ' -f1)" \
    "http://127.0.0.1:$http/bucket"
} >setup.log 2>&1 || { cat setup.log; tail -n 20 run/*.log; exit 1; }

cd "$here"
CBT_TEST_S3="http://127.0.0.1:$http bucket AKRADOS secret/of+radosgw" "$@"
