#!/bin/sh
# coverage.sh BUILD - runs the tests of a build made with WEIR_COVERAGE=ON and prints the branch coverage of src/core.
# Less than 95 % is a failure. Branches inside uthash's macros are not counted: they are not ours.
set -eu
cd "$(dirname "$0")/.."
build=$1

find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc 2>/dev/null || echo 2)"
gcovr --root . --filter 'src/core/' --branches --exclude-unreachable-branches \
    --exclude-branches-by-pattern '.*\bHASH_[A-Z_]+\(' --print-summary --fail-under-branch 95 "$build"
