#!/bin/sh
# bench_modes.sh WEIR_BENCH - the modes side by side: the table, the JSON and the page are complete for various options. No
# check depends on how fast anything was. bench_redis.sh tests --redis.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/table" "$scratch/log" >&2
    exit 1
}

# measure OPTIONS... - a run that must succeed.
measure() {
    "$bench" --quick --repeat 1 --seconds 0.01 "$@" >"$scratch/table" 2>"$scratch/log" || fail "weir-bench $* failed"
}

# has PATTERN... - check that some line of the table begins with each pattern.
has() {
    for pattern in "$@"; do
        grep -q "^$pattern" "$scratch/table" || fail "no line of the table begins with: $pattern"
    done
}

has_not() {
    ! grep -q "$1" "$scratch/table" || fail "in the table: $1"
}

# says PATTERN - check that stderr has it once.
says() {
    [ "$(grep -c "$1" "$scratch/log")" -eq 1 ] || fail "not said once: $1"
}

# The whole table, and a log. Redis may be missing here.
cat >"$scratch/access.log" <<'LOG'
192.0.2.1 - - [01/Jul/1995:00:00:01 +0000] "GET / HTTP/1.0" 200 1
192.0.2.2 - - [01/Jul/1995:00:00:01 +0000] "GET / HTTP/1.0" 200 1
192.0.2.1 - - [01/Jul/1995:00:00:02 +0000] "GET /a HTTP/1.0" 200 1
LOG
measure --results "$scratch/all" --json "$scratch/json" --log "$scratch/access.log" --speed 10 \
    --policy 'fixed_window limit=1 period=1m'
if grep -q 'NOT MEASURED' "$scratch/log"; then
    echo "no Redis here: local and machine mode alone" >&2
    has 'figure  *local  *machine'
else
    has 'figure  *local  *distributed  *hybrid  *machine  *floor$' 'promises  *its share  *exact  *a bound  *exact' \
        'Options other than the defaults: on_failure=WEIR_FAIL_ERROR' 'Redis dies and is back after .* s with its data; 3 ' \
        'longest call, ms (timeout 50)' 'admitted while it is away, % of the limit' 'Redis calls per request' \
        'Take hybrid if ' 'Take distributed if ' 'Take machine if '
    # These results do not depend on when each request came: of a window the exact modes leave nothing.
    has 'denied, requests  *1  *1  *1  *1 ' '3:1:1: unused, %  *26.7  *0  *0  *0 ' 'all to one: unused, %  *66.7  *0  *0  *0 ' \
        'largest excess, permits  *0  *0  *0  *0 '
    [ "$(grep -n '^Take hybrid' "$scratch/table" | cut -d: -f1)" -gt "$(grep -n '^figure' "$scratch/table" | cut -d: -f1)" ] ||
        fail 'the table does not come before the sentences that choose'
fi
has 'Throughput, decisions a second: 20 limits of four kinds' 'best case: 1 caller' 'Latency, us' 'Memory, bytes a key' \
    'Accuracy, windows of 60 permits that 3 processes share' 'Accuracy, token bucket' \
    'The log access.log: 3 requests, 2 keys, at 10.0 times its own pace' 'admitted, % of the requests  *66.7'
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' "$scratch/all/table.txt")" -le 100 ] ||
    fail 'the table does not fit 100 columns'
[ "$(tail -n 1 "$scratch/table")" = "The page with all figures: $scratch/all/results.html" ] || fail 'the page is not named at the end'
sed '$d' "$scratch/table" | sed '$d' | cmp -s - "$scratch/all/table.txt" || fail "table.txt is not what was printed"
[ ! -e "$scratch/all/results.json" ] || fail "--json did not take the place of results.json"
grep -q '"part": "The log access.log' "$scratch/json" || fail "the JSON has no headings"
[ "$(sed -n '1p;$p' "$scratch/json" | tr -d '\n')" = '{}' ] || fail "$scratch/json is not JSON"
for words in '"Throughput of ordinary traffic"' '"Latency, p99"' '"log_y": true' prefers-color-scheme; do
    grep -qF "$words" "$scratch/all/results.html" || fail "not on the page: $words"
done
! grep -qE 'https?:|url\(|@DOCUMENT@' "$scratch/all/results.html" || fail 'the page needs something else'
grep -q 'step 1 of ' "$scratch/log" || fail 'no step is said'
steps=$(sed -n 's/.*step \([0-9]*\) of \([0-9]*\): .*/\1 \2/p' "$scratch/log" | tail -n 1)
[ "${steps% *}" = "${steps#* }" ] || fail "the last step is not the last of the total: $steps"

# Local mode alone needs no Redis.
PATH=/nowhere WEIR_TEST_REDIS_SERVER='' "$bench" --quick --repeat 1 --seconds 0.01 --modes local \
    --results "$scratch/local" >"$scratch/table" 2>"$scratch/log" || fail "local mode alone failed"
has 'figure  *local' 'promises  *its share'
has_not '^figure.*distributed'
has_not '^Take '
has_not 'Redis dies'
! grep -q 'redis-server' "$scratch/log" || fail "local mode alone started a redis-server"
grep -q '"local"' "$scratch/local/results.json" || fail 'results.json has no figures'

# Requests without keys are all of one key.
printf 'time_us,cost\n1,1\n2,1\n3,1\n' >"$scratch/keyless.csv"
measure --modes local --log "$scratch/keyless.csv" --speed 1 --policy 'fixed_window limit=1 period=1m'
has 'The log keyless.csv: 3 requests, 1 key, at ' 'denied, requests  *2' 'the log: all requests together have '

measure --modes local --instances 2
has 'Accuracy, windows of 60 permits that 2 processes share' '3:1: unused, %  *25.0' 'all to one: unused, %  *50.0'

# A redis-server that does not start is reported, and local mode is measured.
WEIR_TEST_REDIS_SERVER=/nowhere/redis-server measure --modes local,hybrid
says 'NOT MEASURED'
has 'promises  *its share'

# A redis-server that dies is reported.
: >"$scratch/log"
"$bench" --quick --modes distributed >"$scratch/table" 2>"$scratch/log" &
running=$!
until grep -q 'NOT MEASURED\|loads in turns' "$scratch/log" || ! kill -0 $running; do sleep 0.01; done
server=$(sed -n 's/.*started redis-server.* pid \([0-9]*\);.*/\1/p' "$scratch/log")
[ -z "$server" ] || kill -9 "$server"
status=0
wait $running || status=$?
[ -z "$server" ] || [ $status -eq 2 ] || fail "status $status, not 2, when the redis-server died"
[ -z "$server" ] || grep -q 'the redis-server: ' "$scratch/log" ||
    fail "it is not said that the redis-server died"

# refuses PATTERN OPTIONS... - check for status 2, no measurement, and a message that names the mistake.
refuses() {
    pattern=$1
    shift
    status=0
    "$bench" --quick "$@" >"$scratch/table" 2>"$scratch/log" || status=$?
    [ $status -eq 2 ] || fail "status $status, not 2: $*"
    grep -q -e "$pattern" "$scratch/log" || fail "not said of $*: $pattern"
    has_not 'figure'
}
printf 'time_us,key,cost\n1,a,1\n' >"$scratch/good.csv"
printf 'time_us,key,cost\n1,a,1\n2,b,zero\n3,c,1\n' >"$scratch/bad.csv"
refuses "--modes: 'global' is none of local, distributed, hybrid, machine" --modes local,global
refuses '--modes: an empty word' --modes local,
refuses "--instances: '1' is not a whole number from 2 to 16" --instances 1
refuses "--instances: '17' is not" --instances 17
refuses "--threads: '0' is not" --threads 0
refuses "--speed: 'fast' is not a number" --speed fast --log "$scratch/good.csv"
refuses '--speed goes with --log FILE' --speed 2
refuses '--policy goes with --log FILE' --policy 'fixed_window limit=1 period=1s'
refuses '--policy: column 14: ' --policy 'fixed_window limit=none period=1s' --log "$scratch/good.csv"
refuses '--redis goes with section modes' --only processes --redis redis://localhost
refuses '--results: cannot write .*good.csv/.*: Not a directory' --results "$scratch/good.csv"
refuses '--results: cannot make the folder .*/no/folder' --results "$scratch/no/folder"
refuses '--json: cannot write .*/no/json' --json "$scratch/no/json"
refuses '/no/log: ' --log "$scratch/no/log"
refuses 'bad.csv:3: .*zero' --log "$scratch/bad.csv"
refuses 'there are no requests in it' --log /dev/null
refuses "'nothing' is not an option" nothing
