#!/bin/sh
# run.sh - builds weir's benchmark with optimisation and runs it on this machine. See --help.
set -eu
invoked_from=$PWD
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh bench/run.sh [options of weir-bench]

Installs missing Debian packages, builds weir with optimisation, and measures local, distributed, hybrid and machine mode
side by side. With the build it takes less than 4 minutes on 2 cores.

Prints one table with the modes as columns and three sentences that choose a mode. The results also go into
bench/results/<UTC time>/: results.html, a page with charts that needs no network; table.txt; and results.json.
--results DIR and --json FILE choose other places; paths are relative to your current folder.

Distributed and hybrid mode run on a private redis-server, in a temporary folder and on a Unix socket only, which ends
with the benchmark; --redis URL measures on your server instead. Without a server, local and machine mode are measured.
TEXT
}

# The options that this script has to know. getopt_long() also accepts an option's first letters.
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

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages $consul_packages $redis_packages
if [ $has_redis = no ] && ! command -v redis-server >/dev/null 2>&1 && [ -z "${WEIR_TEST_REDIS_SERVER-}" ] &&
    ! (need_packages redis-tools); then
    # Debian's redis-tools contains the server program, but no service that would start.
    say "continuing without a redis-server: distributed and hybrid mode will not be measured"
fi
mkdir -p build
exec 9>build/release.lock
flock 9 # another run may be building in the same folder
configure_preset release -DBUILD_TESTING=OFF -DWEIR_BENCH=ON
cmake --build build/release --parallel "$jobs" --target weir-bench
exec 9>&-

bench=$PWD/build/release/bench/weir-bench
say "measuring for about 3 minutes; --quick is shorter and only shows that everything runs"
results=
if [ $has_results = no ]; then
    mkdir -p bench/results
    results=$PWD/bench/results/$(date -u +%Y-%m-%dT%H%M%SZ)
    mkdir "$results" 2>/dev/null || results=$results-$$ # another run began in the same second
    set -- --results "$results" "$@"
fi
cd "$invoked_from"
status=0
"$bench" "$@" || status=$?
[ -z "$results" ] || rmdir "$results" 2>/dev/null || true # only if it is empty: an option was wrong
exit $status
