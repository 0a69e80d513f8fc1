# The formats of logs: detection, prefixes, quotation marks, formats as text, JSON; keys and costs of limits.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

many_requests >many
# detects NAME FORMAT: test that the 300 rows of `in`, of 30 clients, are detected as FORMAT.
run 0 replay --json -p "$once" many
sed 's/"files":\["[^"]*"\]//' out >expected
detects() {
    run 0 replay --json -p "$once" && has said "stdin: detected the format $2; 300 of 300 rows fit" &&
        sed 's/"files":\["[^"]*"\]//' out | cmp -s - expected && [ ! -s err ]
    verdict "$1" $?
}
cp many in
detects 'a log in common format is detected' common
sed 's/$/ "-" "agent"/' many >in
detects 'a log in combined format is detected' combined
sed 's/^/www.example.org:80 /' many >in
detects 'a virtual host before the client is not the client' vhost_common
sed 's/^/www.example.org:80 /; s/$/ "-" "agent"/' many >in
detects 'a virtual host is not the client in vhost_combined either' vhost_combined
sed 's/^/Nov 10 06:00:00 web nginx: /' many >in
detects 'the prefix of syslog is not part of the line' 'common behind syslog'
sed 's/^/Nov  3 06:00:00 web nginx[7]: /' many >in
detects 'the prefix of syslog may have a day of one digit' 'common behind syslog'
sed 's/^/<134>Nov 10 06:00:00 web nginx: /' many >in
detects 'the prefix of syslog may have a priority' 'common behind syslog with a priority'
sed 's/^/<134>1 2026-11-10T06:00:00Z web nginx - - - /' many >in
detects 'the prefix of syslog by RFC 5424 is recognised' 'common behind syslog of RFC 5424'
sed 's/^/2026-11-10T06:00:00+00:00 web nginx: /' many >in
detects 'the prefix of syslog with a full date is recognised' 'common behind syslog with a full date'
sed 's/^/web_1  | /' many >in
detects 'the name of a container before a line is recognised' 'common behind container'
sed 's/^/"/; s/$/"/' many >in
detects 'a line may be enclosed in quotation marks' 'common in quotation marks'
sed 's/"/""/g; s/^/"/; s/$/"/' many >in
detects 'quotation marks inside a quoted line may be doubled' 'common in quotation marks'
sed 's/"/\\"/g; s/^/"/; s/$/"/' many >in
detects 'quotation marks inside a quoted line may be escaped' 'common in quotation marks'
seq 0 299 | awk '{ printf "192.0.2.%d:80 [10/Nov/2026:06:%02d:%02d.250] in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n", $1 % 30, $1 / 60, $1 % 60 }' >in
run 0 replay -p "$once" && has said 'detected the format haproxy; 300 of 300' && grep -q '^distinct keys  *30 ' out
verdict 'logs of HAProxy are detected' $?
{ head -n 290 many; seq -f 'bad %.0f' 1 10; } >in
run 0 replay -p "$once" && has said 'detected the format common; 290 of 300 rows fit'
verdict 'the detected format is printed with the number of rows that fit' $?
run 0 replay -p "$once" --format common && [ "$(grep -c detected said)" -eq 0 ]
verdict 'nothing is detected if the format is named' $?
{ head -n 90 many; sed 's/^/host /; 90q' many; head -n 20 many; } >in
run 1 replay -p "$once" && has err '90 of 200 rows cannot be read as common' '--format vhost_common'
verdict 'if too few rows fit, the next best format is named' $?

# The format as the configuration has it
seq 0 5 | awk '{ printf "key-%d 2026-11-10T06:00:%02d+00:00 \"GET /%d HTTP/1.1\" 192.0.2.1\n", $1 % 2, $1, $1 }' >in
nginx="log_format keyed '\$http_x_api_key \$time_iso8601 ' '\"\$request\" \$remote_addr';"
decides 'a log_format of nginx describes a log' 110000 --log-format "$nginx" --key http_x_api_key
decides 'usual fields of a log_format have their usual names' 100000 --log-format "$nginx"
apache='LogFormat "%{X-Api-Key}i %{%Y-%m-%dT%T}t \"%r\" %h" keyed'
decides 'a LogFormat of Apache describes a log' 110000 --log-format "$apache" --key http_x_api_key
sed 's/^/Nov 10 06:00:00 web nginx: /' in >prefixed && mv prefixed in
decides 'a log described by a LogFormat may have the prefix of syslog' 110000 --log-format "$nginx" --key http_x_api_key
run 2 replay -p "$once" --log-format '%h %Q' && has err "--log-format code '%Q'"
verdict 'an unknown code in --log-format is an error' $?
cp many in
run 2 replay -p "$once" --log-format '$remote_addr $request' && has err 'has no time'
verdict 'a format without a time is an error' $?
run 2 replay -p "$once" --log-format "$nginx" --format csv && has err 'cannot be combined'
verdict '--format and --log-format are not given together' $?

# sshd
{
    echo 'Dec 31 23:59:58 web sshd[7]: Failed password for invalid user admin from 192.0.2.1 port 4711 ssh2'
    echo 'Dec 31 23:59:58 web CRON[8]: pam_unix(cron:session): session opened for user root by (uid=0)'
    echo 'Dec 31 23:59:59 web sshd[7]: message repeated 2 times: [ Failed password for root from 192.0.2.1 port 4711 ssh2]'
    echo 'Jan  1 00:00:00 web sshd[9]: Accepted publickey for ada from 2001:db8::7 port 4712 ssh2: RSA SHA256:x'
    echo 'Jan  1 00:00:01 web sshd[9]: Connection closed by 192.0.2.1 port 4711'
} >in
decides 'each login attempt in a log of sshd is a request, repeated ones included' 1001
run 0 replay --json -p "$once" --key user --year 2025 && has out '"first":{"time_us":1767225598000000' \
    '"last":{"time_us":1767225600000000' '"distinct_keys":3' && has err '2 lines are not requests'
verdict 'times without a year advance at New Year, from the year of --year' $?
run 0 replay -p "$once" && has err 'no year; 2000 is assumed'
verdict 'the assumed year is printed' $?

sed 's/^Dec 31/2025-12-31T/; s/^Jan  1/2026-01-01T/; s/T \([0-9:]*\)/T\1.250+00:00/; s/sshd\[/sshd-session[/' in >dated && mv dated in
run 0 replay --json -p "$once" --key user && has out '"first":{"time_us":1767225598250000' '"distinct_keys":3' &&
    has said 'detected the format sshd behind syslog with a full date; 3 of 3' && has err '2 lines are not requests'
verdict 'a log of sshd may have the prefix of syslog with a full date' $?

# W3C's extended format, as CloudFront and IIS write it
{
    printf '#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status\n'
    printf '2026-11-10\t06:00:00\tFRA1\t17\t192.0.2.1\tGET\tx.cloudfront.net\t/a\t200\n'
    printf '2026-11-10\t06:00:01\tFRA1\t17\t192.0.2.2\tGET\tx.cloudfront.net\t/a\t200\n'
    printf '2026-11-10\t06:00:02\tFRA1\t17\t192.0.2.1\tGET\tx.cloudfront.net\t/b\t200\n'
} >in
decides 'the fields of the extended format are named by its header' 110
decides 'the fields of the extended format have their usual names' 101 --key path
decides 'the fields of the extended format have the names of the header, too' 100 --key cs_host_
sed 1,2d in >headless && mv headless in
run 1 replay -p "$once" --format w3c && has err 'no line #Fields'
verdict 'rows without the header cannot be read' $?

# JSON
{
    echo '{"level":"info","ts":1794290400.25,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/a?x"},"status":200}'
    echo '{"level":"info","ts":1794290401.25,"request":{"remote_ip":"192.0.2.2","method":"GET","uri":"/a?y"},"status":404}'
    echo '{"level":"info","ts":1794290402.25,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/b"},"user_id":"ada"}'
} >in
decides 'JSON lines of Caddy are detected' 110
cp in caddy
awk 'BEGIN { for (i = 0; i < 9; i++) print "{\"level\":\"info\",\"ts\":1,\"msg\":\"started\"}" }
     { sub(/"ts"/, "\"msg\":\"handled request\",\"ts\""); print }' caddy >in
decides "other lines of Caddy's log are not requests" 110
echo garbage >>in
run 1 replay -p "$once" && has err 'stdin:13: ' '9 lines are not requests' '1 of 4 rows'
verdict 'a line that Caddy would not write is a bad row' $?
{
    printf '2026/11/10 05:59:59.001\tINFO\tserving initial configuration\n'
    printf '2026/11/10 05:59:59.001\tINFO\tadmin\tstarted\t{"address": "localhost:2019"}\n'
    sed 's/^{.*\("request.*\)/2026\/11\/10 06:00:00.500\tINFO\thttp.log.access\thandled request\t{\1/' caddy
} >in
run 0 replay --json -p "$once" && has out '"requests":3,"admitted":2,' '"first":{"time_us":1794290400500000' \
    '"distinct_keys":2' && has err '2 lines are not requests'
verdict 'the console format of Caddy is read' $?
sed 's/"/\\"/g; s/\t/\\t/g; s/.*/{"log":"&\\n","stream":"stderr","time":"2026-11-10T06:00:01.5Z"}/' in >docker && mv docker in
run 0 replay --json -p "$once" && has out '"requests":3,"admitted":2,' '"first":{"time_us":1794290400500000' &&
    has said "detected the format json in Docker's JSON; 3 of 3"
verdict 'JSON lines wrapped by Docker are read' $?
sed 's/"/\\"/g; s/.*/{"log":"&\\n","stream":"stdout","time":"2026-11-10T06:00:00.5Z"}/' many >in
detects "an access log wrapped by Docker is read" "common in Docker's JSON"
sed '7s/.*/{"log":/' in >bad && mv bad in
run 0 replay -p "$once" && has err 'stdin:7: JSON' && has said "common in Docker's JSON; 299 of 300"
verdict 'a line that Docker has not wrapped is bad' $?
sed 's/.*/{"log":"{\\"client\\":\\"&\\"}\\n","stream":"stdout","time":"2026-11-10T06:00:00.5Z"}/; s/ [^\\]*//' many >in
run 0 replay --json -p "$once" && has out '"requests":300' '"distinct_keys":30,' '"first":{"time_us":1794290400500000'
verdict "a wrapped line without a time has the time of Docker" $?
sed 's/^/2026-11-10T06:00:09.5Z stdout F /' caddy >in
decides 'a JSON object may follow text' 110
cp caddy in
run 0 replay -p "$once" --json && has said 'detected the format json; 3 of 3 rows fit' &&
    has out '"first":{"time_us":1794290400250000'
verdict 'times of JSON lines are read to the microsecond' $?
decides 'the path of JSON lines is that of the request' 101 --key path
decides 'a request without a user has the user -' 101 --key user
decides 'a field is named by its path' 100 --key request.method
run 1 replay -p "$once" --key status && has err "stdin:3: has no field 'status'" '1 of 3'
verdict 'a row without its key is bad' $?
seq 1 300 | awk '{ printf "{\"time\":%d,\"client\":\"a,%d\",\"tokens\":%d}\n", 1794290400 + $1, $1 % 30, $1 }' >in
run 0 replay --json -p "$once" --time-unit s && has out '"requests":300' '"distinct_keys":30,' &&
    has out '"time_us":1794290401000000'
verdict 'JSON is never taken for CSV' $?
run 0 replay --json -p "$once" && has said 'the key is client, the time is time in seconds' && has out '"time_us":1794290401000000'
verdict 'the unit of times is found by their size' $?
run 0 replay --json -p "$once" --time-unit s --cost tokens && has out '"permits_asked":45150,'
verdict 'a field of JSON can be the cost' $?
run 1 replay -p "$once" --format csv && has err '0 fit' && [ ! -s out ]
verdict 'JSON does not fit CSV' $?
# Keys and costs of limits
{
    echo time,user,ip,tokens
    echo 1,ada,192.0.2.1,50
    echo 2,ada,192.0.2.2,60
    echo 3,bob,192.0.2.1,10
    echo 4,ada,192.0.2.1,40
    echo 5,ada,192.0.2.3,5
} >in
two() { # two POLICY POLICY: the requests admitted by two limits, and what each alone denies
    run 0 replay --json --time-unit s -p "$1" -p "$2" &&
        sed 's/.*"admitted":\([0-9]*\),.*"denied":\([0-9]*\),"denied_alone.*"denied":\([0-9]*\),"denied_alone.*/\1 \2 \3/' out >counts
}
two 'rpm key=user: fixed_window limit=3 period=1h' 'tpm key=user cost=tokens: fixed_window limit=100 period=1h' &&
    is counts '4 0 1'
verdict 'each limit can have a separate cost' $?
has out '"name":"tpm"' '"cost_field":"tokens"'
verdict 'the report names limits, keys and costs' $?
two 'tpm key=user cost=tokens: fixed_window limit=100 period=1h' 'key=user: fixed_window limit=3 period=1h' && is counts '4 1 0'
verdict 'the cost of one limit is not that of the next' $?
two 'key=ip: fixed_window limit=1 period=1h' 'fixed_window limit=9 period=1h' && is counts '3 2 0'
verdict 'the key of one limit is not that of the next' $?
two 'key=user: fixed_window limit=9 period=1h' 'key=ip: fixed_window limit=1 period=1h' && is counts '3 0 2'
verdict 'each limit can have a separate key' $?
two 'fixed_window limit=9 period=1h' 'key=ip/24: fixed_window limit=3 period=1h' && is counts '3 0 2'
verdict 'a key may be the prefix of an address' $?
run 0 replay -p 'key=user+ip: fixed_window limit=1 period=1h' --time-unit s && grep -q '^distinct keys  *4 ' out
verdict 'a key may have several fields' $?
run 0 replay -p 'key=user: fixed_window limit=9 period=1h' -p 'key=ip: fixed_window limit=1 period=1h' --time-unit s &&
    has out '(by user)' '(by ip)' && grep -q '192.0.2.1$' out
verdict 'the report lists the keys of each limit' $?
cp in in.csv
run 2 replay -p 'keys=user: fixed_window limit=9 period=1h' && has err "'keys=user' before the colon"
verdict 'an unknown word before the colon is an error' $?
run 2 replay -p 'a: fixed_window limit=9 period=1h' -p 'a: fixed_window limit=9 period=1d' && has err "two limits 'a'"
verdict 'two limits of one name are an error' $?
run 2 replay -p 'key=a+b+c+d+e: fixed_window limit=9 period=1h' && has err 'more than 4 fields'
verdict 'a key of too many fields is an error' $?
run 2 replay -p 'key=ip/200: fixed_window limit=9 period=1h' && has err "prefix '200'"
verdict 'a wrong prefix is an error' $?
run 2 replay -p 'key=who: fixed_window limit=9 period=1h' --time-unit s && has err "no field 'who'"
verdict 'a key that the input lacks is an error' $?
run 2 replay -p 'cost=who: fixed_window limit=9 period=1h' --time-unit s && has err "no field 'who'"
verdict 'a cost that the input lacks is an error' $?

# Lines as container runtimes write them
for i in 1 2 3 4 5 6; do
    echo "2026-11-10T06:00:0$i.12345678Z stdout F 192.0.2.$((i % 2)) - - [10/Nov/2026:06:00:0$i +0000] \"GET / HTTP/1.1\" 200 7"
done >runtime.log
run 0 replay -p 'fixed_window limit=2 period=1h' runtime.log && has said 'common behind container runtime; 6 of 6 rows fit' &&
    grep -qE '^distinct keys +2 ' out && grep -qE '^denied +2 ' out
verdict 'a log of a container runtime is detected' $?
for i in 1 2 3; do echo "at 2026-11-10 06:00:0$i, from <192.0.2.$i> came /"; done >unknown.log
run 1 replay -p 'fixed_window limit=2 period=1h' unknown.log && has err 'unknown.log: no format that weir knows fits' \
    'the first line: at 2026-11-10 06:00:01, from' 'looks like a client: 192.0.2.1' 'looks like a time: 2026-11-10 06:00:01' \
    "weir replay --log-format '\$word \$time_local, \$word <\$remote_addr>' unknown.log"
verdict 'a log of an unknown format is refused with a remedy' $?

# Limits side by side
run 0 replay --time-unit s --compare -p 'key=user: fixed_window limit=3 period=1h' -p 'b key=ip: fixed_window limit=1 period=1h' \
    -p 'key=user cost=tokens: fixed_window limit=100 period=1h' &&
    grep -qE '^ +1 +20.0 % +1.00 +1 +50.0 % +fixed_window limit=3 period=1h$' out &&
    grep -qE '^ +2 +40.0 % +2.00 +1 +33.3 % +b = fixed_window limit=1 period=1h$' out &&
    grep -qE '^ +1 +20.0 % +1.00 +1 +50.0 % +fixed_window limit=100 period=1h$' out
verdict '--compare applies each limit alone, with its key and cost' $?
run 0 replay --time-unit s --compare --json -p 'key=user: fixed_window limit=3 period=1h' -p 'b key=ip: fixed_window limit=1 period=1h' &&
    has out '"denied":1,"distinct_keys":2,"keys_ever_denied":1},{"name":"b",' '"denied":2,"distinct_keys":3,"keys_ever_denied":1}]}'
verdict '--compare with --json applies each limit alone' $?
printf 'a = fixed_window limit=9 period=1h\nb = fixed_window limit=1 period=1h\nb/ada = fixed_window limit=3 period=1h\n' >side.conf
run 0 replay --time-unit s --compare --key user -f side.conf && grep -qE '^ +1 +20.0 % +- +1 +50.0 % +b = ' out
verdict 'limits of a file keep their overrides' $?
for options in '' '-f side.conf --decisions' '-f side.conf --mode hybrid --redis redis://127.0.0.1:1'; do
    # shellcheck disable=SC2086 # options are words
    run 2 replay --compare -p "$once" $options && has err 'weir replay'
    verdict "--compare does not go with '$options'" $?
done

# ---- Requests in flight ----

cat >in <<'END'
time_ms,user,took_s
0,a,10
5000,a,10
10000,a,3
11000,b,1
12000,a,9
13000,a,9
21999,a,1
22000,a,1
END
in_flight='concurrency limit=1 hold=1h'
# flies NAME DIGITS [OPTION]...: as decides(), by that limit.
flies() {
    name=$1
    digits=$2
    shift 2
    run 0 replay --decisions -p "$in_flight" "$@" && [ "$(cut -d, -f1 out | tr -d '\n')" = "$digits" ]
    verdict "$name" $?
}
flies 'a request in flight gives its permit back when it ends' 10110101 --key user --duration took_s
flies 'without durations a request in flight returns its permit after the hold' 10010000 --key user
sed 's/,took_s/,took/; s/,\([0-9]*\)$/,\1.0/' in >seconds && mv seconds in
flies 'a number with a point is seconds' 10110101 --key user --duration took
sed 's/\.0$/000/' in >units && mv units in
flies 'a whole number has the unit that is asked for' 10110101 --key user --duration took --duration-unit ms
# Rows at the ends of the same requests, in another order.
{ echo time_ms,user,took; sed 1d in | awk -F, '{ print $1 + $3 "," $2 "," $3 }' | sort -s -t, -k1,1n; } >ends && mv ends in
run 0 replay --json --key user --duration took --duration-unit ms --time-is-end -p "$in_flight" && has out '"denied":3,'
verdict '--time-is-end reads times as the ends of requests' $?
{ echo time_us,user,cost,took; seq 0 3999 | awk '{ r = (r * 48271 + $1 + 11) % 2147483647; printf "%d,k%d,%d,%d\n", $1 * 100, r % 7, 1 + r % 3, 1 + r % 9000 }'; } >in
# A model: of each key at most 12 permits of admitted requests that have begun and not ended.
awk -F, 'NR > 1 {
    n = 0
    for (i = 1; i <= count[$2]; i++)
        if (ends[$2, i] > $1) { n++; ends[$2, n] = ends[$2, i]; costs[$2, n] = costs[$2, i] }
    count[$2] = n; used = 0
    for (i = 1; i <= n; i++) used += costs[$2, i]
    allowed = used + $3 <= 12
    if (allowed) { count[$2]++; ends[$2, count[$2]] = $1 + $4; costs[$2, count[$2]] = $3 }
    print allowed
}' in >expected
run 0 replay --decisions --key user --duration took -p 'concurrency limit=12 hold=1h' && cut -d, -f1 out | cmp - expected &&
    grep -q 0 expected && grep -q 1 expected
verdict 'decisions on requests in flight are those of a model' $?
run 0 replay --decisions --key user --duration took -p 'concurrency limit=12 hold=1h' -p 'token_bucket limit=1000 period=1s' &&
    cut -d, -f1 out >both && [ "$(paste expected both | grep -c '^0.1')" -lt 400 ] && grep -q 0 both && grep -q 1 both
verdict 'a rate can be combined with a limit on requests in flight' $?
printf 'time_us,user,took\n1,a,-\n' >in
run 1 replay --key user --duration took -p "$in_flight" && has err "duration '-' is not a number of up to 366 days"
verdict 'a row without a valid duration is a bad row' $?
misuse '--time-is-end needs --duration' replay -p "$in_flight" --time-is-end
misuse "--duration-unit 'h'" replay -p "$in_flight" --duration x --duration-unit h
misuse '--duration needs --mode local or distributed' replay -p "$in_flight" --duration x --mode hybrid --redis unix:///x
