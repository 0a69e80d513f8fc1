#!/bin/sh
# faults_check.sh FOLDER - all that tests/tools/faults.conf names is built in FOLDER; and tests/tools/faults.sh tells of lists that are
# wrong and of tests that fail, are not there, or print no figure.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
. tests/tools/scratch.sh
failed=0

verdict() { # NAME STATUS
    [ "$2" -eq 0 ] && echo "ok   $1" && return
    echo "FAIL $1"
    sed 's/^/     /' "$scratch/out" | head -n 30
    failed=1
}

# refused NAME TEXT [LINE...]: a list of these lines is refused, by a line that has TEXT.
refused() {
    name=$1 text=$2
    shift 2
    printf '%s\n' "$@" >"$scratch/list"
    status=0
    sh tests/tools/faults.sh --check "$build" --list "$scratch/list" >"$scratch/out" 2>&1 || status=$?
    if [ $status -ne 0 ] && grep -qF -- "$text" "$scratch/out"; then verdict "$name" 0; else verdict "$name" 1; fi
}

status=0
sh tests/tools/faults.sh --check "$build" >"$scratch/out" 2>&1 || status=$?
cat "$scratch/out"
verdict all_that_the_list_names_is_there $status

refused a_case_that_is_not_there_is_told 'test_hash: no case "secrets_are_drawn_once"' \
    'A1 what' ' pass so' ' check test_hash secrets_are_drawn_once'
refused a_test_that_is_not_there_is_told 'A1: there is no test test_hush' 'A1 what' ' pass so' ' ctest test_hush'
refused a_file_that_is_not_there_is_told 'A1: there is no tests/none.sh' 'A1 what' ' pass so' ' run sh tests/none.sh'
refused a_word_that_is_none_is_told ':3: "chec"' 'A1 what' ' pass so' ' chec test_hash'
refused a_row_that_is_there_twice_is_told ':3: row A1 is there twice' 'A1 what' ' gap all' 'A1 what' ' gap all'
refused a_row_without_a_test_or_a_reason_is_told 'row A1 above has no test' 'A1 what' ' pass so'
refused a_row_that_does_not_say_what_must_be_so_is_told 'row A1 above does not say what must be so' 'A1 what' \
    ' ctest test_hash'
refused a_case_in_full_that_is_not_there_is_told 'test_hash: no case "secrets_are_drawn_once"' \
    'A1 what' ' pass so' ' long full test_hash secrets_are_drawn_once'
refused a_most_of_no_figure_is_told ':3: most is a number, and follows a worst' \
    'A1 what' ' pass so' ' most 3' ' ctest test_hash'
refused a_list_of_comments_is_told 'it has no rows' '# none'

cat >"$scratch/list" <<'LIST'
A1 passes, and tells a figure
    pass   so
    check  test_hash each_drawn_hash_secret_is_different
    run    echo "took 7 us"; echo "took 12.5 us of all"
    worst  us = took * us
A2 its figure is not told
    pass   so
    run    echo "took no time"
    worst  us = took * us
A3 its case is mistyped
    pass   so
    check  test_hash secrets_are_drawn
A4 its test is not there
    pass   so
    ctest  test_hush
A5 fails
    pass   so
    run    false
A6 lacks something here
    pass   so
    run    true
    run    exit 77
A7 nothing yet
    pass   so
    gap    all of it
A8 cannot be
    cannot it is the moon
A9 is long
    pass   so
    long   run false
B1 its figure may just be that
    pass   so
    run    echo "took 7 us"; echo "took 12.5 us of all"
    worst  us = took * us
    most   12.5
B2 its figure is too great
    pass   so
    run    echo "took 7 us"; echo "took 12.5 us of all"
    worst  us = took * us
    most   12
LIST
status=0
sh tests/tools/faults.sh --build "$build" --out "$scratch/table" --list "$scratch/list" >"$scratch/out" 2>&1 || status=$?
sed -n '/^== table/,$p' "$scratch/out" | sed -n 's/^\([AB][0-9]\) *\(not run\|[^ ]*\) *[0-9]* *[0-9]* *\(.*us\|.*more than 12\|-\|none told\) .*/\1 \2 \3/p' \
    >"$scratch/told"
cat >"$scratch/expected" <<'TOLD'
A1 passed 12.5 us
A2 FAILED none told
A3 FAILED -
A4 FAILED -
A5 FAILED -
A6 skipped -
A7 not run -
A8 not run -
A9 not run -
B1 passed 12.5 us
B2 FAILED 12.5 us: more than 12
TOLD
[ $status -eq 1 ] && diff "$scratch/expected" "$scratch/told" && status=0
verdict each_row_has_the_result_of_the_worst_of_its_tests $status

printf '%s\n' 'A1 in full it is another' ' pass so' ' long full test_hash each_drawn_hash_secret_is_different' \
    >"$scratch/full"
status=0
sh tests/tools/faults.sh --build "$build" --out "$scratch/table" --list "$scratch/full" --long >"$scratch/out" 2>&1 || status=$?
grep -q '^A1 *passed  *1 ' "$scratch/out" || status=1
verdict a_case_in_full_is_run_with_long $status

status=0
sh tests/tools/faults.sh --build "$build" --out "$scratch/table" --list "$scratch/list" --rows A1,A8 >"$scratch/out" 2>&1 ||
    status=$?
grep -q '^2 rows: 1 passed, 0 failed, 0 skipped, 1 not run' "$scratch/out" || status=1
verdict rows_can_be_chosen $status
status=0
sh tests/tools/faults.sh --build "$build" --list "$scratch/list" --rows A1,C9 >"$scratch/out" 2>&1 || status=$?
[ $status -eq 2 ] && grep -qF 'no row "C9"' "$scratch/out" && status=0
verdict a_row_that_is_not_in_the_list_is_refused $status
exit $failed
