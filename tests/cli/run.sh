#!/bin/sh
# run.sh WEIR [PART...] - tests the weir program from the outside: its input, decisions, output and exit status.
# A PART is a file of parts/, without its .sh; all of them by default. ctest runs each as a test of its own.
#
# A test's name is the sentence it proves. traces/ holds decisions worked out by hand from the algorithms' definitions. A
# test whose tool is missing (a browser, a full device, gzip) is skipped with a message.
set -u
[ $# -ge 1 ] || { echo "usage: run.sh WEIR [PART...]" >&2; exit 2; }
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
shift
if [ $# -eq 0 ]; then
    set -- "$here"/parts/*.sh
fi
for part in "$@"; do
    # shellcheck source=/dev/null
    . "$here/parts/$(basename "$part" .sh).sh"
done
finish
