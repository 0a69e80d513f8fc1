#!/bin/sh
# faults.sh - runs the tests of each fault in tests/tools/faults.conf and prints a table of what came of it. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --faults [--rows ROW,ROW...] [--long] [--list FILE] [--build FOLDER] [--out FOLDER]
       sh tests/tools/faults.sh --check FOLDER [--list FILE]

Builds the preset release and runs, one after the other, what tests/tools/faults.conf has for each fault that limiters have
had; then prints a table: row, result, tests run, seconds, the worst figure that they printed, and the fault. It takes
some eight minutes on two processors. What a row does not show is told below the table. The logs are in build/faults.

  --rows ROW,...   these rows only (A1,D7); a letter is all rows of its chapter
  --long           also what the list has under `long`: fuzzing, ThreadSanitizer, many more runs; some two hours more
  --list FILE      another list than tests/tools/faults.conf
  --build FOLDER   the tests that are built there; nothing is built
  --out FOLDER     where the logs go
  --check FOLDER   run nothing: say what is wrong with the list, and which of its tests those built in FOLDER are not

Results: passed; FAILED; skipped: something is missing here, the log says what; not run: there is no test yet, or none
without --long, or there cannot be one here. A test that is in the list and not to be found has failed. A test that
several rows have is run once; its seconds are with the first.
Exit status: 0 nothing failed, 1 something did, 2 wrong arguments or a list that cannot be read.
TEXT
}

die() {
    echo "faults.sh: $*" >&2
    exit 2
}

list=tests/tools/faults.conf rows='' build='' out=build/faults long=false check=false
while [ $# -gt 0 ]; do
    case $1 in
    --rows | --list | --build | --out | --check)
        [ $# -gt 1 ] || die "$1 must be followed by a word"
        case $1 in
        --rows) rows=$2 ;;
        --list) list=$2 ;;
        --build) build=$2 ;;
        --out) out=$2 ;;
        --check) build=$2 check=true ;;
        esac
        shift
        ;;
    --long) long=true ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
[ -r "$list" ] || die "$list cannot be read"

tab=$(printf '\t')
if $check; then
    . tests/tools/scratch.sh
    out=$scratch
fi
mkdir -p "$out"

# ---- The list, as lines of three fields: row, word, the rest; the word of a row's first line is `what` ----

awk -v OFS="$tab" '
    function bad(why) { print FILENAME ":" FNR ": " why >"/dev/stderr"; failed = 1 }
    function row_ends() {
        if (row == "") return
        if (!has["what"]) bad("row " row " above does not say what the fault is")
        if (!has["pass"] && !has["cannot"] && !has["gap"]) bad("row " row " above does not say what must be so: pass")
        if (has["pass"] && !tests && !has["gap"] && !has["cannot"]) bad("row " row " above has no test, gap or cannot")
        if (has["cannot"] && tests) bad("row " row " above cannot be run, and has a test")
        if (has["worst"] && !tests) bad("row " row " above has no test that could print its worst figure")
    }
    /^#/ || /^[ \t]*$/ { next }
    /^[^ \t]/ {
        row_ends()
        row = $1
        if (row !~ /^[A-Z][0-9]+$/) bad("\"" row "\" is no row: a letter and a number")
        if (row in seen) bad("row " row " is there twice")
        seen[row] = 1
        split("", has)
        tests = 0
        rest = $0
        sub(/^[^ \t]+[ \t]*/, "", rest)
        has["what"] = rest != ""
        print row, "what", rest
        next
    }
    {
        word = $1
        rest = $0
        sub(/^[ \t]*[^ \t]+[ \t]*/, "", rest)
        test = word
        if (word == "long") { test = $2; sub(/^[^ \t]+[ \t]*/, "", rest) }
        if (test !~ /^(check|ctest|full|tsan|run)$/ && (word == "long" || word !~ /^(pass|worst|most|gap|cannot)$/))
            bad("\"" word (word == "long" ? " " test : "") "\": no pass, check, ctest, run, long, worst, most, gap, cannot")
        else if (test ~ /^(full|tsan)$/ && word != "long") bad(test " goes with long only")
        else if (rest == "") bad("\"" test "\" is followed by nothing")
        else if (test ~ /^(check|full)$/ && rest !~ / /) bad(test " is followed by a program and a case of it")
        else if (word == "worst" && (rest !~ / = / || rest !~ /\*/)) bad("worst is followed by <name> = <text with *>")
        else if (word == "most" && (rest !~ /^[0-9.]+$/ || !has["worst"])) bad("most is a number, and follows a worst")
        tests += test ~ /^(check|ctest|full|tsan|run)$/
        has[word]++
        if (word == "long") print row, "long", test " " rest
        else print row, word, rest
    }
    END { row_ends(); if (!NR) bad("it is empty"); else if (row == "") bad("it has no rows"); exit failed }
' "$list" >"$out/list" || exit 2

# field ROW WORD: what the list has for it, a line each.
field() {
    awk -F "$tab" -v row="$1" -v word="$2" '$1 == row && $2 == word { print $3 }' "$out/list"
}

all_rows=$(awk -F "$tab" '$2 == "what" { print $1 }' "$out/list")
if [ -n "$rows" ]; then
    wanted=
    for name in $(echo "$rows" | tr ',' ' '); do
        # shellcheck disable=SC2086 # lists of words
        found=$(printf '%s\n' $all_rows | awk -v name="$name" '$0 == name || substr($0, 1, 1) == name')
        [ -n "$found" ] || die "there is no row \"$name\" in $list"
        wanted="$wanted $found"
    done
else
    wanted=$all_rows
fi

# by_ctest FOLDER OPTION... - the tests of a build. CTest's logs are elsewhere: this may be a test of that build.
by_ctest() {
    mkdir -p "$out/ctest"
    printf 'subdirs("%s")\n' "$(cd "$1" && pwd)" >"$out/ctest/CTestTestfile.cmake"
    shift
    ctest --test-dir "$out/ctest" "$@" 2>&1
}

# ---- Check that everything in the list exists ----

has_test() { # NAME
    grep -qxF "$1" "$out/tests"
}

check_list() {
    by_ctest "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p' >"$out/tests"
    status=0 unknown=0
    awk -F "$tab" '
        $2 == "long" { word = $3; sub(/ .*/, "", word); sub(/^[^ ]* /, "", $3); print $1 FS word FS $3; next }
        $2 ~ /^(check|ctest|run)$/' "$out/list" >"$out/named"
    while IFS=$tab read -r row word rest; do
        case $word in
        run)
            for part in $rest; do
                case $part in
                BUILD/*) part=$build/${part#BUILD/} ;;
                tests/*) ;;
                *) continue ;;
                esac
                [ -e "$part" ] || { echo "$list: $row: there is no $part"; status=1; }
            done
            ;;
        *)
            has_test "${rest%% *}" || { echo "$list: $row: there is no test ${rest%% *}"; status=1; }
            ;;
        esac
    done <"$out/named"
    awk -F "$tab" '$2 ~ /^(check|full)$/ { sub(/ .*/, "", $3); print $3 }' "$out/named" | sort -u >"$out/programs"
    while read -r program; do
        has_test "$program" || continue # told above
        cases=$(awk -F "$tab" -v program="$program" '$2 ~ /^(check|full)$/ && index($3, program " ") == 1 {
            print substr($3, length(program) + 2) }' "$out/named")
        answer=0
        WEIR_TEST_HAS=$cases "$build/tests/$program" >"$out/answer" 2>&1 </dev/null || answer=$?
        case $answer in
        0) ;;
        77) unknown=$((unknown + 1)) ;;
        *)
            sed "s|^|$list: $program: |" "$out/answer"
            status=1
            ;;
        esac
    done <"$out/programs"
    echo "$(echo "$all_rows" | wc -l) rows, $(wc -l <"$out/named") tests named;" \
        "$unknown programs cannot tell what they have, for something is missing here"
    return $status
}

if $check; then
    check_list
    exit
fi

# ---- Running ----

# shellcheck disable=SC2086,SC2154 # lists of words, of setup.sh
if [ -z "$build" ]; then
    need_packages iproute2 # for a network that falls silent
    build=build/release
    if [ "${CI-}" = true ]; then skips_fail=ON; else skips_fail=OFF; fi
    build_preset release -DWEIR_SKIPS_FAIL=$skips_fail
    if [ -z "${WEIR_TEST_CONSUL-}" ] && ! command -v consul >/dev/null 2>&1; then
        sh tests/tools/servers.sh consul-1.8 >/dev/null # the tests find it there
    fi
    if $long && awk -F "$tab" '$2 == "long"' "$out/list" | grep -q "${tab}tsan "; then
        build_preset tsan -DWEIR_LONG_TESTS=ON
    fi
fi
rm -rf "$out/runs"
mkdir -p "$out/runs"

one_by_ctest() { # FOLDER NAME
    by_ctest "$1" -R "^$(echo "$2" | sed 's/[.]/\\./g')\$" -V --no-tests=error | sed 's/^[0-9]*: //'
}

by_command() { # COMMAND...
    if timeout 3600 "$@" 2>&1; then
        echo 'faults: Passed'
    elif [ $? -eq 77 ]; then
        echo 'faults: ***Skipped'
    else
        echo 'faults: ***Failed'
    fi
}

# test_run WORD REST - its output goes to standard output.
test_run() {
    case $1 in
    check)
        export CK_RUN_CASE="${2#* }"
        one_by_ctest "$build" "${2%% *}"
        unset CK_RUN_CASE
        ;;
    ctest) one_by_ctest "$build" "$2" ;;
    tsan) one_by_ctest build/tsan "thread.$2" ;;
    full)
        by_command env WEIR_TEST_FULL=1 CK_TIMEOUT_MULTIPLIER=20 CK_RUN_CASE="${2#* }" "$build/tests/${2%% *}"
        ;;
    run) by_command sh -c "$(echo "$2" | sed "s|BUILD/|$build/|g")" ;;
    esac
}

# test_result LOG - passed, skipped or FAILED; nothing that has not said so has passed.
test_result() {
    if grep -q 'Checks: 0,' "$1"; then
        echo FAILED
    elif grep -qE '^faults: Passed|^ *1/1 Test .* Passed ' "$1"; then
        echo passed
    elif grep -qE '^faults: [*]+Skipped|^ *1/1 Test .*[*]+Skipped ' "$1"; then
        echo skipped
    else
        echo FAILED
    fi
}

# A test that several rows name is run once. Sets the row's result, count, seconds and logs.
test_add() { # WORD REST
    log=$out/runs/$(printf '%s %s' "$1" "$2" | cksum | tr ' ' -)
    if [ ! -e "$log.took" ]; then
        began=$(date +%s)
        test_run "$1" "$2" >"$log" || true
        touch "$log.took"
        seconds=$((seconds + $(date +%s) - began))
    fi
    logs="$logs $log"
    checks=$(sed -n 's/.*Checks: \([0-9]*\),.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    [ "$checks" -gt 0 ] || checks=1
    case $(test_result "$log") in
    FAILED) result=FAILED ;;
    skipped)
        [ "$result" = FAILED ] || result=skipped
        return
        ;;
    passed)
        [ "$result" != 'not run' ] || result=passed
        ;;
    esac
    count=$((count + checks))
}

# The greatest of the figures that the logs have in the place of the *, and its name; nothing if there is none.
worst_of() { # "NAME = TEXT", LOG...
    text=$1
    shift
    awk -v text="$text" '
        BEGIN {
            cut = index(text, " = ")
            name = substr(text, 1, cut - 1)
            text = substr(text, cut + 3)
            star = index(text, "*")
            before = substr(text, 1, star - 1)
            after = substr(text, star + 1)
        }
        {
            at = before == "" ? 1 : index($0, before)
            if (!at) next
            rest = substr($0, at + length(before))
            if (!match(rest, /^ *-?[0-9]+(\.[0-9]+)?/)) next
            figure = substr(rest, 1, RLENGTH)
            if (index(substr(rest, RLENGTH + 1), after) != 1) next
            if (!found || figure + 0 > worst + 0) worst = figure
            found = 1
        }
        END { if (found) { sub(/^ */, "", worst); print worst " " name } }' "$@"
}

# excerpt LOG - the lines of a test that has failed which say why; they may be long.
excerpt() {
    grep -E ':[EF]:|FAIL|FOUND|No tests were found|Checks: 0,|seed was|No such' "$1" >"$out/why" ||
        tail -n 12 "$1" >"$out/why"
    head -n 12 "$out/why" | cut -c 1-300
}

row_run() { # ROW
    result='not run' count=0 seconds=0 logs=''
    words='check ctest run'
    $long && words="$words long"
    for word in $words; do
        field "$1" "$word" >"$out/tests"
        while IFS= read -r rest; do
            if [ "$word" = long ]; then
                test_add "${rest%% *}" "${rest#* }" </dev/null
            else
                test_add "$word" "$rest" </dev/null
            fi
        done <"$out/tests"
    done
    worst=-
    text=$(field "$1" worst) most=$(field "$1" most)
    if [ -n "$text" ] && [ "$result" != 'not run' ]; then
        # shellcheck disable=SC2086 # a list of files without blanks
        worst=$(worst_of "$text" $logs)
        if [ -z "$worst" ]; then
            worst='none told'
            [ "$result" != passed ] || result=FAILED
        elif [ -n "$most" ] && awk -v is="${worst%% *}" -v most="$most" 'BEGIN { exit !(is + 0 > most + 0) }'; then
            worst="$worst: more than $most"
            result=FAILED
        fi
    fi
    printf '%-4s %-8s %6d %6d  %-42s %s\n' "$1" "$result" "$count" "$seconds" "$worst" "$(field "$1" what)" |
        tee -a "$out/table"
    if [ "$result" = FAILED ]; then
        # shellcheck disable=SC2086
        for log in $logs; do
            [ "$(test_result "$log")" != FAILED ] || { echo "     $log:"; excerpt "$log" | sed 's/^/     | /'; }
        done
    fi
}

say "faults: the log of each test is in $out/runs"
printf '%-4s %-8s %6s %6s  %-42s %s\n' row result tests secs worst fault | tee "$out/table"
for row in $wanted; do
    row_run "$row"
done

gaps() { # WORD HEADING
    for row in $wanted; do
        field "$row" "$1" | sed "s/^/  $row  /"
    done >"$out/gaps"
    [ ! -s "$out/gaps" ] || { say "$2"; cat "$out/gaps"; }
}
say table
cat "$out/table"
gaps gap 'what these rows do not show'
gaps cannot 'rows that cannot be run, and why'
awk 'NR > 1 { n++; if ($2 == "not") none++; else by[$2]++ }
    END {
        printf "\n%d rows: %d passed, %d failed, %d skipped, %d not run\n",
            n, by["passed"], by["FAILED"], by["skipped"], none
    }
' "$out/table"
! grep -qE '^[A-Z][0-9]+ +FAILED' "$out/table"
