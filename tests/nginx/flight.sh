# flight.sh - a part of run.sh: requests in flight that run for longer than the hold of their permits.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

limits='weir_limit flight concurrency limit=2 hold=2s;'
start_nginx "$limits" '
    location /flight/ { weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }
    location /proxied/ { weir flight key=$arg_k; proxy_buffering off; proxy_pass http://unix:http.sock:/stream/; }
    location /stream/ { limit_rate 20k; try_files /large =404; }
    location /parts/ { weir flight key=$arg_k; ssi on; ssi_types *; }' 2
# held_beyond NAME PATH: test that two requests keep their permits for longer than the hold, and then release them.
held_beyond() {
    hold 2 "$2"
    statuses=
    for _ in 1 2 3 4 5 6; do
        sleep_ms 500
        statuses="$statuses $(get "$2") $(curl -s --http2-prior-knowledge --unix-socket http2.sock -o body \
            --max-time 5 -w '%{http_code}' "http://x$2")"
    done
    # shellcheck disable=SC2086 # a list of pids
    kill $held
    for _ in $(seq 100); do
        status=$(get "$2" --max-time 0.2)
        [ "$status" = 429 ] || break
        sleep 0.05
    done
    rm -f held1 held2
    is "$statuses $status" ' 429 429 429 429 429 429 429 429 429 429 429 429 200'
    verdict "$1" $?
}
held_beyond 'a request keeps its permit in flight for longer than the hold, until its client disconnects' '/flight/?k=a'
held_beyond 'so does one that streams from an upstream' '/proxied/?k=b'
for _ in 1 2 3 4; do # the client resets the stream
    curl -s --http2-prior-knowledge --unix-socket http2.sock -o body1 --max-time 0.5 -w '%{http_code}\n' 'http://x/flight/?k=c'
    for _ in $(seq 100); do
        status=$(get '/flight/?k=c' --max-time 0.2)
        [ "$status" = 429 ] || break
        sleep 0.05
    done
    echo "$status"
done >out
is "$(paste -sd' ' out)" '200 200 200 200 200 200 200 200'
verdict 'HTTP/2 streams that the client resets release their permits' $?
echo '<!--#include virtual="/parts/one" --><!--#include virtual="/parts/one" --><!--#include virtual="/parts/one" -->' \
    >www/parts/all
echo part >www/parts/one
is "$(gets 3 '/parts/all?k=d')" '200 200 200' && is "$(paste -sd' ' body)" 'part part part '
verdict 'subrequests take no permits of their own' $?
stop_nginx
! grep -E '\[(alert|crit|emerg)\]' error.log >out
verdict 'requests in flight raise no alert' $?
