#!/bin/sh
# run.sh - builds weir's benchmark, optimised, and runs it on this machine. See --help.
set -eu
invoked_from=$PWD
cd "$(dirname "$0")/.."
. tests/setup.sh

usage() {
    cat <<'TEXT'
usage: sh bench/run.sh [options of weir-bench]

Installs the Debian packages that are missing, builds weir optimised, and measures it. Prints tables; the figures also
go as JSON into bench/results/, unless --json names a file.
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
build_preset release -DBUILD_TESTING=OFF -DWEIR_BENCH=ON
say "measuring"
bench=$PWD/build/release/bench/weir-bench
if [ -z "$json" ]; then
    cd "$invoked_from"
    exec "$bench" "$@"
fi
mkdir -p bench/results
"$bench" --json "$json" "$@"
echo "JSON: $json"
