#!/bin/sh
# run.sh EXAMPLE... - check that any two of the examples, run together on one key of a private Redis, are allowed exactly
# the limit, and that each of them reports a Redis that is gone.
set -u
[ $# -ge 1 ] || { echo "usage: run.sh EXAMPLE..." >&2; exit 2; }
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
here=$(dirname "$0")/../tests/cli
# shellcheck source=tests/cli/server.sh
. "$here/server.sh"
# shellcheck disable=SC2119 # with no words for its command line
start_server

# Each asks for less than the limit, so that neither can use it up alone.
failed=0
for first in "$@"; do
    for second in "$@"; do
        asked flushall >"$scratch/answer"
        "$first" "$url" 90 >"$scratch/first" &
        pid=$!
        "$second" "$url" 70 >"$scratch/second"
        wait "$pid"
        allowed=$(cat "$scratch/first" "$scratch/second" | awk '/, 0 without Redis, 0 errors$/ { sum += $1 } END { print sum }')
        echo "$(basename "$first"): $(cat "$scratch/first"); $(basename "$second"): $(cat "$scratch/second")"
        if [ "$allowed" != 100 ]; then
            echo "FAIL: $allowed were allowed, not 100"
            failed=1
        fi
    done
done

stop_server
wait
for example in "$@"; do
    "$example" "$url" 5 >"$scratch/first" 2>"$scratch/err"
    if ! grep -qx '0 allowed, 5 without Redis, 0 errors' "$scratch/first" || ! [ -s "$scratch/err" ]; then
        echo "FAIL: without Redis $(basename "$example") says: $(cat "$scratch/first" "$scratch/err")"
        failed=1
    fi
done
exit $failed
