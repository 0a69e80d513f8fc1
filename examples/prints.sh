#!/bin/sh
# prints.sh PROGRAM... - check that each example prints the text that the comment at the top of its source shows.
set -u
[ $# -ge 1 ] || { echo "usage: prints.sh PROGRAM..." >&2; exit 2; }
here=$(dirname "$0")
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
failed=0
for program in "$@"; do
    name=$(basename "$program")
    sed -n -e '/^ \*\//q' -e 's/^ \*     //p' "$here/$name.c" >"$scratch/expected"
    if ! "$program" >"$scratch/printed" || ! [ -s "$scratch/expected" ] || ! diff -u "$scratch/expected" "$scratch/printed"; then
        echo "FAIL: $name fails, or prints other text than $name.c shows"
        failed=1
    fi
done
exit $failed
