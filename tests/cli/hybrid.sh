#!/bin/sh
# hybrid.sh WEIR - replays in hybrid mode on a private Redis server: the decisions of instances with leases, compared with
# those of one exact limit.
set -u
[ $# -eq 1 ] || { echo "usage: hybrid.sh WEIR" >&2; exit 2; }
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/server.sh
. "$here/server.sh"
start_server --databases 1

# hybrid STATUS [WORD]...: replay `in` in hybrid mode; succeed if it exits with STATUS and leaves no key.
hybrid() {
    hybrid_status=$1
    shift
    run "$hybrid_status" replay --mode hybrid --redis "$url" "$@" || return 1
    [ "$(asked dbsize)" = 0 ] || { asked keys '*' >>err; echo '(keys are left)' >>err; return 1; }
}


# holds EXPRESSION: succeed if an awk expression over the numbers of the JSON report, by their names, is true.
holds() {
    sed 's/[{,]/\n/g' out | sed -n 's/^"\([a-z_]*\)":\([0-9][0-9.]*\)[]}]*$/\1 = \2;/p' | awk '!seen[$1]++' >numbers
    awk "BEGIN { $(cat numbers) exit !($1) }" || { echo "(not so: $1)" >>err; return 1; }
}

# rows SEED MOST STEP PAUSE: print MOST rows of time_us,key,cost, most of one hot key, some of a few others. The steps are
# STEP us on average, and every 2000th is PAUSE us longer.
rows() {
    awk -v seed="$1" -v most="$2" -v step="$3" -v pause="$4" 'BEGIN {
        random = seed
        time = 1000000
        for (i = 0; i < most; i++) {
            key = next_of(3) ? "hot" : "key-" next_of(5)
            printf "%.0f,%s,%d\n", time, key, next_of(20) ? 1 : 1 + next_of(4)
            time += next_of(2 * step) + (i % 2000 == 1999 ? pause : 0)
        }
    }
    function next_of(n) {
        random = random * 16807 % 2147483647
        return int(random / 2147483647 * n)
    }'
}

# ---- One instance decides as if there were no leases ----

# like NAME [WORD]...: test that a replay in hybrid mode admits the same rows as in local mode.
like() {
    name=$1
    shift
    run 0 replay --decisions "$@" && cut -d, -f1 out >local &&
        hybrid 0 --decisions --lease-life 10s "$@" && cut -d, -f1 out >here && [ -s local ] && cmp local here >>err 2>&1
    verdict "$name" $?
}
as_one_instance() {
    name="the trace $1 is decided alike by one instance with leases"
    shift
    case " $* " in
    *' --keep-order '*) ;; # leases and denials expire by a clock that does not step back
    *) like "$name" "$@" ;;
    esac
}
traces as_one_instance
rows 1 20000 1000 0 >in
for policy in 'token_bucket limit=300 period=1s' 'token_bucket limit=300 period=1s burst=100 debt=20' \
    'token_bucket limit=300 period=1s refill=interval' 'fixed_window limit=100 period=1s' \
    'fixed_window limit=1000 period=5s align=epoch' 'leaky_bucket limit=200 period=1s capacity=50'; do
    like "$policy is decided alike by one instance with leases" -p "$policy"
done

# ---- Several instances ----

rows 2 20000 400 300000 >in
# within NAME OVER [WORD]...: test a replay with several instances; OVER is an awk expression that bounds the excess.
within() {
    name=$1
    over=$2
    shift 2
    hybrid 0 --json --lease-life 100ms --lease-excess 100 "$@" && [ ! -s err ] && holds "$over" &&
        holds 'by_lease + by_denial + by_redis == requests && by_lease > 0 && store_calls < 0.8 * requests' &&
        holds 'only_here - only_exact == admitted - exact_admitted && lease_lost <= leased' &&
        holds 'admitted > 0.97 * exact_admitted'
    verdict "$name" $?
}
within 'with leases a greedy bucket exceeds its limit, but never the bound' \
    'most_over > 0 && most_over <= over_max && permits_over > 0' \
    --instances 4 -p 'token_bucket limit=1000 period=1s burst=300'
within 'in strict mode a greedy bucket never exceeds its limit' 'most_over == 0 && permits_over == 0 && over_max == 0' \
    --instances 4 --strict -p 'token_bucket limit=1000 period=1s burst=600'
within 'with leases a bucket with interval refill never exceeds its limit' 'permits_over == 0 && over_max == 0' \
    --instances 4 -p 'token_bucket limit=1000 period=1s refill=interval'
within 'with leases a fixed window never exceeds its limit' 'permits_over == 0 && over_max == 0' --instances 4 \
    -p 'fixed_window limit=1000 period=1s'
within 'with leases a sliding window never exceeds its limit' 'permits_over == 0 && over_max == 0' --instances 4 \
    -p 'sliding_window limit=1000 period=1s'
within 'with leases a leaky bucket never exceeds its limit' 'permits_over == 0 && over_max == 0' --instances 4 \
    -p 'leaky_bucket limit=1000 period=1s capacity=400'
within 'instances with unequal load stay within the bound' 'most_over <= over_max' \
    --instances 8 --deal skewed -p 'token_bucket limit=1000 period=1s burst=300'
within 'instances with separate keys stay within the bound' 'most_over <= over_max' \
    --instances 8 --deal key -p 'token_bucket limit=1000 period=1s burst=300'
hybrid 0 --json --instances 4 --lease-max 3 -p 'token_bucket limit=1000 period=1s burst=300' &&
    holds 'lease_max == 3 && over_max == 15 && most_over <= 12 && by_lease > 0'
verdict '--lease-max makes leases smaller' $?
hybrid 0 --json --instances 4 -p 'token_bucket limit=1000 period=1s burst=7' &&
    holds 'lease_life_us == 0 && lease_max == 0 && by_lease == 0 && only_here == 0 && only_exact == 0'
verdict 'a limit that is too small for its instances is not leased, and therefore exact' $?
hybrid 0 --json --instances 3 -p 'token_bucket limit=1000 period=1s burst=300' -p 'fixed_window limit=900 period=1s' &&
    holds 'permits_over <= over_max * 10' && has out '},{"lease_life_us":1000000,"lease_max":300,"over_max":0,"most_over":null}]}'
verdict 'several limits are reported one by one' $?

# ---- Leases over long periods, and at the limit ----

# load BURST STEP PAUSE MOST: print MOST rows, in bursts with STEP us between requests and PAUSE us between bursts.
load() {
    awk -v burst="$1" -v step="$2" -v pause="$3" -v most="$4" 'BEGIN {
        for (i = 0; i < most; i++)
            printf "%d,k,1\n", 1000000 + int(i / burst) * pause + i % burst * step
    }'
}
cp in mixed
load 12 1000 122000 3600 >in
hybrid 0 --json --instances 1 -p 'fixed_window limit=3000 period=1h' &&
    holds 'exact_admitted == 3000 && admitted == 3000 && only_exact == 0 && store_calls < 300'
verdict 'one instance spends every permit that it leases of a long window' $?
hybrid 0 --json --instances 1 -p 'sliding_window limit=3000 period=1m' &&
    holds 'exact_admitted == 3000 && admitted == 3000 && only_exact == 0 && store_calls < 300'
verdict 'one instance gives back leased permits that a sliding window block leaves unused' $?
load 1 0 25000 2400 >in
hybrid 0 --json --instances 4 -p 'sliding_window limit=1000 period=1m' &&
    holds 'admitted == exact_admitted && permits_over == 0 && store_calls < 600'
verdict 'four instances give back leased permits that a sliding window block leaves unused' $?
hybrid 0 --json --instances 4 -p 'fixed_window limit=1000 period=1h' &&
    holds 'exact_admitted == 1000 && admitted == 1000 && store_calls < 600'
verdict 'four instances spend every permit of a long window' $?
load 5 100 40000 3600 >in
hybrid 0 --json --instances 1 -p 'token_bucket limit=100 period=1s' &&
    holds 'exact_admitted > 2900 && admitted == exact_admitted && only_exact == 0 && by_lease > 0'
verdict 'one instance in bursts loses no permit of a bucket' $?
hybrid 0 --json --instances 4 -p 'token_bucket limit=100 period=1s' &&
    holds 'exact_admitted > 2900 && admitted >= 0.995 * exact_admitted && most_over <= over_max'
verdict 'four instances in bursts lose at most 0.5 % of the permits of a bucket' $?
load 1 0 50 80000 >in
hybrid 0 --json --instances 4 -p 'token_bucket limit=10000 period=1s' &&
    holds 'store_calls <= 5000 && admitted >= 0.98 * exact_admitted && most_over <= over_max'
verdict "four instances with twice the limit's load make at most one call in 16" $?
mv mixed in

cat >gold.conf <<'END'
api = token_bucket limit=1000 period=1s burst=300
api/key-* = token_bucket limit=100 period=1s
END
hybrid 0 --json --lease-excess 30 --instances 4 -f gold.conf && holds 'by_lease > 0 && most_over <= over_max'
verdict 'a limit with overrides for some keys stays within the bound' $?
awk -F, 'NR % 7 == 0 { $1 -= 1500 } NR % 3000 == 0 { $1 += 3000000 } { printf "%.0f,%s,%s\n", $1, $2, $3 }' in >steps
mv in rows && mv steps in
hybrid 0 --json --keep-order --lease-excess 30 --instances 4 -p 'token_bucket limit=1000 period=1s burst=300' &&
    holds 'by_lease > 0 && most_over <= over_max'
verdict 'rows whose times step back stay within the bound' $?
mv rows in

for deal in round-robin key skewed; do
    hybrid 0 --json --instances 5 --deal $deal -p 'token_bucket limit=1000 period=1s burst=300' && mv out first &&
        hybrid 0 --json --instances 5 --deal $deal -p 'token_bucket limit=1000 period=1s burst=300' && cmp first out >>err
    verdict "a replay dealt by $deal gives the same result every time" $?
    cp first "by-$deal"
done
! cmp -s by-round-robin by-key && ! cmp -s by-key by-skewed && ! cmp -s by-skewed by-round-robin
verdict 'each way to deal rows gives a different result' $?

# ---- The report ----

hybrid 0 --instances 4 --deal skewed -p 'token_bucket limit=1000 period=1s burst=300' &&
    has out 'hybrid, 4 instances over Redis by the times of the input, dealt by skewed' 'Against one exact limit' \
        'up to 74 permits of a key for 15 ms; over by at most 15, seen ' 'permits beyond the limit' ' a request'
verdict 'the report gives the instances, the leased permits and the excess' $?
hybrid 0 --instances 4 -p 'token_bucket limit=1000 period=1s burst=300' -p 'token_bucket limit=1000 period=1s burst=7' &&
    has out 'by 1. leases' 'by 2. leases       none of this limit'
verdict 'the report gives the leased permits of each limit' $?
hybrid 0 --strict -p 'token_bucket limit=1000 period=1s burst=300' && has out 'hybrid (strict), 1 instance over Redis' \
    'over by at most 0, seen 0' && ! grep -q 'dealt by' out
verdict 'one instance is the default' $?
: >in
hybrid 0 --json -p "$once" && holds 'requests == 0 && store_calls == 0 && calls_a_request == 0'
verdict 'an input without rows is no error' $?
run 0 try --mode hybrid --redis "$url" -p 'token_bucket limit=2 period=1h' --cost 2 && has out 'allowed: ' ', by redis' &&
    run 1 try --mode hybrid --redis "$url" -p 'token_bucket limit=2 period=1h' && [ "$(asked dbsize)" = 1 ]
verdict 'try in hybrid mode takes from the limit in Redis' $?

finish
