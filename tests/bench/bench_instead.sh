#!/bin/sh
# bench_instead.sh SOURCE WEIR_BENCH - the table of what one would use instead has a row for weir and, for each peer, a row
# or a reason why there is none.
set -eu
source=$1
bench=$2
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
mkdir "$scratch/bin"

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/out" "$scratch/err" >&2
    exit 1
}

printf '#!/bin/sh\necho "no package of that name" >&2\nexit 1\n' >"$scratch/bin/go"
chmod +x "$scratch/bin/go"
PATH=$scratch/bin:$PATH sh "$source/bench/instead.sh" --quick --no-install --bench "$bench" \
    >"$scratch/out" 2>"$scratch/err" || fail 'it failed'
grep -qE '^weir, local +the process +[0-9]+ +-$' "$scratch/out" || fail 'no row for weir in local mode'
grep -qE '^What you would use instead: one caller, 1,000 keys; processor: .+; load: [0-9.]+$' "$scratch/out" ||
    fail 'the processor is not named'
grep -qx 'left out: x/time/rate: no package of that name: apt-get install golang-golang-x-time-dev' "$scratch/out" ||
    fail 'not said why x/time/rate is left out'
grep -q '^left out: limit_req: ' "$scratch/out" || fail 'not said why limit_req is left out'
for name in 'gateway script, pooled' 'weir, distributed' INCR; do
    grep -qE "^(left out: )?$name.*" "$scratch/out" || fail "neither a row nor a reason: $name"
done
if ! grep -q '^left out: INCR' "$scratch/out"; then
    grep -qE '^INCR, the floor +Redis +[1-9][0-9]* +[0-9.]+$' "$scratch/out" || fail 'the row of INCR has no numbers'
    grep -qE '^gateway script, pooled +Redis +[1-9][0-9]* +[0-9.]+$' "$scratch/out" || fail "nor has the script's"
fi

status=0
sh "$source/bench/instead.sh" --all >"$scratch/out" 2>"$scratch/err" || status=$?
[ $status -eq 2 ] || fail "a wrong option: status $status"
