#!/bin/sh
# run.sh - builds weir and runs its tests, as a newcomer or a build server would. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh [--quick | --coverage]

Installs the Debian packages that are missing, builds weir, and runs its tests: an optimised build, one with
AddressSanitizer and UndefinedBehaviorSanitizer, and the tests with threads under ThreadSanitizer.

  --quick      the optimised build only
  --coverage   print the branch coverage of src/core instead; less than 95 % is a failure
  --help       this text

With CI=true in the environment a test that cannot run for want of something fails instead of being skipped.
Exit status: 0 all passed, 1 something failed, 2 not run: wrong arguments or missing packages.
TEXT
}

mode=full
case ${1-} in
'') ;;
--quick) mode=quick ;;
--coverage) mode=coverage ;;
--help | -h)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages $redis_packages g++ check scdoc gnuplot-nox redis-tools
if [ "${CI-}" = true ]; then
    skips_fail=ON
else
    skips_fail=OFF
fi

if [ $mode = coverage ]; then
    need_packages gcovr
    build_preset coverage -DWEIR_SKIPS_FAIL=$skips_fail
    sh tests/coverage.sh build/coverage || exit 1
    exit 0
fi

presets=release
if [ $mode = full ]; then
    presets='release asan tsan'
fi
for preset in $presets; do
    build_preset "$preset" -DWEIR_WERROR=ON -DWEIR_SKIPS_FAIL=$skips_fail
done
if [ $mode = full ] && command -v clang >/dev/null 2>&1; then
    build_preset clang # for its warnings; gcc's builds run the tests
fi

# One run over all the builds: one summary, at the end.
say "testing:" "$presets"
mkdir -p build/all
for preset in $presets; do
    printf 'subdirs("%s/build/%s")\n' "$PWD" "$preset"
done >build/all/CTestTestfile.cmake
ctest --test-dir build/all --output-on-failure --no-tests=error --parallel "$jobs" || exit 1
