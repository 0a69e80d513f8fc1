#!/bin/sh
# integer.sh - runs the tests of the arithmetic with clang's -fsanitize=integer: no number wraps, loses bits or changes its
# sign unseen, the unsigned ones included, but where tests/tools/integer.list says so. Builds in build/integer.
# Exit status: 0 nothing found, 1 something was, 2 not run.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

programs='test_plan test_algorithms test_shares test_peers test_lease test_former'

# shellcheck disable=SC2086,SC2154 # lists of words, of setup.sh
need_packages $build_packages check clang
rm -rf build/integer # a build that is there would not heed a list that has changed
cmake -S . -B build/integer -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DBUILD_TESTING=ON \
    -DWEIR_REDIS=OFF -DWEIR_CONSUL=OFF -DWEIR_CLI=OFF -DWEIR_SHARED=OFF -DWEIR_SANITIZE='undefined;integer' \
    -DCMAKE_C_FLAGS="-O1 -g -fsanitize-ignorelist=$PWD/tests/tools/integer.list" >/dev/null
# shellcheck disable=SC2086
cmake --build build/integer --parallel "$jobs" --target $programs >/dev/null
failed=0
for program in $programs; do
    if WEIR_TEST_STEPS=${WEIR_TEST_STEPS:-20000} CK_TIMEOUT_MULTIPLIER=20 UBSAN_OPTIONS=print_stacktrace=1 \
        "build/integer/tests/$program" >"build/integer/$program.log" 2>&1; then
        echo "$program: nothing found; $(tail -n 1 "build/integer/$program.log")"
    else
        echo "$program: FOUND, see build/integer/$program.log"
        grep -E 'runtime error|:[EF]:' "build/integer/$program.log" | sort -u | head -n 10 | cut -c 1-200
        failed=1
    fi
done
exit $failed
