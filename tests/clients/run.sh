#!/bin/sh
# run.sh WEIR FOLDER - run other people's Redis clients against weir serve. Each program of this folder connects as users of
# its client do, and prints "ok" if decisions, pipelines, transactions and errors are what the client should make of them.
#
# Clients of Debian packages are used where they are installed; those of npm are installed into FOLDER. A client that is
# not here is skipped, by a line; 77 if none is here.
set -u
[ $# -eq 2 ] || { echo "usage: run.sh WEIR FOLDER" >&2; exit 2; }
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
weir=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2" && cd "$2" || exit 2
folder=$PWD
served=
trap '[ -z "$served" ] || kill "$served"; scratch_remove' EXIT
printf 'login = sliding_window limit=2 period=1h\ntokens = fixed_window limit=100 period=1h\n' >"$scratch/limits"
"$weir" serve -f "$scratch/limits" --listen 127.0.0.1:0 >"$scratch/out" 2>"$scratch/err" &
served=$!
waits=0
until port=$(sed -n 's/^listening on 127.0.0.1://p' "$scratch/out") && [ -n "$port" ]; do
    waits=$((waits + 1))
    if [ $waits -gt 300 ] || ! kill -0 "$served"; then
        cat "$scratch/err"
        exit 1
    fi
    sleep 0.1
done
passed=0 failed=0 skipped=0

# client NAME COMMAND...: run the client's program against the server. Its keys begin with the client's name.
client() {
    name=$1
    shift
    if "$@" "$port" "$name" >"$scratch/said" 2>&1 && [ "$(tail -n 1 "$scratch/said")" = ok ]; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/     /' "$scratch/said" | head -n 20
        failed=$((failed + 1))
    fi
}

skip() { # NAME WHAT
    echo "SKIP $1: $2 is missing"
    skipped=$((skipped + 1))
}

# has NAME WHAT COMMAND...: true if the command, which looks for a client's library, succeeds; else skip the client.
has() {
    name=$1 what=$2
    shift 2
    "$@" >/dev/null 2>&1 && return 0
    skip "$name" "$what"
    return 1
}

has redis-py python3-redis /usr/bin/python3 -c 'import redis' && client redis-py /usr/bin/python3 "$here/redis_py.py"
has phpredis php-redis php -r 'exit(extension_loaded("redis") ? 0 : 1);' && client phpredis php "$here/phpredis.php"
has predis php-nrk-predis php -r 'exit(file_exists("/usr/share/php/Predis/Autoloader.php") ? 0 : 1);' &&
    client predis php "$here/predis.php"
has redis-rb ruby-redis ruby -e 'require "redis"' && client redis-rb ruby "$here/redis_rb.rb"
has perl libredis-perl perl -MRedis -e 1 && client perl perl "$here/redis.pl"
has redis-cli redis-tools redis-cli --version && client redis-cli sh "$here/redis_cli.sh"
if has npm 'npm with its registry' npm --version; then
    for package in redis@4 redis@5 ioredis@5 @valkey/valkey-glide; do
        short=$(echo "$package" | tr -d '@/')
        program=redis
        case $package in
        ioredis*) program=ioredis ;;
        *glide) program=glide ;;
        esac
        mkdir -p "$folder/$short"
        if has "$package" "$package" npm install --prefix "$folder/$short" --no-audit --no-fund --silent "$package"; then
            cp "$here/node_$program.mjs" "$folder/$short/" # where it finds node_modules
            client "$short" node "$folder/$short/node_$program.mjs"
        fi
    done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $((passed + failed)) -gt 0 ] || exit 77
[ "$failed" -eq 0 ]
