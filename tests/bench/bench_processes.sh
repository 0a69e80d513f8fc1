#!/bin/sh
# bench_processes.sh WEIR_BENCH - section processes shows what four processes of one machine admit, in the table and in the
# JSON. No check depends on how fast anything was.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

"$bench" --quick --repeat 1 --seconds 0.01 --only processes --json "$scratch/json" >"$scratch/table" 2>"$scratch/log" || {
    cat "$scratch/log" >&2
    exit 1
}

# need FIGURE LOCAL SHARES MACHINE - check a row of the table, and that of the JSON.
need() {
    if ! grep -qE "^$1 +$2 +$3 +$4( |\$)" "$scratch/table" ||
        ! grep -A 3 "\"figure\": \"$1\"" "$scratch/json" | tr -d '\n' |
        grep -q "\"local\": $2[.0]*, *\"local, shares\": $3[.0]*, *\"machine\": $4[.0]*\$"; then
        echo "not as it should be: $1" >&2
        cat "$scratch/table" "$scratch/json" >&2
        exit 1
    fi
}

need 'each asks for the whole limit: admitted, % of it' 400 100 100
need 'one asks for four times the limit: admitted, % of it' 100 25.0 100
need 'demand 3:1:1:1, equal to the limit: admitted, % of it' 100 75.0 100
for figure in 'one process, 1000 keys, token: ns a decision' '2 processes, 1000 keys: ' '4 processes, 1000 keys: ' \
    'memory of all processes, 100,000 keys'; do
    grep -q "^$figure" "$scratch/table" || {
        echo "missing: $figure" >&2
        cat "$scratch/table" >&2
        exit 1
    }
done
