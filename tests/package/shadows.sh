#!/bin/sh
# shadows.sh PROGRAM - check that the program defines no function of a shared library that it loads: the library would
# call the program's instead of its own.
set -eu
program=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

# names FILE [OPTION] - print the functions that it defines, without versions.
names() {
    nm ${2:+"$2"} --defined-only "$1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
        grep -vxE '_init|_fini|_start|main' | LC_ALL=C sort -u
}

names "$program" >"$scratch/own"
[ -s "$scratch/own" ] || { echo "nm reads nothing of $program" >&2; exit 1; }
failed=0 read=0
for library in $(ldd "$program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p'); do
    names "$library" -D >"$scratch/theirs"
    [ ! -s "$scratch/theirs" ] || read=$((read + 1))
    if LC_ALL=C comm -12 "$scratch/own" "$scratch/theirs" | grep .; then
        echo "defined in $program and in $library" >&2
        failed=1
    fi
done
[ "$read" -gt 0 ] || { echo "no shared library was read" >&2; exit 1; }
exit $failed
