# life.sh - a part of run.sh: the ends of workers and masters, and a Redis that is full.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

# shellcheck disable=SC2119
start_server
mode=distributed
limits="weir_mode distributed; weir_redis $url; weir_options { timeout 5s; on_failure closed; }
    weir_limit ten fixed_window limit=10 period=1h;
    weir_limit flight concurrency limit=2 hold=2s;"
locations='weir ten key=$arg_k;
    location /flight/ { weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }'

# children PID: print the pids of a process's children.
children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null
}

# until_ok COMMAND...: succeed as soon as the command does.
until_ok() {
    for _ in $(seq 300); do
        "$@" && return 0
        sleep 0.1
    done
    echo "this never succeeds: $*" >out
    return 1
}

start_nginx "$limits" "$locations" 2
(gets 60 '/?k=a' -D head1 -o body1 >statuses1) &
client=$!
hold 2 '/flight/?k=b'
for worker in $(children "$nginx_pid"); do
    kill -KILL "$worker"
    sleep 0.1
done
wait "$client"
# shellcheck disable=SC2086 # a list of pids
kill $held 2>/dev/null
logged 'exited on signal 9' && [ "$(tr ' ' '\n' <statuses1 | grep -c 200)" -le 10 ] &&
    is "$(get '/?k=a') $(gets 11 '/?k=c')" '429 200 200 200 200 200 200 200 200 200 200 429'
verdict 'workers that crash under load are replaced, and the limit holds' $?
is_free() { [ "$(get '/flight/?k=b' --max-time 0.3)" != 429 ]; }
until_ok is_free
verdict 'permits in flight of a crashed worker are released' $?

is_full() { [ "$(get "/?k=full$((fill = fill + 1))")" = 429 ]; }
has_room() { [ "$(get '/?k=room')" = 200 ]; }
fill=0
asked config set maxmemory 1 >out && until_ok is_full
full=$?
asked config set maxmemory 0 >out && until_ok has_room && is "$full" 0
verdict 'on_failure answers while Redis is full, and Redis answers afterwards' $?
stop_nginx

# A binary upgrade takes a master that is a daemon.
daemon=on
nginx_of() { cat "$1" 2>/dev/null; }
is_started() { [ "$(get /started)" != 000 ]; }
rm -f http.sock http2.sock nginx.pid
write_conf "$limits" "$locations" 2
: >error.log
"$nginx" -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" 2>>error.log && until_ok is_started
first=$(nginx_of nginx.pid)
trap 'for file in nginx.pid nginx.pid.oldbin; do [ ! -s "$scratch/$file" ] || kill "$(cat "$scratch/$file")"; done
    stop_server; scratch_remove' EXIT
(gets 60 '/?k=d' -D head1 -o body1 >statuses1) &
client=$!
kill -USR2 "$first"
is_second() { [ -s nginx.pid ] && [ "$(nginx_of nginx.pid)" != "$first" ] && [ -s nginx.pid.oldbin ]; }
until_ok is_second
second=$(nginx_of nginx.pid)
kill -STOP "$server_pid" # so that a request waits while its worker is told to end
(get '/?k=e' -D head2 -o body2 >waiting) &
waiter=$!
sleep 0.3
kill -WINCH "$first"
sleep 0.3
kill -CONT "$server_pid"
wait "$waiter"
kill -QUIT "$first"
is_gone() { ! kill -0 "$1" 2>/dev/null; }
until_ok is_gone "$first"
gone=$?
wait "$client"
admitted 10 "$(cat statuses1)" && is "$(tr ' ' '\n' <statuses1 | grep -cE '200|429') $(cat waiting) $gone" '60 200 0' &&
    is "$(gets 11 '/?k=f')" '200 200 200 200 200 200 200 200 200 200 429'
verdict 'a binary upgrade under load loses no request and no permit' $?
kill -QUIT "$second"
until_ok is_gone "$second"
trap 'stop_nginx TERM; stop_server; scratch_remove' EXIT
daemon=off
grep -E '\[(crit|emerg)\]' error.log >out
[ ! -s out ]
verdict 'a binary upgrade logs no error' $?
stop_server
