#!/bin/sh
# run.sh - builds weir's benchmark, optimised, and runs it on this machine. See --help.
set -eu
invoked_from=$PWD
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh bench/run.sh [options of weir-bench]

Installs the Debian packages that are missing, builds weir optimised, and measures local, distributed and hybrid mode
side by side: under 3 minutes, the build included, on 2 cores.

Prints one table with the modes as columns. The same goes as table.txt into bench/results/<UTC time>/, beside
results.json, and plots as PNG and SVG with the numbers behind them as TSV; --results DIR and --json FILE choose other
places. Files are named as seen from where you are.

Distributed and hybrid mode are measured on a redis-server that it starts, in a folder of its own, on a Unix socket
alone, and ends; --redis URL measures on yours instead. What follows Consul is measured with an agent of its own too,
which tests/tools/servers.sh gets if the system has none. Without Redis, Consul or gnuplot the rest is measured.
TEXT
}

# What the user has chosen, as far as this script has to know; getopt_long() takes an option's first letters as well.
has_results=no
has_redis=no
for argument in "$@"; do
    case $argument in
    -h | --h*)
        usage
        if [ -x build/release/bench/weir-bench ]; then
            echo
            exec build/release/bench/weir-bench --help
        fi
        echo "Once it is built, --help also describes the options."
        exit 0
        ;;
    --res*) has_results=yes ;;
    --red*) has_redis=yes ;;
    esac
done

# shellcheck disable=SC2086 # a list of words
need_packages $build_packages
redis=ON
# shellcheck disable=SC2086
if ! (need_packages $redis_packages); then
    say "going on without distributed mode, which needs:" "$redis_packages"
    redis=OFF
elif [ $has_redis = no ] && ! command -v redis-server >/dev/null 2>&1 && [ -z "${WEIR_TEST_REDIS_SERVER-}" ] &&
    ! (need_packages redis-tools); then
    # Debian's redis-tools holds the server's program, and no service that would start.
    say "going on without a redis-server: distributed and hybrid mode will not be measured"
fi
consul=ON
# shellcheck disable=SC2086
if ! (need_packages $consul_packages); then
    say "going on without Consul, which needs:" "$consul_packages"
    consul=OFF
elif ! command -v consul >/dev/null 2>&1 && [ -z "${WEIR_TEST_CONSUL-}" ]; then
    sh tests/tools/servers.sh consul-1.8 >/dev/null # which says so if it cannot be had
fi
if ! command -v gnuplot >/dev/null 2>&1 && ! (need_packages gnuplot-nox); then
    say "going on without gnuplot: there will be no plots, only the numbers behind them"
fi
mkdir -p build
exec 9>build/release.lock
flock 9 # another run may be building in the same folder
configure_preset release -DBUILD_TESTING=OFF -DWEIR_BENCH=ON -DWEIR_REDIS=$redis -DWEIR_CONSUL=$consul
cmake --build build/release --parallel "$jobs" --target weir-bench
exec 9>&-

if [ $# -eq 0 ]; then
    say "measuring, for about 2 minutes; sh bench/run.sh --quick only shows that it runs"
else
    say "measuring"
fi
if [ $redis = ON ] && [ $has_redis = no ]; then
    echo "Distributed and hybrid mode are measured on a private redis-server, which ends with it; --redis URL takes yours."
fi
bench=$PWD/build/release/bench/weir-bench
results=
if [ $has_results = no ]; then
    mkdir -p bench/results
    results=$PWD/bench/results/$(date -u +%Y-%m-%dT%H%M%SZ)
    mkdir "$results" 2>/dev/null || results=$results-$$ # another run has begun in the same second
    set -- --results "$results" "$@"
fi
cd "$invoked_from"
status=0
"$bench" "$@" || status=$?
if [ -n "$results" ] && [ -e "$results/table.txt" ]; then # not so if it was refused what it was asked for
    say "results: $results"
    ls "$results"
elif [ -n "$results" ]; then
    rmdir "$results" 2>/dev/null || true # if there is nothing in it
fi
exit $status
