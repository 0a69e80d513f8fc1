# weir serve as a process: its options, addresses, files and end. What it answers is in test_serve.c.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

misuse "'word'" serve word
misuse '--listen' serve --listen nowhere
misuse '--listen' serve --listen ::1:80
misuse "'127.0.0.1:65536': the port must be 0 to 65535" serve --listen 127.0.0.1:65536
misuse "'127.0.0.1:http': the port must be 0 to 65535" serve --listen 127.0.0.1:http
misuse "'127.0.0.1:-1': the port must be 0 to 65535" serve --metrics 127.0.0.1:-1
misuse 'needs --password-file' serve --listen 0.0.0.0:0
misuse "--max-clients '0'" serve --max-clients 0
misuse '--top-keys must be' serve --top-keys 1025
for bits in 64 0/64 33/64 32/129 32/ /64 32/64/1 x/64; do
    misuse "--address-bits '$bits'" serve --address-bits $bits
done
misuse "--metrics '9100'" serve --metrics 9100
misuse '--instances must be' serve --instances 0
misuse '--rank 2 must be less than --instances' serve --instances 2 --rank 2
misuse '--rank must be' serve --instances 2 --rank -1
misuse '--on-failure must be' serve --on-failure panic
misuse '--tls-cert and --tls-key need each other' serve --tls-cert x.pem
misuse '--mode distributed needs --redis URL' serve --mode distributed
misuse '--shared belongs to --mode machine' serve --mode local --shared x
misuse "--redis belongs to --mode distributed or hybrid" serve --shared x --redis redis://localhost
misuse "--unix ''" serve --unix ''
printf 'max-keys 10\nmax-klients 10\n' >bad.conf
run 1 serve --unix s.sock --config bad.conf && has err "bad.conf:2: there is no option 'max-klients' here"
verdict 'serve names a line of its configuration that is not an option' $?
printf '# keys\n\nmax-keys 0\n' >bad.conf
run 1 serve --unix s.sock --config bad.conf && has err "--max-keys must be a whole number, 1 to 2147483648" && has err 'bad.conf:3: this line cannot be used' &&
    run 1 serve --unix s.sock --config missing.conf && has err 'missing.conf: '
verdict 'serve names a value of its configuration that is out of range' $?
printf 'strict\nmax-keys\n' >bad.conf
run 1 serve --unix s.sock --config bad.conf && has err "bad.conf:2: option 'max-keys' needs a value" &&
    printf 'strict yes\n' >bad.conf && run 1 serve --unix s.sock --config bad.conf && has err "bad.conf:1: option 'strict' takes no value"
verdict 'serve says what a line of its configuration lacks' $?
run 1 serve --unix bad.conf && has err "cannot listen on 'bad.conf': File exists" && [ -s bad.conf ]
verdict 'serve leaves a file at the path of its socket' $?
run 1 serve --unix s.sock -f missing.conf && is err 'weir: missing.conf: No such file or directory'
verdict 'serve without its policy file does not start' $?
printf '\n' >no_pw
run 1 serve --unix s.sock --password-file no_pw && has err 'no_pw: the first line must have 1 to '
verdict 'serve with an empty password does not start' $?

# pongs COMMAND [WORD]...: succeed if a command that asks the server prints PONG.
pongs() {
    [ "$("$@" ping)" = PONG ]
}

# told WORD...: print the server's answer in one line.
told() {
    redis-cli -s s.sock "$@" 2>&1 | paste -sd' '
}

# login_has NUMBER: succeed if the server's limit of that name has so many permits.
login_has() {
    [ "$(told weir.peek login a | cut -d' ' -f2)" = "$1" ]
}

if command -v redis-cli >/dev/null; then
    printf 'login = fixed_window limit=2 period=1h\n' >served.conf
    serve_start -f served.conf && [ "$(told weir.try login a)" = "1 2 1 0 $(told weir.peek login a | cut -d' ' -f5) 0 0 0" ] 2>/dev/null
    [ "$(told weir.peek login a | cut -d' ' -f1-4)" = '1 2 1 0' ] && [ "$(redis-cli -p "$port" ping)" = PONG ]
    verdict 'serve answers redis-cli on TCP and on a Unix socket' $?
    [ "$(printf 'PING\nWEIR.TRY login b\nPING again\n' | redis-cli -s s.sock 2>&1 | grep -c -e PONG -e again)" = 2 ]
    verdict 'serve answers several commands of one connection' $?
    printf 'login = fixed_window limit=9 period=1h\n' >new.conf && mv new.conf served.conf
    await login_has 9
    [ "$(told weir.peek login a | cut -d' ' -f1-3)" = '1 9 8' ]
    verdict 'serve follows its policy file, and used permits stay used' $?
    [ "$(printf 'WEIR.PEEK login z\n' | redis-cli -s s.sock --pipe 2>&1 | tail -n 1)" = 'errors: 0, replies: 1' ]
    verdict 'serve ends what redis-cli --pipe sends' $?
    serve_stop && [ ! -e s.sock ] && [ ! -s err ]
    verdict 'serve ends with 0 on SIGTERM and removes its socket' $?

    printf 'login = fixed_window limit=3 period=1h\n' >counted.conf
    serve_start -f counted.conf --shared ./machine.file --max-keys 100 && [ "$(told weir.try login a | cut -d' ' -f1)" = 1 ] &&
        run 0 try -f counted.conf --key a --shared ./machine.file && serve_stop &&
        serve_start -f counted.conf --shared ./machine.file --max-keys 100 && [ "$(told weir.try login a | cut -d' ' -f1-3)" = '1 3 0' ] &&
        run 1 try -f counted.conf --key a --shared ./machine.file && [ ! -s err ] &&
        run 0 peek --shared ./machine.file login a && has out 'used       3 of 3 permits' && has out 'limit=3 period=1h' &&
        run 0 reset --shared ./machine.file login a && has out 'the key is forgotten' &&
        run 0 peek --shared ./machine.file login a && has out 'used       nothing' &&
        run 1 peek --shared ./nowhere login a && has err 'cannot be opened' && [ ! -e nowhere ]
    verdict 'serve shares a file with other servers, and its counts survive restarts' $?
    serve_stop

    printf 'login = fixed_window limit=5 period=1h\n' >shares.conf
    for rank in 0 1; do
        for words in '' '--mode distributed --redis unix:///nowhere/redis.sock' '--mode hybrid --redis unix:///nowhere/redis.sock'; do
            # shellcheck disable=SC2086 # words are words
            serve_start -f shares.conf --instances 2 --rank $rank $words && told weir.peek login a | cut -d' ' -f2 >size &&
                is size $((3 - rank))
            verdict "server $rank of two has its share of a limit of 5: $words" $?
            serve_stop
        done
    done

    serve_start && kill -KILL "$served"
    { wait "$served" || :; } 2>/dev/null
    [ -S s.sock ] && serve_start_again
    verdict 'serve replaces the socket of a server that was killed' $?
    run 1 serve --unix s.sock && has err "cannot listen on 's.sock'" && [ "$(told ping)" = PONG ]
    verdict 'serve refuses the socket of a running server' $?
    serve_stop
    printf 'secret\n' >pw
    serve_start --password-file pw && [ "$(told ping)" = 'NOAUTH Authentication required. ' ] &&
        [ "$(redis-cli -s s.sock --no-auth-warning -a secret ping)" = PONG ] && [ "$(redis-cli -3 -s s.sock --no-auth-warning -a secret ping)" = PONG ]
    verdict 'serve with a password requires clients to log in' $?
    serve_stop
    printf '# options\npolicies served.conf\npassword-file  pw \nmax-keys 9\ntop-keys 1\n' >serve.conf
    printf 'secret\n' >pw
    serve_start --config serve.conf --top-keys 2 && [ "$(told ping)" = 'NOAUTH Authentication required. ' ] &&
        [ "$(printf 'AUTH secret\nWEIR.PEEK login a\nWEIR.TOP 2\n' | redis-cli -s s.sock | sed -n 3p)" = 9 ] && [ ! -s err ]
    verdict 'serve takes options from a file' $?
    printf 'changed\n' >pw
    kill -HUP "$served"
    await pongs redis-cli -s s.sock --no-auth-warning -a changed
    [ "$(redis-cli -s s.sock --no-auth-warning -a changed ping)" = PONG ] &&
        [ "$(redis-cli -s s.sock --no-auth-warning -a secret ping 2>&1)" != PONG ] &&
        await grep -q 'SIGHUP: the options have been read again; served.conf was loaded [0-9]* times' err
    verdict 'serve reads a new password on SIGHUP' $?
    printf 'password-file pw\nnonsense\n' >serve.conf
    kill -HUP "$served"
    await grep -q 'serve.conf:2: ' err
    printf 'policies served.conf\npassword-file pw\nmax-keys 8\n' >serve.conf
    kill -HUP "$served"
    await grep -q 'restart the server for the others' err
    printf 'policies served.conf\n' >serve.conf
    kill -HUP "$served"
    await grep -q 'cannot lose its password' err
    has err 'serve.conf:2: ' && has err 'restart the server for the others' && has err 'cannot lose its password' &&
        [ "$(told ping)" = 'NOAUTH Authentication required. ' ] &&
        [ "$(redis-cli -s s.sock --no-auth-warning -a changed ping)" = PONG ]
    verdict 'serve reports options that a reload cannot change, and keeps their values' $?
    serve_stop
    serve_start -f served.conf --address-bits 24/64
    for key in 192.0.2.1 ::ffff:192.0.2.2 192.0.2.3:40001 2001:db8::1 '[2001:db8::2]:443' name; do
        told weir.try login "$key" | cut -d' ' -f3
    done >first
    told weir.peek login 192.0.2.0/24 | cut -d' ' -f3 >>first
    told cl.throttle 2001:db8::1 4 1 3600 >>first && told cl.throttle 2001:db8::2 4 1 3600 >>first
    [ "$(cut -d' ' -f1-3 first | paste -sd,)" = '8,7,6,8,7,8,6,0 5 4,0 5 3' ] && told weir.tryall login 192.0.2.9 1 login 192.0.2.8 1 >second &&
        [ "$(cut -d' ' -f1,3 second)" = '1 4' ]
    verdict 'serve counts addresses by their prefixes' $?
    serve_stop
    serve_start -f served.conf --top-keys 5 --metrics 127.0.0.1:0 && told weir.try login a 10 >first
    scrape=$(sed -n 's/^metrics on 127.0.0.1://p' listening)
    [ "$(told weir.top)" = 'login a 1 0' ] &&
        curl -s "http://127.0.0.1:$scrape/metrics" | grep -qx 'weir_limit_denied_total{limit="login"} 1'
    verdict 'serve lists the most denied keys, and its counters over HTTP' $?
    serve_stop
    serve_start --max-clients 1 && mkfifo hold && { redis-cli -s s.sock <hold >held & } && exec 9>hold && echo ping >&9
    await grep -q PONG held
    [ "$(told ping)" != PONG ] # redis-cli shows the server's reason only if it has written before the end
    verdict 'serve refuses clients beyond --max-clients' $?
    exec 9>&-
    await pongs told
    verdict 'serve accepts new clients when others have left' $?
    serve_stop
    if command -v openssl >/dev/null && redis-cli --help 2>&1 | grep -q -e --cacert; then
        openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.pem -days 2 -subj /CN=127.0.0.1 \
            -addext subjectAltName=IP:127.0.0.1 >/dev/null 2>&1
        cp tls.pem other.pem && cp tls.key other.key
        # secure [WORD]...: print the answer over TLS in one line.
        secure() {
            redis-cli -h 127.0.0.1 -p "$port" --tls --cacert tls.pem "$@" 2>&1 | paste -sd' '
        }
        serve_start -f served.conf --tls-cert tls.pem --tls-key tls.key && [ "$(secure ping)" = PONG ] &&
            [ "$(secure weir.try login tls | cut -d' ' -f1-3)" = '1 9 8' ] && [ "$(told ping)" = PONG ] &&
            [ "$(timeout 20 redis-cli -p "$port" ping 2>&1)" != PONG ] && [ "$(secure ping)" = PONG ]
        verdict 'serve speaks TLS on TCP, and refuses clients without it' $?
        long=$(printf '%65000s' x | tr ' ' x)
        for i in 1 2 3 4 5 6 7 8; do printf 'WEIR.PEEK login %s\n' "$long"; done | secure | grep -o '1 9 9' | wc -l >counted
        redis-benchmark -h 127.0.0.1 -p "$port" --tls --cacert tls.pem -c 8 -P 16 -n 20000 -q weir.try login k >loaded 2>&1 &&
            [ "$(cat counted)" -eq 8 ] && [ "$(secure weir.peek login k | cut -d' ' -f3)" = 0 ]
        verdict 'serve reads long commands and many commands over TLS' $?
        openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.pem -days 2 -subj /CN=127.0.0.1 \
            -addext subjectAltName=IP:127.0.0.1 >/dev/null 2>&1
        secure ping >refused
        kill -HUP "$served"
        await pongs secure
        ! grep -q PONG refused && [ "$(secure ping)" = PONG ] && ! grep -qv SIGHUP err
        verdict 'serve reads a renewed certificate on SIGHUP' $?
        printf 'nonsense\n' >tls.key
        kill -HUP "$served"
        await grep -q 'tls.key: ' err
        [ "$(secure ping)" = PONG ] && has err 'tls.key: '
        verdict 'serve keeps its certificate if the renewed one cannot be used' $?
        serve_stop
        verdict 'serve with TLS exits with 0' $?
        cp other.key tls.key && cp other.pem tls.pem
        serve_start --tls-cert tls.pem --tls-key tls.key --tls-ca tls.pem && [ "$(secure ping)" != PONG ] &&
            [ "$(secure --cert other.pem --key other.key ping)" = PONG ]
        verdict 'serve requires client certificates if configured' $?
        serve_stop
        printf 'nonsense\n' >bad.pem
        run 1 serve --unix s.sock --tls-cert bad.pem --tls-key tls.key && has err '--tls-cert cannot use bad.pem: ' &&
            run 1 serve --unix s.sock --tls-cert tls.pem --tls-key bad.pem && has err '--tls-key cannot use bad.pem: ' &&
            run 1 serve --unix s.sock --tls-cert tls.pem --tls-key tls.key --tls-ca missing.pem &&
            has err '--tls-ca cannot use missing.pem: No such file or directory'
        verdict 'serve names a TLS file that cannot be used' $?
        openssl pkey -in tls.key -aes256 -passout pass:secret -out locked.key 2>err
        run 1 serve --unix s.sock --tls-cert tls.pem --tls-key locked.key && has err '--tls-key cannot use locked.key: '
        verdict 'serve asks for no passphrase' $?
    else
        echo 'skip serve with TLS: openssl is missing, or redis-cli has no TLS'
    fi
else
    echo 'skip serve as a process: there is no redis-cli here'
fi
