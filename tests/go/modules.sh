#!/bin/bash
# Fetches the Go modules that bindings/go, its examples, tests and benchmark and the example
# provider need, of the versions in their go.sum, from where GOPROXY points. Go keeps them in
# GOMODCACHE.
#
#   tests/go/modules.sh          fetches what is missing
#   tests/go/modules.sh --built  fetches nothing; fails if something is missing
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export GOFLAGS="-mod=readonly -buildvcs=false" GOWORK=off GOTOOLCHAIN=local
if [[ ${1:-} == --built ]]; then
  export GOPROXY=off
fi
for module in bindings/go bindings/go/examples tests/go/arrow bench/go examples/provider-go; do
  cd "$root/$module"
  go list -deps -test ./... >/dev/null
done
