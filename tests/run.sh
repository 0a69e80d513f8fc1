#!/bin/sh
# run.sh - builds weir and runs its tests, as a newcomer or a build server would. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh [--quick | --servers | --coverage | --packages | COMMAND [OPTION...]]

Installs the Debian packages that are missing, builds weir, and runs its tests: an optimised build, one with
AddressSanitizer and UndefinedBehaviorSanitizer, and the tests with threads under ThreadSanitizer.

  --quick      the optimised build only
  --servers    only the tests on Redis (those with ctest's label redis), in the optimised build, against each of Redis
               6.0, 8.0, Valkey and the system's own server; see tests/tools/servers.sh, which gets them. Those that cannot be
               had are skipped
  --coverage   run the tests in a build that counts and print which lines and branches of src they took, file by file;
               less than 95 % of the branches of src/core or of the codecs, or 85 % of the rest, is a failure
  --packages   install the missing packages, and do nothing else
  --help       this text

Commands with options of their own, which each tells with --help:

  --faults     only the tests of each fault that limiters have had, one after the other, and a table of them
  --soak       all modes at once, for ten minutes or hours, with a fault every ten seconds
  --mutants    make small mistakes in src/core, one at a time, and count those that the tests catch
  --analyze    static analysis of the sources: gcc -fanalyzer, clang-tidy, cppcheck, shellcheck, and a table of findings
  --valgrind   the tests under valgrind's memcheck
  --abi        hold the shared library's interface against that of the last release, or of a tag

With CI=true in the environment a test that cannot run for want of something fails instead of being skipped, save those
on a real Consul and those on a network of their own, which takes root or user namespaces. A real Consul is the command
in WEIR_TEST_CONSUL, or consul from PATH, or else tests/tools/servers.sh gets it.
Exit status: 0 all passed, 1 something failed, 2 not run: wrong arguments or missing packages.
TEXT
}

mode=full
script= # of a command
case ${1-} in
'') ;;
--quick | --servers | --coverage | --packages) mode=${1#--} ;;
--faults | --soak | --mutants | --analyze | --valgrind) script=tests/${1#--}.sh ;;
--abi) script=tests/package/abi.sh ;;
--help | -h)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
if [ -n "$script" ]; then
    shift
    case " $* " in
    *' --help '* | *' -h '*) exec sh "$script" --help ;;
    esac
elif [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages $redis_packages $consul_packages g++ check scdoc mandoc gnuplot-nox openssl redis-tools \
    libuv1-dev liblua5.1-0-dev
if [ "$mode" = packages ]; then
    exit 0
fi
if [ -n "$script" ]; then
    exec sh "$script" "$@"
fi
if [ "${CI-}" = true ]; then
    skips_fail=ON
else
    skips_fail=OFF
fi

if [ "$mode" = coverage ]; then
    need_packages gcovr
    build_preset coverage -DWEIR_SKIPS_FAIL=$skips_fail
    sh tests/tools/coverage.sh build/coverage || exit 1
    exit 0
fi

# One run of the tests on Redis for each server, and a table of what came of them.
run_on() { # NAME [COMMAND]
    say "testing on $1"
    log=build/servers/$1.log
    passed=0 failed=0 skipped=0
    WEIR_TEST_REDIS_SERVER=${2-} ctest --test-dir build/release -L '^redis$' --output-on-failure --no-tests=error \
        >"$log" 2>&1 || servers_status=1
    sed -n '/^ *[0-9]*\/[0-9]* Test /p' "$log" >"$log.lines"
    passed=$(grep -c ' Passed ' "$log.lines" || true)
    skipped=$(grep -c '\*\*\*Skipped' "$log.lines" || true)
    failed=$(($(wc -l <"$log.lines") - passed - skipped))
    rm "$log.lines"
    if [ "$failed" -gt 0 ] || [ "$passed" -eq 0 ]; then
        cat "$log"
        servers_status=1
    fi
    version=$(${2:-redis-cli} --version 2>/dev/null | sed 's/[^0-9]*\([0-9.]*\).*/\1/') || true
    printf '%-12s %-10s %7d %7d %8d\n' "$1" "${version:-?}" "$passed" "$failed" "$skipped" >>build/servers/table
}

if [ "$mode" = servers ]; then
    build_preset release -DWEIR_SKIPS_FAIL=$skips_fail
    servers_status=0
    mkdir -p build/servers
    printf '%-12s %-10s %7s %7s %8s\n' server version passed failed skipped >build/servers/table
    run_on system
    tab=$(printf '\t')
    for server in redis-6.0 redis-8.0 valkey-8.1 valkey-sid; do
        line=$(sh tests/tools/servers.sh $server)
        if [ -n "$line" ]; then
            run_on $server "${line#*"$tab"}"
        else
            printf '%-12s SKIPPED: not to be had, see above\n' $server >>build/servers/table
        fi
    done
    say "tests on Redis"
    cat build/servers/table
    exit $servers_status
fi

presets=release
if [ "$mode" = full ]; then
    presets='release asan tsan'
fi
for preset in $presets; do
    build_preset "$preset" -DWEIR_WERROR=ON -DWEIR_SKIPS_FAIL=$skips_fail
done
if [ "$mode" = full ] && command -v clang >/dev/null 2>&1; then
    build_preset clang # for its warnings; gcc's builds run the tests
fi

if [ -z "${WEIR_TEST_CONSUL-}" ] && ! command -v consul >/dev/null 2>&1; then
    sh tests/tools/servers.sh consul-1.8 >/dev/null # the tests find it there
fi

# One run over all the builds: one summary, at the end.
say "testing:" "$presets"
mkdir -p build/all
for preset in $presets; do
    printf 'subdirs("%s/build/%s")\n' "$PWD" "$preset"
done >build/all/CTestTestfile.cmake
# One more than there are processors: many tests wait for others most of the time.
ctest --test-dir build/all --output-on-failure --no-tests=error --parallel $((jobs + 1)) || exit 1
