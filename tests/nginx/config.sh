# config.sh - a part of run.sh: what nginx -t refuses.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

# refuses NAME TEXT HTTP [SERVER]: test that nginx -t fails and says TEXT, with the file and the line.
refuses() {
    name=$1 text=$2
    shift 2
    write_conf "$1" "${2-}"
    ! "$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1 &&
        grep -F -e "$text" out | grep -q "in $scratch/nginx.conf:[0-9]"
    verdict "$name" $?
}

refuses 'a policy with a mistake is refused with the word and the allowed values' \
    'weir_limit a: column 22: "perid=1s" is not known to a fixed_window' 'weir_limit a fixed_window limit=1 perid=1s;'
refuses 'a limit that is defined twice is refused' '"weir_limit" directive has the name of an earlier limit' \
    'weir_limit a fixed_window limit=1 period=1s; weir_limit a fixed_window limit=2 period=1s;'
refuses 'a limit that nobody defined is refused with the line that uses it' '"weir" directive: limit "b" does not exist' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir b key=$uri;'
refuses 'a use without a key is refused' '"weir" directive has no key=...' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a cost=1;'
refuses 'a key with an empty part is refused' 'has a key with an empty part' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri,;'
for key in '$remote_addr/24' '$remote_addr/33/64' '$remote_addr/24/129' '$binary_remote_addr/24/64' /24/64; do
    refuses "a network with a mistake is refused: $key" '"weir" directive has a' \
        'weir_limit a fixed_window limit=1 period=1s;' "weir a key=$key;"
done
refuses 'a fixed cost out of range is refused' 'has a cost that is not a whole number from 1 to 8796093022208' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri cost=0;'
refuses 'an unknown parameter is refused' '"weir" directive has the invalid parameter "burst=3": use key=... [cost=...] [nodelay or delay=...]' \
    'weir_limit a fixed_window limit=1 period=1s;' 'weir a key=$uri burst=3;'
refuses 'an unknown option is refused' '"weir_options" directive: there is no option "redis_hurl"' \
    'weir_options { redis_hurl x; }'
refuses 'an option that is given twice is refused' '"weir_options" directive: rank is given twice' \
    'weir_options { rank 0; rank 0; }'
refuses 'an option with a malformed value is refused with what it may be' \
    '"weir_options" directive: timeout must be a time, 1us to 1h, not "soon"' \
    'weir_options { timeout soon; }'
refuses 'an option without a value is refused' '"weir_options" directive: rank takes one value' \
    'weir_options { rank; }'
refuses 'an empty text as an option is refused' '"weir_options" directive: redis_prefix must be a text that is not empty' \
    'weir_options { redis_prefix ""; }'
refuses 'an unknown mode is refused' '"weir_mode" directive: the mode must be machine, distributed or hybrid, not "fast"' \
    'weir_mode fast;'
refuses 'a mode over Redis without a URL is refused' '"weir_mode" directive: option redis_url is required' \
    'weir_mode distributed;'
refuses 'a URL that is none is refused' '"weir_redis" directive: ' 'weir_mode hybrid; weir_redis localhost;'

# refuses_at NAME TEXT LINE HTTP: the same of an option of that line of HTTP, with a limit and without any.
refuses_at() {
    name=$1 text=$2 line=$(($3 + 12)) # HTTP begins on line 13
    for limit in '' 'weir_limit a fixed_window limit=1 period=1s;'; do
        write_conf "$4
$limit" ''
        ! "$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1 &&
            grep -F -e "$text" out | grep -q "in $scratch/nginx.conf:$line\$"
        verdict "$name${limit:+, with a limit}" $?
    done
}
refuses_at 'an option out of range is refused with its line' '"weir_options" directive: lease_excess must be a whole number, 1 to 100' 4 \
    'weir_mode hybrid; weir_redis redis://127.0.0.1;
weir_options {
    timeout 20ms;
    lease_excess 101;
}'
refuses_at 'a time out of range is refused with its line' '"weir_options" directive: timeout must be a time, 1us to 1h' 3 \
    'weir_mode hybrid; weir_redis redis://127.0.0.1;
weir_options { rank 0;
    timeout 2h; }'
refuses_at 'shares that do not fit are refused with a line' '"weir_options" directive: option rank must be' 2 \
    'weir_options { instances 3;
    rank 3; }'
refuses_at 'too many keys are refused with their line' '"weir_options" directive: max_keys must be' 2 \
    'weir_options {
    max_keys 9999999999; }'
refuses_at 'a policy file that is missing is refused with its line' '"weir_options" directive: ' 2 \
    'weir_options {
    policy_file missing.conf; }'
echo 'a = fixed_window limit=0 period=1s' >wrong.conf
refuses_at 'a mistake in a policy file is refused with both lines' '"weir_options" directive: ' 2 \
    'weir_options {
    policy_file wrong.conf; }'
refuses_at 'a name that limits cannot have is refused with its line' '"weir_limit" directive: ' 2 \
    'weir_limit good fixed_window limit=1 period=1s;
weir_limit bad:name fixed_window limit=1 period=1s;'

# ---- What can never work ----

limits='weir_limit window fixed_window limit=5 period=1s;
    weir_limit bucket token_bucket limit=5 period=1s burst=8 debt=2;
    weir_limit queue leaky_bucket limit=5 period=1s capacity=20;
    weir_limit flight concurrency limit=5 hold=1m;'
for limit in window bucket flight; do
    for word in nodelay delay=3; do
        refuses "$word with a limit that delays nothing is refused: $limit" \
            "\"weir\" directive: limit \"$limit\" delays no request" "$limits" "weir $limit key=\$uri $word;"
    done
done
for use in window/6/5 bucket/11/10 queue/21/20 flight/6/5; do
    limit=${use%%/*}
    most=${use##*/}
    cost=${use#*/}
    cost=${cost%/*}
    refuses "a cost that is never admitted is refused: $limit" \
        "\"weir\" directive: limit \"$limit\" admits a cost of $most at most, so it denies each request of $cost" \
        "$limits" "weir $limit key=\$uri cost=$cost;"
done
refuses 'a cost above this machine'"'"'s share is refused' 'limit "window" admits a cost of 3 at most' \
    "weir_options { instances 2; } $limits" 'weir window key=$uri cost=4;'
refuses 'a charge to a limit on requests in flight is refused' \
    '"weir_charge" directive: limit "flight" counts requests in flight' "$limits" 'weir_charge flight key=$uri cost=1;'
refuses 'a cost that is known after the response only is refused' 'charge it by weir_charge' "$limits" \
    'weir window key=$uri cost=$bytes_sent;'
refuses 'delay beside nodelay is refused' '"weir" directive has more than one delay=... or nodelay' "$limits" \
    'weir queue key=$uri delay=3 nodelay;'
refuses 'a delay that is no number of permits is refused' 'has a delay that is not a whole number of permits' "$limits" \
    'weir queue key=$uri delay=1s;'
refuses 'nodelay with weir_charge is refused' '"weir_charge" directive has the invalid parameter "nodelay"' "$limits" \
    'weir_charge queue key=$uri cost=1 nodelay;'

# accepts NAME HTTP [SERVER]: test that nginx -t succeeds.
accepts() {
    write_conf "$2" "${3-}"
    "$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1
    verdict "$1" $?
}
accepts 'costs and delays that can work are accepted' "$limits" '
    weir window key=$uri cost=5; weir bucket key=$uri cost=10; weir flight key=$uri cost=5;
    weir queue key=$uri cost=20 delay=3; weir_charge window key=$uri cost=6;'
accepts 'a cost that only an override admits is accepted' "$limits weir_limit window/vip fixed_window limit=50 period=1s;" \
    'weir window key=$arg_k cost=50;'
echo 'other/vip = fixed_window limit=50 period=1s
other = fixed_window limit=5 period=1s' >policies.conf
accepts 'a cost that only an override of the policy file admits is accepted' 'weir_options { policy_file policies.conf; }' \
    'weir other key=$arg_k cost=50;'
write_conf "weir_redis redis://127.0.0.1; $limits" 'weir window key=$uri;'
"$nginx" -t -p "$scratch" -c "$scratch/nginx.conf" -e "$scratch/error.log" >out 2>&1 &&
    grep -q '\[warn\].*"weir_redis" directive is not used without "weir_mode distributed" or "hybrid" in ' out
verdict 'a Redis that no mode uses is warned of' $?

refuses 'weir off beside weir is refused' 'contradicts' 'weir_limit a fixed_window limit=1 period=1s;' \
    'weir a key=$uri; weir off;'

awk '/^```nginx$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../../docs/nginx.md" >manual.conf
: >limits.conf
accepts 'nginx accepts the configuration of the manual' "$(cat manual.conf)" && [ -s manual.conf ]
