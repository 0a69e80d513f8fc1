#!/bin/sh
# valgrind.sh - runs the tests under valgrind's memcheck, which also sees memory that is used and was never set. See --help.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --valgrind [--build FOLDER] [--list FILE] [TEST...]

Builds the tests for it in build/valgrind, runs those that are programs, and the tests of the program weir, under
valgrind's memcheck, and prints a table. Memory that is used and was never set, or is used wrongly, is an error, and so is
memory that is lost. tests/tools/valgrind.conf lists the tests that are left out, and why; tests/tools/valgrind.supp what is not ours.
helgrind and drd are not run: they take C11's atomics for races, and ThreadSanitizer does not. It takes about an hour on
two processors.

  TEST...         these tests only, by their names in ctest; cli is the program's
  --build FOLDER  the tests that are built there by this script; nothing is built
  --list FILE     another list than tests/tools/valgrind.conf

Exit status: 0 no error, 1 errors, 2 wrong arguments, a list that cannot be read, or missing packages.
TEXT
}

die() {
    echo "valgrind.sh: $*" >&2
    exit 2
}

build='' list=tests/tools/valgrind.conf wanted=''
while [ $# -gt 0 ]; do
    case $1 in
    --build | --list)
        [ $# -gt 1 ] || die "$1 must be followed by a word"
        case $1 in
        --build) build=$2 ;;
        --list) list=$2 ;;
        esac
        shift
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    *) wanted="$wanted $1" ;;
    esac
    shift
done
[ -r "$list" ] || die "$list cannot be read"
awk -v list="$list" '
    /^#/ || /^[ \t]*$/ { next }
    NF < 2 { print list ":" FNR ": " $1 " is left out without a reason" >"/dev/stderr"; failed = 1 }
    END { exit failed }
' "$list" || exit 2

need_packages valgrind
# By its path, because some tests remove PATH. Memory that only lost memory refers to is reported with it.
memcheck="$(command -v valgrind) -q --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
--error-exitcode=99 --num-callers=20 --fair-sched=try --suppressions=$PWD/tests/tools/valgrind.supp"

# CMake puts an emulator before each test that is a program of the project. valgrind checks
# the children that such a program forks, but not the servers and shells that it starts by exec.
if [ -z "$build" ]; then
    build=build/valgrind
    say "building $build"
    cmake --preset debug -B $build -DWEIR_BENCH=OFF '-DCMAKE_C_FLAGS_DEBUG=-O1 -g -DUNDER_MEMCHECK' \
        "-DCMAKE_CROSSCOMPILING_EMULATOR=$(echo "$memcheck" | tr ' ' ';')" >/dev/null
    cmake --build $build --parallel "$jobs"
fi
[ -r "$build/CTestTestfile.cmake" ] || die "there are no tests in $build"
build=$(cd "$build" && pwd)
out=$build/valgrind
mkdir -p "$out"

# ---- Which tests ----

ctest --test-dir "$build" -N -V | awk '
    /Test command: / { is_ours = /Test command: [^ ]*valgrind" / || /Test command: [^ ]*valgrind / }
    /^ *Test *#[0-9]+: / { if (is_ours) print $NF; is_ours = 0 }
' >"$out/all"
[ -s "$out/all" ] || die "no test in $build is run under valgrind"
awk '!/^#/ && NF { print $1 }' "$list" >"$out/left_out"
status=0
while read -r name; do
    grep -qxF -e "$name" "$out/all" || [ "$name" = cli ] || {
        echo "$list: there is no test $name"
        status=1
    }
done <"$out/left_out"
if [ -n "$wanted" ]; then
    for name in $wanted; do
        grep -xF -e "$name" "$out/all" || [ "$name" = cli ] || die "there is no test $name"
    done >"$out/tests"
else
    grep -vxF -f "$out/left_out" "$out/all" >"$out/tests"
fi

# ---- Running them ----

say "$(wc -l <"$out/tests") tests under memcheck"
: >"$out/lines"
if [ -s "$out/tests" ]; then
    pattern=$(sed 's/[.]/\\./g' "$out/tests" | paste -s -d '|')
    ctest --test-dir "$build" -R "^($pattern)\$" --output-on-failure --parallel "$jobs" \
        >"$out/log" 2>&1 || status=1
    sed -n '/^ *[0-9]*\/[0-9]* *Test /p' "$out/log" >"$out/lines"
fi
case " ${wanted:- cli} " in
*' cli '*)
    if ! grep -qxF cli "$out/left_out" || [ -n "$wanted" ]; then
        mkdir -p "$out/bin"
        # shellcheck disable=SC2016 # the wrapper's own words
        printf '#!/bin/sh\nexec %s %s/src/weir "$@"\n' "$memcheck" "$build" >"$out/bin/weir"
        chmod +x "$out/bin/weir"
        if sh tests/cli/run.sh "$out/bin/weir" >"$out/cli.log" 2>&1; then
            echo 'cli ... Passed' >>"$out/lines"
        else
            echo 'cli ...***Failed' >>"$out/lines"
            grep '^FAIL' "$out/cli.log" || cat "$out/cli.log"
            status=1
        fi
    fi
    ;;
esac
[ $status -eq 0 ] || [ ! -e "$out/log" ] || cat "$out/log"

say 'valgrind, memcheck'
passed=$(grep -c ' Passed' "$out/lines" || true)
skipped=$(grep -c '\*\*\*Skipped' "$out/lines" || true)
printf '%-10s %6s %6s %7s %8s\n' tests passed failed skipped 'left out'
printf '%-10d %6d %6d %7d %8d\n' "$(wc -l <"$out/lines")" "$passed" $(($(wc -l <"$out/lines") - passed - skipped)) \
    "$skipped" "$(wc -l <"$out/left_out")"
[ -n "$wanted" ] || sed -n '/^#/d; s/^\([^ ]*\)  */left out: \1, for /p' "$list"
exit $status
