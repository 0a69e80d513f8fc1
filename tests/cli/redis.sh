#!/bin/sh
# redis.sh WEIR - the weir program on a private Redis server: it decides as in local mode and leaves nothing behind.
set -u
[ $# -eq 1 ] || { echo "usage: redis.sh WEIR" >&2; exit 2; }
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/server.sh
. "$here/server.sh"
secret=marker-7f3a91
export REDISCLI_AUTH=$secret # redis-cli's

# no_keys: succeed if the server holds no keys: each test must find it and leave it empty.
no_keys() {
    [ "$(asked dbsize)" = 0 ] || { asked keys '*' >>err; echo '(keys are left)' >>err; return 1; }
}

start_server --requirepass "$secret"

# ---- Decisions ----

# same NAME [WORD]...: test that replaying `in` decides alike in both modes, byte for byte, and leaves no key.
same() {
    name=$1
    shift
    run 0 replay --decisions "$@" && mv out local &&
        run 0 replay --decisions --mode distributed --redis "$url" "$@" && [ -s local ] && cmp local out >>err 2>&1 &&
        ! grep -qv 'all times are whole seconds' err && no_keys
    verdict "$name" $?
}

# rows SEED MOST: print MOST rows of time_us,key,cost, with times from 0. The steps range over many orders of magnitude; one
# in 16 goes back, by less or more than the slack. There are few keys; some contain characters special to Redis or weir.
rows() {
    awk -v seed="$1" -v most="$2" 'BEGIN {
        random = seed
        keys = split("a b {a} {} %7Ba% a{b}c *3 %#0", key, " ")
        for (i = 0; i < most; i++) {
            printf "%.0f,%s,%d\n", time, key[1 + next_of(keys)], next_of(16) ? 1 + next_of(3) : 1 + next_of(1000)
            step = next_of(10) * 10 ^ next_of(7)
            if (next_of(16) == 0)
                step = -step
            time = time + step < 0 ? 0 : time + step
        }
    }
    function next_of(n) {
        random = random * 16807 % 2147483647
        return int(random / 2147483647 * n)
    }'
}

rows 1 3000 >rows-from-0
# The same rows late in the range of times, where a double just represents every one.
awk -F, '{ printf "%.0f,%s,%s\n", 9007199254740991 - $1 % 1000000000000000, $2, $3 }' rows-from-0 >rows-late
{ head -n 1500 rows-from-0 | awk -F, '{ print "0," $2 "," $3 }'; } >rows-at-0
for policy in \
    'token_bucket limit=5 period=1s' \
    'token_bucket limit=7 period=3s burst=20' \
    'token_bucket limit=3 period=1m burst=5 debt=4' \
    'token_bucket limit=1000000000 period=1us' \
    'token_bucket limit=1 period=366d burst=100' \
    'token_bucket limit=5 period=1s refill=interval' \
    'token_bucket limit=5 period=7s burst=11 debt=3 refill=interval align=epoch' \
    'fixed_window limit=5 period=1s' \
    'fixed_window limit=100 period=1m align=epoch' \
    'sliding_window limit=5 period=1s' \
    'sliding_window limit=50 period=1m blocks=1' \
    'sliding_window limit=500 period=1h blocks=1024' \
    'leaky_bucket limit=5 period=1s' \
    'leaky_bucket limit=7 period=3s capacity=1000'; do
    cp rows-from-0 in
    same "$policy decides alike in both modes" -p "$policy"
    same "$policy decides alike in both modes where times step back" --keep-order -p "$policy"
    cp rows-late in
    same "$policy decides alike in both modes at the end of time" --keep-order -p "$policy"
    cp rows-at-0 in
    same "$policy decides alike in both modes at time 0" -p "$policy"
done
head -n 1000 rows-from-0 >in
same 'several limits decide the same in both modes' --keep-order -p 'token_bucket limit=2 period=1s burst=10' \
    -p 'fixed_window limit=30 period=1m align=epoch' -p 'sliding_window limit=100 period=1h' \
    -p 'leaky_bucket limit=5 period=1s' -p 'token_bucket limit=9 period=5s refill=interval'
{ printf '0,a\0b\r\n\377,1\n1,a\0b\r\n\377,1\n2,'; head -c 65536 /dev/zero | tr '\0' '{'; printf ',1\n'; } | tr -d '\n' |
    sed 's/,1/,1\n/g' >in
same 'keys of any bytes and of the greatest length decide the same in both modes' -p "$once"
{ echo time_us,user,took; awk -F, '{ printf "%s,%s,%d\n", NR * 1000, $2, 1 + NR * 7919 % 60000 }' rows-from-0; } >in
same 'requests in flight end at the same times in both modes' --key user --duration took \
    -p 'concurrency limit=3 hold=1h' -p 'fixed_window limit=200 period=1s'
by_hand() {
    name="the trace $1 is decided by Redis as worked out by hand"
    shift
    run 0 replay --decisions --mode distributed --redis "$url" "$@" && diff expected out >>err && no_keys
    verdict "$name" $?
}
traces by_hand

# ---- Reports, keys ----

cp rows-from-0 in
run 0 replay -p "$once" && mv out local && run 0 replay --mode distributed --redis "$url" -p "$once" &&
    grep -q '^mode  *distributed' out && grep -v '^mode ' out | cmp - local >>err && no_keys
verdict 'the report names the mode and is otherwise the same' $?
run 0 replay --json -p "$once" && sed 's/"mode":"local"/"mode":"distributed"/' out >local &&
    run 0 replay --json --mode distributed --redis "$url" -p "$once" && cmp local out >>err && no_keys
verdict 'the JSON report names the mode and is otherwise the same' $?

asked config resetstat >/dev/null
asked set 'weir:policy-1:{a}' other >/dev/null
run 0 replay --decisions -p "$once" && mv out local &&
    run 0 replay --decisions --mode distributed --redis "$url" -p "$once" && cmp local out >>err &&
    [ "$(asked get 'weir:policy-1:{a}')" = other ] && [ "$(asked dbsize)" = 1 ]
verdict 'a replay uses separate keys and leaves other keys alone' $?
asked flushall >/dev/null

# Look at the keys of a run while it waits for its output to be read: a pipe holds far less than all of it.
mkfifo pipe
rows 2 60000 >many
# replay_to_pipe: start a run and return once it has keys; descriptor 3 is the other end of its pipe.
replay_to_pipe() {
    "$weir" replay --decisions --keep-order --mode distributed --redis "$url" -p 'sliding_window limit=5 period=1d' many \
        >pipe 2>err &
    replay_pid=$!
    exec 3<pipe
    tries=0
    while [ "$(asked dbsize)" = 0 ] && [ $tries -lt 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
replay_to_pipe
asked keys 'weir:*' >own_keys
ttl=$(asked pttl "$(head -n 1 own_keys)")
grep -qvE '^weir:replay-[0-9a-f]{16}:policy-1:\{.+\}$' own_keys
[ $? -eq 1 ] && [ -s own_keys ] && [ "$ttl" -gt $((7 * 86400000)) ]
verdict 'the keys of a replay have a random name and live a week longer than they count' $?
kill -TERM "$replay_pid" # a script starts jobs with SIGINT ignored
cat <&3 >out
exec 3<&-
wait "$replay_pid"
status=$?
[ $status -eq 143 ] && ! grep -v 'detected the format' err && no_keys
verdict 'a replay that is ended by a signal removes its keys first' $?
replay_to_pipe
asked acl setuser weir -evalsha >/dev/null
cat <&3 >out
exec 3<&-
wait "$replay_pid"
[ $? -eq 1 ] && has err 'redis answers NOPERM' 'cannot decide: ' "cannot remove this run's keys" && [ "$(wc -l <out)" -lt 60000 ]
verdict 'a replay that Redis stops serving ends with an error' $?
asked acl setuser weir +evalsha >/dev/null
asked flushall >/dev/null
{ "$weir" replay --decisions --keep-order --mode distributed --redis "$url" -p "$once" many 2>said | head -n 1 >out; } &&
    [ "$(wc -l <out)" -eq 1 ] && ! grep -v detected said >err && no_keys
verdict 'a replay whose output is closed removes its keys' $?

# ---- try ----

try() {
    run "$1" try --mode distributed --redis "$url" -p 'token_bucket limit=2 period=1h' --key 'a{b}' "$2" "$3"
}
try 0 --cost 2 && has out 'allowed: ' '0 of 2 permits left' ', by redis' && try 1 --cost 1 && has out 'denied: ' &&
    [ "$(asked keys '*')" = 'weir:try:{a%7Bb%7D}' ]
verdict 'try takes from the limit in Redis, and names Redis as the source' $?
try 2 --redis-prefix mine: && has err 'redis answers NOPERM' && [ "$(asked acl setuser weir '~mine:*')" = OK ] &&
    try 0 --redis-prefix mine: && [ "$(asked exists 'mine:try:{a%7Bb%7D}')" = 1 ]
verdict 'try takes from the limit under another prefix, if its Redis user has the right' $?
asked acl setuser weir +wait >/dev/null
run 2 try --mode distributed --redis "$url" -p 'token_bucket limit=2 period=1h' --key durable --redis-replicas 1 &&
    [ ! -s out ] && has err 'not acknowledged by 1 replica'
verdict 'try fails if no replica acknowledges the charge' $?
asked del 'weir:try:{durable}' >/dev/null
run 1 try --mode distributed --redis "$url" -p 'token_bucket limit=2 period=1h' --key 'a{b}' --json &&
    has out '"allowed":false' '"source":"redis"'
verdict 'try names Redis as the source in JSON' $?
run 1 try --mode distributed --redis "$url" -p 'token_bucket limit=2 period=1h' --key 'a{b}' --stats &&
    has out 'weir_denied_total 1' 'weir_store_requests_total 1' 'weir_store_calls_total 1'
verdict 'try includes the figures of Redis in its stats' $?
printf 'api = fixed_window limit=1 period=1h\n' >limits.conf
run 0 try --mode distributed --redis "$url" -f limits.conf --key k && [ "$(asked exists 'weir:api:{k}')" = 1 ]
verdict 'try asks a limit of a policy file by its name' $?
asked set 'weir:api:{k}' nonsense >/dev/null
run 2 try --mode distributed --redis "$url" -f limits.conf --key k && [ ! -s out ] && [ -s err ]
verdict 'try reports a foreign value as an error' $?
slowly() {
    run 0 try --mode distributed --redis "$url" -p 'leaky_bucket limit=1 period=1h capacity=5' --key slow
}
slowly && ! grep -q 'go ahead' out && slowly && has out 'allowed: ' ', go ahead after 59 min '
verdict 'try prints the delay of a leaky bucket' $?
asked flushall >/dev/null

# ---- peek, keys, reset ----

# shellcheck disable=SC2046 # a list of words
set -f
# shellcheck disable=SC2046 # a list of words
asked acl setuser $(sed -n 's/^    ACL SETUSER \(operator [^#]*\)$/\1/p' "$here/../../docs/redis.md") >>err
set +f
operator=unix://operator:password@$socket
printf 'login = sliding_window limit=3 period=1h\n' >limits.conf
for key in 'a{b}' 'a{b}' 'a{b}' '%x' plain; do
    "$weir" try --mode distributed --redis "$url" -f limits.conf --key "$key" >>said
done
run 0 peek --redis "$operator" login 'a{b}' && has out 'login' 'a{b}' 'sliding_window limit=3 period=1h' '3 of 3 permits' 'denied for 1 h ' &&
    run 0 peek --redis "$operator" login nobody && has out 'nothing: all permits are there' && [ ! -s err ]
verdict 'peek shows a key without its policy' $?
run 0 peek --json --redis "$operator" login '%x' &&
    has out '{"limit":"login","key":"%x","is_cut":false,"found":"state","policy":"sliding_window limit=3 period=1h","used":1,"size":3,"remaining":2,"allowed":true,"would_deny":false,"retry_after_us":0,'
verdict 'peek prints a key as JSON' $?
run 0 keys --redis "$operator" && sort out >sorted && [ "$(cut -d' ' -f1 sorted | paste -sd' ')" = 'login/%x: login/a{b}: login/plain:' ] &&
    has out 'login/plain: 1 of 3 permits used, not denied' && run 0 keys --redis "$operator" --denied &&
    [ "$(cut -d, -f1 out)" = 'login/a{b}: 3 of 3 permits used' ]
verdict 'keys lists keys, or those that are denied' $?
run 0 stats --redis "$operator" && has out '           3            1            0            5            0  login = sliding_window limit=3 period=1h' &&
    [ "$(wc -l <out)" = 2 ] && run 0 stats --json --redis "$operator" && is out \
    '{"limits":[{"name":"login","keys":3,"denied":1,"near":0,"permits":5,"two_policies":0,"policy":"sliding_window limit=3 period=1h","is_mixed":false}],"foreign":0,"unlisted":0,"is_all":true}'
verdict 'stats adds up the states of each limit' $?
run 0 top --redis "$operator" && [ "$(sed 1q out | cut -d, -f1)" = 'login/a{b}: 3 of 3 permits used' ] &&
    [ "$(cut -d, -f1 out | sed 1d)" = 'login/%x: 1 of 3 permits used
login/plain: 1 of 3 permits used' ] && run 0 top --redis "$operator" --keys 1 && [ "$(wc -l <out)" = 1 ] && has out 'a{b}' &&
    run 0 top --json --redis "$operator" --keys 1 && has out '{"keys":[{"limit":"login","key":"a{b}","is_cut":false,' \
    '"used":3,"size":3,"remaining":0,"allowed":false' '}],"foreign":0,"unlisted":0,"is_all":true}'
verdict 'top lists the keys that must wait longest, and then those used most' $?
run 0 watch --redis "$operator" --turns 2 --every 1 --keys 1 && [ "$(grep -c 'Z login keys 3 denied 1 near 0 permits 5$' out)" = 2 ] &&
    [ "$(grep -c 'Z login/a{b}: 3 of 3 permits used, denied for ' out)" = 2 ] && [ "$(wc -l <out)" = 4 ] &&
    run 0 watch --json --redis "$operator" --turns 1 --keys 1 && has out '{"time":"' '"limits":[{"name":"login","keys":3,' \
    '"top_keys":[{"limit":"login","key":"a{b}"'
verdict 'watch shows both again and again' $?
run 0 stats --redis "$operator" --limit other && has err 'no such key' && [ "$(wc -l <out)" = 1 ] &&
    run 2 top --redis "$operator" --limit 'a b' && has err name && run 1 watch --redis "unix://$scratch/none" --turns 1 &&
    has err 'No such file' && [ ! -s out ] && run 2 stats --redis "unix://operator@$socket" --redis-password-file missing &&
    has err missing 'cannot be read' && run 2 peek --redis "unix://operator@$socket" --redis-password-file missing login x &&
    has err missing 'cannot be read' && run 1 stats --redis "$url" && has err NOPERM scan && [ ! -s out ]
verdict 'stats, top, watch and peek name a bad argument, a missing file or a missing right' $?
i=0
while [ $i -lt 2000 ]; do
    echo "SET weir:many:{$i} x"
    i=$((i + 1))
done | asked >>said
run 0 stats --redis "$operator" --scan 256 && has out 'only about the first 256 keys' "keys whose values are not weir's: " &&
    run 0 stats --json --redis "$operator" --scan 256 && has out '"is_all":false}' &&
    run 0 stats --json --redis "$operator" && has out '"foreign":2000,"unlisted":0,"is_all":true}'
verdict 'stats examines no more keys than it is told to, and says so' $?
asked eval "for i = 0, 1999 do redis.call('DEL', 'weir:many:{' .. i .. '}') end" 0 >>said
run 0 keys --redis "$operator" --limit login --match 'pl*' && [ "$(wc -l <out)" = 1 ] && has out login/plain &&
    run 0 keys --json --redis "$operator" --match '%25x' && [ "$(wc -l <out)" = 1 ] && has out '"key":"%x"' &&
    run 0 keys --redis "$operator" --most 2 && [ "$(wc -l <out)" = 2 ] &&
    run 0 keys --redis "$operator" --limit other && [ ! -s out ] && has err 'no such key'
verdict 'keys can be chosen by limit, pattern and number' $?
run 0 reset --redis "$operator" login 'a{b}' && is out 'the key is forgotten' &&
    run 0 reset --redis "$operator" login 'a{b}' && is out 'there was nothing to forget' &&
    run 0 reset --json --redis "$operator" login plain && is out '{"existed":true}' &&
    run 0 try --mode distributed --redis "$url" -f limits.conf --key 'a{b}'
verdict 'reset forgets a key' $?
asked set 'weir:login:{x}' other >/dev/null
run 1 peek --redis "$operator" login x && has err "not weir's" && run 1 reset --redis "$operator" login x &&
    has err 'left alone' && [ "$(asked get 'weir:login:{x}')" = other ] && run 0 keys --redis "$operator" &&
    has out "login/x: not a value of weir's"
verdict 'a value of another program is reported and kept' $?
run 1 keys --redis "$url" && has err 'NOPERM' 'scan' && run 1 peek --redis "unix://operator:marker-no@$socket" login x &&
    has err 'WRONGPASS' && ! grep -q marker err && run 1 peek --redis "unix://$scratch/none" login x && has err 'No such file'
verdict 'peek and keys report why Redis cannot be used' $?
run 2 peek login x && has err 'is needed' && run 2 peek --redis "$operator" login && has err 'a LIMIT and a KEY' &&
    run 2 keys --redis "$operator" x && has err "unexpected argument 'x'" && run 2 keys --redis "$operator" --most 0 &&
    has err '--most' && run 2 peek --redis "$operator" --redis-ca-file x login k && has err 'redis_ca_file is for' &&
    run 2 check --redis rediss://127.0.0.1:1 --redis-ca-file missing.pem && has err "redis_ca_file" &&
    run 2 reset --redis "$operator" 'a b' x && has err 'name' && run 2 keys --redis "$operator" --match 'a*b' &&
    has err 'pattern' && run 2 peek --redis 'nonsense' a b && [ -s err ]
verdict 'wrong use of peek, keys and reset is refused' $?
asked flushall >/dev/null

# ---- What Redis must allow ----

missing=
rights=$(sed -n 's/^    ACL SETUSER \(weir\|watcher\|operator\) \([^#]*\).*/\2/p' "$here/../../docs/redis.md" | grep -o '[+&][^ ]*')
for right in $rights; do
    grep -qF -- "$right" "$here/../../src/cli/weir.1.scd" || missing="$missing $right"
done
[ -n "$rights" ] || missing=all
[ -z "$missing" ] || echo "the manual lacks:$missing" >>err
[ -z "$missing" ]
verdict 'the manual names each right that docs/redis.md names' $?

printf '0,a,1\n' >in
asked acl setuser weir -del >/dev/null
run 1 replay -p "$once" --mode distributed --redis "$url" &&
    has err "cannot remove this run's keys weir:replay-" 'they expire by themselves' && [ "$(asked dbsize)" -gt 0 ]
verdict 'a replay whose keys cannot be removed says so' $?
asked acl setuser weir +del >/dev/null
asked flushall >/dev/null

# ---- Passwords and errors ----

run 0 check --redis "$url" && is out 'Redis can be used' && [ ! -s err ] && no_keys
verdict 'check reports that Redis can be used, and leaves no key' $?
printf 'api = nonsense\n' >limits.conf
run 1 check --redis "$url" limits.conf && has err 'limits.conf:1: ' && has out 'Redis can be used'
verdict 'check checks Redis and files in one run' $?
asked acl setuser weir -psetex >/dev/null
run 1 check --redis "$url" && has err 'Redis cannot be used: ' NOPERM psetex && [ ! -s out ] && no_keys
verdict 'check names the right that Redis lacks' $?
asked acl setuser weir +psetex >/dev/null
run 1 check --redis "unix://:marker-wrong@$socket" && has err 'Redis cannot be used: ' 'WRONGPASS' && ! grep -q marker err
verdict 'check reports a wrong password without printing it' $?
run 1 check --redis "unix://$scratch/none" && has err 'Redis cannot be used: ' 'No such file'
verdict 'check reports an absent server' $?

# wrong STATUS NAME [WORD]...: test that both commands fail (replay with STATUS), say why, and print nothing and no secret.
wrong() {
    status=$1
    name=$2
    shift 2
    run "$status" replay --decisions -p "$once" --mode distributed "$@" && [ ! -s out ] && [ -s err ] &&
        ! grep -q marker err && run 2 try -p "$once" --mode distributed "$@" && [ ! -s out ] && [ -s err ] &&
        ! grep -q marker err && no_keys
    verdict "$name" $?
}
head -n 3 rows-from-0 >in
bare=unix://$socket
wrong 1 'without the password it is an error' --redis "$bare"
wrong 1 'with a wrong password it is an error that does not tell it' --redis "unix://:marker-wrong@$socket"
wrong 2 'a user without a password is an error' --redis "unix://marker@$socket"
wrong 2 'a bad URL is an error that does not quote it' --redis "redis://:marker/x@localhost"
wrong 2 'a password file that is not there is an error' --redis "$bare" --redis-password-file missing
same_with() { # NAME URL [WORD]...
    name=$1
    shift
    run 0 replay --decisions --mode distributed -p "$once" --redis "$@" && [ "$(wc -l <out)" -eq 3 ] && [ ! -s err ]
    verdict "$name" $?
}
same_with 'the password can be in the URL' "unix://:$secret@$socket"
same_with 'the user can be named' "unix://default:$secret@$socket?db=3"
printf '%s\r\nmore\n' "$secret" >password
same_with 'the password can be in a file' "$bare" --redis-password-file password
export WEIR_REDIS_PASSWORD=$secret
same_with 'the password can be in the environment' "$bare"
unset WEIR_REDIS_PASSWORD

# unseen NAME PLACES [WORD]...: test that the password is in none of PLACES while a try that gets it by these words waits
# for Redis. PLACES are files of the process in /proc.
unseen() {
    name=$1
    places=$2
    shift 2
    kill -STOP "$server_pid"
    env -u REDISCLI_AUTH "$@" >out 2>err &
    asks=$!
    tries=0
    until [ "$(find "/proc/$asks/task" -maxdepth 1 | wc -l)" -gt 2 ] || [ $tries -gt 1500 ]; do # its thread runs: the options are read
        tries=$((tries + 1))
        sleep 0.02
    done
    seen=$tries
    for place in $places; do
        tr '\0' '\n' <"/proc/$asks/$place" >"$place" && [ -s "$place" ] && ! grep -q marker "$place" || seen=2000
    done
    kill -CONT "$server_pid"
    wait "$asks" && [ "$seen" -le 1500 ] && ! grep -q marker out err
    verdict "$name" $?
    asked flushall >/dev/null
}
if [ -r /proc/self/cmdline ]; then
    set -- "$weir" try --mode distributed -p "$once" --redis "$bare"
    unseen 'a password of a file is in no command line and no environment' 'cmdline environ' \
        "$@" --redis-password-file password
    unseen 'a password of the environment is in no command line' cmdline "WEIR_REDIS_PASSWORD=$secret" "$@"
fi
# ---- weir serve ----

# serve_on NAME: start a server on the socket NAME.sock that counts in Redis; its number is then $served.
serve_on() {
    "$weir" serve --unix "$1.sock" -f served.conf --mode distributed --redis "$url" >"$1.out" 2>>err &
    served=$!
    tries=0
    until [ -s "$1.out" ] || [ $tries -gt 200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# told NAME WORD...: print the answer of the server on NAME.sock in one line.
told() {
    name=$1
    shift
    env -u REDISCLI_AUTH redis-cli -s "$name.sock" "$@" 2>&1 | paste -sd' '
}

printf 'login = fixed_window limit=4 period=1h\n' >served.conf
: >err
serve_on first
first=$served
serve_on second
for name in first second first second second; do told "$name" weir.try login a | cut -c1-5; done | paste -sd'|' >out
[ "$(cat out)" = '1 4 3|1 4 2|1 4 1|1 4 0|0 4 0' ] && [ ! -s err ]
verdict 'two servers on one Redis share a limit' $?
[ "$(told first cl.throttle b 1 1 60)$(told second cl.throttle b 1 1 60)" = '0 2 1 -1 600 2 0 -1 120' ] &&
    [ "$(told first weir.reset login a)" = OK ] && [ "$(told second weir.peek login a | cut -c1-5)" = '1 4 4' ]
verdict 'two servers on one Redis share the limits of CL.THROTTLE too' $?
kill -KILL "$first" && told second weir.try login a | grep -q '^1 4 3 '
verdict 'a server continues when another one is killed' $?
kill -STOP "$server_pid"
printf 'WEIR.TRY login c\nPING\nWEIR.TRY login d\n' | env -u REDISCLI_AUTH redis-cli -s second.sock >out 2>&1
told second ping | grep -q PONG && grep -q PONG out && ! grep -q TIMEOUT out
verdict 'a server answers while Redis is stopped' $?
kill -CONT "$server_pid"
kill "$served" && wait "$served"
verdict 'a server on Redis exits with 0' $?

# stat NAME METRIC: print a figure of the server on NAME.sock.
stat() {
    env -u REDISCLI_AUTH redis-cli -s "$1.sock" weir.stats | sed -n "s/^$2\({[^}]*}\)\{0,1\} //p" | tr -d '\r'
}
printf 'shared = fixed_window limit=3000 period=1h\n' >served.conf
servers=
for name in first second third; do
    rm -f "$name.sock" "$name.out"
    serve_on "$name"
    servers="$servers $served"
    env -u REDISCLI_AUTH redis-benchmark -s "$name.sock" -c 8 -P 4 -n 40000 -q weir.try shared k >"$name.load" 2>&1 &
    eval "load_$name=\$!"
done
# shellcheck disable=SC2086 # a list of processes
set -- $servers
tries=0
until [ "$(stat second weir_limit_allowed_total)" -gt 0 ] || [ $tries -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
kill -KILL "$2"
# redis-benchmark 7.0 can spin without end after its server has died.
# shellcheck disable=SC2154 # set by eval
kill -KILL "$load_second" 2>/dev/null
# shellcheck disable=SC2154
wait "$load_first" && wait "$load_third" && told first weir.try shared k | grep -q '^0 3000 0 ' &&
    [ "$(($(stat first weir_limit_allowed_total) + $(stat third weir_limit_allowed_total)))" -le 3000 ] &&
    [ "$(stat third weir_errors_total)" = 0 ] && asked acl setuser weir +getrange >/dev/null &&
    run 0 peek --redis "$url" shared k && has out '3000 of 3000 permits'
verdict 'when one of three servers under load is killed, the others continue within the limit' $?
asked acl setuser weir -getrange >/dev/null
kill "$1" "$3" && wait "$1" "$3"
verdict 'the surviving servers exit with 0' $?
asked flushall >/dev/null

stop_server
wait
rm -f "$socket"
no_keys() { :; }
wrong 1 'a Redis that is not there is an error, before any input is read' --redis "$url"
wrong 1 'a Redis that refuses is an error' --redis redis://127.0.0.1:1
run 1 replay -p "$once" --mode distributed --redis "$url" missing.log && ! has err missing.log 2>/dev/null
verdict 'the connection to Redis is checked before the input' $?

finish
