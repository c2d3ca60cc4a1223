#!/bin/sh
# Runs a test that takes minutes only if tests are scaled up; the exit status is 77 otherwise.
#
#   tests/support/scaled.sh COMMAND...
if [ "${CBT_TEST_SCALE:-1}" -le 1 ]; then
  echo "CBT_TEST_SCALE is 1: \`make nodes\` runs it"
  exit 77
fi
exec "$@"
