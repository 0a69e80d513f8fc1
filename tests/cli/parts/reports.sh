# The output: the report and JSON.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

cat >in <<'END'
time_us,key,cost
1000000,a,1
1100000,a,1
1200000,a,1
1300000,b,1
5000000,c,1
5000001,b,1
END
cat >expected <<'END'
policy            fixed_window limit=1 period=1h
file              stdin
time              1970-01-01T00:00:01Z to 1970-01-01T00:00:05Z, 4.000001 s

requests                     6
admitted                     3    50.0 %
denied                       3    50.0 %
distinct keys                3   (by key)
keys ever denied             2    66.7 %
busiest second               4   requests at 1970-01-01T00:00:01Z

      denied    requests     share   key
           2           3    66.7 %   a
           1           2    50.0 %   b
END
run 0 replay -p 'fixed_window limit=1 period=60m' && diff expected out >>err && [ ! -s err ]
verdict 'the report counts requests, denials, keys and the busiest second' $?
run 0 replay -p "$once" --top 1 && has out '1 more; --top 2 shows all' && ! has out '50.0 %   b' 2>/dev/null
verdict '--top says how many keys are listed' $?
run 0 replay -p 'fixed_window limit=4 period=1h' && has out 'No request would have been denied' '1 of 4 permits left, was a'
verdict 'if no request is denied, the report names the key closest to its limit' $?
run 0 replay --json --top 1 -p "$once" && is out '{"weir":"'"$("$weir" version | cut -d' ' -f2)"'","report":"replay","mode":"local","files":["stdin"],"unreadable":0,"requests":6,"admitted":3,"denied":3,"share_denied":0.5,"permits_asked":6,"permits_admitted":3,"would_deny":0,"distinct_keys":3,"key_field":"key","first":{"time_us":1000000,"time":"1970-01-01T00:00:01Z"},"last":{"time_us":5000001,"time":"1970-01-01T00:00:05Z"},"busiest_second":{"time_us":1000000,"time":"1970-01-01T00:00:01Z","requests":4},"nearest":null,"keys_ever_denied":2,"top_keys":[{"key":"a","requests":3,"denied":2}],"policies":[{"name":null,"policy":"fixed_window limit=1 period=1h","denied":3,"denied_alone":3,"would_deny":0,"permits":3,"share_denied":0.5,"keys_ever_denied":2,"top_keys":[{"key":"a","requests":3,"denied":2}],"permits_asked":6,"distinct_keys":3}]}'
verdict '--json prints the same as one object' $?
printf '5000000,a,1\n1000000,a,1\n5000001,b,1\n1000001,b,1\n5000002,c,1\n' >in
run 0 replay --keep-order --json -p "$once" && has out '"busiest_second":{"time_us":5000000,' '"requests":3}'
verdict 'the busiest second is found whatever the order' $?

printf '0,"\\\t\001\377\303\251,1\n1,"\\\t\001\377\303\251,1\n' >in
run 0 replay --json -p "$once" && has out '{"key":"\"\\\t\u0001'"$(printf '\357\277\275\303\251')"'","key_hex":"225c0901ffc3a9","requests":2'
verdict 'JSON escapes keys, and adds their bytes where they are not UTF-8' $?
run 0 replay -p "$once" && has out '"\\\x09\x01\xff'"$(printf '\303\251')"
verdict 'the report shows control characters and does not send them' $?

printf '# two limits\nfast = fixed_window limit=2 period=1s\nslow = fixed_window limit=3 period=1h\n' >limits.conf
printf '0,a,1\n0,a,1\n0,a,1\n2000000,a,1\n2000000,a,1\n' >in
run 0 replay -f limits.conf && has out '1. fast = fixed_window limit=2 period=1s' 'By 2. slow = fixed_window limit=3 period=1h' \
    '1 by this limit alone' && [ "$(grep -c 'denied .* 1 by this limit alone' out)" -eq 2 ]
verdict 'the report lists several limits separately' $?
run 0 replay -f limits.conf --json && has out '"denied":2,"share_denied":0.4' '{"name":"fast","policy":"fixed_window limit=2 period=1s","denied":1,"denied_alone":1,' \
    '{"name":"slow","policy":"fixed_window limit=3 period=1h","denied":1,"denied_alone":1,'
verdict 'the JSON report counts several limits separately' $?
run 0 replay -f limits.conf --decisions && mv out from-file &&
    run 0 replay -p 'fixed_window limit=2 period=1s' -p 'fixed_window limit=3 period=1h' --decisions && cmp -s from-file out
verdict 'a policy file and -p give the same decisions' $?
run 2 replay -f limits.conf -f limits.conf && has err 'limits.conf:2:' "'fast'"
verdict 'a limit of the same name in a second file is an error' $?
printf 'time_us,cost\n0,3\n1,8\n' >in
run 0 replay -p 'token_bucket limit=5 period=1h' && grep -q '^permits asked  *11$' out &&
    grep -q '^permits admitted  *3  *27.3 %$' out
verdict 'the report counts permits if requests cost more than one' $?

# Shadow limits: the report has the figures that the limiter itself keeps.
awk 'BEGIN { srand(7); print "time_us,key,cost"; for (i = 0; i < 3000; i++) printf "%d,k%d,%d\n", i * 9000, int(8 * rand()), 1 + int(3 * rand()) }' >in
run 0 replay --json -p 'token_bucket limit=20 period=1s' && bound=$(sed 's/.*"admitted":\([0-9]*\),"denied":\([0-9]*\),.*/\1 \2/' out) &&
    run 0 replay --json -p 'token_bucket limit=20 period=1s shadow' && has out '"admitted":3000,"denied":0,' "\"would_deny\":${bound#* }," &&
    [ "${bound#* }" -gt 100 ]
verdict 'a shadow limit admits all requests and reports the denials of the same enforced limit' $?
run 0 replay -p 'token_bucket limit=20 period=1s shadow' && has out 'would be denied' 'admitted by a shadow limit' && ! has out 'No request would' 2>/dev/null
verdict 'the report counts the denials that a shadow limit would have made' $?
printf 'wide = token_bucket limit=25 period=1s\ntight = token_bucket limit=20 period=1s shadow\n' >both.conf
run 0 replay -p 'token_bucket limit=25 period=1s' --json && bound=$(sed 's/.*"admitted":\([0-9]*\),"denied":\([0-9]*\),.*/\2/' out) &&
    run 0 replay -f both.conf --json && has out "\"denied\":$bound,\"share_denied\"" '"name":"tight","policy":"token_bucket limit=20 period=1s shadow","denied":0,"denied_alone":0,"would_deny":' &&
    ! has out '"would_deny":0,"share_denied":0.000000,"keys_ever_denied":0' 2>/dev/null
verdict 'a shadow limit beside an enforced one changes none of its denials' $?
run 0 replay -p 'token_bucket limit=25 period=1s, candidate limit=20' --json && has out "\"denied\":$bound,\"share_denied\"" &&
    ! has out '"would_deny":0' 2>/dev/null &&
    run 0 replay -p 'token_bucket limit=25 period=1s, candidate limit=20' && has out 'would be denied' 'by the candidate'
verdict 'a candidate changes no denial, and the report counts those that it would have made' $?
run 0 replay --json -p 'token_bucket limit=20 period=1s' && bound=$(sed 's/.*"admitted":\([0-9]*\),"denied":\([0-9]*\),.*/\2/' out) &&
    run 0 replay -p 'token_bucket limit=25 period=1s, candidate limit=20 percent=100' --json && has out "\"denied\":$bound,\"share_denied\""
verdict 'a candidate for all keys denies as the limit that it becomes' $?
run 0 try -p 'fixed_window limit=5 period=1h, candidate limit=1' --cost 2 && has out 'allowed' 'would be denied by the candidate'
verdict "try says what a policy's candidate would have done" $?
run 0 try -p 'fixed_window limit=1 period=1h shadow' --cost 2 --stats && has out 'would be denied' 'weir_limit_would_deny_total{limit="try"} 1'
verdict "try prints a shadow limit's decision and exits with 0" $?
