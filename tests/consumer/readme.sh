#!/bin/sh
# The programs in the README compile against the public headers alone.
# Usage: readme.sh COMPILER SOURCE_DIR
set -eu
program=$(mktemp)
trap 'rm -f "$program"' EXIT
sed -n '/^```cpp$/,/^```$/p' "$2/README.md" | sed '/^```/d' >"$program"
lines=$(grep -c . "$program")
[ "$lines" -ge 20 ] || { echo "README.md: no program found" >&2; exit 1; }
"$1" -x c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$2/include" "$program"
