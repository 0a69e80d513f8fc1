# auth.sh - a part of run.sh: limits by a claim of a token, as docs/gateways.md shows.
# shellcheck shell=sh disable=SC2154,SC2016 # run.sh sets the variables

mkdir -p www/api && echo served >www/api/index.html
awk '/^```nginx$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../../docs/gateways.md" |
    sed -e "s|unix:/run/jwt.sock|unix:$scratch/jwt.sock|" -e '/proxy_pass http:..127/d' -e '/^server {$/d' -e '/^}$/d' >example
sed -n '/^weir_limit /p' example >example.http
sed '/^weir_limit /d' example >example.server
if ! command -v python3 >found; then
    skip 'there is no python3 here'
fi
echo 'a secret' >secret
$pdeathsig python3 "$here/../../examples/jwt_check.py" jwt.sock secret 2>jwt.log &
check_pid=$!
for _ in $(seq 200); do
    [ ! -S jwt.sock ] || break
    sleep 0.1
done

# token USER SECONDS SECRET: print a token of that user that expires in so many seconds.
token() {
    python3 - "$@" <<'END'
import base64, hashlib, hmac, json, sys, time
def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")
user, seconds, secret = sys.argv[1:]
text = encode(b'{"alg":"HS256"}') + b"." + encode(json.dumps({"sub": user, "exp": time.time() + int(seconds)}).encode())
print((text + b"." + encode(hmac.new(secret.encode(), text, hashlib.sha256).digest())).decode())
END
}

start_nginx "$(cat example.http)" "$(cat example.server)"
alice=$(token alice 3600 'a secret')
bob=$(token 'bob
x' 3600 'a secret')
is "$(get /api/) $(get /api/ -H "Authorization: Bearer $(token alice 3600 guessed)")" '401 401' &&
    is "$(get /api/ -H "Authorization: Bearer $(token alice -1 'a secret')")" 401 &&
    is "$(get /api/ -H "Authorization: Bearer ${alice}x.y")" 401 && is "$(weir_says)" ''
verdict 'a request without a valid token is refused and not counted' $?
get /api/ -H "Authorization: Bearer $alice" >status
left=$(weir_says)
get /api/ -H "Authorization: Bearer $alice" >>status
is "$(cat status) $left $(weir_says)" '200200 PASSED user 99 PASSED user 98' &&
    get /api/ -H "Authorization: Bearer $bob" >status && is "$(cat status) $(weir_says)" '200 PASSED user 99'
verdict 'each user has a limit, by a claim of the token' $?
stop_nginx
kill "$check_pid"
wait "$check_pid" 2>/dev/null
