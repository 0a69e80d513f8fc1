# What logs of others taught: keys, times, costs and unknown formats. Each case was read wrongly once, or refused.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

# keys NAME KEY... -- [OPTION]...: test that `in` has requests of exactly these keys, in the order of their names.
keys() {
    name=$1
    shift
    : >wanted
    while [ "$1" != -- ]; do
        echo "$1" >>wanted
        shift
    done
    shift
    { cat in; cat in; } >twice # so that each key is denied, and listed
    "$weir" replay --json --top 100 -p 'fixed_window limit=1 period=1h' "$@" <twice >out 2>err
    sed 's/.*"top_keys":\[//; s/\],"policies.*//' out | tr '{' '\n' | sed -n 's/.*"key":"\([^"]*\)".*/\1/p' | sort >found
    sort wanted | cmp -s - found || { cat found >>err; false; }
    verdict "$name" $?
}

cat >in <<'END'
{"time":"2026-11-10T06:00:00Z","method":"GET","path":"/a","remote_addr":"192.0.2.7:40001"}
{"time":"2026-11-10T06:00:01Z","method":"GET","path":"/a","remote_addr":"192.0.2.7:40002"}
{"time":"2026-11-10T06:00:02Z","method":"GET","path":"/a","remote_addr":"[2001:db8::5]:40003"}
{"time":"2026-11-10T06:00:03Z","method":"GET","path":"/a","remote_addr":"[2001:db8::5]:40004"}
END
keys 'a port is not part of the key' 192.0.2.7 2001:db8::5 --
cat >in <<'END'
{"httpRequest":{"requestMethod":"GET","remoteIp":"192.0.2.156:9989"},"timestamp":"2026-06-08T23:41:31.078651Z"}
{"httpRequest":{"requestMethod":"GET","remoteIp":"192.0.2.156:9990"},"timestamp":"2026-06-08T23:41:32.078651Z"}
END
keys 'a port is not part of the key in a nested member' 192.0.2.156 --
cat >in <<'END'
{"time":"2026-11-10T06:00:00Z","host":"shop.example.com","src_ip":"192.0.2.7","path":"/"}
{"time":"2026-11-10T06:00:01Z","host":"www.example.com","src_ip":"192.0.2.9","path":"/"}
END
keys 'the host is the server, not the client' 192.0.2.7 192.0.2.9 --
run 0 replay -p "$once" && has said 'the key is src_ip, the time is time'
verdict 'the members that were taken are named' $?
sed 's/"src_ip":[^,]*,//' in >hosts && mv hosts in
run 1 replay -p "$once" && has err 'no member of this json has the usual name of a client' 'the first line: {"time"' 'weir replay --key NAME' && [ ! -s out ]
verdict 'a log with nothing but a host is refused' $?
sed 's/"host":"[a-z]*.example.com"/"whom":"192.0.2.7","by":"198.51.100.1"/' in >others && mv others in
run 1 replay -p "$once" && has err 'looks like an address: whom, by' 'weir replay --key whom stdin'
verdict 'members that look like addresses are named' $?
cat >in <<'END'
shop.example.com - 192.0.2.7 [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"
www.example.com - 192.0.2.9 [10/Nov/2026:06:00:02 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"
END
keys 'a virtual host, a dash and an address: the client is the address' 192.0.2.7 192.0.2.9 --
cat >in <<'END'
192.0.2.7, 198.51.100.3 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"
192.0.2.8, 198.51.100.3 - - [10/Nov/2026:06:00:01 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"
END
keys 'of several addresses the first is the client' 192.0.2.7 192.0.2.8 --
keys 'another address of several can be chosen' 198.51.100.3 -- --key 'client#-1'
cat >in <<'END'
1773416922.391    104 192.0.2.9 58938 TCP_MISS/200 904 123 364 123 528 GET http://example.com/ 1.1 user HIER_DIRECT/203.0.113.10 80 text/html - - "-" "curl/8.14.1" "example.com" "-" 53 -
1773416923.379    790 192.0.2.8 58962 TCP_MISS/200 640 161 292 161 348 GET http://httpbin.org/get 1.1 - HIER_DIRECT/192.0.2.30 80 application/json - - "http://test.example.com/" "curl/8.14.1" "httpbin.org" "-" 46 -
END
keys "Squid's lines are not ALB's" 192.0.2.8 192.0.2.9 --
printf 'Timestamp,Model,Request tokens\n5,ChatGPT,472\n45,ChatGPT,1087\n118,GPT-4,417\n' >in
run 2 replay -p "$once" && has err "such as '5'" 'set --time-unit' && [ ! -s out ]
verdict 'times that are too small to tell their unit are refused' $?
printf 'time,client\n1731218400,192.0.2.7\n1731218460,192.0.2.8\n' >in
run 0 replay --json -p "$once" && has out '"first":{"time_us":1731218400000000' && has said 'the time is time in seconds'
verdict 'whole numbers are seconds if that is their size' $?
printf 'time_ms,timestamp,client\n3,1731218400123,192.0.2.7\n2,1731218460123,192.0.2.8\n' >in
run 0 replay --json -p "$once" && has out '"first":{"time_us":1731218400123000' && has said 'the time is timestamp in milliseconds'
verdict 'a duration whose name looks like a time is not taken' $?
cat >in <<'END'
{"timestamp":"2026-11-10T06:00:00Z","remote_addr":"192.0.2.7","status":200,"time":0.005}
{"timestamp":"2026-11-10T06:10:00Z","remote_addr":"192.0.2.7","status":200,"time":0.004}
END
run 0 replay --json -p "$once" && has out '"last":{"time_us":1794291000000000'
verdict 'a duration is not a time' $?
sed 's/"timestamp":[^,]*,//' in >durations && mv durations in
run 1 replay -p "$once" && has err 'usual name of a time' && [ ! -s out ]
verdict 'a log with durations and no time is refused' $?
cat >in <<'END'
::ffff:192.0.2.7 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 5
::ffff:198.51.100.9 - - [10/Nov/2026:06:00:01 +0000] "GET / HTTP/1.1" 200 5
END
keys 'an IPv4 address in IPv6 is that IPv4 address' 192.0.2.7 198.51.100.9 --
keys 'an IPv4 address in IPv6 has the prefix of IPv4' 192.0.2.0/24 198.51.100.0/24 -- --key client/24/64
cat >in <<'END'
Started GET "/" for 192.0.2.1 at 2026-02-28 22:59:30 +0000
Started GET "/" for 192.0.2.1 at 2026-02-28 23:10:30 +0000
END
for time in '$time_local' '$time_iso8601' '$time'; do
    run 0 replay --json -p "$once" --log-format "Started GET \"\$path\" for \$remote_addr at $time" &&
        has out '"first":{"time_us":1772319570000000' '"last":{"time_us":1772320230000000'
    verdict "a time at the end of a --log-format is whole: $time" $?
done
sed 's/\(.*\) at \(.*\)/\2 \1/' in >front && mv front in
run 0 replay --json -p "$once" --log-format '$time_local Started $request_method "$path" for $remote_addr' &&
    has out '"first":{"time_us":1772319570000000'
verdict 'a time with spaces may stand before other words' $?
printf '10.11.2026 07:00:00,5 192.0.2.1 /\n' >in
run 0 replay --json -p "$once" --log-format '$time $remote_addr $path' --time-format '%d.%m.%Y %H:%M:%S' &&
    has out '"first":{"time_us":1794294000500000'
verdict '--time-format describes other times' $?
printf 'when;ip\n10.11.2026 07:00:00;192.0.2.1\n' >in
run 0 replay --json -p "$once" --time when --time-format '%d.%m.%Y %H:%M:%S' && has out '"first":{"time_us":1794294000000000'
verdict '--time-format describes the times of a table with semicolons' $?
seq 0 99 | awk '{ printf "2026-11-10T06:00:%02d.%02dZ,192.0.2.7\n", $1 / 10, $1 % 10 * 10 + 5 }' >rows
{ echo time,client; cat rows; } >in
run 0 replay -p 'fixed_window limit=11 period=1s' && ! has err 'whole seconds' 2>/dev/null
verdict 'times with fractions have no warning' $?
{ echo time,client; sed 's/\.[0-9]*Z/Z/' rows; } >in
run 0 replay -p 'fixed_window limit=11 period=1s' && has err 'all times are whole seconds' 'a limit over 1 s denies more'
verdict 'whole seconds with a period of a second have a warning' $?
run 0 replay -p 'fixed_window limit=11 period=1m' && ! has err 'whole seconds' 2>/dev/null
verdict 'whole seconds with a period of a minute have none' $?
cat >in <<'END'
<38>1 2026-01-19T14:23:55+00:00 fw.example sshd 44255 - [meta sequenceId="1"] Failed password for root from 192.0.2.4 port 33166 ssh2
<38>1 2026-01-19T14:23:56+00:00 fw.example sshd 44255 - - Failed password for root from 192.0.2.4 port 33166 ssh2
<38>1 2026-01-19T14:23:57+00:00 fw.example sshd 44255 - [a x="]\""][b] Failed password for root from 192.0.2.5 port 33166 ssh2
END
keys 'structured data of RFC 5424 is skipped' 192.0.2.4 192.0.2.5 --
cat >in <<'END'
192.0.2.1 - - [04/Jan/2026:07:25:02 +0000] "GET /a HTTP/1.1" 404 522 "-" "Go-http-client/1.1"
192.0.2.1 - - [04/Jan/2026:07:25:03 +0000] "GET /b HTTP/1.1" 404 522 "-" "Go-http-client/1.1"
www.example.net 192.0.2.1 - - [04/Jan/2026:07:25:04 +0000] "GET /c HTTP/1.1" 500 803 "-" "curl"
www.example.net 192.0.2.1 - - [04/Jan/2026:07:25:05 +0000] "GET /d HTTP/1.1" 500 803 "-" "curl"
2026/01/04 07:25:06 [error] 31#31: *46 "/x" is not found, client: 192.0.2.17, server: localhost, request: "GET /m/ HTTP/1.1"
END
run 1 replay -p "$once" && has err 'no format that weir knows fits' 'the nearest is combined, which fits 2 of 5' \
    'the first line: 192.0.2.1' 'looks like a client: 192.0.2.1' 'looks like a time: 04/Jan/2026:07:25:02 +0000' 'weir replay --log-format' &&
    [ ! -s out ] && [ "$(grep -c '^weir: ' err)" -eq 1 ]
verdict 'a log of several formats has one helpful answer' $?
cat >in <<'END'
2026/11/10 06:00:00 [8203] rsyncd version 2.6.9 starting, listening on port 873
2026/11/10 06:00:01 [8227] connect from host.example.com (192.0.2.126)
2026/11/10 06:00:02 [8227] rsync on module/ from host.example.com (192.0.2.126)
END
format='$time_local [$word] $word $word $word ($remote_addr)'
run 1 replay -p "$once" && has err 'no format that weir knows fits' "--log-format '$format'" && [ ! -s out ]
verdict 'a comma does not make a log CSV' $?
sed 1d in >connects && mv connects in
sed -n 1p in >one && mv one in
keys 'the suggested --log-format works' 192.0.2.126 -- --log-format "$format"
printf 'time,client,tokens\n2026-01-01T00:00:00Z,a,63.0\n2026-01-01T00:00:01Z,a,12.0\n2026-01-01T00:00:02Z,a,0.5\n' >in
run 0 replay --json -p 'fixed_window limit=75 period=1h' --cost tokens && has out '"admitted":2,"denied":1,' '"permits_asked":76,'
verdict 'a cost may have decimals, and counts up' $?
printf 'time_us,client,size\n1,a,-\n2,a,0\n3,a,0.0\n4,a,1\n5,a,99999999999999\n' >in
run 0 replay --json -p "$once" --cost size && has out '"requests":5,"admitted":4,"denied":1,' &&
    has err '3 requests cost nothing' && [ "$(grep -c bad err)" -eq 0 ]
verdict 'requests that cost nothing are counted, and large costs are charged' $?
run 0 replay -p 'fixed_window limit=1 period=1h' -p 'b cost=size: fixed_window limit=1 period=1h' --decisions &&
    [ "$(cut -d, -f1 out | tr -d '\n')" = 10000 ]
verdict 'a limit that a request costs nothing does not apply to it, but others do' $?
cat >in <<'END'
Feb 25 16:19:38 lb haproxy[1]: 192.0.2.4:58444 [25/Feb/2026:16:19:38.439] main app/app1 1/0/1/0/4 200 516 - - ---- 3/3/0/0/0 0/0 "GET / HTTP/1.1"
Feb 25 16:19:39 lb haproxy[1]: 192.0.2.5:50033 [25/Feb/2026:16:19:39.123] main/1: SSL handshake failure
Feb 25 16:19:40 lb haproxy[1]: Server app/app1 is DOWN, reason: Layer4 timeout.
END
keys 'other lines of HAProxy are left out' 192.0.2.4 --
cat >in <<'END'
"192.0.2.7 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "a""
"192.0.2.7 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "a""
"192.0.2.7 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "a""
192.0.2.9 - - [10/Nov/2026:06:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "a"
END
keys 'some lines may lack the quotation marks' 192.0.2.7 192.0.2.9 --
for i in 1 2 3; do echo "10.0.0.$i - - [10/Nov/2026:06:00:0$i +0000] \"GET / HTTP/1.1\" 200 5"; done >in
run 0 replay -p "$once" && has err '3 of 3 keys are private addresses'
verdict 'a warning says that most clients are private addresses' $?
cat >in <<'EOT'
Feb 25 16:19:38 lb haproxy[1]: 2001:db8::5:1444 [25/Feb/2026:16:19:38.439] main app/app1 1/0/1/0/4 200 516 - - ---- 3/3/0/0/0 0/0 "GET / HTTP/1.1"
Feb 25 16:19:39 lb haproxy[1]: 2001:db8::5:58445 [25/Feb/2026:16:19:39.439] main app/app1 1/0/1/0/4 200 516 - - ---- 3/3/0/0/0 0/0 "GET / HTTP/1.1"
Feb 25 16:19:40 lb haproxy[1]: unix:1 [25/Feb/2026:16:19:40.439] main app/app1 1/0/1/0/4 200 516 - - ---- 3/3/0/0/0 0/0 "GET / HTTP/1.1"
EOT
keys 'the port of HAProxy is no part of an IPv6 address without brackets' 2001:db8::5 unix --
for port in 1444 40004; do
    echo "2026-11-10T06:00:00Z my-lb 2001:db8::5:$port 10.0.0.1:80 0.1 0.2 0.3 200 200 0 57 \"GET http://a:80/ HTTP/1.1\" \"curl\" - -"
done >in
keys "nor is that of AWS's load balancers" 2001:db8::5 --
cat >in <<'EOT'
2026/11/10 06:00:00 [warn] 29#29: *1 delaying request, excess: 0.320, by zone "a", client: 192.0.2.7, server: _, request: "GET / HTTP/1.1"
2026/11/10 06:00:01 [warn] 29#29: *2 delaying request, dry run, excess: 0.320, by zone "a", client: 192.0.2.8, server: _, request: "GET / HTTP/1.1"
EOT
keys 'nginx delays requests in dry runs, too' 192.0.2.7 192.0.2.8 --
echo '[2026-11-10T06:00:00.000Z] "GET / HTTP/1.1" 200 - 0 18 1 1 "-" "curl" "id" "www" "10.0.35.28:80"' >in
run 1 replay -p "$once" && [ ! -s out ]
verdict "Envoy's lines without a client are refused" $?
for i in 7 8 9; do echo "192.0.2.$i 198.51.100.3 - - [10/Nov/2026:06:00:0$i +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\""; done >in
run 1 replay -p "$once" && has err 'no format that weir knows fits' && [ ! -s out ]
verdict 'an address in front of the client is not its virtual host' $?
cat >in <<'EOT'
{"time":"2026-11-10T06:00:00Z","client":"app","source":"lambda","client_ip":"192.0.2.7"}
{"time":"2026-11-10T06:00:01Z","client":"app","source":"lambda","client_ip":"192.0.2.8"}
EOT
keys 'an address is a better client than a name' 192.0.2.7 192.0.2.8 --
sed 's/"client":"app",//; s/,"client_ip":[^}]*//' in >sources && mv sources in
run 1 replay -p "$once" && has err 'no member of this json has the usual name of a client' && [ ! -s out ]
verdict 'a source that is no address is not a client' $?
cat >in <<'EOT'
2026-11-10 06:00:00,130 INFO:     192.0.2.7:40000 - "GET / HTTP/1.1" 200 OK
2026-11-10 06:00:01,000 INFO:     2001:db8::5:4000 - "GET / HTTP/1.1" 200 OK
EOT
keys 'uvicorn with a time, and a comma before its fraction, is read' 192.0.2.7 2001:db8::5 --
sed 's/INFO: */worker /; s/ - .*//' in >others && mv others in
run 1 replay -p "$once" && has err 'no format that weir knows fits' && [ ! -s out ]
verdict 'a comma before a fraction does not make a log CSV' $?
printf '%s\n' '{"log":"INFO:     192.0.2.7:40000 - \"GET / HTTP/1.1\" 200 OK\n","stream":"stdout","time":"2026-11-10T06:00:00.5Z"}' >in
run 0 replay --json -p "$once" && has out '"first":{"time_us":1794290400500000'
verdict "a line without a time has Docker's" $?
echo '2026/11/10 06:00:00 <a> "GET /?a=b HTTP/1.1" from 192.0.2.7:40000 - 200' >in
run 1 replay -p "$once" && has err "--log-format '\$time_local <\$word> \"\$text\" \$word \$remote_addr'"
verdict 'a quoted string is one field of the suggested --log-format' $?
