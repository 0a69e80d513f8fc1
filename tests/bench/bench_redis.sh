#!/bin/sh
# bench_redis.sh WEIR_BENCH - the server of --redis is measured and left as it was, also after an interrupt; a server that
# cannot be measured is refused with a reason; and its password is never printed.
set -eu
bench=$1
password=b7secret5
server=
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    scratch_remove
}
trap end EXIT

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/table" "$scratch/log" >&2
    exit 1
}

command -v redis-cli >/dev/null 2>&1 || exit 77
ask() {
    redis-cli -s "$scratch/socket" -a "$password" --no-auth-warning "$@"
}

start() {
    set -- --port 0 --unixsocket "$scratch/socket" --dir "$scratch" --save '' --requirepass "$password"
    if [ -n "${WEIR_TEST_REDIS_SERVER-}" ]; then
        # shellcheck disable=SC2086 # a command of several words
        exec $WEIR_TEST_REDIS_SERVER "$@"
    elif command -v redis-server >/dev/null 2>&1; then
        exec redis-server "$@"
    fi
    ln -s "$(command -v redis-check-rdb)" "$scratch/redis-server" # Debian's redis-tools holds it under that name
    exec "$scratch/redis-server" "$@"
}
: >"$scratch/table"
: >"$scratch/log"
start >"$scratch/server" 2>&1 &
server=$!
tries=0
until [ "$(ask PING 2>/dev/null)" = PONG ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "no redis-server answers"
    sleep 0.1
done

# measure URL [OPTION...] - return the exit status; the output is in table, log and json.
measure() {
    url=$1
    shift
    "$bench" --quick --repeat 1 --seconds 0.01 --json "$scratch/json" --redis "$url" "$@" \
        >"$scratch/table" 2>"$scratch/log"
}

none_is_told() {
    ! grep -q "$password" "$scratch/table" "$scratch/log" "$scratch/json" || fail "the password is told"
}

# refused URL WORDS [OPTION...] - check that the benchmark refuses immediately and says why.
refused() {
    url=$1
    words=$2
    shift 2
    rm -f "$scratch/json"
    : >"$scratch/json"
    status=0
    measure "$url" "$@" || status=$?
    [ "$status" -eq 2 ] || fail "$words: status $status"
    grep -q "^weir-bench: --redis: .*$words" "$scratch/log" || fail "not said: $words"
    [ ! -s "$scratch/table" ] || fail "$words: something was measured"
    none_is_told
}

# Check that no filled key remains. Keys of several processes may remain for a minute, and the two seconds by which clocks
# may differ.
nothing_stays() {
    for limit in best deny limit-0 limit-19 pace memory-distributed memory-hybrid log-distributed log-hybrid; do
        [ -z "$(ask --scan --pattern "weir-bench:*:$limit:*")" ] || fail "keys of $limit stay"
    done
    ask --scan | while read -r key; do
        life_ms=$(ask PTTL "$key")
        { [ "$life_ms" -ne -1 ] && [ "$life_ms" -le 62000 ]; } || fail "$key stays for $life_ms ms"
    done
}

echo '192.0.2.1 - - [01/Jul/1995:00:00:01 +0000] "GET / HTTP/1.0" 200 1' >"$scratch/access.log"
measure "unix://:$password@$scratch/socket" --log "$scratch/access.log" || fail "it failed"
tr '\n' ' ' <"$scratch/table" | grep -q "redis-server [0-9.]* at $scratch/socket" || fail "not said which server it is"
! grep -q 'started redis-server' "$scratch/log" || fail "a private server was started"
grep -q 'keys under weir-bench:' "$scratch/log" || fail "not said under which prefix"
! grep -q '[0-9] failed' "$scratch/table" || fail "decisions failed"
grep -q '^10,000 a second: Redis calls per million' "$scratch/table" || fail "nothing was measured"
grep -q '^Redis calls per request' "$scratch/table" || fail "the log was not replayed"
grep -q '^Redis dies: not measured: the benchmark must not stop the user.s server' "$scratch/table" || fail "not said that it is not killed"
none_is_told
nothing_stays

refused "unix://:wrong$password@$scratch/socket" WRONGPASS
refused "unix://:$password@$scratch/nowhere" 'No such file'
refused "http://:$password@$scratch/socket" 'must begin with'
refused "unix://:$password@$scratch/socket" 'none of the modes' --modes local
ask ACL SETUSER reader on ">$password" '~*' +get +time +ping +hello '+script|load' +evalsha >/dev/null
refused "unix://reader:$password@$scratch/socket" NOPERM
nothing_stays

"$bench" --redis "unix://:$password@$scratch/socket" --only modes >"$scratch/table" 2>"$scratch/log" &
pid=$!
tries=0
until [ "$(ask DBSIZE)" -gt 1000 ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "nothing is filled"
    sleep 0.1
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$status" -eq 143 ] || fail "interrupted: status $status"
none_is_told
nothing_stays
