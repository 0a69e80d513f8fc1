#!/bin/sh
# soak.sh - runs all modes at once for minutes or hours, with a fault every ten seconds. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --soak [--minutes N] [--seed N] [--preset NAME] [OPTION...]

Builds the preset release (--preset: another, such as asan) and runs, for 10 minutes or as long as is said, three processes
with a limiter of every mode each, on a private Redis behind a proxy that fails, a Redis Cluster, and a stand-in for Consul.
Threads ask them for permits in every way there is, of keys that stay and keys that come and go. Every 10 seconds something
is done to Redis, the network, Consul, the policies, a clock or a process. All the while the permits admitted of each key
are held, over every stretch of time, against what the mode and what was done allow (tests/soak/allow.h says it); memory,
descriptors and threads must stay as they are; errors must be such as the options allow; weir_stats must tell what callers
saw; each key in Redis must have a time to live; and nothing may be left behind. A line a minute says how it goes; tables
at the end say what came of it, and are in build/soak/log as well. Ctrl-C ends it early, in order.

  --minutes N      how long
  --seed N         the same order of faults again; the seed of a run is in its first line
  --preset NAME    the build to run
  OPTION           others of the program: see build/release/tests/soak/soak --help

Exit status: 0 all was as promised, 1 it was not, 2 not run: wrong arguments or missing packages.
TEXT
}

preset=release
for word in "$@"; do # its own option is taken out, the program checks the rest
    shift
    case $word in
    --help | -h)
        usage
        exit 0
        ;;
    esac
    if [ "$preset" = next ]; then
        preset=$word
    elif [ "$word" = --preset ]; then
        preset=next
    else
        set -- "$@" "$word"
    fi
done
if [ "$preset" = next ]; then
    echo "soak.sh: --preset must be followed by a word" >&2
    exit 2
fi

configure_preset "$preset" -DBUILD_TESTING=ON
cmake --build "build/$preset" --target soak --parallel "$jobs"
mkdir -p build/soak
: >build/soak/log
say "soaking; the log is build/soak/log"
# Both the program and tee would get a Ctrl-C. The program must end in order, and tee after the last line.
lines=build/soak/lines
rm -f "$lines"
mkfifo "$lines"
(
    trap '' INT TERM
    exec tee build/soak/log <"$lines"
) &
teller=$!
"build/$preset/tests/soak/soak" "$@" >"$lines" &
program=$!
trap 'kill -INT "$program"' INT TERM
status=0
wait "$program" || status=$?
while kill -0 "$program" 2>/dev/null; do # a signal has ended the waiting, not the program
    status=0
    wait "$program" || status=$?
done
wait "$teller" || true
rm -f "$lines"
[ "$status" -ne 77 ] || status=2 # it has said what is missing
exit "$status"
