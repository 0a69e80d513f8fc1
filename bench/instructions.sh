#!/bin/sh
# instructions.sh - counts the instructions of a decision. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh bench/instructions.sh

Counts the instructions of a decision in local mode at the caller's time, about 64 keys of 16 bytes with a token bucket:
admitted and denied, and each with the options event (a hook that does nothing) and top_keys=1024. The loop around the
decisions counts, too. valgrind's callgrind counts; the figures depend on the compiler, not on the machine's load.

Installs valgrind and what the build needs through apt, if it may. Takes a minute.
TEXT
    [ "$1" = --help ] || exit 2
    exit 0
fi

# shellcheck disable=SC2086 # lists of words
need_packages $build_packages valgrind
configure_preset release -DWEIR_BENCH=ON
cmake --build build/release --parallel "$jobs" --target weir-instructions

# counted DECISIONS WORD...: print the instructions of a run.
counted() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null build/release/bench/weir-instructions "$@" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

# row WORD...: print a line of the table. The runs differ in 20,000 decisions, and in nothing else.
row() {
    few=$(counted 5000 "$@")
    many=$(counted 25000 "$@")
    awk -v few="$few" -v many="$many" -v what="$*" 'BEGIN { printf "%8.1f  %s\n", (many - few) / 20000, what }'
}

for answer in allow deny; do
    for options in '' event top-keys 'event top-keys'; do
        # shellcheck disable=SC2086 # a list of words
        row $answer $options
    done
done
