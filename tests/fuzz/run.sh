#!/bin/sh
# run.sh - builds the fuzz targets with clang's libFuzzer and lets each search for inputs that violate its properties.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/fuzz/run.sh [--seconds N] [TARGET...]

Builds the preset `fuzz` (clang, libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer) and runs every target, or
those named, for N seconds each, 60 if nothing is said. Each begins with the inputs in tests/fuzz/<target>/seeds and with
those that earlier runs found worth keeping, in build/fuzz/corpus/<target>. Then a table: target, executions, executions a
second, coverage (edges), inputs kept, result.

What breaks a target is kept as build/fuzz/findings/<target>-*, with its log beside it as <target>.log; once it is mended
it belongs into tests/fuzz/<target>/seeds, which the tests called fuzz_seeds_<target> run in every build.
Exit status: 0 nothing found, 1 findings, 2 not run: wrong arguments or missing packages.
TEXT
}

seconds=60
while [ $# -gt 0 ]; do
    case $1 in
    --seconds)
        seconds=${2-}
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
    *) break ;;
    esac
    [ $# -eq 0 ] || shift
done
case $seconds in
'' | *[!0-9]* | 0)
    echo "run.sh: --seconds must be followed by a whole number, 1 or more" >&2
    exit 2
    ;;
esac
if [ $# -eq 0 ]; then
    for seeds in tests/fuzz/*/seeds; do
        seeds=${seeds%/seeds}
        set -- "$@" "${seeds##*/}"
    done
fi
for target in "$@"; do
    if [ ! -f "tests/fuzz/$target.c" ] || [ ! -d "tests/fuzz/$target/seeds" ]; then
        echo "run.sh: there is no target \"$target\"" >&2
        exit 2
    fi
done

# shellcheck disable=SC2086,SC2154 # lists of words, of setup.sh
need_packages $build_packages $redis_packages $consul_packages check clang libclang-rt-14-dev \
    liblua5.1-0-dev
build_preset fuzz

# stat FILE NAME - print a statistic of libFuzzer's.
stat() {
    sed -n "s/^stat::$2: *//p" "$1" | tail -n 1
}

out=build/fuzz
findings=$out/findings
table=$out/table
mkdir -p $findings
status=0

run_target() { # TARGET
    if [ ! -x "$out/tests/fuzz/fuzz_$1" ]; then
        say "$1: left out, because this build lacks it; CMake's output says why"
        return
    fi
    say "$1, $seconds s"
    target=$1
    corpus=$out/corpus/$target
    log=$findings/$target.log
    mkdir -p "$corpus"
    set -- "-max_total_time=$seconds" -max_len=1500 -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=64 -reload=0 \
        -print_final_stats=1 "-artifact_prefix=$findings/$target-"
    [ ! -f "tests/fuzz/$target/words.dict" ] || set -- "$@" "-dict=tests/fuzz/$target/words.dict"
    result=nothing
    if ! ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        nice "$out/tests/fuzz/fuzz_$target" "$@" "$corpus" "tests/fuzz/$target/seeds" >"$log" 2>&1; then
        result="FOUND, see $log"
        status=1
        grep -E 'does not hold|runtime error|SUMMARY|Test unit written' "$log" || tail -n 20 "$log"
    fi
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    printf '%-14s %11s %9s %7s %6s  %s\n' "$target" "$(stat "$log" number_of_executed_units)" \
        "$(stat "$log" average_exec_per_sec)" "${edges:-?}" "$(find "$corpus" -type f | wc -l)" "$result" >>$table
}

printf '%-14s %11s %9s %7s %6s  %s\n' target executions exec/s edges kept result >$table
for target in "$@"; do
    run_target "$target"
done
say "fuzzing"
cat $table
exit $status
