#!/bin/sh
# bench_compare.sh WEIR_BENCH - two runs side by side: ratios and their spreads are right, changes beyond noise are marked and
# no others, and the exit status tells of them. The runs are small files made here.
set -eu
bench=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

fail() {
    printf '%s\n' "$1" >&2
    cat "$scratch/table" "$scratch/log" >&2
    exit 1
}

# run FILE A B C D FLOOR: write a run whose rows have these figures, each MEDIAN,MIN,MAX,REPEATS.
figure() {
    echo "$1" | sed 's/\(.*\),\(.*\),\(.*\),\(.*\)/{"median": \1, "min": \2, "max": \3, "repeats": \4}/'
}
run() {
    cat >"$scratch/$1" <<END
{"machine": {"cpu": "$2", "kernel": "K"}, "sections": {
  "modes": {"about": "-", "rows": [
    {"figure": "over all instances", "local": "its share"},
    {"part": "P", "figure": "one", "local": $(figure "$3"), "hybrid": $(figure "$4"), "floor": $(figure "$5"), "which is": "f"},
    {"part": "P", "figure": "two", "local": $(figure "$6"), "hybrid": 3},
    {"part": "P", "figure": "only $1", "local": 1}]},
  "floors": {"about": "-", "rows": [
    {"operation": "clock", "threads": 1, "ns": $(figure 20,19,21,5)},
    {"operation": "clock", "threads": 2, "ns": $(figure "$7")}]}}, "goals": []}
END
}

# compare STATUS A B
compare() {
    status=0
    "$bench" --compare "$scratch/$2" "$scratch/$3" >"$scratch/table" 2>"$scratch/log" || status=$?
    [ "$status" -eq "$1" ] || fail "$2 and $3: status $status, not $1"
}

has() {
    grep -q -e "$1" "$scratch/table" || fail "not in the table: $1"
}

#           local         hybrid        floor         two           a floor with 2 threads
run a slow  100,90,110,5  50,45,55,5    10,9,11,5     100,90,110,5  40,38,42,5
run b fast  200,180,220,5 100,90,110,5  20,18,22,5    103,95,112,5  40,39,42,5
run c slow  120,111,130,5 51,45,55,5    10,9,11,5     100,90,110,5  20,19,21,5
run d slow  104,103.9,105,5 0,0,0,5     10,9,11,5     300,290,310,4 40,38,42,5

compare 0 a a
has '^changed: 0 of 8 figures changed beyond noise; 0 more did'
has '^!: beyond noise, because '
has '^one  *1.00  *1.00  *1.00$'

# Everything of a row doubles with its floor: the mark is another one, and the status stays 0.
compare 0 a b
has '^A: .*/a; B: .*/b; cpu: slow, then fast$'
has '0 of 7 figures changed beyond noise; 3 more did and may be the machine.s; 2 rows are of one run alone'
has '^one  *2.00 (1.64\.\.2.44) ?  *2.00 (1.64\.\.2.44) ?  *2.00 (1.64\.\.2.44) ?$'
has '^two  *1.03 (0.86\.\.1.24)  *1.00  *-$'

# One figure leaves its noise while the floor stays; one floor halves.
compare 1 a c
has '2 of 7 figures changed beyond noise; 0 more'
has '^modes  *one  *local  *100  *120  *1.20 (1.01\.\.1.44) !$'
has '^floors  *clock|2  *ns  *40.0  *20.0  *0.50 (0.45\.\.0.55) !$'
has '^clock  *2  *0.50 (0.45\.\.0.55) !$'
[ "$(grep -n '^changed:' "$scratch/table" | cut -d: -f1)" -lt "$(grep -n '^modes of B' "$scratch/table" | cut -d: -f1)" ] ||
    fail 'what changed does not come first'

# Less than 5 % is no change, nor are four repetitions. A ratio to zero is no number.
compare 1 a d
has '^modes  *one  *hybrid  *50.0  *0.00  *0.00 (0.00\.\.0.00) !$'
has '^two  *3.00 (2.64..3.44)  *1.00  *-$'
has '1 of 7 figures'
compare 1 d a
has '^modes  *one  *hybrid  *0.00  *50.0  *0.00 to 50.0 !$'

# refuses WORDS A B
refuses() {
    compare 2 "$2" "$3"
    grep -q -e "$1" "$scratch/log" || fail "not said: $1"
    [ ! -s "$scratch/table" ] || ! grep -q '^changed' "$scratch/table" || fail "$1: something is compared"
}
echo '{"sections": {}}' >"$scratch/empty"
echo '{"sections": {"modes"' >"$scratch/broken"
echo '[]' >"$scratch/other"
refuses 'have no figure in common' a empty
refuses 'broken:2: ' a broken
refuses 'no results of weir-bench' other a
refuses 'nowhere' a nowhere
status=0
"$bench" --compare "$scratch/a" >"$scratch/table" 2>"$scratch/log" || status=$?
[ $status -eq 2 ] || fail "one file: status $status"
grep -q -e '--compare takes two files' "$scratch/log" || fail 'not said that a file is missing'

# A run of the benchmark can be read, and equals itself. Its numbers are no names: two runs find each other's rows.
for i in 1 2; do
    "$bench" --quick --repeat 1 --seconds 0.001 --keys 100 --only batch,floors --json "$scratch/real$i" \
        >"$scratch/table" 2>"$scratch/log" || fail 'the benchmark failed'
done
compare 0 real1 real1
has '; 0 rows are of one run alone'
compare 0 real1 real2
has '; 0 rows are of one run alone'
