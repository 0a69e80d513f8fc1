#!/bin/sh
# trace.sh LLM_GATEWAY - check what the example admits of a small trace with a demand of twice the limit: hundreds of
# requests a minute with thousands of tokens each, some minutes without any.
set -u
[ $# -eq 1 ] || { echo "usage: trace.sh LLM_GATEWAY" >&2; exit 2; }
limit=150000
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
awk 'function draw(most) { seed = (seed * 16807) % 2147483647; return seed % most }
    BEGIN {
        seed = 23
        print "TIMESTAMP,ContextTokens,GeneratedTokens"
        for (minute = 0; minute < 40; minute++)
            for (i = 0; minute % 9 && i < 165; i++)
                printf "2023-11-16 18:%02d:%07.4f,%d,%d\n", minute, i * 60 / 165, 100 + draw(3700), 1 + draw(60)
    }' >"$scratch/trace"
"$1" "$scratch/trace" "$limit" | tee "$scratch/said"
part=$(sed -n 's/.* tokens, \([0-9]*\)\.[0-9]* %, by estimates$/\1/p' "$scratch/said")
most=$(sed -n 's/^at most \([0-9]*\) tokens in a minute .*/\1/p' "$scratch/said")
if [ "${part:-0}" -lt 98 ] || [ "${part:-999}" -gt 105 ]; then
    echo "FAIL: not about as many tokens as if each cost were known"
    exit 1
fi
if [ "${most:-0}" -lt $((limit * 9 / 10)) ] || [ "${most:-999999}" -gt "$limit" ]; then
    echo "FAIL: not about the limit in the fullest minute"
    exit 1
fi
if "$1" "$scratch/none" "$limit" 2>"$scratch/err" || ! grep -q "^$scratch/none: " "$scratch/err"; then
    echo "FAIL: no error names a trace that is not there"
    exit 1
fi
