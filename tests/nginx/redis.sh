# redis.sh - a part of run.sh: the modes over Redis.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

# server_count PATTERN: print how many keys of that kind Redis has.
server_count() {
    asked keys "$1" | grep -c .
}

# sent_to_redis: print how many requests all workers have sent to Redis.
sent_to_redis() {
    get /metrics >shown
    sed -n 's/^weir_store_requests_total{.*} //p' body | awk '{ sum += $1 } END { print sum + 0 }'
}

# wait_for_redis PATH: begin a request that waits for Redis, which is stopped; return once a worker has sent it there.
wait_for_redis() {
    sent=$(sent_to_redis)
    (get "$1" -D head1 -o body1 >waiting) &
    client=$!
    for _ in $(seq 100); do
        [ "$(sent_to_redis)" -gt "$sent" ] && return
        sleep 0.1
    done
}

# shellcheck disable=SC2119
start_server
for mode in distributed hybrid; do
    redis="weir_mode $mode; weir_redis $url;"
    asked flushall >flushed
    start_nginx "$redis weir_options { timeout 5s; }
        weir_limit ten fixed_window limit=10 period=1h;
        weir_limit four sliding_window limit=4 period=1h;
        weir_limit flight concurrency limit=2 hold=60s;
        weir_limit short concurrency limit=2 hold=2s;
        weir_limit bytes fixed_window limit=1000 period=1h;" '
        weir ten key=$arg_k;
        location /both/ { weir ten key=$arg_k; weir four key=$arg_k; }
        location /flight/ { weir flight key=$arg_k; }
        location /flights/ { weir ten key=$arg_k; weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }
        location /bytes/ { weir bytes key=$arg_k; weir_charge bytes key=$arg_k cost=$body_bytes_sent; }
        location /short/ { weir short key=$arg_k; limit_rate 20k; try_files /large =404; }
        location = /metrics { weir off; weir_metrics; }' 2
    for i in 1 2 3 4; do
        (gets 5 '/?k=a' -D "head$i" -o "body$i" >"statuses$i") &
        clients="${clients-} $!"
    done
    # shellcheck disable=SC2086 # a list of pids
    wait $clients
    clients=
    admitted 10 "$(cat statuses?)"
    verdict "$mode: workers share a limit" $?
    is "$(gets 5 '/both/?k=b')" '200 200 200 200 429' && is "$(weir_says)" 'REJECTED four 0' &&
        admitted 6 "$(gets 7 '/?k=b')"
    verdict "$mode: several limits are charged in one step" $?
    is "$(gets 5 '/flight/?k=c')" '200 200 200 200 200'
    verdict "$mode: permits in flight are released when requests end" $?
    hold 2 '/flights/?k=d'
    is "$(get '/flights/?k=d')" 429
    denied=$?
    # shellcheck disable=SC2086
    kill $held
    for _ in $(seq 100); do
        status=$(get '/flights/?k=d' --max-time 0.5)
        [ "$status" = 429 ] || break
        sleep 0.05
    done
    rm -f held1 held2
    is "$denied $status" '0 200'
    verdict "$mode: permits in flight of a group are released when requests end" $?
    hold 2 '/short/?k=d'
    statuses=
    for _ in 1 2 3 4 5 6; do
        sleep_ms 500
        statuses="$statuses $(get '/short/?k=d')"
    done
    # shellcheck disable=SC2086
    kill $held
    rm -f held1 held2
    is "$statuses" ' 429 429 429 429 429 429'
    verdict "$mode: a request keeps its permit in flight for longer than the hold" $?
    is "$(gets 1 '/bytes/?k=e')" 200
    for _ in $(seq 100); do
        get '/bytes/?k=e' >status
        case $(weir_says) in
        'PASSED bytes 99'[0-9] | 'PASSED bytes 9'[0-8][0-9]) break ;;
        esac
        sleep 0.05
    done
    is "$(weir_says | cut -c1-14)" 'PASSED bytes 9'
    verdict "$mode: the permits that a request used are charged" $?

    # While Redis is stopped, requests wait. These tests end such requests in every way.
    asked flushall >flushed
    kill -STOP "$server_pid"
    get '/?k=f' --max-time 0.3 >status
    get '/flight/?k=f' --max-time 0.3 >>status
    wait_for_redis '/?k=g'
    kill -CONT "$server_pid"
    wait "$client"
    is "$(cat status) $(cat waiting)" '000000 200' && is "$(gets 3 '/flight/?k=f')" '200 200 200' &&
        admitted 9 "$(gets 11 '/?k=f')"
    verdict "$mode: a client that disconnects while it waits is charged once and keeps no permit in flight" $?
    kill -STOP "$server_pid"
    wait_for_redis '/?k=h'
    kill -HUP "$nginx_pid"
    sleep 0.3
    kill -CONT "$server_pid"
    wait "$client"
    is "$(cat waiting)" 200
    verdict "$mode: a reload loses no waiting request" $?
    (gets 40 '/?k=i' -D head1 -o body1 >statuses1) &
    client=$!
    for _ in 1 2 3; do
        kill -HUP "$nginx_pid"
        sleep 0.2
    done
    wait "$client"
    admitted 10 "$(cat statuses1)" && is "$(tr ' ' '\n' <statuses1 | grep -cE '200|429')" 40
    verdict "$mode: reloads under load lose no request and no permit" $?
    kill -STOP "$server_pid"
    wait_for_redis '/?k=j'
    kill -QUIT "$nginx_pid"
    sleep 0.3
    kill -CONT "$server_pid"
    wait "$client"
    stop_nginx
    is "$(cat waiting)" 200
    verdict "$mode: an orderly shutdown loses no waiting request" $?
    grep -E '\[(alert|crit|emerg)\]|exited on signal' error.log >out
    [ ! -s out ]
    verdict "$mode: nginx raised no alert" $?
done

# While Redis is gone, on_failure decides.
for choice in local/200 closed/429 error/503 open/200; do
    start_nginx "weir_mode distributed; weir_redis $url; weir_options { timeout 100ms; on_failure ${choice%/*}; }
        weir_limit many token_bucket limit=1000 period=1s;" '
        weir many key=$arg_k;
        location /two/ { weir many key=$arg_k; weir many key=$arg_j; }'
    is "$(gets 2 '/?k=a')" '200 200'
    before=$?
    gone=$server_pid
    stop_server
    wait "$gone" # it removes its socket
    during=
    for _ in $(seq 100); do # a local outage begins without permits, and refills
        during=$(get '/?k=a')
        [ "$during" = "${choice#*/}" ] && break
        sleep 0.05
    done
    group=
    for _ in $(seq 100); do
        group=$(get '/two/?k=a&j=b')
        [ "$group" = "${choice#*/}" ] && break
        sleep 0.05
    done
    # shellcheck disable=SC2119
    start_server
    for _ in $(seq 100); do
        get '/?k=a' >status
        [ "$(weir_says | cut -d' ' -f1)" = PASSED ] && [ "$(server_count 'weir:*')" -gt 0 ] && break
        sleep 0.1
    done
    is "$before $during $group $(cat status)" "0 ${choice#*/} ${choice#*/} 200"
    verdict "on_failure ${choice%/*} answers while Redis is gone, and Redis answers afterwards" $?
    stop_nginx
done
stop_server
