#!/bin/sh
# bench_goals.sh WEIR_BENCH - section goals has a line for every goal of local mode, in the table and in the JSON, and the
# limiters still hold all keys at the end.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/table" "$scratch/log" >&2
    exit 1
}

measure() {
    "$bench" --quick --repeat 1 --seconds 0.002 --json "$scratch/json" "$@" >"$scratch/table" 2>"$scratch/log" ||
        fail "weir-bench $* failed"
}

# need LINES WORK UNIT - check that LINES lines of the table and rows of the JSON begin like that.
need() {
    [ "$(grep -c "^$2.*  $3  " "$scratch/table")" -eq "$1" ] || fail "not $1 lines: $2 ... $3"
    [ "$(grep -c "\"work\": \"$2[^\"]*\", \"unit\": \"$3\", \"measured\": {" "$scratch/json")" -eq "$1" ] ||
        fail "not $1 rows of the JSON: $2 ... $3"
}

measure --only goals
if grep -q "keys are held" "$scratch/log"; then
    fail "keys were dropped while they were measured"
fi
need 1 "keyed, 100000 keys zipf, 1 thread" "ns"
need 1 "keyed, 100000 keys zipf, 1 thread" "times mutex_mono"
need 1 "keyed, 100000 keys zipf, 2 threads" "times mutex_mono"
need 1 "keyed, 100000 keys zipf, 2 threads" "total to one thread's"
need 1 "keyed, 100000 keys uniform, 1 thread" "ns"
need 1 "keyed, 100000 keys uniform, 1 thread" "times mutex_mono"
need 1 "keyed, 1000 keys zipf, 1 thread" "ns"
need 1 "keyed, 1000 keys zipf, 2 threads" "ns"
need 2 "batch of 32" "ns"
need 4 "handle, one hot key" "ns"
need 2 "handle, one hot key, allow, 2 threads" "times compare-and-swap"
need 1 "bytes per key" "resident, with the limiter"
need 1 "bytes per key" "as weir_stats reports"
need 1 "worst decision, growing to 100000 keys" "ms, worst of 5 runs"
for algorithm in interval fixed sliding leaky; do
    need 2 "$algorithm" "times token"
done
need 2 "100 limits" "times one limit"
need 2 "10000 limits" "times one limit"
# Goals for a million keys are not judged with fewer keys.
grep -q '^keyed, 100000 keys zipf, 1 thread .*<= 100, for more keys' "$scratch/table" ||
    fail "judged by fewer keys"

measure --only goals --keys 5k
need 1 "worst decision, growing to 5000 keys" "ms, worst of 5 runs"
