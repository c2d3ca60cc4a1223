#!/bin/sh
# Makes cbt-sys/src/bindings.rs from the headers of this tree: bindgen.sh [--check]. It needs
# bindgen (cargo install bindgen-cli) and libclang.
set -eu
cd "$(dirname "$0")"
# Any copy of Arrow's structures will do, and enumerations are ints of fixed values.
make() {
  bindgen ../../include/cbt/c/cbt.h --use-core --no-doc-comments --no-layout-tests --no-prepend-enum-name \
    --allowlist-function 'cbt_.*' --allowlist-type 'cbt_.*|Arrow.*' --allowlist-var 'CBT_.*' \
    --blocklist-item 'CBT_HAVE_.*|CBT_C_.*' --rust-target 1.81 --rust-edition 2021 --merge-extern-blocks \
    -- -I../../include -std=c11
}
if [ "${1:-}" = --check ]; then
  make | diff -u cbt-sys/src/bindings.rs -
else
  make >cbt-sys/src/bindings.rs
fi
