#!/bin/sh
# readme.sh SOURCE COMPILER LIBRARY PROGRAMS [PAGE...] - test every block of code in README.md and docs/, each by its rule
# in rules.sh; a block without a rule is a failure. SOURCE is the project's folder, LIBRARY the shared library; commands
# in blocks look for programs in the folder PROGRAMS first. The blocks of a page run in their order, in one folder.
# With PAGE (relative to SOURCE) only these pages are tested.
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
compiler=$2
library=$3
PATH=$4:$PATH
every_page=
page=
# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
here=$PWD
# shellcheck source=tests/docs/rules.sh
. "$here/rules.sh"
count=0
[ $# -gt 4 ] || every_page=yes
shift 4
# shellcheck disable=SC2046 # a word a page
[ $# -gt 0 ] || set -- $(pages)

# The server that WEIR_TEST_REDIS_SERVER names, or the system's; Debian's redis-tools has it as redis-check-rdb. It ends
# when the shell that starts it ends.
mkdir "$scratch/servers"
if [ -n "${WEIR_TEST_REDIS_SERVER-}" ]; then
    server=$WEIR_TEST_REDIS_SERVER
elif ! server=$(command -v redis-server); then
    if ! server=$(command -v redis-check-rdb); then
        echo 'SKIPPED: there is no redis-server here' >&2
        exit 77
    fi
    mkdir "$scratch/servers/real"
    ln -s "$server" "$scratch/servers/real/redis-server"
    server=$scratch/servers/real/redis-server
fi
printf '#!/bin/sh\nexec %s%s "$@"\n' "$(command -v setpriv >/dev/null && echo 'setpriv --pdeathsig KILL ')" "$server" \
    >"$scratch/servers/redis-server"
chmod +x "$scratch/servers/redis-server"
PATH=$scratch/servers:$PATH

fail() {
    echo "$page:$line: $*" >&2
    exit 1
}

compile() { # SOURCE PROGRAM
    "$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$source/include" "$1" "$library" \
        -Wl,-rpath,"${library%/*}" -o "$2" || fail "this does not compile"
}

test_program() {
    compile "$block.c" "$(sed -n '1s|^/\* \([a-z_]*\)\.c - .*|\1|p' "$block.c")"
}

test_output() {
    if [ -e "$block.c" ]; then
        compile "$block.c" "$block.run"
    else
        { echo '#!/bin/sh' && echo 'set -e' && cat "$block.sh"; } >"$block.run"
        chmod +x "$block.run"
    fi
    status=0
    "$block.run" >"$block.out" || status=$?
    if [ "$status" -ne 0 ] || ! diff -u "$blocks/$((number + 1)).text" "$block.out" >&2; then
        fail "this block exits with $status, or prints other than the text below it (lines with +)"
    fi
}

test_text() {
    :
}

test_drawing() {
    :
}

# Each line has the form of one that weir watch prints, and its words are in the source.
test_recording() {
    time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z'
    row=' +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+  [^ ]+ = [a-z_]+ .*|  *[0-9]+  [^ ]+/.*'
    head='allowed/s +denied/s would deny/s +near/s  limit|denied  denied most'
    line='[^ ]+ allowed [0-9]+/s denied [0-9]+/s would deny [0-9]+/s near [0-9]+/s|denied most:( [^ ]+/[^ ]+ [0-9]+)+'
    line="$line|[^ ]+ keys [0-9]+ denied [0-9]+ near [0-9]+ permits [0-9]+|[^ ]+/[^ ]+: [0-9]+ of [0-9]+ permits used, .*"
    if grep -vE "^(|$time  [0-9]+ keys, [0-9]+ outages|$row| +($head)|$time ($line))\$" "$block.console" >&2; then
        fail "weir watch prints no such lines"
    fi
    for words in 'allowed/s' 'would deny/s' 'near/s' '  denied most' ' denied most:' ' keys, '; do
        grep -qF -e "$words" "$source/src/cli/live/watch.c" || fail "weir watch does not print: $words"
    done
    for words in '%s%s keys %llu denied %llu near %llu permits %llu' 'permits used, ' 'denied for '; do
        grep -qF -e "$words" "$source/src/cli/live/states.c" "$source/src/cli/inspected.c" ||
            fail "weir watch does not print: $words"
    done
}

# A limiter opens with these options. Nothing listens at the addresses that it is given.
test_options() {
    {
        printf '#include <stdio.h>\n#include <weir/weir.h>\n'
        printf 'static void say(void *user, enum weir_log_level level, const char *text)\n{\n'
        printf '    (void)user;\n    if (level == WEIR_LOG_ERROR)\n        fprintf(stderr, "%%s\\n", text);\n}\n'
        printf 'int main(void)\n{\n    struct weir_options options = WEIR_OPTIONS_INIT;\n    weir *w;\n'
        sed -e "s|\"redis://localhost\"|\"unix://$scratch/nobody\"|" -e "s|\"api-limits\"|\"$scratch/api-limits\"|" "$block.c"
        printf '    options.log = say;\n    if (weir_open(&options, &w) != WEIR_OK)\n        return 1;\n'
        printf '    weir_close(w);\n    return 0;\n}\n'
    } >"$block.whole.c"
    compile "$block.whole.c" "$block.run"
    CONSUL_HTTP_ADDR=http://127.0.0.1:1 "$block.run" || fail "a limiter cannot be opened with these options"
}

# Other tests run these scripts.
test_scripts() {
    while read -r shell script words; do
        [ -f "$source/$script" ] || fail "there is no $script"
        "$shell" -n "$source/$script" || fail "$script is no script"
        "$shell" "$source/$script" --help >"$block.help" || fail "$script has no --help"
        for word in ${words%%#*}; do
            grep -qw -e "$word" "$block.help" || fail "$script --help does not tell of $word"
        done
    done <"$block.sh"
}

# await SOCKET PID - wait until the server answers.
await() {
    until redis-cli -s "$1" ping >"$block.ping" 2>&1; do
        kill -0 "$2" || fail "no redis-server starts"
        sleep 0.1
    done
}

# Redis accepts these rights. test_redis_rights.c shows that they suffice and that each is needed.
test_rights() {
    redis-server --port 0 --unixsocket "$block.sock" --save '' >"$block.log" &
    server=$!
    await "$block.sock" "$server"
    printf 'port 0\nunixsocket %s\ndir %s\n' "$block.watch" "$scratch" >"$block.conf"
    redis-server "$block.conf" --sentinel >>"$block.log" &
    sentinel=$!
    await "$block.watch" "$sentinel"
    redis-cli -s "$block.sock" info server >"$block.info"
    set -f # rules contain patterns of keys
    wrong=
    while read -r words; do
        socket=$block.sock
        case $words in
        'ACL SETUSER watcher '*)
            ! grep -q '^redis_version:6\.0' "$block.info" || continue # its sentinels have no users
            socket=$block.watch
            ;;
        esac
        # shellcheck disable=SC2086 # a list of words
        answer=$(redis-cli -s "$socket" ${words%%#*} </dev/null)
        [ "$answer" = OK ] || wrong="to '$words' Redis says: $answer"
    done <"$block.indented"
    set +f
    kill "$server" "$sentinel"
    wait "$server" "$sentinel" || true
    [ -z "$wrong" ] || fail "$wrong"
}

test_token() {
    sed -e 's/ *#.*//' -e 's/  */ /g' -e 's/"/\\\\\\"/g' "$block.indented" >"$block.rules"
    while read -r words; do
        grep -qF -e "$words" "$source/tests/consul/test_consul_real.c" || fail "test_consul_real.c logs in without: $words"
    done <"$block.rules"
}

# Each option alone with each of its values, and all options together. policy.h has the same grammar.
test_grammar() {
    while read -r words; do
        grep -qF -e "$words" "$source/include/weir/policy.h" || fail "policy.h has another grammar than: $words"
    done <"$block.indented"
    tr -d '[]' <"$block.indented" | awk '
        function say(policy) { gsub(/=N/, "=7", policy); gsub(/=TIME/, "=1m", policy); print "p" ++n " = " policy }
        {
            base = $1 " " $2 " " $3
            say(base)
            all = base
            refills = / refill=/
            for (i = 4; i <= NF; i++) {
                split($i, option, "=")
                values = split(option[2], value, "|")
                for (j = 1; j <= values; j++) # align goes with refill=interval
                    say(base (refills && option[1] == "align" ? " refill=interval " : " ") option[1] "=" value[j])
                all = all " " option[1] "=" value[values]
            }
            say(all)
        }' >"$block.conf"
    weir check "$block.conf" >"$block.out" || fail "weir check refuses a policy of this grammar"
    [ "$(wc -l <"$block.out")" -ge "$(wc -l <"$block.conf")" ] || fail "weir check leaves out a policy"
}

test_layers() {
    tr ' ' '\n' <"$block.indented" | sed -n 's|^\([a-z]*/[a-z_<>./]*[a-z>/]\)[.,;]*$|\1|p' | sort -u >"$block.paths"
    [ -s "$block.paths" ] || fail "no file is named"
    while read -r path; do
        [ -e "$source/$(echo "$path" | sed 's/<algorithm>/token_bucket/')" ] || fail "there is no $path"
    done <"$block.paths"
}

# tests/nginx/run.sh tests this, examples/haproxy.sh the next one, and install.sh the two after that.
test_nginx() {
    :
}
test_haproxy() {
    :
}
test_install() {
    :
}
test_consumer() {
    :
}

tested=
for page in "$@"; do
    take "$source/$page"
    count=$((count + $(cat "$blocks/count")))
    folder=$scratch/$(echo "$page" | tr / _)
    mkdir "$folder"
    cd "$folder"
    [ -e "$blocks/blocks" ] || continue
    while IFS="$(printf '\t')" read -r number line kind; do
        block=$blocks/$number
        rule=$(rule_of "$number")
        [ -n "$rule" ] || fail "a block of the kind '$kind' that no rule in tests/docs/rules.sh knows"
        "test_$rule" </dev/null
        tested="$tested $rule"
    done <"$blocks/blocks"
done
for rule in ${every_page:+program output options scripts rights token grammar layers install consumer}; do
    case "$tested " in
    *" $rule "*) ;;
    *) page=README.md line=1 && fail "no block is left for the rule '$rule': it tested nothing" ;;
    esac
done
echo "$count blocks of $# pages, each by its rule:$tested"
