#!/bin/sh
# clients.sh WEIR - check that the clients of weir serve print the text that the comment at their top shows.
set -u
[ $# -eq 1 ] || { echo "usage: clients.sh WEIR" >&2; exit 2; }
weir=$1
here=$(dirname "$0")
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
served=
trap '[ -z "$served" ] || kill "$served"; scratch_remove' EXIT
failed=0 tried=0
printf 'login = sliding_window limit=2 period=1h\ntokens = fixed_window limit=1000 period=1h\n' >"$scratch/limits"

# client NAME COMMAND...: run a client against a fresh server. `NAME` has the text to print.
client() {
    name=$1
    shift
    tried=$((tried + 1))
    sed -n -e 's/^ \*     //p' -e 's/^    \([a-z]* *[0-9]*: [ad0-9].*\)/\1/p' "$here/$name" >"$scratch/expected"
    "$weir" serve -f "$scratch/limits" --unix "$scratch/sock" >"$scratch/log" 2>&1 &
    served=$!
    waits=0
    until [ -S "$scratch/sock" ] || [ $waits -gt 200 ]; do
        waits=$((waits + 1))
        sleep 0.1
    done
    if ! "$@" "$here/$name" "$scratch/sock" >"$scratch/printed" || ! [ -s "$scratch/expected" ] ||
        ! diff -u "$scratch/expected" "$scratch/printed"; then
        echo "FAIL: $name fails, or prints other text than it shows"
        failed=1
    fi
    kill "$served" && wait "$served"
    served=
    rm -f "$scratch/sock"
}

# silent NAME COMMAND...: run a client against a server that accepts connections and never answers.
silent() {
    name=$1
    shift
    "$weir" serve -f "$scratch/limits" --unix "$scratch/sock" >"$scratch/log" 2>&1 &
    served=$!
    until [ -S "$scratch/sock" ]; do
        kill -0 "$served" || exit 1
        sleep 0.1
    done
    kill -STOP "$served"
    if ! "$@" "$here/$name" "$scratch/sock" >"$scratch/printed" || [ "$(grep -c allowed "$scratch/printed")" -ne 3 ]; then
        echo "FAIL: $name does not admit what a silent server leaves undecided"
        failed=1
    fi
    kill -CONT "$served"
    kill "$served" && wait "$served"
    served=
}

for python in python3 /usr/bin/python3; do
    if "$python" -c 'import redis' 2>"$scratch/found"; then
        client serve_client.py "$python"
        silent serve_client.py "$python"
        break
    fi
done
if NODE_PATH=/usr/share/nodejs node -e 'require("redis")' 2>"$scratch/found"; then
    client serve_client.js env NODE_PATH=/usr/share/nodejs node
fi
if [ $tried -lt 2 ]; then
    echo "SKIPPED: a client is missing here (Debian's python3-redis, nodejs and node-redis)" >&2
    [ $failed -ne 0 ] || exit 77
fi
exit $failed
