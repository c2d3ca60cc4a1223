# One monitor and one OSD of Ceph on the loopback interface, in the current folder. Sourced by scripts
# that run there with `set -euo pipefail`.

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# configure_ceph AUTH BYTES: writes ceph.conf. AUTH is cephx or none, BYTES the size of the OSD, in
# memory. Further lines may follow in the file.
configure_ceph() {
  local mon
  mon=$(free_port)
  mkdir -p mon/ceph-a osd/ceph-0 run
  cat >ceph.conf <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon initial members = a
mon host = [v2:127.0.0.1:$mon]
auth cluster required = $1
auth service required = $1
auth client required = $1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
run dir = $PWD/run
admin socket = $PWD/run/\$name.asok
log file = $PWD/run/\$name.log
pid file = $PWD/run/\$name.pid
keyring = $PWD/ceph.keyring
ms bind ipv6 = false
[mon]
mon data = $PWD/mon/ceph-\$id
[osd]
osd data = $PWD/osd/ceph-\$id
osd objectstore = memstore
memstore device bytes = $2
osd class load list = *
osd class default list = *
C
  export CEPH_CONF=$PWD/ceph.conf
}

start_ceph() {
  local mon osd
  mon=$(sed -n 's/^mon host = \[v2:\(.*\)\]$/\1/p' ceph.conf)
  ceph-authtool --create-keyring ceph.keyring --gen-key -n mon. --cap mon 'allow *'
  ceph-authtool ceph.keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
  monmaptool --create --fsid "$(sed -n 's/^fsid = //p' ceph.conf)" --addv a "[v2:$mon]" monmap
  ceph-mon --mkfs -i a --monmap monmap --keyring ceph.keyring
  ceph-mon -i a --public-addr "$mon"
  osd=$(cat /proc/sys/kernel/random/uuid)
  timeout 60 ceph osd new "$osd"
  timeout 60 ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' >>ceph.keyring
  ceph-osd -i 0 --mkfs --osd-uuid "$osd"
  ceph-osd -i 0
}

# end_ceph NAMES...: ends the processes of these names, and then the OSD and the monitor.
end_ceph() {
  local name pid
  for name in "$@" osd.0 mon.a; do
    if [[ -f run/$name.pid ]]; then
      pid=$(cat "run/$name.pid")
      kill -9 "$pid" 2>/dev/null || true
      while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    fi
  done
}
