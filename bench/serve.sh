#!/bin/sh
# serve.sh - measures what weir serve costs a decision, beside commands of redis-server. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh bench/serve.sh

Measures weir serve in local mode and a redis-server beside it, each on one processor, loaded by redis-benchmark on
another over a Unix socket: the server's processor time for a command with 16 connections that keep 16 commands each in
flight, and the median latency of one connection without pipelining. There are 100,000 keys; none is ever denied. All
options of weir have their defaults. Five rounds, in turns; prints the medians, and ratios within a round.

Installs redis-tools and what the build needs through apt, if it may. The servers listen in a temporary folder and end
with the script. Takes 2 minutes.
TEXT
    [ "$1" = --help ] || exit 2
    exit 0
fi

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages $redis_packages $consul_packages redis-tools
configure_preset release
cmake --build build/release --parallel "$jobs" --target weir_program
weir=$PWD/build/release/src/weir
. tests/tools/scratch.sh
here=tests/cli
# shellcheck source=tests/cli/server.sh
. tests/cli/server.sh
serve_pid=
trap '[ -z "$serve_pid" ] || kill "$serve_pid"; stop_server; scratch_remove' EXIT
# shellcheck disable=SC2119
start_server
taskset -pc 0 "$server_pid" >"$scratch/out"
printf 'many = token_bucket limit=1000000 period=1s\n' >"$scratch/limits"
taskset -c 0 "$weir" serve -f "$scratch/limits" --unix "$scratch/weir.sock" >"$scratch/log" 2>&1 &
serve_pid=$!
until [ -S "$scratch/weir.sock" ]; do sleep 0.1; done

# cpu_ns PID: print the processor time that a process has used.
cpu_ns() {
    cat "/proc/$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# load ROW PID SOCKET COMMAND...: add a line to the results: ROW, nanoseconds of CPU a command, median latency in us.
load() {
    row=$1 pid=$2 at=$3
    shift 3
    count=1000000
    before=$(cpu_ns "$pid")
    taskset -c 1 redis-benchmark -s "$at" -c 16 -P 16 -n $count -r 100000 -q "$@" >"$scratch/out" 2>&1
    used=$((($(cpu_ns "$pid") - before) / count))
    taskset -c 1 redis-benchmark -s "$at" -c 1 -n 20000 -r 100000 --csv "$@" >"$scratch/out" 2>&1
    p50=$(tail -n 1 "$scratch/out" | tr -d '"' | awk -F, '{ printf "%.0f", $(NF - 3) * 1000 }')
    echo "$row,$used,$p50" >>"$scratch/results"
}

for round in 1 2 3 4 5; do
    echo "round $round of 5" >&2
    load incr "$server_pid" "$socket" INCR key:__rand_int__
    load ping "$server_pid" "$socket" PING
    load serve_ping "$serve_pid" "$scratch/weir.sock" PING
    load try "$serve_pid" "$scratch/weir.sock" WEIR.TRY many key:__rand_int__
    load throttle "$serve_pid" "$scratch/weir.sock" CL.THROTTLE key:__rand_int__ 1000000 1000000 1
done

sed -n 's/^model name[^:]*: */processor: /p' /proc/cpuinfo | head -n 1
awk -F, '
    function median(list, n,    i, j, x) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j] + 0 < list[j - 1] + 0; j--) { x = list[j]; list[j] = list[j - 1]; list[j - 1] = x }
        return list[int((n + 1) / 2)]
    }
    { n = ++rounds[$1]; cpu[$1, n] = $2; p50[$1, n] = $3; if (!($1 in at)) { at[$1] = ++rows; row[rows] = $1 } }
    END {
        name["incr"] = "redis-server, INCR"; name["ping"] = "redis-server, PING"
        name["serve_ping"] = "weir serve, PING"
        name["try"] = "weir serve, WEIR.TRY"; name["throttle"] = "weir serve, CL.THROTTLE"
        printf "%-26s %14s %10s %12s %10s\n", "", "CPU, ns", "to INCR", "p50, us", "to PING"
        for (i = 1; i <= rows; i++) {
            r = row[i]
            for (k = 1; k <= rounds[r]; k++) {
                c[k] = cpu[r, k]; l[k] = p50[r, k]
                cr[k] = cpu[r, k] / cpu["incr", k]; lr[k] = p50[r, k] / p50["ping", k]
            }
            n = rounds[r]
            printf "%-26s %14d %10.2f %12d %10.2f\n", name[r], median(c, n), median(cr, n), median(l, n), median(lr, n)
        }
    }' "$scratch/results"
