#!/bin/sh
# prints.sh PROGRAM... - check that each example prints the text that the comment at the top of its source shows, and
# that those with arguments refuse others.
set -u
[ $# -ge 1 ] || { echo "usage: prints.sh PROGRAM..." >&2; exit 2; }
here=$(dirname "$0")
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tests/tools/scratch.sh"
failed=0
for program in "$@"; do
    name=$(basename "$program")
    sed -n -e '/^ \*\//q' -e 's/^ \*     //p' "$here/$name.c" >"$scratch/expected"
    if ! "$program" >"$scratch/printed" || ! [ -s "$scratch/expected" ] || ! diff -u "$scratch/expected" "$scratch/printed"; then
        echo "FAIL: $name fails, or prints other text than $name.c shows"
        failed=1
    fi
    case $name in
    prefork | llm_gateway)
        "$program" 65536 >"$scratch/printed" 2>"$scratch/err"
        if [ $? -ne 2 ] || ! grep -q "^usage: $name" "$scratch/err"; then
            echo "FAIL: $name does not say which arguments it takes"
            failed=1
        fi
        ;;
    esac
done
exit $failed
