#!/bin/sh
# instructions.sh - counts the instructions of a decision. See --help.
set -eu
cd "$(dirname "$0")/.."
. tests/tools/setup.sh

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh bench/instructions.sh

Counts the instructions of a decision in local mode at the caller's time, about 64 keys of 16 bytes with a token bucket:
admitted and denied, with the default options. Each also by handle, and with the options event (a hook that does nothing) and top_keys=1024. After
that, with 1,000 keys and each algorithm, the instructions of weir_try(), and of weir_reserve() and weir_settle()
together, with the second divided by the first. The loop around the decisions counts, too. valgrind's callgrind counts;
the figures depend on the compiler, not on the machine's load.

Installs valgrind and what the build needs through apt, if it may. Takes two minutes.
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

# each WORD...: print the instructions of one decision. The runs differ in 20,000 decisions, and in nothing else.
each() {
    few=$(counted 5000 "$@")
    many=$(counted 25000 "$@")
    awk -v few="$few" -v many="$many" 'BEGIN { printf "%.1f\n", (many - few) / 20000 }'
}

# row WORD...: print a line of the first table.
row() {
    printf '%8s  %s\n' "$(each "$@")" "$*"
}

for answer in allow deny; do
    for options in '' handle event top-keys 'event top-keys'; do
        # shellcheck disable=SC2086 # a list of words
        row $answer $options
    done
done

for algorithm in token_bucket fixed_window sliding_window leaky_bucket; do
    once=$(each try $algorithm)
    pair=$(each pair $algorithm)
    awk -v once="$once" -v pair="$pair" -v what="$algorithm" \
        'BEGIN { printf "%8.1f  %8.1f  %.2f  %s\n", once, pair, pair / once, what }'
done
