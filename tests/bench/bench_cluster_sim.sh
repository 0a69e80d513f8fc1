#!/bin/sh
# bench_cluster_sim.sh WEIR_BENCH - simulated instances: a row for each number and demand, the same in each run; nearly all
# that one limit would admit is admitted; and the page has the charts. Time is virtual, so nothing depends on speed.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/table" "$scratch/log" >&2
    exit 1
}

simulate() { # N
    "$bench" --cluster-sim "$1" --results "$scratch/results" >"$scratch/table" 2>"$scratch/log" || fail "$1 instances failed"
}

simulate 3
for instances in 1 2 3; do
    [ "$(grep -cE "^$instances +(50|100|200) " "$scratch/table")" -eq 3 ] || fail "not 3 rows of $instances instances"
done
[ "$(grep -cE '^[0-9]+ +[0-9]+ ' "$scratch/table")" -eq 9 ] || fail 'not 9 rows'
awk '/^[0-9]+ +[0-9]+ / && ($3 < 90 || $3 > 101 || $4 > 10 || $5 < 1) { print; bad = 1 } END { exit bad }' \
    "$scratch/table" || fail 'these rows cannot be right'
for heading in 'What is admitted' 'What is denied wrongly' 'Calls to Redis a second'; do
    grep -q "<h2>$heading" "$scratch/results/results.html" || fail "the page has no chart: $heading"
done
grep -q 'class="verdict"><p>With 3 instances and a demand of 200 % of the limit, hybrid mode admits' \
    "$scratch/results/results.html" || fail 'the page has no verdict'
[ "$(grep -o '<polyline' "$scratch/results/results.html" | wc -l)" -eq 9 ] || fail 'the charts have no curves'
grep -q '"instances": 3, ' "$scratch/results/results.json" || fail 'the JSON has no rows'
grep -E '^[0-9]+ +[0-9]+ ' "$scratch/table" >"$scratch/first"
simulate 3
grep -E '^[0-9]+ +[0-9]+ ' "$scratch/table" | cmp -s - "$scratch/first" || fail 'another run has other results'

for wrong in 0 1001 few; do
    status=0
    "$bench" --cluster-sim $wrong >"$scratch/table" 2>"$scratch/log" || status=$?
    [ $status -eq 2 ] || fail "$wrong instances: status $status"
    grep -q -e "--cluster-sim: '$wrong' is not a whole number from 1 to 1000" "$scratch/log" || fail "not said: $wrong"
done
