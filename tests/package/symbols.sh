#!/bin/sh
# symbols.sh LIBRARY ARCHIVE HEADERS - the libraries export exactly the functions that the headers declare WEIR_API, the
# shared one each under the version of src/weir.map.
set -eu
library=$1
archive=$2
headers=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n 's/^WEIR_API [^(]*\(weir_[a-z0-9_]*\)(.*/\1@@WEIR_0.1/p' "$headers"/*.h | sort >"$scratch/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$scratch/exported"
if ! diff -u "$scratch/declared" "$scratch/exported"; then
    echo "lines with -: declared, not exported; with +: exported, not declared" >&2
    exit 1
fi
sed 's/@@.*//' "$scratch/declared" | sort >"$scratch/names"
nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort >"$scratch/global"
if ! diff -u "$scratch/names" "$scratch/global"; then
    echo "lines with -: declared, not in the archive; with +: in the archive, not declared" >&2
    exit 1
fi
declared=$(wc -l <"$scratch/declared")
if [ "$declared" -ne "$(grep -c '^WEIR_API ' "$headers"/*.h | awk -F: '{ n += $2 } END { print n }')" ]; then
    echo "a WEIR_API declaration in $headers could not be read" >&2
    exit 1
fi
echo "$declared functions declared and exported"
