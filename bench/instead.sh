#!/bin/sh
# instead.sh - what you would use instead of weir, measured beside it. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh bench/instead.sh [--quick] [--no-install] [--bench FILE]

Prints one table: what you would use instead of weir, and weir beside it, each with one caller and 1,000 keys, and none is
ever denied. All options of weir have their defaults, except that calls wait for Redis (bench/redis/remote.h).

  x/time/rate     Go's limiter, one a key in a map behind a mutex: Debian's golang-go and golang-golang-x-time-dev
  gateway script  bench/gateway.lua, the usual script of gateways, over a pool of blocking connections
  INCR            what no decision in Redis is cheaper than, by redis-benchmark: redis-tools
  limit_req       nginx's, by sh bench/nginx.sh, which takes 2 minutes

What is missing here is installed through apt, if it may be, and otherwise left out with a reason.

  --quick         short repetitions, which mean little, and without nginx
  --no-install    install nothing
  --bench FILE    measure with this weir-bench instead of building one

Exit status: 0, or 2 if weir itself cannot be measured or an option is wrong.
TEXT
}

quick=
bench=
installs=yes
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit 0 ;;
    --quick) quick=--quick ;;
    --no-install) installs=no ;;
    --bench) [ $# -gt 1 ] && bench=$2 && shift ;;
    *) echo "instead.sh: '$1' is not an option; see --help" >&2 && exit 2 ;;
    esac
    shift
done

. tests/tools/scratch.sh
server=
trap '[ -z "$server" ] || kill "$server"; scratch_remove' EXIT
: >"$scratch/rows"
: >"$scratch/reasons"

# row NAME WHERE NS [SERVER_US]: add a row; left_out NAME REASON: say why there is none.
row() {
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4--}" >>"$scratch/rows"
}
left_out() {
    printf 'left out: %s: %s\n' "$1" "$2" >>"$scratch/reasons"
}

# there_is PACKAGE COMMAND: true if the command exists, if necessary after an attempt to install the packages.
there_is() {
    command -v "$2" >/dev/null 2>&1 && return 0
    [ $installs = yes ] || return 1
    # shellcheck disable=SC2086 # a list of words
    (need_packages $1) >&2 && command -v "$2" >/dev/null 2>&1
}

# ---- weir, and the gateway script ----

if [ -z "$bench" ]; then
    # shellcheck disable=SC2086 # lists of words
    need_packages $build_packages $redis_packages $consul_packages
    configure_preset release -DWEIR_BENCH=ON
    cmake --build build/release --parallel "$jobs" --target weir-bench
    bench=build/release/bench/weir-bench
fi
say "measuring"
# shellcheck disable=SC2086 # an option or none
"$bench" --only processes,callers --keys 1k $quick --json "$scratch/json" \
    >"$scratch/table" 2>"$scratch/log" || {
    cat "$scratch/log" >&2
    exit 2
}

# figure PATTERN COLUMN: print the median of that column in the first row of the JSON that the pattern finds.
figure() {
    tr -s '\n ' ' ' <"$scratch/json" | sed 's/{ "\(figure\|callers\)/\n&/g' | grep -m 1 -e "$1" |
        sed -n "s|.*\"$2\": { \"median\": \([0-9.e+-]*\),.*|\1|p"
}

row 'weir, local' 'the process' "$(figure '"one process, 1000 keys, token: ns a decision"' local)"
for how in 'pool, gateway script' 'weir_try'; do
    one="\"callers\": 1, \"how\": \"$how\""
    ns=$(figure "$one" 'p50 us' | awk '{ print $1 * 1000 }')
    case $how in
    pool*) name='gateway script, pooled' ;;
    *) name='weir, distributed' ;;
    esac
    if [ -n "$ns" ]; then
        row "$name" Redis "$ns" "$(figure "$one" 'server us')"
    else
        left_out "$name" "$(grep -m 1 'NOT MEASURED' "$scratch/log" || echo 'there are no results')"
    fi
done

# ---- x/time/rate ----

x_time_rate() {
    if ! there_is 'golang-go golang-golang-x-time-dev' go; then
        left_out x/time/rate 'there is no go: apt-get install golang-go golang-golang-x-time-dev'
        return
    fi
    # Debian's library needs no download, and go must not look for one.
    if ns=$(GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' GOPROXY=off GOCACHE=$scratch/go \
        go run bench/instead.go 2>"$scratch/go.log"); then
        row 'x/time/rate, map and mutex' 'the process' "$ns"
    else
        left_out x/time/rate "$(head -n 1 "$scratch/go.log"): apt-get install golang-golang-x-time-dev"
    fi
}
x_time_rate

# ---- INCR ----

incr() {
    if ! there_is redis-tools redis-benchmark; then
        left_out INCR 'there is no redis-benchmark: apt-get install redis-tools'
        return
    fi
    program=$(command -v redis-server || command -v redis-check-rdb) || program=
    if [ -n "${WEIR_TEST_REDIS_SERVER-}" ]; then
        program=$WEIR_TEST_REDIS_SERVER
    elif [ "${program##*/}" = redis-check-rdb ]; then # Debian's redis-tools has the server under that name
        ln -s "$program" "$scratch/redis-server"
        program=$scratch/redis-server
    fi
    # shellcheck disable=SC2086 # a command of several words
    $program --port 0 --unixsocket "$scratch/socket" --dir "$scratch" --save '' >"$scratch/server.log" 2>&1 &
    server=$!
    until [ "$(redis-cli -s "$scratch/socket" ping 2>/dev/null)" = PONG ]; do
        kill -0 $server 2>/dev/null || {
            server=
            left_out INCR 'the redis-server does not start'
            return
        }
        sleep 0.1
    done
    n=50000
    [ -z "$quick" ] || n=500
    before=$(redis-cli -s "$scratch/socket" info cpu | awk -F: '/^used_cpu_(sys|user):/ { s += $2 } END { print s }')
    redis-benchmark -s "$scratch/socket" -c 1 -n $n -r 1000 --csv INCR key:__rand_int__ >"$scratch/incr" 2>&1
    after=$(redis-cli -s "$scratch/socket" info cpu | awk -F: '/^used_cpu_(sys|user):/ { s += $2 } END { print s }')
    us=$(awk -v a="$after" -v b="$before" -v n=$n 'BEGIN { printf "%.2f", (a - b) * 1e6 / n }')
    # The median of newer versions, or the mean that the rate implies.
    ns=$(awk -F'","' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /p50/) at = i }
        { gsub(/"/, ""); last = $0 } END { n = split(last, f, ","); print (at ? f[at] * 1e6 : 1e9 / f[n]) }' "$scratch/incr")
    row 'INCR, the floor' Redis "$ns" "$us"
}
incr

# ---- nginx ----

limit_req() {
    if [ -n "$quick" ] || [ $installs = no ]; then
        left_out limit_req 'sh bench/nginx.sh measures it; --quick and --no-install leave it out'
    elif sh bench/nginx.sh >"$scratch/nginx" 2>&1; then
        awk 'NF == 4 && ($1 == "limit_req" || $1 == "local") { printf "%s\tone nginx\t%.0f\t-\n",
            $1 == "local" ? "weir'"'"'s nginx module, local" : "nginx limit_req", $4 * 1000 }' "$scratch/nginx" >>"$scratch/rows"
    else
        left_out limit_req "$(tail -n 1 "$scratch/nginx")"
    fi
}
limit_req

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo
echo "What you would use instead: one caller, 1,000 keys; processor: $processor; load: $(cut -d' ' -f1 /proc/loadavg)"
echo
awk -F'\t' 'BEGIN { printf "%-30s %-12s %14s %22s\n", "", "counts in", "ns a decision", "server CPU, us" }
    { printf "%-30s %-12s %14.0f %22s\n", $1, $2, $3, $4 == "-" ? "-" : sprintf("%.1f", $4) }' "$scratch/rows"
echo
cat "$scratch/reasons"
echo 'Decisions in Redis: the median of a call. nginx: the processor time of a request over none of a limit.'
