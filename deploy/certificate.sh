#!/bin/sh
# Makes a certificate by openssl, and prints it as a Secret for `kubectl apply -f -`.
#
#   deploy/certificate.sh --authority DIR --namespace NS --secret NAME HOST...       of a server
#   deploy/certificate.sh --authority DIR --namespace NS --secret NAME --client CN   of a client
#
# DIR has the authority, ca.crt and ca.key, which the first call makes: keep the key secret. The
# Secret has the authority's certificate as ca.crt, and no key of it. DAYS: how long the certificate
# is valid (90). Again, for rotation: programs read the Secret again when it changes.
set -eu

usage() {
  sed -n 's/^#   //p' "$0" >&2
  exit 2
}

authority= namespace= secret= client= hosts=
while [ $# -gt 0 ]; do
  case $1 in
    --authority | --namespace | --secret | --client)
      [ $# -gt 1 ] || usage
      eval "${1#--}=\$2"
      shift
      ;;
    -*) usage ;;
    *) hosts="$hosts${hosts:+,}DNS:$1" ;;
  esac
  shift
done
if [ -z "$authority" ] || [ -z "$namespace" ] || [ -z "$secret" ] || [ -z "$client$hosts" ]; then usage; fi
if [ -n "$client" ] && [ -n "$hosts" ]; then usage; fi

umask 077
mkdir -p "$authority"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

if [ ! -e "$authority/ca.crt" ]; then
  key "$authority/ca.key"
  openssl req -x509 -new -key "$authority/ca.key" -days 3650 -subj "/CN=cbt-authority" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
    -out "$authority/ca.crt"
fi

# A name of 64 bytes is the longest for a subject; the hosts are what clients look at.
key "$work/tls.key"
openssl req -new -key "$work/tls.key" -subj "/CN=${client:-$secret}" -out "$work/request"
{
  echo "basicConstraints=CA:FALSE"
  echo "keyUsage=critical,digitalSignature"
  if [ -n "$client" ]; then
    echo "extendedKeyUsage=clientAuth"
  else
    echo "extendedKeyUsage=serverAuth"
    echo "subjectAltName=$hosts"
  fi
} >"$work/extensions"
openssl x509 -req -in "$work/request" -CA "$authority/ca.crt" -CAkey "$authority/ca.key" \
  -CAcreateserial -CAserial "$work/serial" -days "${DAYS:-90}" -extfile "$work/extensions" \
  -out "$work/tls.crt" 2>/dev/null

data() { printf '  %s: %s\n' "$1" "$(base64 -w 0 <"$2")"; }
printf 'apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata:\n'
printf '  name: %s\n  namespace: %s\ndata:\n' "$secret" "$namespace"
data ca.crt "$authority/ca.crt"
data tls.crt "$work/tls.crt"
data tls.key "$work/tls.key"
