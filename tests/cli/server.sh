# server.sh - a private Redis server for the shell tests. A script sources it with $scratch set to a folder; when the script
# ends, the server ends and the folder is removed.
#
# The server is that of WEIR_TEST_REDIS_SERVER, or redis-server from PATH, or Debian's redis-check-rdb, which is the server
# when called by that name. Without a server or redis-cli, the script exits as skipped, with status 77.
#
# The server has the user that docs/redis.md tells weir's users to create; $url logs in as that user, redis-cli as
# `default`.
# shellcheck shell=sh disable=SC2034,SC2154 # the sourcing script sets some variables and uses others

server_pid=
socket=$scratch/redis.sock
redis_page=${here-$(dirname "$0")}/../../docs/redis.md
rules=$(sed -n 's/^    ACL SETUSER \(weir [^#]*\)$/\1/p' "$redis_page")
in_flight=$(sed -n 's/^    ACL SETUSER weir \([^#]*[^# ]\) *# for requests in flight$/\1/p' "$redis_page")
[ -n "$in_flight" ] || { echo 'docs/redis.md does not list the rights for requests in flight' && exit 1; }
rules="$rules $in_flight"
case $rules in
'weir '*' >password '*) ;;
*)
    echo 'docs/redis.md does not list the rights of the user weir'
    exit 1
    ;;
esac
url=unix://weir:password@$socket

stop_server() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null
    server_pid=
}
trap 'stop_server; scratch_remove' EXIT
trap 'exit 2' HUP INT TERM

skip() {
    echo "SKIPPED: $1" >&2
    exit 77
}

command -v redis-cli >"$scratch/found" || skip 'there is no redis-cli here'
if [ -n "${WEIR_TEST_REDIS_SERVER-}" ]; then
    server=$WEIR_TEST_REDIS_SERVER
elif command -v redis-server >"$scratch/found"; then
    server=$(cat "$scratch/found")
elif [ -x /usr/bin/redis-check-rdb ]; then
    ln -s /usr/bin/redis-check-rdb "$scratch/redis-server"
    server=$scratch/redis-server
else
    skip 'there is no redis-server here'
fi
# The server must not outlive the script, however the script ends.
if command -v setpriv >"$scratch/found"; then
    server="setpriv --pdeathsig KILL $server"
fi

# asked WORD...: print the server's answer to a command.
asked() {
    redis-cli -s "$socket" "$@" 2>&1
}

# start_server [WORD]...: start the server, with more words on its command line.
start_server() {
    set -f # the rules contain patterns of keys
    # shellcheck disable=SC2086 # lists of words
    $server --port 0 --unixsocket "$socket" --dir "$scratch" --save '' --appendonly no --user $rules "$@" \
        >"$scratch/server.log" 2>&1 &
    server_pid=$!
    set +f
    tries=0
    until [ "$(asked ping)" = PONG ]; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 "$server_pid" 2>/dev/null; then
            cat "$scratch/server.log"
            echo 'the server does not start'
            exit 1
        fi
        sleep 0.1
    done
}
