#!/bin/sh
# run.sh WEIR - tests the weir program from the outside: its input, decisions, output and exit status.
#
# A test's name is the sentence it proves. traces/ holds decisions worked out by hand from the algorithms' definitions. A
# test whose tool is missing (gnuplot, a full device, gzip) is skipped with a message.
set -u
[ $# -eq 1 ] || { echo "usage: run.sh WEIR" >&2; exit 2; }
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

for part in "$here"/parts/*.sh; do
    # shellcheck source=/dev/null
    . "$part"
done

finish
