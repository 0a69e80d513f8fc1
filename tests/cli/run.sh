#!/bin/sh
# run.sh WEIR - the weir program from the outside: what it reads, decides, prints, and its exit status.
#
# A name is the sentence it proves. traces/ holds decisions worked out by hand from what the algorithms promise. What is
# missing here (gnuplot, a full device, gzip) is said and left out.
set -u
[ $# -eq 1 ] || { echo "usage: run.sh WEIR" >&2; exit 2; }
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

for part in "$here"/parts/*.sh; do
    # shellcheck source=/dev/null
    . "$part"
done

finish
