#!/bin/sh
# Installs the Debian packages of the named groups that are missing (cmake/packages.txt).
#
#   cmake/install-packages.sh [--check] GROUP...
#
# --check: installs nothing, and fails where packages are missing.
# Quick and silent when nothing is missing. Needs root or a sudo that asks no password to install; says
# what is missing and fails otherwise. Where there is no dpkg it checks nothing: CMake names there
# what it can't find.
set -eu

list=$(dirname "$0")/packages.txt
check=
if [ "${1:-}" = --check ]; then
  check=1
  shift
fi

if [ $# -eq 0 ]; then
  echo "usage: $0 [--check] GROUP... (groups stand in $list)" >&2
  exit 2
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install-packages: no dpkg here, so nothing is checked; $list names what the build needs" >&2
  exit 0
fi

# Each package once, however many groups name it; "?group" for an unknown group.
wanted=$(
  awk -v asked="$*" '
    BEGIN { for (i = split(asked, list, " "); i > 0; --i) asked_for[list[i]] = 1 }
    {
      sub(/#.*/, "")
      take = 0
      for (i = split($2, groups, ","); i > 0; --i) {
        if (groups[i] in asked_for) taken[groups[i]] = take = 1
      }
      if (take) print $1
    }
    END { for (group in asked_for) if (!(group in taken)) print "?" group }
  ' "$list"
)
case $wanted in
  *\?*)
    echo "install-packages: no such group: ${wanted#*\?}" >&2
    exit 2
    ;;
esac

# dpkg-query fails for unknown packages, which is a valid result here.
# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null || true)
missing=""
for package in $wanted; do
  case "
$installed
" in
    *"
installed $package
"*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ -n "$check" ]; then
  echo "missing packages:$missing" >&2
  echo "\`make deps DEPS=\"$*\"\` installs them, as root or with sudo" >&2
  exit 1
fi

give_up() {
  echo "install-packages: missing packages:$missing ($1)" >&2
  exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up "no apt-get here to install them"
if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n env"
else
  give_up "install them as root, or run this with a sudo that asks no password"
fi

echo "install-packages: installing$missing" >&2
# Waits for another apt, asks nothing, and does not read standard input.
options="-q -y -o DPkg::Lock::Timeout=300"
# shellcheck disable=SC2086
$as_root DEBIAN_FRONTEND=noninteractive apt-get $options update </dev/null >&2 ||
  give_up "apt-get update failed"
# shellcheck disable=SC2086
$as_root DEBIAN_FRONTEND=noninteractive apt-get $options install --no-install-recommends \
  $missing </dev/null >&2 || give_up "apt-get install failed"
