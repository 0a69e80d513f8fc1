# lib.sh - what the tests of the weir program share: a scratch folder, running the program, and counting the results.
#
# run.sh, redis.sh and hybrid.sh source it; their only argument is the program. A test's name is the sentence it proves.
# shellcheck shell=sh disable=SC2034 # the sourcing script uses these variables
weir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ -x "$weir" ] || { echo "$weir: not a program" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
cd "$scratch" || exit 2
touch in out err said
passed=0
failed=0
once='fixed_window limit=1 period=1h' # the second request of a key is denied

# verdict NAME STATUS: count a test that ended with STATUS; 0 means passed.
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

# run STATUS [WORD]...: run weir WORD... with the file `in` as its input; succeed if it exits with STATUS. `err` has
# what it says, without the line on the detected format, which only `said` has. A program that goes on for minutes, a
# server that should have refused to start, say, is ended: status 124.
run() {
    expected_status=$1
    shift
    timeout 240 "$weir" "$@" <in >out 2>said
    actual_status=$?
    grep -v 'weir: [^ ]*: detected the format ' said >err
    [ "$actual_status" -eq "$expected_status" ] && return 0
    echo "(exit status $actual_status, not $expected_status)" >>err
    return 1
}

# has FILE TEXT...: succeed if some line of the file contains each text.
has() {
    file=$1
    shift
    for text in "$@"; do
        grep -qF -e "$text" "$file" || { echo "(no '$text')" >>err; return 1; }
    done
}

# is FILE TEXT: succeed if the file contains exactly the text and a line feed.
is() {
    printf '%s\n' "$2" | cmp -s - "$1" || { printf '%s\n' "(expected: $2)" >>err; return 1; }
}

# decides NAME TEXT [WORD]...: test that `weir replay --decisions -p "$once" WORD...` allows or denies as the digits of
# TEXT say.
decides() {
    name=$1
    digits=$2
    shift 2
    run 0 replay --decisions -p "$once" "$@" && is out "$(printf '%s' "$digits" | sed 's/./&\n/g')" 2>/dev/null
    answer=$(cut -d, -f1 out | tr -d '\n')
    [ "$actual_status" -eq 0 ] && [ "$answer" = "$digits" ]
    verdict "$name" $?
}

# refuses NAME TEXT: test that the only row in `in` is bad for the reason TEXT.
refuses() {
    name=$1
    text=$2
    shift 2
    run 1 replay -p "$once" "$@" && has err 'stdin:' "$text" '1 of 1 rows cannot be read' && [ ! -s out ]
    verdict "$name" $?
}

# misuse TEXT [WORD]...: test that this is wrong usage, reported on stderr with TEXT.
misuse() {
    text=$1
    shift
    run 2 "$@" && has err "$text" '--help' && [ ! -s out ]
    verdict "weir $* is wrong use" $?
}

# clf CLIENT USER TIME REQUEST: print a line in common log format.
clf() {
    printf '%s - %s [%s] "%s" 200 17\n' "$1" "$2" "$3" "$4"
}

served=
# serve_start [WORD]...: start a server on s.sock and a TCP port; its address on TCP is then $port.
serve_start() {
    rm -f s.sock
    serve_start_again "$@"
}

# serve_start_again [WORD]...: the same, and leave a socket that is there to the server.
serve_start_again() {
    : >listening
    "$weir" serve --listen 127.0.0.1:0 --unix s.sock "$@" >listening 2>err &
    served=$!
    tries=0
    until grep -q 's.sock$' listening; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 "$served" 2>/dev/null; then
            echo '(the server does not start)' >>err
            return 1
        fi
        sleep 0.1
    done
    port=$(sed -n 's/^listening on 127.0.0.1://p' listening)
}

# serve_stop: end the server and succeed if it ends well.
serve_stop() {
    kill "$served" && wait "$served"
}

# await COMMAND [WORD]...: succeed once the command does; it has 20 seconds.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -gt 200 ] && return 1
        sleep 0.1
    done
}

# many_requests: print 300 requests of 30 clients in common log format, one second apart: enough to judge a format by.
many_requests() {
    seq 0 299 | awk '{ printf "198.51.100.%d - - [10/Nov/2026:06:%02d:%02d +0000] \"GET /%d HTTP/1.1\" 200 17\n",
        $1 % 30, $1 / 60, $1 % 60, $1 }'
}

# traces FUNCTION: call FUNCTION NAME [OPTION]... -p POLICY... for each trace. A line of a trace is
# `time,key,cost -> the line of --decisions   why`; `in` gets the former, `expected` the latter.
traces() {
    function=$1
    for trace in "$here"/traces/*.trace; do
        sed -n 's/ -> .*//p' "$trace" >in
        sed -n 's/.* -> \([-0-9,]*\).*/\1/p' "$trace" >expected
        options=$(sed -n 's/^options: //p' "$trace")
        set --
        while IFS= read -r policy; do
            set -- "$@" -p "$policy"
        done <<END
$(sed -n 's/^policy: //p' "$trace")
END
        # shellcheck disable=SC2086 # options are words
        "$function" "$(basename "$trace" .trace)" $options "$@"
    done
}

# Print the count; succeed if every test passed.
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
