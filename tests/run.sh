#!/bin/sh
# run.sh - builds weir and runs its tests. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh [--ci | --full | --servers | --coverage | --packages | COMMAND [OPTION...]]

Without options: install the missing Debian packages, build weir optimised, and run all tests that take a few seconds
each. This takes about ten minutes on 2 processors.

  --ci         what a change must pass: also the long tests and the builds with sanitizers, but not the tests of tools,
               documents and the benchmark. Tests without threads run once, with AddressSanitizer and
               UndefinedBehaviorSanitizer; those with threads also under ThreadSanitizer, which clang builds if it is
               installed: it checks the annotations of locks. This takes about 45 minutes on 2 processors
  --full       everything; this takes more than an hour on 2 processors
  --servers    only the tests that run a Redis server (ctest's label redis), in the optimised build, against each of
               Redis 6.0, 8.0, Valkey and the system's own server. tests/tools/servers.sh downloads them; those that
               it cannot download are skipped
  --coverage   run the tests in a build that counts, and print the lines and branches of src that they took, file by
               file. It fails below 95 % of the branches of src/core and the codecs, or below 85 % of the rest
  --packages   install the missing packages and do nothing else
  --help       print this text

These commands have further options; COMMAND --help prints them:

  --faults     run only the tests of faults that other limiters have had, one after the other, and print a table
  --soak       run all modes at once for ten minutes or hours, with a fault every ten seconds
  --mutants    make small mistakes in src/core and src/backends, and count those that the tests catch
  --analyze    analyze the sources with gcc -fanalyzer, clang-tidy, cppcheck and shellcheck, and print the findings
  --valgrind   run the tests under valgrind's memcheck
  --abi        compare the shared library's interface with that of the last release, or of a tag

A test is skipped if it cannot run here: it needs a program that is missing, a real Consul, or a private network, which
takes root or user namespaces. If CI=true is set, a missing program makes the test fail instead. The tests on a real
Consul take the program from WEIR_TEST_CONSUL or PATH; otherwise --ci and --full download one.

Exit status: 0 all tests passed, 1 something failed, 2 no test ran: wrong arguments or missing packages.
TEXT
}

mode=short
script= # of a command
case ${1-} in
'') ;;
--ci | --full | --servers | --coverage | --packages) mode=${1#--} ;;
--faults | --soak | --mutants | --analyze | --valgrind) script=tests/tools/${1#--}.sh ;;
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
need_packages $build_packages $redis_packages $consul_packages g++ check scdoc mandoc openssl zstd redis-tools \
    libuv1-dev liblua5.1-0-dev libpcre2-dev curl haproxy python3-redis node-redis locales spin
# Node.js may come from elsewhere, and its packages then conflict with Debian's. node-redis does not bring it.
command -v node >/dev/null 2>&1 || need_packages nodejs
if [ "$mode" = full ]; then
    need_packages php-cli php-redis php-nrk-predis ruby-redis libredis-perl # of tests/clients
fi
if [ "$mode" = packages ]; then
    exit 0
fi
if [ -n "$script" ]; then
    exec sh "$script" "$@"
fi

if [ "$mode" = coverage ]; then
    need_packages gcovr
    build_preset coverage
    sh tests/tools/coverage.sh build/coverage || exit 1
    exit 0
fi

# Run the tests on Redis against one server, and add a line to the table.
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
    build_preset release
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
            printf '%-12s SKIPPED: it could not be downloaded, see above\n' $server >>build/servers/table
        fi
    done
    say "tests on Redis"
    cat build/servers/table
    exit $servers_status
fi

# One ctest over the builds of several presets, so that there is one summary, at the end. It runs three tests for each
# processor, because many tests mostly wait.
run_tests() { # 'PRESET...' [CTEST OPTION...]
    say "testing: $1"
    mkdir -p build/all
    for preset in $1; do
        printf 'subdirs("%s/build/%s")\n' "$PWD" "$preset"
    done >build/all/CTestTestfile.cmake
    shift
    ctest --test-dir build/all --output-on-failure --no-tests=error --parallel $((3 * jobs)) "$@"
}

nginx=$(sh tests/tools/nginx.sh)
build_preset release ${nginx:+-DWEIR_NGINX=ON "-DWEIR_NGINX_SOURCE=$nginx/usr/share/nginx/src"}
if [ "$mode" = short ]; then
    run_tests release --label-exclude '^(long|house)$'
    exit
fi

build_preset asan
# Debian has clang's ThreadSanitizer in a package of its own.
if echo 'int main(void) { return 0; }' | clang -fsanitize=thread -x c -o build/probe - 2>/dev/null; then
    build_preset tsan -DCMAKE_C_COMPILER=clang
else
    say 'no clang with ThreadSanitizer: gcc builds build/tsan, and no one checks the annotations of locks'
    build_preset tsan
fi
if [ -z "${WEIR_TEST_CONSUL-}" ] && ! command -v consul >/dev/null 2>&1; then
    sh tests/tools/servers.sh consul-1.8 >/dev/null # where the tests find it
fi
if [ "$mode" = ci ]; then
    run_tests 'release asan tsan' --label-exclude '^(house|one_thread)$'
else
    run_tests 'release asan tsan'
fi
