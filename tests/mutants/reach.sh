#!/bin/sh
# reach.sh BUILD [PROGRAM...] - finds which tests reach which lines of src/core and src/backends, and how long they take.
#
# tests/tools/mutants.sh uses it. BUILD/plain and BUILD/lines hold the same tests, the latter with line counting. A test
# here is a quick Check program, or one case of a slow one, so that a mutant need not wait for the other cases.
# BUILD/reach gets, for each program,
#
#     NAME.tests    one per line: seconds, program, steps (WEIR_TEST_STEPS; - is the program's own), arguments or case
#     NAME.lines    file:line and the test's number in NAME.tests, from 1; 0 marks an executable line
#
# A program that is newer than its files is run again. A test that fails in a process without forks is reported on
# standard error and left out.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
build=$1
shift
steps=20000 # fewer than a test would make by itself: mutants are many
few=1000    # to see which lines a test reaches
quick=0.5   # seconds
slow=2      # seconds; a case as slow as that, counting as well, is taken to reach what its program's others do
mkdir -p "$build/reach"
build=$(cd "$build" && pwd)
. tests/tools/scratch.sh
work=$scratch
trap 'exit 2' INT TERM

# gcov needs its notes beside the counts, which are written below a separate folder.
counts=$work/counts
find "$build/lines/src" -name '*.gcno' | while read -r note; do
    mkdir -p "$counts$(dirname "$note")"
    ln -s "$note" "$counts$note"
done

# run_test FOLDER STEPS PROGRAM CASE... - run a case, or the whole program without one; other programs get arguments.
run_test() {
    (
        cd "$1/tests"
        shift
        [ "$1" = - ] || export WEIR_TEST_STEPS="$1"
        shift
        program=$1
        shift
        export CK_FORK=no CK_DEFAULT_TIMEOUT=600
        case $program in
        test_*)
            [ $# -eq 0 ] || export CK_RUN_CASE="$1"
            exec timeout 300 "./$program"
            ;;
        *)
            # shellcheck disable=SC2086,SC2048 # a list of words
            exec timeout 300 "./$program" $*
            ;;
        esac
    ) >"$work/log" 2>&1 </dev/null
}

# run_all PROGRAM - run all of its cases and print the processor time in seconds.
run_all() {
    (
        CK_XML_LOG_FILE_NAME=$work/xml run_test "$build/plain" $steps "$1" || true
        times >"$work/times"
        awk 'NR == 2 {
            split($1, user, /[ms]/)
            split($2, kernel, /[ms]/)
            print 60 * (user[1] + kernel[1]) + user[2] + kernel[2]
        }' "$work/times"
    )
}

# lines_of NUMBER - print the lines that were just counted.
lines_of() {
    find "$counts" -name '*.gcda' >"$work/counted"
    [ -s "$work/counted" ] || return 0
    xargs gcov -t <"$work/counted" 2>/dev/null | awk -v root="$root/" -v number="$1" -F : '
        $2 + 0 == 0 && $3 == "Source" {
            path = $4
            sub(/.*\/src\/(layer\/)?core\//, "src/core/", path)
            sub(/.*\/src\/(layer\/)?backends\//, "src/backends/", path)
            is_mutated = path ~ /^src\/(core|backends)\//
            next
        }
        !is_mutated { next }
        { count = $1; gsub(/[ *]/, "", count); at = path ":" $2 + 0 }
        count == "-" || at in told && (told[at] || count !~ /^[0-9]/) { next }
        { told[at] = count ~ /^[0-9]/ }
        END { for (at in told) if (told[at] || number == 1) print at "\t" (told[at] ? number : 0) }'
    xargs rm -f <"$work/counted"
}

# add_test PASSED SECONDS PROGRAM CASE... - add it to the program's lists. A test that failed together with others, or
# with few steps, may pass alone.
add_test() {
    passed=$1 seconds=$2 of_steps=$steps
    shift 2
    if [ "$passed" != success ] && ! run_test "$build/plain" $steps "$@"; then
        of_steps=-
        if ! run_test "$build/plain" - "$@"; then
            echo "reach.sh: left out, because it fails in a process without forks: $*" >&2
            return
        fi
    fi
    number=$((number + 1))
    find "$counts" -name '*.gcda' -exec rm -f {} +
    if [ -s "$out.lines.new" ] && awk -v seconds="$seconds" -v slow=$slow 'BEGIN { exit !(seconds > slow) }'; then
        slow_ones="$slow_ones $number"
    else
        GCOV_PREFIX=$counts run_test "$build/lines" $few "$@" || true
        lines_of $number >>"$out.lines.new"
    fi
    program=$1
    shift
    printf '%s\t%s\t%s\t%s\n' "$seconds" "$program" $of_steps "$*" >>"$out.tests.new"
}

# cases_of SECONDS - print the cases of a Check run: passed or not, seconds, name. Check measures wall-clock time.
cases_of() {
    awk -v all="$1" '
        /<test result=/ { passed = /"success"/ ? "success" : "failure" }
        /<id>/ {
            sub(/.*<id>/, "")
            sub(/<\/id>.*/, "")
            name = $0
            if (!(name in result)) { result[name] = passed; names[++count] = name }
            if (passed != "success") result[name] = passed
        }
        /<duration>/ { sub(/.*<duration>/, ""); sub(/<\/duration>.*/, ""); if ($0 + 0 > 0) { seconds[name] += $0; sum += $0 } }
        END {
            for (i = 1; i <= count; i++)
                print result[names[i]] "\t" (sum > 0 ? seconds[names[i]] * all / sum : 0) "\t" names[i]
        }
    ' "$work/xml"
}

look_at_program() { # NAME
    number=0 slow_ones=
    : >"$out.tests.new"
    : >"$out.lines.new"
    case $1 in
    sim) add_test success 2 sim --seeds 1..150 --asks 300 ;;
    fuzz/fuzz_*) add_test success 0.3 "$1" "$root/tests/fuzz/${1#fuzz/fuzz_}/seeds" ;;
    *)
        rm -f "$work/xml"
        seconds=$(run_all "$1")
        cases_of "$seconds" | sort -t "$(printf '\t')" -k 2,2n >"$work/cases"
        if awk -v quick=$quick '{ sum += $2 } $1 != "success" { sum += quick } END { exit !(sum < quick) }' \
            "$work/cases"; then
            add_test success "$(awk '{ sum += $2 } END { print sum + 0 }' "$work/cases")" "$1"
        else
            while read -r passed seconds name; do
                add_test "$passed" "$seconds" "$1" "$name"
            done <"$work/cases"
        fi
        ;;
    esac
    awk -F '\t' '$2 > 0 { print $1 }' "$out.lines.new" | sort -u >"$work/union"
    for number in $slow_ones; do
        sed "s/\$/\t$number/" "$work/union" >>"$out.lines.new"
    done
    mv "$out.lines.new" "$out.lines"
    mv "$out.tests.new" "$out.tests"
}

ctest --test-dir "$build/plain" -N -L '^redis$' | sed -n 's/^ *Test *#[0-9]*: //p' >"$work/with_servers"
cd "$build/lines/tests"
[ $# -gt 0 ] || set -- test_* sim fuzz/fuzz_*
for program in "$@"; do
    case $program in
    *.*) continue ;;
    test_lab*) continue ;; # the servers' own
    esac
    ! grep -qxF "$program" "$work/with_servers" || continue
    [ -f "$program" ] || continue
    out=$build/reach/$(basename "$program")
    if [ ! -e "$out.tests" ] || [ -n "$(find "$program" -newer "$out.tests")" ]; then
        look_at_program "$program"
    fi
done
