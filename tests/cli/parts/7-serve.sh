# weir serve as a process: its options, addresses, files and end. What it answers is in test_serve.c.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

misuse "'word'" serve word
misuse '--listen' serve --listen nowhere
misuse '--listen' serve --listen ::1:80
misuse 'needs --password-file' serve --listen 0.0.0.0:0
misuse "--max-clients '0'" serve --max-clients 0
misuse "--top-keys '1025'" serve --top-keys 1025
misuse "--metrics '9100'" serve --metrics 9100
misuse "--on-failure 'panic'" serve --on-failure panic
misuse '--mode distributed needs --redis URL' serve --mode distributed
misuse "--unix ''" serve --unix ''
run 1 serve --unix s.sock -f missing.conf && has err 'missing.conf'
verdict 'serve without its policy file does not start' $?
printf '\n' >no_pw
run 1 serve --unix s.sock --password-file no_pw && has err 'no_pw: the first line must have 1 to '
verdict 'serve with an empty password does not start' $?

served=
# serve_start [WORD]...: start a server on s.sock and a TCP port; its address on TCP is then $port.
serve_start() {
    rm -f s.sock
    serve_start_again "$@"
}

# serve_start_again [WORD]...: the same, and leave a socket that is there to the server.
serve_start_again() {
    : >listening
    "$weir" serve --listen 127.0.0.1:0 --unix s.sock "$@" >listening 2>err &
    served=$!
    tries=0
    until grep -q 's.sock$' listening; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 "$served" 2>/dev/null; then
            echo '(the server does not start)' >>err
            return 1
        fi
        sleep 0.1
    done
    port=$(sed -n 's/^listening on 127.0.0.1://p' listening)
}

# serve_stop: end the server and succeed if it ends well.
serve_stop() {
    kill "$served" && wait "$served"
}

# wait_for_pong: succeed once the server answers a client.
wait_for_pong() {
    tries=0
    until [ "$(told ping)" = PONG ]; do
        tries=$((tries + 1))
        [ $tries -gt 200 ] && return 1
        sleep 0.1
    done
}

# told WORD...: print the server's answer in one line.
told() {
    redis-cli -s s.sock "$@" 2>&1 | paste -sd' '
}

if command -v redis-cli >/dev/null; then
    printf 'login = fixed_window limit=2 period=1h\n' >served.conf
    serve_start -f served.conf && [ "$(told weir.try login a)" = "1 2 1 0 $(told weir.peek login a | cut -d' ' -f5) 0 0 0" ] 2>/dev/null
    [ "$(told weir.peek login a | cut -d' ' -f1-4)" = '1 2 1 0' ] && [ "$(redis-cli -p "$port" ping)" = PONG ]
    verdict 'serve answers redis-cli on TCP and on a Unix socket' $?
    [ "$(printf 'PING\nWEIR.TRY login b\nPING again\n' | redis-cli -s s.sock 2>&1 | grep -c -e PONG -e again)" = 2 ]
    verdict 'serve answers several commands of one connection' $?
    printf 'login = fixed_window limit=9 period=1h\n' >new.conf && mv new.conf served.conf
    tries=0
    until [ "$(told weir.peek login a | cut -d' ' -f2)" = 9 ] || [ $tries -gt 200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ "$(told weir.peek login a | cut -d' ' -f1-3)" = '1 9 8' ]
    verdict 'serve follows its policy file, and used permits stay used' $?
    serve_stop && [ ! -e s.sock ] && [ ! -s err ]
    verdict 'serve ends with 0 on SIGTERM and removes its socket' $?

    serve_start && kill -KILL "$served"
    { wait "$served" || :; } 2>/dev/null
    [ -S s.sock ] && serve_start_again
    verdict 'serve replaces the socket of a server that was killed' $?
    run 1 serve --unix s.sock && has err "cannot listen on 's.sock'" && [ "$(told ping)" = PONG ]
    verdict 'serve takes no socket from a server that lives' $?
    serve_stop
    printf 'secret\n' >pw
    serve_start --password-file pw && [ "$(told ping)" = 'NOAUTH Authentication required. ' ] &&
        [ "$(redis-cli -s s.sock --no-auth-warning -a secret ping)" = PONG ] && [ "$(redis-cli -3 -s s.sock --no-auth-warning -a secret ping)" = PONG ]
    verdict 'serve with a password wants it' $?
    serve_stop
    serve_start -f served.conf --top-keys 5 --metrics 127.0.0.1:0 && told weir.try login a 10 >first
    scrape=$(sed -n 's/^metrics on 127.0.0.1://p' listening)
    [ "$(told weir.top)" = 'login a 1 0' ] &&
        curl -s "http://127.0.0.1:$scrape/metrics" | grep -qx 'weir_limit_denied_total{limit="login"} 1'
    verdict 'serve tells the keys that are denied most, and its counters over HTTP' $?
    serve_stop
    serve_start --max-clients 1 && mkfifo hold && { redis-cli -s s.sock <hold >held & } && exec 9>hold && echo ping >&9
    tries=0
    until grep -q PONG held || [ $tries -gt 200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ "$(told ping)" != PONG ] # redis-cli shows the server's reason only if it has written before the end
    verdict 'serve turns away clients beyond --max-clients' $?
    exec 9>&-
    wait_for_pong
    verdict 'and serves them when others have left' $?
    serve_stop
else
    echo 'skip serve as a process: there is no redis-cli here'
fi
