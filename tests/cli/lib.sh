# lib.sh - what the tests of the weir program share: a folder to work in, running it, and counting what came of it.
#
# Sourced by run.sh and redis.sh, whose only argument is the program. A name is the sentence it proves.
# shellcheck shell=sh disable=SC2034 # the sourcing script uses what is set here
weir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 2
passed=0
failed=0
once='fixed_window limit=1 period=1h' # the second request of a key is denied

# verdict NAME STATUS: count a test that has come out with STATUS, 0 for good.
verdict() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        sed 's/^/     out: /' out | head -n 12
        sed 's/^/     err: /' err | head -n 12
    fi
}

# run STATUS [WORD]...: weir WORD... with what stands in the file `in` on its input; good if it ends with STATUS.
run() {
    expected_status=$1
    shift
    "$weir" "$@" <in >out 2>err
    actual_status=$?
    [ "$actual_status" -eq "$expected_status" ] && return 0
    echo "(exit status $actual_status, not $expected_status)" >>err
    return 1
}

# has FILE TEXT...: each text stands in the file, of its own or in a line.
has() {
    file=$1
    shift
    for text in "$@"; do
        grep -qF -e "$text" "$file" || { echo "(no '$text')" >>err; return 1; }
    done
}

# is FILE TEXT: the file holds exactly the text and a line feed.
is() {
    printf '%s\n' "$2" | cmp -s - "$1" || { printf '%s\n' "(expected: $2)" >>err; return 1; }
}

# decides NAME TEXT [WORD]...: `weir replay --decisions -p "$once" WORD...` answers allowed or not with the digits TEXT.
decides() {
    name=$1
    digits=$2
    shift 2
    run 0 replay --decisions -p "$once" "$@" && is out "$(printf '%s' "$digits" | sed 's/./&\n/g')" 2>/dev/null
    answer=$(cut -d, -f1 out | tr -d '\n')
    [ "$actual_status" -eq 0 ] && [ "$answer" = "$digits" ]
    verdict "$name" $?
}

# refuses NAME TEXT: what stands in `in` as the only row is bad for the reason TEXT.
refuses() {
    name=$1
    text=$2
    shift 2
    run 1 replay -p "$once" "$@" && has err 'stdin:' "$text" '1 of 1 rows cannot be read' && [ ! -s out ]
    verdict "$name" $?
}

# The count, and whether all is well.
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
