#!/bin/sh
# run.sh MODULE NGINX - tests of the nginx module with a real nginx, real clients and a private Redis. A test's name is
# the sentence it proves.
#
# nginx listens on a Unix socket in a scratch folder, so that several runs do not meet. It runs in the foreground, as a
# child of this script.
# shellcheck disable=SC2016 # nginx has variables, too
set -u
module=$1
nginx=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d) || exit 2
# shellcheck source=tests/cli/server.sh
. "$here/../cli/server.sh"
nginx_pid=
trap 'stop_nginx TERM; stop_server; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 2
"$nginx" -v 2>/dev/null || skip "$nginx does not start"
command -v curl >found || skip 'there is no curl here'
for folder in . inner off own both cost parts dry ghost slow fast bytes real flight error sorry two; do
    mkdir -p "www/$folder"
    echo served >"www/$folder/index.html"
done
dd if=/dev/zero of=www/large bs=65536 count=16 2>dd.log
passed=0
failed=0

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        tail -n 15 error.log | sed 's/^/     log: /'
        sed 's/^/     out: /' out 2>/dev/null | head -n 15
    fi
}

# ---- nginx ----

# write_conf HTTP SERVER [WORKERS]: write nginx.conf. The server answers a folder with its index.html.
write_conf() {
    cat >nginx.conf <<END
load_module $module;
daemon ${daemon-off};
user $(id -un) $(id -gn);
worker_processes ${3-1};
worker_shutdown_timeout 20s;
pid $scratch/nginx.pid;
error_log $scratch/error.log info;
events { worker_connections 512; }
http {
    client_body_temp_path $scratch/t1; proxy_temp_path $scratch/t2; fastcgi_temp_path $scratch/t3;
    uwsgi_temp_path $scratch/t4; scgi_temp_path $scratch/t5;
    access_log off;
    $1
    server {
        listen unix:$scratch/http.sock;
        listen unix:$scratch/http2.sock http2;
        root $scratch/www;
        add_header X-Weir "\$weir_status \$weir_limit \$weir_remaining" always;
        $2
    }
}
END
}

start_nginx() { # the arguments of write_conf
    rm -f http.sock http2.sock
    write_conf "$@"
    : >error.log
    $pdeathsig "$nginx" -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" 2>>error.log &
    nginx_pid=$!
    tries=0
    until [ "$(get /started)" != 000 ]; do
        tries=$((tries + 1))
        if [ $tries -gt 100 ] || ! kill -0 "$nginx_pid" 2>/dev/null; then
            cat error.log
            echo 'nginx does not start'
            exit 1
        fi
        sleep 0.1
    done
}

# shellcheck disable=SC2120 # redis.sh and the trap pass a signal
stop_nginx() { # [SIGNAL]
    [ -n "$nginx_pid" ] || return 0
    kill "-${1:-QUIT}" "$nginx_pid" 2>/dev/null
    wait "$nginx_pid"
    nginx_pid=
}
pdeathsig=
if command -v setpriv >found; then
    pdeathsig='setpriv --pdeathsig KILL'
fi

# get PATH [CURL OPTION]...: print the status of the answer; `head` has its header, `body` its body.
get() {
    path=$1
    shift
    curl -s --max-time 20 --unix-socket "$scratch/http.sock" -D head -o body -w '%{http_code}' "$@" "http://x$path"
}

# weir_says: print what $weir_status, $weir_limit and $weir_remaining were in the latest answer.
weir_says() {
    sed -n 's/^[Xx]-[Ww]eir: \(.*[^ \r]\)[ \r]*$/\1/p' head
}

# gets COUNT PATH [CURL OPTION]...: print the statuses of that many answers.
gets() {
    count=$1
    shift
    for _ in $(seq "$count"); do
        get "$@"
        echo
    done | paste -sd' '
}

is() { # TEXT EXPECTED
    [ "$1" = "$2" ] && return 0
    printf 'got:      %s\nexpected: %s\n' "$1" "$2" >out
    return 1
}

# logged TEXT: succeed as soon as the error log has it.
logged() {
    for _ in $(seq 100); do
        grep -qF -e "$1" error.log && return 0
        sleep 0.1
    done
    echo "not logged: $1" >out
    return 1
}

# ---- Configuration ----

# refuses NAME TEXT HTTP [SERVER]: test that nginx -t fails and says TEXT.
refuses() {
    name=$1
    text=$2
    shift 2
    write_conf "$1" "${2-}"
    ! "$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1 && grep -qF -e "$text" out
    verdict "$name" $?
}

refuses 'a policy with a mistake is refused with the word and the allowed values' \
    'weir_limit a: column 22: "perid=1s" is not known to a fixed_window' 'weir_limit a fixed_window limit=1 perid=1s;'
refuses 'a limit that is defined twice is refused' '"weir_limit" directive has the name of an earlier limit' \
    'weir_limit a fixed_window limit=1 period=1s; weir_limit a fixed_window limit=2 period=1s;'
refuses 'a limit that nobody defined is refused with the line that uses it' 'there is no limit "b" in' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir b key=$uri;'
refuses 'a use without a key is refused' '"weir" directive has no key=...' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a cost=1;'
refuses 'a key with an empty part is refused' 'has a key with an empty part' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri,;'
refuses 'a fixed cost out of range is refused' 'has a cost that is not a whole number from 1 to 1000000000' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri cost=0;'
refuses 'an unknown parameter is refused' 'invalid parameter "burst=3": use key=... [cost=...] [nodelay]' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri burst=3;'
refuses 'an unknown option is refused' 'there is no option "redis_hurl"' 'weir_options { redis_hurl x; }'
refuses 'an option that is given twice is refused' 'option "rank" is given twice' 'weir_options { rank 0; rank 0; }'
refuses 'an option with a malformed value is refused with what it may be' \
    'option "timeout" must be a time such as 50ms, 2s or 1h, not "soon"' 'weir_options { timeout soon; }'
refuses 'an option out of range is refused as by weir_open()' 'lease_excess' \
    'weir_mode hybrid; weir_redis redis://127.0.0.1; weir_options { lease_excess 101; }
     weir_limit a fixed_window limit=1 period=1s;'
refuses 'a mode over Redis without a URL is refused' 'redis_url' \
    'weir_mode distributed; weir_limit a fixed_window limit=1 period=1s;'
refuses 'weir off beside weir is refused' 'contradicts' 'weir_limit a fixed_window limit=1 period=1s;' \
    'weir a key=$uri; weir off;'

awk '/^```nginx$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../../docs/nginx.md" >manual.conf
: >limits.conf
write_conf "$(cat manual.conf)" ''
"$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1 && [ -s manual.conf ]
verdict 'nginx accepts the configuration of the manual' $?

# ---- Local mode ----

limits='weir_limit three fixed_window limit=3 period=1h;
    weir_limit two sliding_window limit=2 period=1h;
    weir_limit cost fixed_window limit=10 period=1h;
    weir_limit slow leaky_bucket limit=10 period=1s capacity=1000;
    weir_limit ghost fixed_window limit=1 period=1h shadow;
    weir_limit bytes fixed_window limit=1000 period=1h;
    weir_limit flight concurrency limit=2 hold=60s;'
start_nginx "$limits set_real_ip_from unix:;" '
    weir_headers draft;
    weir three key=$arg_k;
    location /inner/ { }
    location /off/ { weir off; }
    location /own/ { weir two key=$arg_k; weir_status 503; weir_headers legacy; }
    location /both/ { weir three key=$arg_k; weir two key=$arg_k; weir_headers off; }
    location /cost/ { weir cost key=$arg_k cost=$arg_cost; }
    location /parts/ { weir two key=$arg_a,$arg_b; }
    location /dry/ { weir two key=$arg_k; weir_dry_run on; }
    location /ghost/ { weir ghost key=$arg_k; }
    location /slow/ { weir slow key=$arg_k; }
    location /fast/ { weir slow key=$arg_k nodelay; }
    location /bytes/ { weir bytes key=$arg_k; weir_charge bytes key=$arg_k cost=$body_bytes_sent; }
    location /real/ { weir two key=$remote_addr; real_ip_header X-Client; }
    location /flight/ { weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }
    location /error/ { weir two key=$arg_k; error_page 429 = /sorry/; }
    location /sorry/ { weir two key=$arg_k; }
    location = /metrics { weir off; weir_metrics; }'

is "$(gets 5 '/?k=a')" '200 200 200 429 429' && is "$(weir_says)" 'REJECTED three 0'
verdict 'a limit admits exactly its permits and then answers 429' $?
get '/?k=b' >status
grep -q '^RateLimit: "three";r=2;t=' head && grep -q '^RateLimit-Policy: "three";q=3;w=3600' head &&
    ! grep -q '^Retry-After' head && is "$(weir_says)" 'PASSED three 2' && get '/?k=a' >status &&
    grep -q '^Retry-After: ' head
verdict 'answers carry the fields that weir_headers chooses' $?
is "$(gets 4 '/inner/?k=c')" '200 200 200 429'
verdict 'a location inherits the limits around it' $?
is "$(gets 5 '/off/?k=a')" '200 200 200 200 200' && is "$(weir_says)" ''
verdict 'weir off ends the inheritance' $?
is "$(gets 3 '/own/?k=d')" '200 200 503' && grep -q '^X-RateLimit-Limit: 2' head && ! grep -q '^RateLimit:' head
verdict 'each location has its limits, status and header fields' $?
is "$(gets 3 '/both/?k=e')" '200 200 429' && is "$(weir_says)" 'REJECTED two 0' && ! grep -q '^Retry-After' head &&
    is "$(gets 2 '/?k=e')" '200 429'
verdict 'several limits are charged together or not at all' $?
is "$(gets 3 '/cost/?k=f&cost=5')" '200 200 429' &&
    is "$(gets 1 '/cost/?k=g&cost=0') $(gets 1 '/cost/?k=g&cost=1000000001') $(gets 1 '/cost/?k=g')" '400 400 400' &&
    is "$(gets 1 '/cost/?k=g&cost=10')" 200 && logged 'the cost "0" of limit "cost" is not a whole number from 1'
verdict 'a cost comes from a variable, and a bad one is refused' $?
is "$(gets 3 '/?k=')" '200 200 200' && is "$(gets 3 '/')" '200 200 200' && is "$(weir_says)" ''
verdict 'a request with an empty key is not counted' $?
is "$(gets 3 '/parts/?a=x&b=y')" '200 200 429' && is "$(gets 2 '/parts/?a=x,y')" '200 200' &&
    is "$(gets 2 '/parts/?a=&b=xy')" '200 200' && is "$(gets 2 '/parts/?a=1:x,&b=y')" '200 200'
verdict 'keys of several parts do not collide' $?
is "$(gets 4 '/dry/?k=h')" '200 200 200 200' && is "$(weir_says)" 'REJECTED_DRY_RUN two 0' &&
    logged 'limit "two" denies the request, dry run'
verdict 'a dry run counts and denies nothing' $?
is "$(gets 3 '/ghost/?k=i')" '200 200 200' && is "$(weir_says)" 'WOULD_REJECT ghost 0' &&
    logged 'shadow limit "ghost" would deny the request'
verdict 'a shadow limit reports which requests it would deny' $?
for _ in $(seq 50); do # on a busy machine a client may need so long that nothing is left to delay
    is "$(gets 4 '/slow/?k=j')" '200 200 200 200' || break
    case $(weir_says) in 'DELAYED slow '*) break ;; esac
done
is "$(weir_says | cut -d' ' -f1-2)" 'DELAYED slow' &&
    logged 'limit "slow" delays the request by'
verdict 'a leaky bucket delays requests' $?
is "$(gets 4 '/fast/?k=k')" '200 200 200 200' && is "$(weir_says | cut -d' ' -f1-2)" 'PASSED slow'
verdict 'nodelay admits the burst of a leaky bucket without a delay' $?
is "$(gets 2 '/bytes/?k=l')" '200 200' && is "$(weir_says)" 'PASSED bytes 991'
verdict 'weir_charge charges the permits that a request used' $?
is "$(gets 3 '/real/' -H 'X-Client: 192.0.2.1') $(gets 1 '/real/' -H 'X-Client: 192.0.2.2')" '200 200 429 200'
verdict 'keys use the address that realip found' $?
is "$(gets 3 '/error/?k=m')" '200 200 200' && is "$(weir_says)" 'REJECTED two 0'
verdict 'an error page is not limited again' $?
get /metrics >status
grep -q '^weir_allowed_total{worker="0"} [1-9]' body &&
    grep -q '^weir_limit_denied_total{limit="three",worker="0"} [1-9]' body &&
    grep -q '^Content-Type: text/plain; version=0.0.4' head
verdict 'weir_metrics shows the counters' $?
for _ in 1 2 3 4; do # curl 7.88 cannot use such a connection twice
    curl -s --http2-prior-knowledge --unix-socket http2.sock -o body -w '%{http_code} %{http_version}\n' \
        'http://x/?k=n'
done >out
is "$(paste -sd' ' out)" '200 2 200 2 200 2 429 2'
verdict 'HTTP/2 streams are limited' $?
perl -MIO::Socket::UNIX -e '
    my $s = IO::Socket::UNIX->new(Peer => "http.sock") or die;
    print $s "GET /?k=o HTTP/1.1\r\nHost: x\r\n\r\n" x 4, "GET /off/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    $s->flush; print grep { /^HTTP/ } <$s>' | cut -d' ' -f2 | paste -sd' ' >out
is "$(cat out)" '200 200 200 429 200'
verdict 'pipelined requests are limited one by one' $?
curl -s --unix-socket http.sock -w '%{http_code} %{num_connects}\n' -o body -o body -o body -o body \
    'http://x/?k=q' 'http://x/?k=q' 'http://x/?k=q' 'http://x/?k=q' >out
is "$(paste -sd' ' out)" '200 1 200 0 200 0 429 0'
verdict 'requests of one kept connection are limited one by one' $?
perl -MIO::Socket::UNIX -e '
    my $s = IO::Socket::UNIX->new(Peer => "http.sock") or die;
    $s->autoflush(1);
    for my $byte (split //, "GET /?k=r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") {
        print $s $byte;
        select undef, undef, undef, 0.005;
    }
    print grep { /^HTTP/ } <$s>' | cut -d' ' -f2 >out
is "$(cat out) $(gets 3 '/?k=r')" '200 200 200 429'
verdict 'a request that arrives byte by byte is counted once' $?

# hold COUNT PATH: begin that many slow downloads and wait until they have begun; their pids are in $held.
hold() {
    held=
    for i in $(seq "$1"); do
        curl -s --unix-socket http.sock -o "held$i" "http://x$2" &
        held="$held $!"
        until [ -s "held$i" ]; do sleep 0.02; done
    done
}
hold 2 '/flight/?k=p'
is "$(get '/flight/?k=p')" 429
denied=$?
# shellcheck disable=SC2086 # a list of pids
kill $held
for _ in $(seq 100); do
    status=$(get '/flight/?k=p' --max-time 0.2)
    [ "$status" = 429 ] || break
    sleep 0.05
done
rm -f held1 held2
is "$denied $status" '0 200'
verdict 'a permit in flight is released when its request ends or its client disconnects' $?
stop_nginx

start_nginx "$limits" 'weir cost key=$arg_k; location = /metrics { weir off; weir_metrics; }' 2
# with_one_worker_stopped PID COUNT PATH: print how many of that many requests another worker admits.
with_one_worker_stopped() {
    kill -STOP "$1"
    until grep -q '^State:.*stopped' "/proc/$1/status"; do sleep 0.01; done
    gets "$2" "$3" | tr ' ' '\n' | grep -c 200
    kill -CONT "$1"
}
workers=$(cat "/proc/$nginx_pid/task/$nginx_pid/children")
shares=
for worker in $workers; do
    shares="$shares $(with_one_worker_stopped "$worker" 7 '/?k=a')"
done
is "$(echo "$workers" | wc -w)$shares" '2 7 3' && is "$(gets 10 '/?k=a' | tr ' ' '\n' | grep -c 200)" 0
verdict 'all workers count together in local mode' $?
for _ in $(seq 100); do
    get /metrics >status
    total=$(sed -n 's/^weir_allowed_total{.*} //p' body | awk '{ sum += $1 } END { print sum }')
    [ "$total" = 10 ] && break
    sleep 0.1
done
is "$total $(grep -c '^# TYPE weir_allowed_total' body)" '10 1'
verdict 'weir_metrics adds up the counters of all workers' $?
kill -KILL "${workers%% *}"
logged 'exited on signal 9' && is "$(gets 12 '/?k=b' | tr ' ' '\n' | grep -c 200) $(gets 2 '/?k=a')" '10 429 429'
verdict 'workers still share their counts after one of them crashes' $?
stop_nginx

counts=/dev/shm/weir-nginx-$$
machine="weir_mode machine; weir_options { shared ${counts##*/}; max_keys 1000; } $limits"
start_nginx "$machine" 'weir cost key=$arg_k;' 2
is "$(gets 14 '/?k=a' | tr ' ' '\n' | grep -c 200)" 10
verdict 'workers count together in machine mode' $?
stop_nginx
start_nginx "$machine" 'weir cost key=$arg_k;' 2
is "$(get '/?k=a') $(get '/?k=b')" '429 200'
verdict 'a restart keeps the counts of machine mode' $?
stop_nginx
rm -f "$counts"
refuses 'machine mode without a file is refused' 'weir_mode machine needs weir_options { shared FILE; }' \
    'weir_mode machine; weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri;'

# ---- Redis ----

# shellcheck source=tests/nginx/redis.sh
. "$here/redis.sh"
# shellcheck source=tests/nginx/life.sh
. "$here/life.sh"
# shellcheck source=tests/nginx/auth.sh
. "$here/auth.sh"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
