#!/bin/sh
# bench_modes.sh WEIR_BENCH - the modes side by side: the table, the JSON and the plots are complete for various options and
# without some tools. No check depends on how fast anything was. bench_redis.sh tests --redis.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
mkdir "$scratch/empty"

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

# is_json FILE - check that a file is JSON: replace strings, numbers, then objects and arrays of these by one value.
is_json() {
    awk '{ all = all $0 }
        END {
            gsub(/\\./, "", all); gsub(/"[^"]*"/, "s", all); gsub(/[ \t]/, "", all); gsub(/true|false|null/, "v", all)
            gsub(/-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?/, "v", all)
            do
                n = gsub(/\{\}|\[\]|\{s:[sv](,s:[sv])*\}|\[[sv](,[sv])*\]/, "v", all)
            while (n > 0)
            exit all != "v"
        }' "$1" || fail "$1 is not JSON"
}

# are_numbers FOLDER - check that there are files of numbers, each with names and lines of as many numbers.
are_numbers() {
    for file in "$1"/*.tsv; do
        awk -F '\t' 'NR == 1 { n = NF } NF != n || n < 2 { bad = 1 } END { exit bad || NR < 2 }' "$file" ||
            fail "$file is no table"
    done
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
    echo "no Redis here: local mode alone" >&2
    has 'figure  *local' 'local: choose it'
else
    for words in 'Cost: one caller makes' 'Accuracy: where instances' 'Outage: while Redis'; do
        [ "$(grep -n "^$words" "$scratch/table" | cut -d: -f1)" -lt "$(grep -n '^modes:' "$scratch/table" | cut -d: -f1)" ] || fail "the verdict does not come first: $words"
        grep -q "<p>$words" "$scratch/all/results.html" || fail "not on the page: $words"
    done
    for heading in Throughput Latency 'What decisions cost' Memory 'Redis dies'; do
        grep -q "<h2>$heading" "$scratch/all/results.html" || fail "the page has no section $heading"
    done
    ! grep -qiE '<script|https?:|url\(' "$scratch/all/results.html" || fail 'the page needs something else'
    has 'decisions/s, 1 caller, 1,000 keys, leases of 50 ms  ' 'options other than the defaults: on_failure=WEIR_FAIL_ERROR'
    has 'figure  *local  *distributed  *hybrid  *floor  *which is$' 'over all instances  *its share  *exact  *stated bound' \
        'local: choose it' 'distributed: choose it' 'hybrid: choose it'
    has 'Redis dies and is back after .* s with its data; 3 instances' 'away: longest call, ms (timeout 50)' \
        'away: admitted, % of the limit' 'largest excess of a key, permits' 'Redis calls per request'
    # These results do not depend on when each request came.
    has 'denied, requests  *1  *1  *1 ' 'largest excess over the limit, permits  *0.00  *0.00  *0.00 ' \
        'unused, %: the worst of these rows  *[0-9.]*  *0.00 ' \
        'windows: difference to right clocks, permits  *[0-9.]*  *0.00 ' \
        'windows: largest excess, permits  *[0-9.]*  *0.00  *0.00 ' \
        '3:1:1, 1 x the limit  *73.3  *100 ' 'all to one, 4 x the limit  *33.3  *100 '
fi
has 'Throughput' 'Wall time of a decision' 'Latency, us' 'What decisions cost' 'Memory, bytes a key' '3 processes share' \
    'clocks 1 h apart' 'one of 3 is killed' 'The log access.log: 3 requests, 2 keys, at 10.0 times its own pace' \
    'admitted, % of the requests  *66.7'
cmp -s "$scratch/table" "$scratch/all/table.txt" || fail "table.txt is not what was printed"
[ ! -e "$scratch/all/results.json" ] || fail "--json did not take the place of results.json"
is_json "$scratch/json"
grep -q '"part": "The log access.log' "$scratch/json" || fail "the JSON has no headings"
are_numbers "$scratch/all"
if command -v gnuplot >/dev/null; then
    for numbers in "$scratch/all"/*.tsv; do
        picture=${numbers%.tsv}
        head -c 8 "$picture.png" | grep -q PNG || fail "$picture.png is none"
        grep -q '<svg' "$picture.svg" || fail "$picture.svg is none"
    done
fi

# Local mode alone needs no Redis, and no gnuplot.
PATH=$scratch/empty WEIR_TEST_REDIS_SERVER='' "$bench" --quick --repeat 1 --seconds 0.01 --modes local \
    --results "$scratch/local" >"$scratch/table" 2>"$scratch/log" || fail "local mode alone failed"
has 'figure  *local' 'over all instances  *its share  *-' 'local: choose it'
has_not '^figure.*distributed'
has_not '^hybrid: choose it'
has_not 'Redis dies'
! grep -q 'redis-server' "$scratch/log" || fail "local mode alone started a redis-server"
says 'cannot run gnuplot'
are_numbers "$scratch/local"
is_json "$scratch/local/results.json"
for picture in "$scratch/local"/*.[ps][nv]g; do
    [ ! -e "$picture" ] || fail "a picture without gnuplot: $picture"
done

# Requests without keys are all of one key.
printf 'time_us,cost\n1,1\n2,1\n3,1\n' >"$scratch/keyless.csv"
measure --modes local --log "$scratch/keyless.csv" --speed 1 --policy 'fixed_window limit=1 period=1m'
has 'The log keyless.csv: 3 requests, 1 key, at ' 'denied, requests  *2' 'the log: all requests together have '

# A gnuplot that fails is reported, and nothing else is lost.
printf '#!/bin/sh\nexit 3\n' >"$scratch/empty/gnuplot"
chmod +x "$scratch/empty/gnuplot"
PATH=$scratch/empty:$PATH measure --modes local --instances 2 --results "$scratch/local"
has '2 processes share' '3:1, 1 x the limit  *75.0  *75.0  *local, predicted' 'all to one, 2 x the limit  *50.0 ' \
    'off the split.s prediction, permits  *0.00' 'killed: until' 'started: until'
grep -q 'gnuplot failed' "$scratch/log" || fail "that gnuplot fails is not said"
is_json "$scratch/local/results.json"

# A redis-server that does not start is reported, and local mode is measured.
WEIR_TEST_REDIS_SERVER=/nowhere/redis-server measure --modes local,hybrid
says 'NOT MEASURED'
has 'over all instances  *its share  *-'

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
refuses "--modes: 'global' is none of local, distributed, hybrid" --modes local,global
refuses '--modes: an empty word' --modes local,
refuses "--instances: '1' is not a whole number from 2 to 16" --instances 1
refuses "--instances: '17' is not" --instances 17
refuses "--threads: '0' is not" --threads 0
refuses "--speed: 'fast' is not a number" --speed fast --log "$scratch/good.csv"
refuses '--speed goes with --log FILE' --speed 2
refuses '--policy goes with --log FILE' --policy 'fixed_window limit=1 period=1s'
refuses '--policy: column 14: ' --policy 'fixed_window limit=none period=1s' --log "$scratch/good.csv"
refuses '--redis goes with section modes' --only processes --redis redis://localhost
refuses '--results: .*good.csv is not a folder' --results "$scratch/good.csv"
refuses '--results: cannot make the folder .*/no/folder' --results "$scratch/no/folder"
refuses '--json: cannot write .*/no/json' --json "$scratch/no/json"
refuses '/no/log: ' --log "$scratch/no/log"
refuses 'bad.csv:3: .*zero' --log "$scratch/bad.csv"
refuses 'there are no requests in it' --log /dev/null
refuses "'nothing' is not an option" nothing
