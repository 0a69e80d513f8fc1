# The input: access logs, CSV, gzip, times, and bad rows.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

{
    clf 192.0.2.1 ada '10/Nov/2026:06:00:00 +0000' 'GET /a?x=1 HTTP/1.1'
    clf 192.0.2.1 bob '10/Nov/2026:06:00:01 +0000' 'POST /b HTTP/1.1'
    clf 192.0.2.2 ada '10/Nov/2026:06:00:02 +0000' 'GET /a?x=2 HTTP/1.1'
} >log
cp log in
decides 'the key of an access log is the client' 101
decides 'the key can be the user' 110 --key user
decides 'the key can be the path, without the query' 110 --key path
decides 'the key can be the method' 110 --key method
decides 'a log can be named as a file' 101 log
decides 'options may follow files' 101 log --format clf
decides 'several files and a dash are one input' 101000 log -
sed 's/$/ "http:\/\/example.org\/" "Mozilla (X11, \\"quoted\\")"/' log >in
decides 'the Combined Log Format is read too' 101
sed 's/$/\r/' log >in
decides 'lines may end with CR LF' 101
{ echo; cat log; echo; echo '   '; } >in
decides 'blank lines are not rows' 101
printf '%s' "$(cat log)" >in
decides 'the last line may lack its line feed' 101
{
    clf a.example - '10/Nov/2026:06:00:00 +0000' 'GET /a "b" c HTTP/1.0'
    clf a.example - '10/Nov/2026:06:00:00 +0000' 'GET /a "b" c?d HTTP/1.0'
    clf a.example - '10/Nov/2026:06:00:00 +0000' '-'
    clf a.example 'x y' '10/Nov/2026:06:00:00 +0000' ''
} >in
decides 'requests with quotes, with spaces or without a path are read' 1010 --key path
{
    clf a - '10/Nov/2026:06:00:00 +0100' 'GET / HTTP/1.0'
    clf a - '10/Nov/2026:04:00:00 -0100' 'GET / HTTP/1.0'
    clf a - '10/Nov/2026:06:00:00 +0000' 'GET / HTTP/1.0'
} >in
decides 'the time zone of a log line is respected' 101

run 2 replay -p "$once" --time 1 log && has err '--time is for CSV'
verdict 'a time column of an access log is an error' $?
run 2 replay -p "$once" --time-unit s log && has err '--time-unit is for CSV'
verdict 'a unit of an access log is an error' $?
printf '5000000,192.0.2.1,1\n' >plain.csv
run 0 replay -p "$once" log plain.csv && has out '(by of different kinds)'
verdict 'a warning says that keys are of different kinds' $?
{ printf 'h%065536d' 0; sed 1q log | sed 's/^[^ ]*//'; } >in
run 1 replay -p "$once" && has err 'the key has 65537 bytes, and at most 65536 are allowed'
verdict 'a client of 65537 bytes is refused' $?
printf '\037,b,1\n1,a,1\n' >in
run 1 replay -p "$once" && has err 'stdin:1: time' && ! has err gzip 2>/dev/null
verdict 'an input that begins with one byte of gzip is not taken for gzip' $?
printf '7' >in
decides 'a file of one byte is read' 1 --time 1 --time-unit us --format csv
for name in time TIMESTAMP time_ms timestamp_S; do
    printf '%s\n1\n2\n' $name >in
    decides "a file of nothing but $name is CSV" 10 --time-unit s
done

if command -v gzip >gzip.path; then
    gzip -c log >log.gz
    cp log.gz in
    decides 'gzip is read, whatever its name' 101
    cat log.gz log.gz >two
    decides 'several gzip members are one input' 101000 two
    head -c 60 log.gz >cut.gz
    run 1 replay -p "$once" cut.gz && has err 'cut.gz' 'cut off' && [ ! -s out ]
    verdict 'gzip that is cut off is an error that names the file' $?
    { head -c 30 log.gz; printf 'garbage'; tail -c +38 log.gz; } >bad.gz
    run 1 replay -p "$once" bad.gz && has err 'bad.gz' 'corrupt' && [ ! -s out ]
    verdict 'corrupt gzip is an error that names the file' $?
    seq -f '%.0f000000,a,1' 1 60000 | gzip -c >long.gz
    run 0 replay --json -p "$once" long.gz && has out '"requests":60000,'
    verdict 'gzip that is longer than any buffer is read' $?
    cat long.gz | "$weir" replay --json -p "$once" >out 2>err && has out '"requests":60000,'
    verdict 'gzip is read from a pipe' $?
    { echo header; cat log.gz; } >behind.gz
    { head -c 7 >first; "$weir" replay --json -p "$once" >out 2>err; } <behind.gz && has out '"requests":3,'
    verdict 'gzip is read from where the standard input is' $?
    head -c 60 log.gz | "$weir" replay -p "$once" >out 2>err
    [ $? -eq 1 ] && has err 'cut off' && [ ! -s out ]
    verdict 'gzip that is cut off in a pipe is an error' $?
    mkdir -p nothing
    PATH=$scratch/nothing "$weir" replay -p "$once" log.gz >out 2>err
    [ $? -eq 1 ] && has err 'log.gz: is compressed by gzip, which cannot be run' && [ ! -s out ]
    verdict 'gzip that cannot be run is an error that names the file' $?
else
    echo 'skip gzip: there is no gzip here'
fi

if command -v zstd >zstd.path; then
    zstd -qc log >log.zst
    cp log.zst in
    decides 'Zstandard is read, whatever its name' 101
    cat log.zst log.zst >two
    decides 'several Zstandard frames are one input' 101000 two
    head -c 60 log.zst >cut.zst
    run 1 replay -p "$once" cut.zst && has err 'cut.zst' 'cut off' && [ ! -s out ]
    verdict 'Zstandard that is cut off is an error that names the file' $?
    { head -c 30 log.zst; printf 'garbage'; tail -c +38 log.zst; } >bad.zst
    run 1 replay -p "$once" bad.zst && has err 'bad.zst' 'corrupt' && [ ! -s out ]
    verdict 'corrupt Zstandard is an error that names the file' $?
    seq -f '%.0f000000,a,1' 1 200000 | zstd -qc >long.zst
    run 0 replay --json -p "$once" long.zst && has out '"requests":200000,'
    verdict 'Zstandard that is longer than any buffer is read' $?
else
    echo 'skip Zstandard: there is no zstd here'
fi

printf '0,a,1\n1,b,1\n2,a,1\n' >in
decides 'CSV without a header is time_us,key,cost, and time 0 is a time' 110
printf '0,a,1\n1,a b"c,1\n2,a\0b,1\n3,a\0b,1\n4,a\0c,1\n' >in
decides 'keys are any bytes, NUL and quotes included' 11101
printf '\357\273\277time_us,key,cost\n0,a,1\n1,a,1\n' >in
decides 'a byte order mark is not part of the first name' 10
printf 'key,time_us\n"a,b",5\n"a,b",6\n"say ""hi""",7\n"say ""hi""",8\n"two\nlines",9\n"two\nlines",10\n' >in
decides 'quoted fields hold commas, quotes and line feeds' 101010
printf 'key,time_us\n"two\r\nlines",1\r\nb,2\r\nb,3\r\n' >in
decides 'CR LF ends the lines of CSV too' 110
printf 'When,Who,N\n0,a,1\n1,b,1\n2,a,1\n' >in
decides 'fields are chosen by name' 110 --time When --time-unit us --key who --cost N
decides 'fields are chosen by number' 110 --time 1 --time-unit us --key 2 --cost 3
printf '1,x,0\n1,y,1\n1,x,2\n' >in
decides 'fields are chosen by number where there is no header' 110 --time 3 --time-unit us --key 2
printf 'time_us,size\n0,7\n1,8\n' >in
decides 'without a key field all rows share one key' 10
run 0 replay -p "$once" && has out 'the input has no key'
verdict 'the report says that there is no key field' $?
run 2 replay -p "$once" --key who && has err "'who'" '--key' 'time_us, size'
verdict 'an unknown field is an error that lists the existing fields' $?
printf 'size,who\n0,7\n' >in
run 2 replay -p "$once" && has err '--time' 'size, who'
verdict 'a header without a time is an error that lists the fields' $?
cp log in
run 2 replay -p "$once" --key who && has err "'who'" 'client, ident, user, time, request, status, size, method, path'
verdict 'an unknown key of an access log is an error that lists the keys' $?
run 2 replay -p "$once" --cost 3 && has err "no field '3'"
verdict 'a cost column of an access log is an error' $?
decides 'a field of an access log can be the cost' 000 --cost size
printf 'Mar 27 13:06:56 host sshd[1291]: Server listening\n' >in
run 1 replay -p "$once" && has err 'stdin: no format that weir knows fits its first lines' '--format' && [ ! -s out ]
verdict 'a file that is neither log nor CSV is an error' $?

many_requests >many
sed 's/^/web at www.example.org:80 /' many >in
run 1 replay -p "$once" && has err 'no format that weir knows fits' 'looks like a client: 198.51.100.0' && [ ! -s out ]
verdict 'two words before the client are not taken for the client' $?
run 1 replay -p "$once" --format common && has err "stdin:1: client 'web'" '300 of 300 rows cannot be read as common: 0 fit, fewer than 95 %' \
    'the first bad one is stdin:1' '--log-format' && [ ! -s out ]
verdict 'two words before the client are not taken for the client if the format is named' $?
run 1 replay -p "$once" --format common --lenient && has err '0 fit' && grep -q '^requests  *0$' out
verdict 'with --lenient an input without a row that fits is still an error' $?
printf '{a},1\n{b},2\n{a},3\n' >in
decides 'a brace may begin a row of CSV, if the format is named' 110 --format csv --time 2 --time-unit us --key 1

run 0 replay --json -p "$once" many && [ ! -s err ]
cp out expected
for bad in 'bad' 'bad, too' '{"bad": 1}' 'bad.example:80 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 17'; do
    { echo "$bad"; cat many; } >in
    run 0 replay --json -p "$once" && has err 'stdin:1:' '1 of 301 rows' && sed 's/"stdin"/"many"/; s/"unreadable":1/"unreadable":0/' out | cmp -s - expected
    verdict "a bad first line is just a bad row: $bad" $?
    { cat many; echo "$bad"; } >in
    run 0 replay --json -p "$once" && has err 'stdin:301:' '1 of 301 rows'
    verdict "a bad last line is just a bad row: $bad" $?
done
seq 0 299 | awk '{ printf "%d,k%d,1\n", $1, $1 % 30 }' >many.csv
expected=$(seq 0 299 | awk '{ printf "%d", $1 < 30 }')
for bad in bad 'bad, too' '7' '7,' '{' "$(sed 1q many)"; do
    { echo "$bad"; cat many.csv; } >in
    decides "a bad first row is just a bad row: $bad" "$expected"
    decides "with chosen columns a bad first row is just a bad row: $bad" "$expected" --key 2 --time 1 --time-unit us
    { echo "$bad"; echo time_us,key,cost; cat many.csv; } >in
    decides "a bad row before the header is just a bad row: $bad" "$expected"
    has err 'stdin:1: stands before the header row' '1 of 301 rows'
    verdict "a header after a bad row is not a bad row: $bad" $?
done

run 0 replay -p "$once" --key method many && has err "all 300 rows have the same method, 'GET'" '--key: client, path'
verdict 'a warning says that all rows of an access log have the same key' $?
seq -f '%.0f,k,1' 1 200 >in
run 0 replay -p "$once" && has err "all 200 rows have the same key, 'k'" '--key'
verdict 'a warning says that all rows of CSV have the same key' $?
{ echo time,size; seq -f '%.0f,7' 1 200; } >in
run 0 replay -p "$once" --time-unit s && has err 'no field of the input is the key' '--key'
verdict 'a warning says that no field of the input is the key' $?
seq -f '%.0f,k,1' 1 19 >in
run 0 replay -p "$once" && [ ! -s err ]
verdict 'no such warning is printed for few rows' $?

# second TIME MICROSECONDS: a row at TIME lies exactly at MICROSECONDS.
second() {
    printf 'time,key\n"%s",a\n' "$1" >in
    run 0 replay --json -p "$once" && has out "\"first\":{\"time_us\":$2,"
    verdict "the time $1 is $2" $?
}
second 1700000000000001 1700000000000001
second 1700000000001 1700000000001000
second 1700000000 1700000000000000
second 1700000000000000001 1700000000000000
second 1700000000.1234569 1700000000123456
second '2023-11-16 18:17:03.9799600' 1700158623979960
second 2023-11-16T18:17:03Z 1700158623000000
second 2023-11-16T18:17:03+01:00 1700155023000000
second 2023-11-16T18:17:03.5-0130 1700164023500000
second '2023-11-16 18:17:03,25 +01' 1700155023250000
second 2024-02-29 1709164800000000
second 1970-01-01T00:30+00:30 0
second 2016-12-31T23:59:60Z 1483228800000000
second '01/Jul/1995:00:00:01 -0400' 804571201000000
printf 'at_ms,key\n1500,a\n' >in
run 0 replay --json -p "$once" --time at_ms && has out '"first":{"time_us":1500000,'
verdict 'a name that ends in _ms says the unit' $?
run 0 replay --json -p "$once" --time at_ms --time-unit s && has out '"first":{"time_us":1500000000,'
verdict '--time-unit overrides the unit of the name' $?

for time in 5 99999999; do
    printf 'ts,client\n%s,a\n' $time >in
    run 2 replay -p "$once" && has err "such as '$time'" 'set --time-unit' && [ ! -s out ]
    verdict "the unit of the time $time must be said" $?
done
printf 'time_us,client\n1700000000,a\n' >in
run 0 replay --json -p "$once" && [ ! -s err ] && has out '"first":{"time_us":1700000000,'
verdict "the column's name gives the unit" $?
printf 'ts_ns,key\n1999,a\n' >in
run 0 replay --json -p "$once" && has out '"first":{"time_us":1,'
verdict 'nanoseconds are cut to microseconds' $?

for time in 2023-02-29 2023-13-01 2023-00-10 2023-11-16T24:00:00 2023-11-16T18:60:00 2023-11-16T18:17:60 \
    2023-11-16T18:17:03+24:00 2023-11-16T18:17:03X 2256-01-01 9007199254740992 99999999999999999999 1e6 0x10 1. .5 -1 \
    1969-12-31T23:59:59 31/Feb/1995:00:00:00 12:00 ''; do
    printf '%s,a,1\n' "$time" >in
    refuses "the time '$time' is refused" "time '$time'" --format csv --time 1 --time-unit us --key 2
done
for cost in -1 x 1x 1. .5 1.2.3 ''; do
    printf '0,a,%s\n' "$cost" >in
    refuses "the cost '$cost' is refused" "cost '$cost'"
done
printf '0,,1\n' >in
refuses 'an empty key is refused' 'key is empty'
{ printf '0,'; head -c 65537 /dev/zero | tr '\0' k; printf ',1\n'; } >in
refuses 'a key of 65537 bytes is refused' '65537'
{ printf '0,'; head -c 65536 /dev/zero | tr '\0' k; printf ',1\n'; } >in
decides 'a key of 65536 bytes is read' 1
printf '0,a\n' >in
refuses 'two fields are not time_us,key,cost' '2 fields'
printf '0,\033[31m\0,x\n' >in
refuses 'a bad row is shown without obeying it' "cost 'x'"

# Nothing that a file names is obeyed by a terminal: members, columns, times and patterns.
esc=$(printf '\033')
is_tame() {
    ! grep -q "$esc" out && ! grep -q "$esc" said && ! LC_ALL=C grep -q "$(printf '\233')" out
}
{ for i in 1 2 3; do printf '{"a\\u001b[31m":{"client_ip":"192.0.2.%s"},"b\\u001b[2J":"2026-02-25T16:19:3%sZ"}\n' $i $i; done; } >in
run 0 replay --time "b$esc[2J" -p "$once" && has said 'the key is a\x1b[31m.client_ip, the time is b\x1b[2J' &&
    has out '(by a\x1b[31m.client_ip)' && is_tame
verdict 'the names of members are shown without obeying them' $?
run 0 suggest --time "b$esc[2J" && has out '(by a\x1b[31m.client_ip)' && is_tame
verdict 'weir suggest shows them so, too' $?
yes '{"a\u001b[31m":{"client_ip":"192.0.2.1"},"time":"2026-02-25T16:19:30Z"}' | head -n 30 >in
run 0 replay -p "$once" && has said 'all 30 rows have the same a\x1b[31m.client_ip' && is_tame
verdict 'the name of a key that all rows share is shown without obeying it' $?
printf '{"a\\u001b[31m":"192.0.2.%s","b\\u001b[2J":"2026-02-25T16:19:31Z"}\n' 1 2 3 >in
run 1 replay -p "$once" && has said 'looks like an address: a\x1b[31m' 'looks like a time: b\x1b[2J' && is_tame
verdict 'members that look like an address or a time are shown without obeying them' $?
printf 'a = %s\na/x\233\302\233y = %s\n' "$once" "$once" >policies
run 0 check policies && has out 'a/x%9B%C2%9By = ' && is_tame && cp out again && run 0 check again && cmp -s out again
verdict 'a pattern is shown without obeying it, and is the same pattern' $?
printf '7 - - [10/Nov/2026:06:00:00 +0000] "GET / HTTP/1.0"\n' >in
refuses 'a log line without a status is refused' 'no status that is a number after the request' --format common
printf 'time_us,key\n0,a\n1,"b\n2,c\n3,d,e\n4,"f"g\n' >in
run 1 replay --lenient --decisions -p "$once" && has err 'stdin:3: a quoted field is not closed' 'stdin:5: has 3 fields' \
    'stdin:6: field 2' '3 of 5 rows' && [ "$(wc -l <out)" -eq 2 ]
verdict 'an unclosed quote spoils only one row' $?

printf '0,"a\n1,b\n' >in
run 1 replay --key 2 --time-unit us -p "$once" && has err 'stdin:1: a quoted field is not closed' '1 of 2 rows' && [ ! -s out ]
verdict 'a first row that cannot be read leaves the columns to the next' $?
printf '0,"a\n1,"b\n' >in
run 1 replay --key 2 -p "$once" && has err 'stdin:' 'the columns are unknown' && [ ! -s out ]
verdict 'unreadable rows do not determine the columns' $?

{ seq -f '%.0f,a,1' 1 19; echo 'bad'; } >in
run 0 replay -p "$once" && has err 'stdin:20:' '1 of 20 rows' && has out 'left out'
verdict 'one bad row in twenty is reported and left out' $?
{ seq -f '%.0f,a,1' 1 18; echo 'bad'; } >in
run 1 replay -p "$once" && has err 'stdin:19:' '1 of 19 rows cannot be read as csv: 18 fit' '--lenient' && [ ! -s out ]
verdict 'more than one bad row in twenty is an error' $?
run 1 replay -p "$once" --lenient && has err '1 of 19 rows' && ! has err '--lenient' 2>/dev/null && has out 'left out'
verdict '--lenient reports what fits, and still ends with 1' $?
{ echo '0,a,1'; yes bad | head -n 50; } >in
run 1 replay -p "$once" --format csv --lenient && [ "$(grep -c '^stdin:' err)" -eq 20 ] && has err 'and 30 more'
verdict 'only the first twenty bad rows are shown' $?
: >in
run 0 replay -p "$once" && grep -q '^requests  *0$' out && [ ! -s err ]
verdict 'an empty input is a report of nothing' $?
run 0 replay --json -p "$once" && has out '"requests":0,' '"busiest_second":null'
verdict 'an empty input is a JSON report of nothing' $?
run 1 replay -p "$once" missing.log && has err 'missing.log: No such file'
verdict 'a file that is not there is an error' $?
run 1 replay -p "$once" . && has err '.: Is a directory'
verdict 'a directory is an error' $?
