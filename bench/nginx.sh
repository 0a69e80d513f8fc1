#!/bin/sh
# nginx.sh - measures what the nginx module costs a request, beside limit_req. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh bench/nginx.sh

Measures nginx with one worker on one processor, loaded by wrk with 32 connections on another: without a limit, with
limit_req, and with weir in each mode, in turns, five rounds of 2 seconds each. There are 4,096 keys with a limit of
6,000 a minute each; none is ever denied. All options of weir have their defaults.
Prints the medians of requests a second and of the processor time that a request costs the worker over no limit. Then
the 99th percentile of latency in distributed mode while Redis answers, in the second in which it stops, and after that,
with a timeout of 50 ms, beside that of local mode; medians of five rounds.

Installs wrk, redis-tools and what the build needs through apt, if it may; downloads nginx with tests/tools/nginx.sh.
The servers listen in a temporary folder and on a free port of 127.0.0.1, and end with the script. Takes 3 minutes.
TEXT
    [ "$1" = --help ] || exit 2
    exit 0
fi

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages $redis_packages $consul_packages libpcre2-dev wrk redis-tools
files=$(sh tests/tools/nginx.sh)
[ -n "$files" ] || exit 2
nginx=$files/usr/sbin/nginx
configure_preset release -DWEIR_NGINX=ON "-DWEIR_NGINX_SOURCE=$files/usr/share/nginx/src"
cmake --build build/release --parallel "$jobs" --target weir_nginx
module=$PWD/build/release/src/nginx/ngx_http_weir_module.so
. tests/tools/scratch.sh
here=tests/cli
# shellcheck source=tests/cli/server.sh
. tests/cli/server.sh
nginx_pid=
stop_nginx() {
    [ -z "$nginx_pid" ] || kill "$nginx_pid" 2>/dev/null || true
    [ -z "$nginx_pid" ] || wait "$nginx_pid" || true
    nginx_pid=
}
trap 'stop_nginx; stop_server; scratch_remove' EXIT
# shellcheck disable=SC2119
start_server

# shellcheck disable=SC2016 # nginx has variables, too
use='weir many key=$arg_k; weir_headers off;'
limit='weir_limit many token_bucket limit=6000 period=1m;'
# shellcheck disable=SC2016
limit_req='limit_req_zone $arg_k zone=many:10m rate=100r/s;'
cat >"$scratch/keys.lua" <<'TEXT'
-- Requests with one of 4,096 keys.
local n = 0
request = function()
   n = (n * 1103515245 + 12345) % 2147483648
   return wrk.format("GET", "/?k=client-" .. math.floor(n / 65536) % 4096)
end
TEXT

# start NAME HTTP LOCATION: start nginx on a free port; `port` and `worker` are set then.
start() {
    for port in $(seq 20000 37 60000); do
        cat >"$scratch/nginx.conf" <<END
load_module $module;
daemon off;
user $(id -un) $(id -gn);
worker_processes 1;
pid $scratch/nginx.pid;
error_log $scratch/error.log error;
events { worker_connections 512; }
http {
    client_body_temp_path $scratch/t1; proxy_temp_path $scratch/t2; fastcgi_temp_path $scratch/t3;
    uwsgi_temp_path $scratch/t4; scgi_temp_path $scratch/t5;
    access_log off;
    keepalive_requests 1000000000;
    $2
    server { listen 127.0.0.1:$port; location / { empty_gif; $3 } }
}
END
        "$nginx" -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" 2>"$scratch/err" &
        nginx_pid=$!
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.1
            worker=$(cat "/proc/$nginx_pid/task/$nginx_pid/children" 2>/dev/null) || worker=
            [ -z "$worker" ] || break
        done
        worker=${worker%% *}
        if [ -n "$worker" ]; then
            taskset -p -c 0 "$worker" >"$scratch/taskset" # and its threads, before they are made: weir's and the pool's
            return 0
        fi
        wait "$nginx_pid" || true
    done
    cat "$scratch/err" >&2
    exit 1
}

# ticks: print the processor time of the worker's main thread so far, in units of 10 ms.
ticks() {
    awk '{ print $14 + $15 }' "/proc/$worker/task/$worker/stat"
}

# measure NAME: append requests a second, and microseconds of the main thread a request, to the results of NAME.
measure() {
    wrk -t1 -c32 -d1s -s "$scratch/keys.lua" "http://127.0.0.1:$port/" >"$scratch/warm" # each key has been seen
    before=$(ticks)
    taskset -c 1 wrk -t1 -c32 -d2s -s "$scratch/keys.lua" "http://127.0.0.1:$port/" >"$scratch/wrk"
    after=$(ticks)
    awk -v ticks=$((after - before)) '/requests in/ { n = $1 } /^Requests\/sec/ { rate = $2 } /Non-2xx/ { bad = $3 }
        END { if (bad) print "some answers were no 200" > "/dev/stderr"; print rate, ticks * 10000 / n }' \
        "$scratch/wrk" >>"$scratch/result.$1"
}

median() { # FILE FIELD
    awk -v field="$2" '{ print $field }' "$1" | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'
}

say "measuring: 5 rounds of none, limit_req, local, hybrid, distributed"
for _ in 1 2 3 4 5; do
    for name in none limit_req local hybrid distributed; do
        case $name in
        none) start none '' '' ;;
        limit_req) start limit_req "$limit_req" 'limit_req zone=many burst=5999 nodelay;' ;;
        local) start local "$limit" "$use" ;;
        *) start $name "weir_mode $name; weir_redis $url; $limit" "$use" ;;
        esac
        measure $name
        stop_nginx
    done
done
# p99 NAME SECONDS: append the 99th percentile of latency in milliseconds to the results of NAME.
p99() {
    taskset -c 1 wrk -t1 -c32 "-d$2s" --latency -s "$scratch/keys.lua" "http://127.0.0.1:$port/" >"$scratch/wrk"
    awk '$1 == "99%" { x = $2 + 0; print $2 ~ /us$/ ? x / 1000 : $2 ~ /ms$/ ? x : x * 1000 }' "$scratch/wrk" \
        >>"$scratch/p99.$1"
}

say "measuring: 5 rounds of an outage of Redis"
for _ in 1 2 3 4 5; do
    start local "$limit" "$use"
    p99 local 2
    stop_nginx
    start outage "weir_mode distributed; weir_redis $url; weir_options { timeout 50ms; on_failure local; } $limit" "$use"
    p99 answers 2
    kill -STOP "$server_pid"
    p99 stops 1
    p99 stopped 2
    kill -CONT "$server_pid"
    stop_nginx
done
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "processor: $processor; load at the end: $(cut -d' ' -f1 /proc/loadavg)"
printf '%-12s %12s %22s %22s\n' limit requests/s 'worker us/request' 'over no limit, us'
base=$(median "$scratch/result.none" 2)
for name in none limit_req local hybrid distributed; do
    awk -v name=$name -v rate="$(median "$scratch/result.$name" 1)" -v cost="$(median "$scratch/result.$name" 2)" \
        -v base="$base" 'BEGIN { printf "%-12s %12.0f %22.2f %22.2f\n", name, rate, cost, cost - base }'
done
echo
printf '%-34s %12s\n' '' 'p99, ms'
while read -r name what; do
    printf '%-34s %12.2f\n' "$what" "$(median "$scratch/p99.$name" 1)"
done <<END
local local mode
answers distributed mode
stops the second in which Redis stops
stopped the seconds after that
END
