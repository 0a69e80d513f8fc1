# weir suggest: the limits that it finds are those of weir replay, and the tightest.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

# 400 requests of 20 clients over 6 minutes, in bursts of different sizes
seq 0 399 | awk '{ k = ($1 * 7) % 23 % 20; printf "%d,k%d,%d\n", int($1 * $1 / 440), k, 1 + $1 % 3 }' >bursts
awk -F, '{ print $1 "," $2 ",1" }' bursts >in
cp in requests

# counts POLICY: the numbers of requests and of keys that weir replay denies by POLICY.
counts() {
    "$weir" replay --json --time-unit s --time 1 --key 2 -p "$1" requests 2>err |
        sed 's/.*"denied":\([0-9]*\),"share.*"keys_ever_denied":\([0-9]*\),"top_keys".*"policies".*/\1 \2/'
}

# agree NAME REQUESTS CLIENTS [OPTION]...: test that each suggested limit denies what weir replay says, that this is
# at most REQUESTS and CLIENTS, and that the limit below denies more.
agree() {
    name=$1 most_requests=$2 most_keys=$3
    shift 3
    result=1
    run 0 suggest --json --time-unit s --time 1 --key 2 "$@" && has out "\"most_denied\":$most_requests,\"most_keys_denied\":$most_keys,"
    result=$?
    sed 's/.*"limits":\[//; s/\],"curve.*//; s/},{/}\n{/g' out >found
    while IFS= read -r line; do
        policy=$(echo "$line" | sed 's/.*"policy":"\([^"]*\)".*/\1/')
        limit=$(echo "$line" | sed 's/.*"limit":\([0-9]*\),.*/\1/')
        echo "$line" | sed 's/.*"denied":\([0-9]*\),"keys_denied":\([0-9]*\)}.*/\1 \2/' >said
        counts "$policy" | cmp -s - said || { echo "($line: not $(counts "$policy"))" >>err; result=1; }
        read -r requests keys <said
        [ "$requests" -le "$most_requests" ] && [ "$keys" -le "$most_keys" ] || result=1
        [ "$limit" -gt 1 ] || continue
        counts "$(echo "$policy" | sed "s/limit=[0-9]*/limit=$((limit - 1))/")" >below
        read -r requests keys <below
        [ "$requests" -gt "$most_requests" ] || [ "$keys" -gt "$most_keys" ] || { echo "($policy is not tight)" >>err; result=1; }
    done <found
    [ $result -eq 0 ] && [ "$(wc -l <found)" -ge 1 ]
    verdict "$name" $?
}
agree 'suggested limits deny as in a replay, and are the tightest' 20 2 --deny-requests 5 --deny-clients 10
agree 'suggested limits that deny nothing are the tightest' 0 0 --deny-requests 0 --deny-clients 0
agree 'suggested limits that may deny every client are the tightest' 100 20 --deny-requests 25 --deny-clients 100 --period 10s --period 20s
agree 'an algorithm can be chosen' 0 20 --deny-requests 0.1 --deny-clients 100 --algorithm fixed_window --period 1m
[ "$(wc -l <found)" -eq 1 ]
verdict 'with a chosen algorithm no other is suggested' $?

run 0 suggest --time-unit s --time 1 --key 2 --deny-requests 5 --deny-clients 10 --period 1m
sed 1q out >first
has out 'requests to deny            20   at most' 'clients to deny              2   at most' '   suggested' &&
    [ "$(grep -c '^[a-z_]*  *1m ' out)" -eq 4 ] && run 0 replay -p "$(cat first)" --time-unit s --time 1 --key 2 && has out "$(cat first)"
verdict 'the first line is a policy to paste' $?
cp bursts in
run 0 suggest --json --time-unit s --time 1 --key 2 --cost 3 --deny-requests 0 --deny-clients 0 --algorithm sliding_window --period 1m
policy=$(sed 's/.*"limits":\[{"policy":"\([^"]*\)".*/\1/' out)
run 0 replay --json --time-unit s --time 1 --key 2 --cost 3 -p "$policy" && has out '"denied":0,'
verdict 'suggest counts the costs of requests' $?
cp requests in
printf 'bad\n' >bad
run 1 suggest bad && has err 'bad: no format that weir knows fits' && [ ! -s out ]
verdict 'suggest reports an unreadable input' $?
: >no_rows
run 1 suggest no_rows && has err 'no requests'
verdict 'suggest reports an empty input' $?
for options in '--deny-requests 101' '--deny-clients x' '--deny-clients 1.00001' '--algorithm bucket' '--period 1x' '--period 1s,1m' '--top x' \
    '--key a+b+c+d+e' '--format json --log-format x' '--policy x'; do
    # shellcheck disable=SC2086 # options are words
    run 2 suggest $options requests && has err 'weir suggest' && [ ! -s out ]
    verdict "wrong use is an error: suggest $options" $?
done
{
    echo time,client
    seq 0 19999 | awk '{ printf "2026-11-10T06:%02d:%02d.5Z,c%d\n", $1 / 60 % 60, $1 % 60, $1 % 2000 }' | sort
    seq 0 4999 | awk '{ printf "2026-11-10T06:%02d:%02d.7Z,scanner\n", $1 / 500, $1 % 60 }'
} >in
run 0 suggest --json --period 1m && has out '"bound":"clients"'
sed 's/.*"policy":"sliding_window limit=\([0-9]*\) .*"limits.*/\1/' out >limit
[ "$(cat limit)" -le 20 ]
verdict 'a single client with many requests does not set the limit' $?
run 0 suggest --period 1m && has out 'The bound on clients decides' 'scanner'
verdict 'the output says which bound decides and names the heavy client' $?
{
    echo time,client
    seq 0 99 | awk '{ for (i = 0; i < 5; i++) printf "2026-11-10T06:00:%02d.%dZ,c%d\n", $1 % 60, i, $1 }' | sort
    seq 0 59 | awk '{ printf "2026-11-10T06:01:%02d.5Z,first\n", $1; if ($1 < 40) printf "2026-11-10T06:01:%02d.6Z,second\n", $1 }'
} >three
cp in scanner && cp three in
run 0 suggest --period 1m --deny-clients 1 && has out 'The bound on clients decides: limit=39 would deny more, of second.' &&
    run 0 suggest --json --period 1m --deny-clients 1 && has out '"deciders":["second"],"decider_count":1}' &&
    run 0 suggest --period 1m --deny-clients 3 && has out 'limit=4 would deny more, of c' ' and 97 others.'
verdict 'the output names the clients that decide' $?
cp scanner in
run 0 suggest --period 1m --deny-clients 0.05 && has out 'Every limit from ' ' denies as many clients, 1; the list below names them.'
verdict 'the output has the range of limits that deny the same clients' $?
cp in scan
run 0 replay scan && cp out by_replay && run 0 suggest scan && cmp out by_replay >>err
verdict 'weir replay without a limit suggests one' $?
run 0 replay -p 5/h --decisions requests --time-unit us && cp out short && run 0 replay -p 'sliding_window limit=5 period=1h' --decisions requests && cmp out short >>err
verdict 'a limit can be written as 5/h' $?
run 2 replay -p 5/x requests && has err "policy '5/x'"
verdict 'a wrong short limit is an error' $?
: >in
printf 'time,client\n2026-11-10T06:00:00Z,a\n' >few
run 0 suggest few && has out 'too few clients'
verdict 'the output says when there are too few clients' $?
for command in 'suggest' 'replay -p 5/h'; do
    # shellcheck disable=SC2086 # options are words
    run 1 $command --html missing/page.html scan && has err 'weir: missing/page.html: No such file' && [ ! -s out ] && ! has said detected 2>/dev/null
    verdict "a page that cannot be written fails at the start: $command" $?
done
run 0 suggest --help && has out 'Usage: weir suggest'
verdict 'suggest --help prints help' $?
