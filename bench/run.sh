#!/bin/sh
# run.sh - builds weir's benchmark, optimised, and runs it on this machine. See --help.
set -eu
invoked_from=$PWD
cd "$(dirname "$0")/.."
. tests/setup.sh

usage() {
    cat <<'TEXT'
usage: sh bench/run.sh [options of weir-bench]

Installs the Debian packages that are missing, builds weir optimised, and measures it, local, distributed and hybrid
mode side by side; for the latter two it starts redis-servers of its own, in folders of their own, and ends them.
Likewise for what follows Consul: with an agent of its own, which tests/servers.sh gets if the system has none.
Without Redis or Consul the rest is measured. Prints tables; the figures also go as JSON into bench/results/, unless
--json names a file.
TEXT
}

json=bench/results/$(date -u +%Y-%m-%dT%H%M%SZ).json
for argument in "$@"; do
    case $argument in
    --help | -h)
        usage
        if [ -x build/release/bench/weir-bench ]; then
            echo
            exec build/release/bench/weir-bench --help
        fi
        echo "Once it is built, --help also describes the options."
        exit 0
        ;;
    --json | --json=*) json= ;;
    esac
done

# shellcheck disable=SC2086 # a list of words
need_packages $build_packages
redis=ON
# shellcheck disable=SC2086
if ! (need_packages $redis_packages); then
    say "going on without distributed mode, which needs:" "$redis_packages"
    redis=OFF
elif ! command -v redis-server >/dev/null 2>&1 && ! (need_packages redis-tools); then
    # Debian's redis-tools holds the server's program, and no service that would start.
    say "going on without a redis-server: distributed mode will not be measured"
fi
consul=ON
# shellcheck disable=SC2086
if ! (need_packages $consul_packages); then
    say "going on without Consul, which needs:" "$consul_packages"
    consul=OFF
elif ! command -v consul >/dev/null 2>&1 && [ -z "${WEIR_TEST_CONSUL-}" ]; then
    sh tests/servers.sh consul-1.8 >/dev/null # which says so if it cannot be had
fi
build_preset release -DBUILD_TESTING=OFF -DWEIR_BENCH=ON -DWEIR_REDIS=$redis -DWEIR_CONSUL=$consul
if [ $# -eq 0 ]; then
    say "measuring, for 2 to 3 minutes; sh bench/run.sh --quick only shows that it runs"
else
    say "measuring"
fi
bench=$PWD/build/release/bench/weir-bench
if [ -z "$json" ]; then
    cd "$invoked_from"
    exec "$bench" "$@"
fi
mkdir -p bench/results
"$bench" --json "$json" "$@"
echo "JSON: $PWD/$json"
