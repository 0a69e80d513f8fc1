# memory.sh - a part of run.sh: counting in memory, which is the default.
# shellcheck shell=sh disable=SC2154,SC2034,SC2016 # run.sh sets the variables

limits='weir_limit three fixed_window limit=3 period=1h;
    weir_limit two sliding_window limit=2 period=1h;
    weir_limit cost fixed_window limit=10 period=1h;
    weir_limit slow leaky_bucket limit=10 period=1s capacity=1000;
    weir_limit hours leaky_bucket limit=1 period=1h capacity=5;
    weir_limit ghost fixed_window limit=1 period=1h shadow;
    weir_limit bytes fixed_window limit=1000 period=1h;
    weir_limit flight concurrency limit=2 hold=60s;'
start_nginx "$limits set_real_ip_from unix:;" '
    weir_headers draft;
    weir three key=$arg_k;
    location /inner/ { }
    location /off/ { weir off; }
    location /own/ { weir two key=$arg_k; weir_status 503; weir_headers legacy; }
    location /both/ { weir three key=$arg_k; weir two key=$arg_k; weir_headers off; }
    location /cost/ { weir cost key=$arg_k cost=$arg_cost; }
    location /parts/ { weir two key=$arg_a,$arg_b; }
    location /dry/ { weir two key=$arg_k; weir_dry_run on; }
    location /ghost/ { weir ghost key=$arg_k; }
    location /slow/ { weir slow key=$arg_k; }
    location /fast/ { weir slow key=$arg_k nodelay; }
    location /some/ { weir hours key=$arg_k delay=2; }
    location /bytes/ { weir bytes key=$arg_k; weir_charge bytes key=$arg_k cost=$body_bytes_sent; }
    location /any/ { weir bytes key=$arg_k; weir_charge bytes key=$arg_k cost=$arg_cost; }
    location /real/ { weir two key=$remote_addr; real_ip_header X-Client; }
    location /network/ { weir three key=$http_x_client/24/64,$arg_k; }
    location /flight/ { weir flight key=$arg_k; limit_rate 20k; try_files /large =404; }
    location /error/ { weir two key=$arg_k; error_page 429 = /sorry/; }
    location /sorry/ { weir two key=$arg_k; }
    location = /metrics { weir off; weir_metrics; }'

# pipelined PATH COUNT [LAST]: send requests on one connection without waiting for answers; `out` has the statuses of the
# answers, `head` their headers.
pipelined() {
    perl -MIO::Socket::UNIX -e '
        my ($path, $count, $last) = @ARGV;
        my $s = IO::Socket::UNIX->new(Peer => "http.sock") or die;
        my @paths = (($path) x $count, $last // ());
        print $s map { "GET $paths[$_] HTTP/1.1\r\nHost: x\r\n" . ($_ < $#paths ? "" : "Connection: close\r\n") . "\r\n" } 0 .. $#paths;
        $s->flush; print while <$s>' "$@" >./head
    sed -n 's/^HTTP[^ ]* \([0-9]*\) .*/\1/p' head | paste -sd' ' >out
}
is "$(gets 5 '/?k=a')" '200 200 200 429 429' && is "$(weir_says)" 'REJECTED three 0'
verdict 'a limit admits exactly its permits and then answers 429' $?
get '/?k=b' >status
grep -q '^RateLimit: "three";r=2;t=' head && grep -q '^RateLimit-Policy: "three";q=3;w=3600' head &&
    ! grep -q '^Retry-After' head && is "$(weir_says)" 'PASSED three 2' && get '/?k=a' >status &&
    grep -q '^Retry-After: ' head
verdict 'answers carry the fields that weir_headers chooses' $?
is "$(gets 4 '/inner/?k=c')" '200 200 200 429'
verdict 'a location inherits the limits around it' $?
is "$(gets 5 '/off/?k=a')" '200 200 200 200 200' && is "$(weir_says)" ''
verdict 'weir off ends the inheritance' $?
is "$(gets 3 '/own/?k=d')" '200 200 503' && grep -q '^X-RateLimit-Limit: 2' head && ! grep -q '^RateLimit:' head
verdict 'each location has its limits, status and header fields' $?
is "$(gets 3 '/both/?k=e')" '200 200 429' && is "$(weir_says)" 'REJECTED two 0' && ! grep -q '^Retry-After' head &&
    is "$(gets 2 '/?k=e')" '200 429'
verdict 'several limits are charged together or not at all' $?
is "$(gets 3 '/cost/?k=f&cost=5')" '200 200 429' &&
    is "$(gets 1 '/cost/?k=g&cost=0') $(gets 1 '/cost/?k=g&cost=8796093022209') $(gets 1 '/cost/?k=g')" '400 400 400' &&
    is "$(gets 1 '/cost/?k=g&cost=10')" 200 && logged 'the cost "0" of limit "cost" is not a whole number from 1'
verdict 'a cost comes from a variable, and a bad one is refused' $?
is "$(gets 3 '/?k=')" '200 200 200' && is "$(gets 3 '/')" '200 200 200' && is "$(weir_says)" ''
verdict 'a request with an empty key is not counted' $?
is "$(gets 3 '/parts/?a=x&b=y')" '200 200 429' && is "$(gets 2 '/parts/?a=x,y')" '200 200' &&
    is "$(gets 2 '/parts/?a=&b=xy')" '200 200' && is "$(gets 2 '/parts/?a=1:x,&b=y')" '200 200'
verdict 'keys of several parts do not collide' $?
is "$(gets 4 '/dry/?k=h')" '200 200 200 200' && is "$(weir_says)" 'REJECTED_DRY_RUN two 0' &&
    logged 'limit "two" denies the request, dry run'
verdict 'a dry run counts and denies nothing' $?
is "$(gets 3 '/ghost/?k=i')" '200 200 200' && is "$(weir_says)" 'WOULD_REJECT ghost 0' &&
    logged 'shadow limit "ghost" would deny the request'
verdict 'a shadow limit reports which requests it would deny' $?
pipelined /slow/?k=j 4 # a client that starts anew for each request may be slower than the bucket
is "$(cat out)" '200 200 200 200' && is "$(weir_says | cut -d' ' -f1-2 | paste -sd' ')" \
    'PASSED slow DELAYED slow DELAYED slow DELAYED slow' && logged 'limit "slow" delays the request by'
verdict 'a leaky bucket delays requests' $?
is "$(gets 4 '/fast/?k=k')" '200 200 200 200' && is "$(weir_says | cut -d' ' -f1-2)" 'PASSED slow'
verdict 'nodelay admits the burst of a leaky bucket without a delay' $?
is "$(gets 3 '/some/?k=k')" '200 200 200' && is "$(weir_says)" 'PASSED hours 2' &&
    is "$(get '/some/?k=k' --max-time 0.2)" 000 && logged 'limit "hours" delays the request by 3' &&
    is "$(get '/some/?k=k' --max-time 0.2)$(get '/some/?k=k')" 000429
verdict 'delay=N admits N more without a delay and delays the others up to the capacity' $?
is "$(gets 2 '/bytes/?k=l')" '200 200' && is "$(weir_says)" 'PASSED bytes 991'
verdict 'weir_charge charges the permits that a request used' $?
for size in 999 1000000001 3300000000 9000000000000; do
    echo "$(get "/any/?k=$size&cost=$size") $(get "/any/?k=$size&cost=0")"
done >statuses
is "$(paste -sd' ' statuses)" '200 429 200 429 200 429 200 429'
verdict 'a charge of any size is charged' $?
is "$(gets 3 '/real/' -H 'X-Client: 192.0.2.1') $(gets 1 '/real/' -H 'X-Client: 192.0.2.2')" '200 200 429 200'
verdict 'keys use the address that realip found' $?
statuses=
for address in 192.0.2.7 192.0.2.8:4000 ::ffff:192.0.2.9 192.0.2.10 192.0.3.7 2001:db8::1 2001:db8::2 '[2001:db8:0:0:1::]:80' \
    2001:db8::3 2001:db8:0:1::1 unix: unix: unix: unix:; do
    statuses="$statuses $(get '/network/?k=n' -H "X-Client: $address")"
done
is "$statuses" ' 200 200 200 429 200 200 200 200 429 200 200 200 200 429' &&
    is "$(gets 5 '/network/?k=')" '200 200 200 200 200'
verdict 'keys can be the networks of addresses' $?
is "$(gets 3 '/error/?k=m')" '200 200 200' && is "$(weir_says)" 'REJECTED two 0'
verdict 'an error page is not limited again' $?
get /metrics >status
grep -q '^weir_allowed_total{worker="0"} [1-9]' body &&
    grep -q '^weir_limit_denied_total{limit="three",worker="0"} [1-9]' body &&
    grep -q '^Content-Type: text/plain; version=0.0.4' head
verdict 'weir_metrics shows the counters' $?
for _ in 1 2 3 4; do # curl 7.88 cannot use such a connection twice
    curl -s --http2-prior-knowledge --unix-socket http2.sock -o body -w '%{http_code} %{http_version}\n' \
        'http://x/?k=n'
done >out
is "$(paste -sd' ' out)" '200 2 200 2 200 2 429 2'
verdict 'HTTP/2 streams are limited' $?
pipelined '/?k=o' 4 /off/
is "$(cat out)" '200 200 200 429 200'
verdict 'pipelined requests are limited one by one' $?
curl -s --unix-socket http.sock -w '%{http_code} %{num_connects}\n' -o body -o body -o body -o body \
    'http://x/?k=q' 'http://x/?k=q' 'http://x/?k=q' 'http://x/?k=q' >out
is "$(paste -sd' ' out)" '200 1 200 0 200 0 429 0'
verdict 'requests of one kept connection are limited one by one' $?
perl -MIO::Socket::UNIX -e '
    my $s = IO::Socket::UNIX->new(Peer => "http.sock") or die;
    $s->autoflush(1);
    for my $byte (split //, "GET /?k=r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") {
        print $s $byte;
        select undef, undef, undef, 0.005;
    }
    print grep { /^HTTP/ } <$s>' | cut -d' ' -f2 >out
is "$(cat out) $(gets 3 '/?k=r')" '200 200 200 429'
verdict 'a request that arrives byte by byte is counted once' $?

hold 2 '/flight/?k=p'
is "$(get '/flight/?k=p')" 429
denied=$?
# shellcheck disable=SC2086 # a list of pids
kill $held
for _ in $(seq 100); do
    status=$(get '/flight/?k=p' --max-time 0.2)
    [ "$status" = 429 ] || break
    sleep 0.05
done
rm -f held1 held2
is "$denied $status" '0 200'
verdict 'a permit in flight is released when its request ends or its client disconnects' $?
stop_nginx

start_nginx "$limits" 'weir cost key=$arg_k; location = /metrics { weir off; weir_metrics; }' 2
# with_one_worker_stopped PID COUNT PATH: print how many of that many requests another worker admits.
with_one_worker_stopped() {
    kill -STOP "$1"
    until grep -q '^State:.*stopped' "/proc/$1/status"; do sleep 0.01; done
    gets "$2" "$3" | tr ' ' '\n' | grep -c 200
    kill -CONT "$1"
}
workers=$(cat "/proc/$nginx_pid/task/$nginx_pid/children")
shares=
for worker in $workers; do
    shares="$shares $(with_one_worker_stopped "$worker" 7 '/?k=a')"
done
is "$(echo "$workers" | wc -w)$shares" '2 7 3' && is "$(gets 10 '/?k=a' | tr ' ' '\n' | grep -c 200)" 0
verdict 'all workers count together' $?
for _ in $(seq 100); do
    get /metrics >status
    total=$(sed -n 's/^weir_allowed_total{.*} //p' body | awk '{ sum += $1 } END { print sum }')
    [ "$total" = 10 ] && break
    sleep 0.1
done
is "$total $(grep -c '^# TYPE weir_allowed_total' body)" '10 1'
verdict 'weir_metrics adds up the counters of all workers' $?
kill -KILL "${workers%% *}"
logged 'exited on signal 9' && is "$(gets 12 '/?k=b' | tr ' ' '\n' | grep -c 200) $(gets 2 '/?k=a')" '10 429 429'
verdict 'workers still share their counts after one of them crashes' $?
stop_nginx

counts=/dev/shm/weir-nginx-$$
machine="weir_options { shared ${counts##*/}; max_keys 1000; } $limits"
start_nginx "$machine" 'weir cost key=$arg_k;' 2
is "$(gets 14 '/?k=a' | tr ' ' '\n' | grep -c 200)" 10
verdict 'workers count together in a file' $?
stop_nginx
start_nginx "$machine" 'weir cost key=$arg_k;' 2
is "$(get '/?k=a') $(get '/?k=b')" '429 200'
verdict 'a restart keeps the counts of a file' $?
stop_nginx
rm -f "$counts"
