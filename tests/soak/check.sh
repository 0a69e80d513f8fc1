#!/bin/sh
# check.sh SOAK BUILD - runs two brief soaks side by side, with a fault every few tenths of a second. One runs normally:
# it must find nothing, end in order when interrupted, and leave nothing behind. The other has defects made on purpose:
# it must find each, except memory growth if BUILD is instrumented, because that memory is the sanitizer's.
set -eu
soak=$1
build=$2
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
mkdir "$scratch/tmp"
export TMPDIR="$scratch/tmp" # where the servers have their folders

fail() { # FILE WHAT
    printf '%s\n' "$2" >&2
    cat "$1" >&2
    exit 1
}

has() { # FILE TEXT...
    file=$1
    shift
    for text in "$@"; do
        grep -qF -- "$text" "$file" || fail "$file" "it does not say: $text"
    done
}

start() { # FILE OPTION... - sets started
    file=$1
    shift
    "$soak" --seed 1 --every-ms 350 --lasts-ms 150 "$@" >"$file" 2>&1 &
    started=$!
}

# ended ID - wait for it; store its exit status in `status`.
ended() {
    status=0
    wait "$1" || status=$?
}

start "$scratch/bad" --seconds 10 --no-cluster --plant memory --plant descriptors --plant threads --plant permits \
    --plant stats --plant errors --plant immortal --plant orphan
bad=$started
start "$scratch/good" --minutes 60
good=$started
tries=0
until grep -qs 'all are up' "$scratch/good" || ! kill -0 "$good" 2>/dev/null || [ $tries -eq 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
sleep 4
kill -INT "$good" || true # one that has ended says why below

ended "$good"
if [ $status -eq 77 ]; then
    cat "$scratch/good"
    exit 77
fi
[ $status -eq 0 ] || fail "$scratch/good" "status $status of a run in which nothing is wrong"
has "$scratch/good" 'local by share ' 'machine ' 'hybrid in a cluster ' 'MiB first' 'times  fault' 'all as promised'
ended "$bad"
[ $status -eq 1 ] || fail "$scratch/bad" "status $status of a run with defects in it"
has "$scratch/bad" 'more was admitted than is promised' '0: descriptors grow' '0: threads grow' \
    'not what callers saw' 'errors that the options do not allow' 'has no time to live' 'is there still' \
    'not as promised'
[ "$build" = instrumented ] || has "$scratch/bad" '0: KiB of memory grow' '0: KiB of heap grow'
tries=0
while [ -n "$(ls "$TMPDIR")" ] && [ $tries -lt 50 ]; do # folders go a moment after their servers
    tries=$((tries + 1))
    sleep 0.1
done
[ -z "$(ls "$TMPDIR")" ] || fail "$scratch/good" "left behind: $(ls "$TMPDIR")"

status=0
"$soak" --seconds none >"$scratch/out" 2>&1 || status=$?
[ $status -eq 2 ] || fail "$scratch/out" "status $status of wrong arguments"
has "$scratch/out" '"none" is not what it takes there' 'usage: soak'
