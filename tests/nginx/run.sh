#!/bin/sh
# run.sh MODULE NGINX PART - tests of the nginx module with a real nginx, real clients and a private Redis. A test's name
# is the sentence it proves. The parts are the other files of this folder.
#
# nginx listens on a Unix socket in a scratch folder, so that several runs do not meet. It runs in the foreground, as a
# child of this script.
# shellcheck disable=SC2016 # nginx has variables, too
set -u
module=$1
nginx=$2
part=$3
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
chmod 755 "$scratch" # workers may run as another user
# shellcheck source=tests/cli/server.sh
. "$here/../cli/server.sh"
nginx_pid=
trap 'stop_nginx TERM; stop_server; scratch_remove' EXIT
cd "$scratch" || exit 2
"$nginx" -v 2>/dev/null || skip "$nginx does not start"
command -v curl >found || skip 'there is no curl here'
for folder in . inner off own both cost parts dry ghost slow fast some three network bytes any real flight error sorry two; do
    mkdir -p "www/$folder"
    echo served >"www/$folder/index.html"
done
dd if=/dev/zero of=www/large bs=65536 count=16 2>dd.log
passed=0
failed=0
mode=machine # for admitted()

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
user ${user-$(id -un) $(id -gn)};
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

# hold COUNT PATH: begin that many slow downloads and wait until they have begun; their pids are in $held.
hold() {
    held=
    for i in $(seq "$1"); do
        curl -s --unix-socket http.sock -o "held$i" "http://x$2" &
        held="$held $!"
        until [ -s "held$i" ]; do sleep 0.02; done
    done
}
# admitted COUNT STATUSES: succeed if COUNT of the statuses are 200. In hybrid mode fewer may be: a worker cannot use the
# permits that the other has leased.
admitted() {
    allowed=$(echo "$2" | tr ' ' '\n' | grep -c 200)
    [ "$mode" = hybrid ] && [ "$allowed" -ge 1 ] && [ "$allowed" -le "$1" ] && return 0
    is "$allowed" "$1"
}

# sleep_ms NUMBER: wait for nginx's timers, which nothing shows.
sleep_ms() {
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

# shellcheck disable=SC1090
. "$here/$part.sh"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
