# The order of rows: decided while they are read, sorted first, or read again.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

# Print 300,000 rows, more than the program ever holds back. Each comes up to $1 rows late; row $2 is the first in time.
late_rows() {
    awk -v late="$1" -v first="$2" 'BEGIN {
        srand(7)
        print "time_ms,user,client,tokens,took_ms"
        for (i = 1; i <= 300000; i++)
            printf "%d,u%d,192.0.%d.%d,%d,%d\n", i == first ? 1 : (late + i - int(rand() * late)) * 10,
                int(rand() * rand() * 50), int(rand() * 4), int(rand() * 250), 1 + int(rand() * 900), int(rand() * 3000)
    }'
}

# same_as_sorted [WORD]...: succeed if the report, the pages and what is said are those of --sort.
same_as_sorted() {
    for option in --json --html=page.html; do
        run 0 replay "$option" "$@" || return 1
        mv out out.along
        [ "$option" = --json ] || mv page.html page.along
        cp err err.along
        run 0 replay --sort "$option" "$@" && cmp out out.along >>err || return 1
        [ "$option" = --json ] || cmp page.html page.along >>err || return 1
        grep -v 'again' err.along | cmp - err >differs || { cat differs >>err; return 1; }
    done
}

limits() {
    same_as_sorted -p 'rpm key=user: sliding_window limit=300 period=1m' \
        -p 'tpm key=user cost=tokens: token_bucket limit=100000 period=1m' \
        -p 'net key=client/24: fixed_window limit=1500 period=1m' "$@"
}

late_rows 0 0 >in
limits && ! has err.along again 2>/dev/null
verdict 'rows in order are decided while they are read as if they were sorted first' $?
late_rows 100000 0 >in
limits && ! has err.along again 2>/dev/null
verdict 'rows up to 100,000 rows late are decided as if they were sorted first' $?
same_as_sorted --key user --duration took_ms --time-is-end -p 'concurrency limit=9 hold=1m' &&
    same_as_sorted --key user --compare -p 'fixed_window limit=100 period=1m' -p 'leaky_bucket limit=200 period=1m'
verdict 'requests in flight and compared policies are decided as if rows were sorted first' $?
run 0 replay --key user -p "$once" --decisions && mv out along && run 0 replay --key user -p "$once" --decisions --sort &&
    cmp out along >>err
verdict 'each row is decided as if rows were sorted first' $?

{ late_rows 1000 290000 && printf 'late,a,b,1,1\n'; } >in
limits && has err.along 'stdin:290001: the row comes at least 131072 rows late' 'reading the input again' &&
    [ "$(grep -c 'stdin:300002:' err.along)" -eq 1 ]
verdict 'for a row that is even later a file is read again, and no message is repeated' $?
{ printf 'early,a,b,1,1\n' && late_rows 1000 290000; } >late.csv
limits late.csv && [ "$(grep -c 'late.csv:1: ' err.along)" -eq 1 ]
verdict 'messages before a second reading of a file are not repeated' $?
"$weir" replay --key user -p "$once" <late.csv - >expected 2>err
# shellcheck disable=SC2002 # a pipe is what this tests
cat late.csv | "$weir" replay --key user -p "$once" >out 2>err
[ $? -eq 1 ] && has err 'stdin:290002: ' 'the input cannot be read again; --sort' && [ ! -s out ]
verdict 'a row that is too late in a pipe is an error that names --sort' $?
# shellcheck disable=SC2002 # a pipe is what this tests
cat late.csv | "$weir" replay --key user -p "$once" --sort >out 2>err && cmp out expected >>err
verdict 'with --sort a pipe is replayed, however late its rows are' $?
printf '3000000,a,1\n' >last.csv
printf '1000000,a,1\n' >first.csv
run 0 replay --decisions -p 'fixed_window limit=1 period=1s' last.csv first.csv && [ "$(cut -d, -f1 out | tr -d '\n')" = 11 ]
verdict 'files may come in any order' $?
run 2 replay -p "$once" --sort --keep-order in && has err 'cannot be combined'
verdict '--sort and --keep-order contradict each other' $?
rm -f in differs late.csv page.html page.along out.along along
