# reload.sh - a part of run.sh: reloads, which keep the counts.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

limits='weir_limit three fixed_window limit=3 period=1h;
    weir_limit cost fixed_window limit=10 period=1h;
    weir_limit flight concurrency limit=2 hold=60s;'

# reload HTTP SERVER [WORKERS]: change the configuration, and wait until only new workers are left.
reload() {
    before=$(cat "/proc/$nginx_pid/task/$nginx_pid/children")
    write_conf "$@"
    kill -HUP "$nginx_pid"
    for worker in $before; do
        for _ in $(seq 300); do
            kill -0 "$worker" 2>/dev/null || break
            sleep 0.05
        done
    done
}
use='weir cost key=$arg_k; location /three/ { weir three key=$arg_k; }
    location /flight/ { weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }'
if [ "$(id -u)" = 0 ] && id nobody >found 2>&1; then
    user="nobody $(id -gn nobody)"
fi
start_nginx "$limits" "$use" 2
is "$(gets 6 '/?k=a') $(gets 2 '/three/?k=a')" '200 200 200 200 200 200 200 200' && reload "$limits" "$use" 3 &&
    is "$(gets 6 '/?k=a') $(gets 2 '/three/?k=a')" '200 200 200 200 429 429 200 429'
verdict "a reload keeps the counts${user+, workers of another user included}" $?
unset user
more=$(echo "$limits" | sed 's/cost fixed_window limit=10/cost fixed_window limit=12/')
is "$(gets 10 '/?k=b' | tr ' ' '\n' | grep -c 200)" 10 && reload "$more" "$use" 1 && is "$(gets 3 '/?k=b')" '200 200 429' &&
    reload "$limits" "$use" 2 && is "$(gets 1 '/?k=b') $(gets 2 '/three/?k=b')" '429 200 200'
verdict 'a reload with another policy keeps the used permits' $?
write_conf 'weir_limit wrong;' ''
kill -HUP "$nginx_pid"
logged 'invalid number of arguments in "weir_limit" directive' && is "$(gets 1 '/?k=b') $(get '/?k=c')" '429 200'
verdict 'a reload that nginx refuses keeps the counts' $?
write_conf "$limits" "$use" 2
(gets 60 '/?k=d' -D head1 -o body1 >statuses1) &
client=$!
for _ in 1 2 3 4; do
    kill -HUP "$nginx_pid"
    sleep_ms 200
done
wait "$client"
admitted 10 "$(cat statuses1)" && is "$(tr ' ' '\n' <statuses1 | grep -cE '200|429')" 60
verdict 'reloads under load lose no request and no permit' $?
hold 2 '/flight/?k=e'
before=$(cat "/proc/$nginx_pid/task/$nginx_pid/children")
kill -HUP "$nginx_pid"
for _ in $(seq 100); do
    [ "$(cat "/proc/$nginx_pid/task/$nginx_pid/children")" = "$before" ] || break
    sleep 0.05
done
is "$(get '/flight/?k=e') $(get '/flight/?k=f' --max-time 0.2)" '429 200'
denied=$?
# shellcheck disable=SC2086 # a list of pids
kill $held
for _ in $(seq 100); do
    status=$(get '/flight/?k=e' --max-time 0.2)
    [ "$status" = 429 ] || break
    sleep 0.05
done
is "$denied $status" '0 200'
verdict 'requests of old workers stay in flight after a reload, until they end' $?
reload "weir_options { max_keys 5000; } $limits" "$use" 2
is "$(get '/?k=a')" 200
verdict 'a reload with another max_keys begins anew' $?
stop_nginx
! grep -E '\[(alert|crit|emerg)\]' error.log | grep -v 'weir_limit. directive' >out
verdict 'reloads raise no alert' $?
