#!/bin/sh
# run.sh - searches all states of the model of leases for a broken promise, and checks that each mutant breaks one.
set -eu
cd "$(dirname "$0")"

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh tests/model/run.sh

Needs spin and a C compiler, CC (default cc). Takes about 10 seconds and 200 MB.

Exit status: 0 the promises hold and every mutant breaks one, 1 otherwise, 77 spin is not installed.
TEXT
    [ "$1" = --help ] && exit 0
    exit 2
fi
if ! command -v spin >/dev/null; then
    echo 'run.sh: spin is not installed (Debian: spin)'
    exit 77
fi

# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
work=$scratch
cp lease.pml "$work"
cd "$work"
failed=0

# Print holds or broken.
search() { # PARAMETERS
    spin -a "$@" lease.pml >spin.log
    ${CC:-cc} -O2 -w -DSAFETY -DNOREDUCE -DHC4 -o pan pan.c
    ./pan -m1000000 -w22 >pan.log 2>&1 || true
    if grep -q 'max search depth too small' pan.log; then
        echo unfinished
    elif grep -q 'errors: 0$' pan.log; then
        echo holds
    elif grep -q 'assertion violated' pan.log; then
        echo broken
    else
        echo failed
    fi
}
expect() { # RESULT PARAMETERS
    expected=$1
    shift
    result=$(search "$@")
    echo "$result: $* ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.log) states)"
    if [ "$result" != "$expected" ]; then
        echo "run.sh: this should be: $expected"
        failed=1
    fi
}

one='-DN=1 -DC=5 -DW=4'
# shellcheck disable=SC2086 # a list of words
{
    expect holds $one
    expect holds -DDIRECT=0 -DBATCHES=2
    for mutant in AGEING=1 AGEING=2 AGEING=3 USE=1 RETURNS=2 BACK_AT=0 SINCE=0 DIRECT=1; do
        expect broken $one -D$mutant
    done
}
exit $failed
