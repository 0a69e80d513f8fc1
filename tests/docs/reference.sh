#!/bin/sh
# reference.sh SOURCE DOXYFILE - build the API reference with Doxygen and check that it is complete. It must contain every
# function, struct and member of the headers, and the letters and digits of every comment in order. Each function and type
# must have a manual page. Without doxygen the test is skipped, with status 77.
set -eu
source=$1
doxyfile=$2
if ! command -v doxygen >/dev/null || ! [ -f "$doxyfile" ]; then
    echo 'SKIPPED: there is no doxygen here, or was none when weir was configured' >&2
    exit 77
fi
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
{
    cat "$doxyfile"
    printf 'OUTPUT_DIRECTORY = "%s"\nWARN_LOGFILE = "%s"\n' "$scratch" "$scratch/warnings"
} | doxygen - >"$scratch/log"
if grep . "$scratch/warnings"; then
    echo 'doxygen does not understand that' >&2
    exit 1
fi

# ---- Everything said ----

sed -e 's/<[^>]*>//g' -e 's/&[a-z]*;//g' -e 's/&#[0-9]*;//g' "$scratch"/html/*.html | tr -cd '[:alnum:]' >"$scratch/text"
echo >>"$scratch/text"
comments=$(awk '
    FNR == NR { text = $0; next }
    { header = header "\n" $0 }
    FNR == 1 { name = FILENAME; sub(/.*\//, "", name) }
    END {
        while (at = index(header, "/*")) {
            alone = substr(header, 1, at - 1) ~ /\n *$/
            header = substr(header, at + 2)
            end = index(header, "*/")
            comment = substr(header, 1, end - 1)
            header = substr(header, end + 2)
            sub("^ [a-z]*\\.h - ", "", comment) # the name of the file stands above
            gsub(/[^A-Za-z0-9]/, "", comment)
            if (comment ~ /^clangformat/ || (alone && header ~ /^\n\};/)) # those are for who writes the header
                continue
            n++
            if (!index(text, comment)) {
                print "not in the reference: " comment >"/dev/stderr"
                exit 1
            }
        }
        print n + 0
    }' "$scratch/text" "$source"/include/weir/*.h)

# ---- Everything declared ----

sed -n 's/^WEIR_API [^(]*\(weir_[a-z0-9_]*\)(.*/\1/p' "$source"/include/weir/*.h >"$scratch/functions"
sed -n -e 's/^\(struct\|enum\) \(weir_[a-z_]*\) {.*/\2/p' "$source"/include/weir/*.h >"$scratch/types"
awk '
    /^struct weir_[a-z_]* \{/ { inside = 1; next }
    /^\};/ { inside = 0 }
    inside && /^    [a-z].*;/ {
        sub(/;.*/, "")
        if (match($0, /\(\*[a-z_]*/))
            print substr($0, RSTART + 2, RLENGTH - 2)
        else {
            sub(/^.*[ *]/, "")
            sub(/\[.*/, "")
            print
        }
    }' "$source"/include/weir/*.h >"$scratch/members"
sort -u "$scratch/functions" "$scratch/types" "$scratch/members" | while read -r name; do
    if ! [ -f "$scratch/man/man3/$name.3" ]; then
        echo "the reference has no page for $name" >&2
        exit 1
    fi
done

# ---- Both found something ----

functions=$(wc -l <"$scratch/functions")
types=$(wc -l <"$scratch/types")
members=$(wc -l <"$scratch/members")
if [ "$functions" -ne "$(grep -c '^WEIR_API ' "$source"/include/weir/*.h | awk -F: '{ n += $2 } END { print n }')" ] ||
    [ "$comments" -lt "$functions" ] || [ "$types" -lt 20 ] || [ "$members" -lt 100 ]; then
    echo "only $functions functions, $types types, $members members and $comments comments were found" >&2
    exit 1
fi
echo "$functions functions, $types types and $members members are in the reference, with all of $comments comments"
