#!/bin/sh
# haproxy.sh WEIR - check that HAProxy, configured as docs/gateways.md shows, asks weir serve.
set -u
[ $# -eq 1 ] || { echo "usage: haproxy.sh WEIR" >&2; exit 2; }
weir=$1
here=$(cd "$(dirname "$0")" && pwd)
for program in haproxy curl; do
    command -v $program >/dev/null || { echo "SKIPPED: there is no $program here" >&2; exit 77; }
done
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
served=
proxy=
trap '[ -z "$served" ] || kill "$served"; [ -z "$proxy" ] || kill "$proxy"; scratch_remove' EXIT
cd "$scratch" || exit 2
failed=0

expect() { # NAME GOT EXPECTED
    [ "$2" = "$3" ] && return 0
    printf 'FAIL: %s\n  got:      %s\n  expected: %s\n' "$1" "$2" "$3"
    cat proxy.log
    failed=1
}

await() { # FILE: wait for it
    waits=0
    until [ -S "$1" ] || [ $waits -gt 200 ]; do
        waits=$((waits + 1))
        sleep 0.1
    done
}

# get CLIENT: print the status of an answer, and "later" if it has a Retry-After of up to an hour.
get() {
    curl -s --max-time 60 --unix-socket http.sock -o body -D head -H "X-Client: $1" -w '%{http_code}' http://x/
    sed -n 's/^[Rr]etry-[Aa]fter: [1-3][0-9]*.$/ later/p' head | tr -d '\n'
}

printf 'login = fixed_window limit=2 period=1h\n' >limits.conf
cp "$here/haproxy_weir.lua" .
# The manual's configuration, on Unix sockets, where clients have no address, and without servers behind it.
awk '/^```haproxy$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../docs/gateways.md" |
    sed -e "s|bind :8080|bind unix@$scratch/http.sock|" -e 's/(txn.weir_key) src/(txn.weir_key) req.hdr(x-client)/' \
        -e 's/server one .*/http-request return status 200/' >haproxy.cfg
expect 'the manual has a configuration' "$(grep -c -e http.sock -e x-client -e 'return status 200' haproxy.cfg)" 3
"$weir" serve -f limits.conf --unix weir.sock >serve.log 2>&1 &
served=$!
await weir.sock
SERVE_ADDRESS=unix@$scratch/weir.sock SERVE_TIMEOUT=25 haproxy -db -f haproxy.cfg >proxy.log 2>&1 &
proxy=$!
await http.sock
expect 'requests are limited' "$(get a) $(get a) $(get a) $(get b)" '200 200 429 later 200'
kill "$served" && wait "$served"
served=
expect 'requests pass when weir serve is away' "$(get a)" 200
[ $failed -eq 0 ] && echo 'HAProxy asks weir serve'
exit $failed
