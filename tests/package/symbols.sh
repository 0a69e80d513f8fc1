#!/bin/sh
# symbols.sh LIBRARY ARCHIVE HEADERS [MANIFEST] - checks that the libraries export exactly the functions that the headers
# declare WEIR_API and that symbols.txt lists; the shared library exports each under the listed version.
set -eu
library=$1
archive=$2
headers=$3
manifest=${4-$(dirname "$0")/symbols.txt}
export LC_ALL=C
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"

# same EXPECTED ACTUAL MINUS PLUS: succeed if the lists are the same; otherwise print the difference, explaining - and +.
same() {
    diff -u "$1" "$2" >"$scratch/difference" && return
    sed 1,2d "$scratch/difference" | grep '^[-+]' >&2
    printf 'lines with -: %s\nlines with +: %s\n' "$3" "$4" >&2
    exit 1
}

sed '/^#/d; /^$/d' "$manifest" >"$scratch/listed"
sort -u "$scratch/listed" >"$scratch/sorted"
same "$scratch/sorted" "$scratch/listed" "not where symbols.txt should have it: it is sorted" \
    "out of place in symbols.txt, or twice"

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed 's/@@*/ /' | sort >"$scratch/exported"
same "$scratch/listed" "$scratch/exported" \
    "in symbols.txt and not exported: programs that are linked already would not start. Bring it back, or take the line
    out and raise SOVERSION" \
    "exported and not in symbols.txt: add the line if it is to stay for as long as this SOVERSION; else make it static"

sed 's/ .*//' "$scratch/listed" >"$scratch/names"
sed -n 's/^WEIR_API [^(]*\(weir_[a-z0-9_]*\)(.*/\1/p' "$headers"/*.h | sort >"$scratch/declared"
same "$scratch/names" "$scratch/declared" "exported, and WEIR_API in no header" "declared WEIR_API, and not exported"
declared=$(wc -l <"$scratch/declared")
if [ "$declared" -ne "$(grep -c '^WEIR_API ' "$headers"/*.h | awk -F: '{ n += $2 } END { print n }')" ]; then
    echo "a WEIR_API declaration in $headers could not be read" >&2
    exit 1
fi

nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort >"$scratch/global"
same "$scratch/names" "$scratch/global" "exported, and not in the archive" \
    "in the archive, and not exported: it can collide with a program's own"
echo "$declared functions listed, declared and exported"
