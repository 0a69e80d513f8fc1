#!/bin/sh
# tokens.sh - check that jwt_check.py accepts a signed token, refuses others without reading them, and starts again where
# a killed process has left its socket.
set -u
here=$(cd "$(dirname "$0")" && pwd)
for program in python3 curl; do
    command -v $program >/dev/null || { echo "SKIPPED: there is no $program here" >&2; exit 77; }
done
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
check=
trap '[ -z "$check" ] || kill "$check"; scratch_remove' EXIT
cd "$scratch" || exit 2
failed=0

# token HEAD SECRET: print a token of alice.
token() {
    python3 - "$@" <<'END'
import base64, hashlib, hmac, sys, time
def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")
head, secret = sys.argv[1:]
text = encode(head.encode()) + b"." + encode(b'{"sub":"alice","exp":%d}' % (time.time() + 3600))
print((text + b"." + encode(hmac.new(secret.encode(), text, hashlib.sha256).digest())).decode())
END
}

expect() { # NAME EXPECTED TOKEN
    got=$(curl -s --max-time 30 --unix-socket jwt.sock -o body -D head -w '%{http_code}' -H "Authorization: Bearer $3" http://x/)
    got=$got$(sed -n 's/^X-User: \([a-z]*\).*/ \1/p' head)
    [ "$got" = "$2" ] && return 0
    printf 'FAIL: %s\n  got:      %s\n  expected: %s\n' "$1" "$got" "$2"
    cat check.log
    failed=1
}

start() {
    python3 "$here/jwt_check.py" jwt.sock secret >check.log 2>&1 &
    check=$!
    until curl -s --unix-socket jwt.sock -o body http://x/; do
        kill -0 "$check" 2>/dev/null || { cat check.log; exit 1; }
        sleep 0.1
    done
}

echo 'a secret' >secret
start
expect 'a signed token is accepted' '204 alice' "$(token '{"alg":"HS256"}' 'a secret')"
expect 'a token with another signature is refused' 401 "$(token '{"alg":"HS256"}' guessed)"
expect 'another algorithm is refused' 401 "$(token '{"alg":"none"}' 'a secret')"
expect 'a forged token is not read' 401 "$(token "$(printf '%20000s' '' | tr ' ' '[')" guessed)"
kill -KILL "$check"
wait "$check" 2>/dev/null
start
expect 'it starts again' '204 alice' "$(token '{"alg":"HS256"}' 'a secret')"
[ $failed -eq 0 ] && echo 'tokens are checked'
exit $failed
