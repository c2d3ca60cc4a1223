#!/bin/bash
# Makes a virtual environment for the tests of bindings/python: readers of Arrow streams, grpcio,
# mypy and auditwheel, of the versions in requirements.txt, from the package index that pip uses.
#
#   tests/python/environment.sh          makes it, once; prints its folder
#   tests/python/environment.sh --built  makes nothing; prints the folder if it is there
#
# PYTHON is the interpreter, python3 of the system by default. The folder lies in
# XDG_CACHE_HOME/cbt-python and has another name for other versions; `wheels` in it has what a clean
# environment needs, so that tests need no network.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-/usr/bin/python3}
key=$( (cat "$here/requirements.txt" "$0"; "$python" -VV) | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-${HOME:?is not set, nor is XDG_CACHE_HOME}/.cache}/cbt-python/$key

if [[ ${1:-} == --built ]]; then
  [[ -e $folder/.complete ]] || exit 1
  echo "$folder"
  exit
fi
if [[ ! -e $folder/.complete ]]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  "$python" -m venv "$folder" >&2
  "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
  "$folder/bin/pip" download --quiet --disable-pip-version-check --dest "$folder/wheels" \
    --constraint "$here/requirements.txt" cffi numpy setuptools wheel >&2
  touch "$folder/.complete"
fi
echo "$folder"
