# The command line: the commands, help, wrong usage, exit status, output that fails.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

: >in
run 0 version && grep -q '^weir [0-9][0-9.]*$' out && cp out version
verdict 'version prints the version' $?
for word in --version -V; do
    run 0 $word && cmp -s version out
    verdict "weir $word prints the version" $?
done
for words in --help -h help 'help replay' 'replay --help' 'replay -h' 'help check' 'check --help' 'help try' 'try --help' \
    'version --help' 'help --help'; do
    # shellcheck disable=SC2086 # words are words
    run 0 $words && has out 'Usage: weir' && [ ! -s err ]
    verdict "weir $words prints help on stdout" $?
done

run 2 && has err 'Usage: weir' && [ ! -s out ]
verdict 'weir alone is wrong use' $?
misuse "'nonsense'" nonsense
misuse "'--nonsense'" --nonsense
misuse "'nonsense'" help nonsense
misuse "'more'" version more
misuse "'--nonsense'" replay --nonsense
misuse "'-x'" replay -x
misuse "'--top'" replay --top
misuse "'-p'" replay -p
misuse "'--policy' needs a value" replay --policy
misuse "'--json=1'" replay --json=1
misuse "'many'" replay --top many -p "$once"
misuse "'xml'" replay --format xml -p "$once"
misuse "'h'" replay --time-unit h -p "$once"
misuse "'fixed_window limit=x period=1h'" replay -p 'fixed_window limit=x period=1h'
misuse '--decisions' replay -p "$once" --json --decisions
misuse "must be local, distributed or hybrid, not" replay --mode remote -p "$once"
misuse 'not "machine"' replay --mode machine -p "$once"
misuse "must be local, distributed, hybrid or machine, not" try --mode remote -p "$once"
misuse '--mode machine needs --shared FILE' try --mode machine -p "$once"
misuse '--shared belongs to --mode machine' try --mode hybrid --shared ./unused.file -p "$once"
misuse '--redis URL' replay --mode distributed -p "$once"
misuse '--redis URL' try --mode distributed -p "$once"
misuse '--redis URL' replay --mode hybrid -p "$once"
misuse '--redis URL' try --mode hybrid -p "$once"
misuse '--instances belongs to --mode hybrid' replay --instances 2 -p "$once"
misuse '--deal belongs to --mode hybrid' replay --deal key --mode local -p "$once"
misuse '--lease-life belongs to --mode hybrid' replay --mode distributed --redis redis://x --lease-life 1s -p "$once"
misuse '--lease-excess belongs to --mode hybrid' replay --lease-excess 5 -p "$once"
misuse '--lease-max belongs to --mode hybrid' replay --lease-max 5 -p "$once"
misuse '--strict belongs to --mode hybrid' replay --strict -p "$once"
misuse '--instances must be' replay --instances 0 -p "$once"
misuse '--instances must be' replay --instances 257 -p "$once"
misuse '--deal must be' replay --deal random -p "$once"
misuse '--lease-life must be' replay --lease-life 5 -p "$once"
misuse '--lease-life must be' replay --lease-life 367d -p "$once"
misuse '--lease-life must be' replay --lease-life 999us -p "$once"
misuse '--lease-life must be' replay --lease-life '1s blocks=3' -p "$once"
misuse '--lease-excess must be' replay --lease-excess 101 -p "$once"
misuse '--lease-max must be' replay --lease-max 0 -p "$once"
misuse '--lease-max must be' replay --lease-max 8796093022209 -p "$once"
misuse "'--instances'" try --instances 2 -p "$once"
misuse '--redis belongs to --mode distributed or hybrid' replay --redis redis://localhost -p "$once"
misuse '--redis-password-file belongs' try --redis-password-file pw -p "$once"
misuse '--redis-prefix belongs' try --redis-prefix a: --mode local -p "$once"
misuse '--redis-replicas belongs' try --redis-replicas 0 -p "$once"
misuse '--redis-replicas must be' try --redis-replicas 17 -p "$once"
misuse '--redis-replicas must be' try --redis-replicas -1 -p "$once"
misuse "'more'" help check more
misuse "'-x'" check -x
misuse "'-x'" try -x
set --
while [ $# -lt 130 ]; do
    set -- "$@" -p "$once"
done
run 2 replay "$@" && has err '65 limits are more than the 64' && [ ! -s out ]
verdict 'weir replay with 65 limits is wrong use' $?
misuse '--key has 0 bytes' try -p "$once" --key ''
misuse '--key has 65537 bytes' try -p "$once" --key "$(printf '%065537d' 0)"
misuse "'8796093022209'" try -p "$once" --cost 8796093022209
misuse 'no FILE' check
misuse '--redis URL' check --redis-prefix p: good.conf
misuse '--redis-replicas must be' check --redis redis://localhost --redis-replicas 17
misuse 'no limit' try
misuse "'0'" try -p "$once" --cost 0
misuse "'word'" try -p "$once" word
misuse '-f FILE' try -p "$once" --limit api
run 2 replay -f missing.conf && has err 'missing.conf'
verdict 'a policy file that is not there is wrong use of replay' $?

printf '# limits\n\napi = token_bucket period=1000ms limit=5\nlogin=sliding_window limit=3 period=1m\n' >good.conf
run 0 check good.conf && is out "$(printf 'api = token_bucket limit=5 period=1s\nlogin = sliding_window limit=3 period=1m')"
verdict 'check prints the limits of a good file in their shortest form' $?
cp good.conf in
run 0 check - && has out 'login = '
verdict 'check reads its standard input' $?
printf 'api = fixed_window limit=5 period=1h percent=10\nall = fixed_window limit=5 period=1h percent=100\nx = deny shadow\n' >part.conf
run 0 check part.conf && has err 'part.conf:1: warning: percent=10 denies nothing to the other 90 % of the keys' &&
    [ "$(wc -l <err)" -eq 1 ] && has out 'api = fixed_window limit=5 period=1h percent=10' 'x = deny shadow'
verdict 'check warns of a percent that leaves the other keys without a limit' $?
printf 'api = fixed_window limit=10 period=60m ,candidate period=1h limit=5 percent=10\n' >half.conf
run 0 check half.conf && is out 'api = fixed_window limit=10 period=1h, candidate limit=5 percent=10' && [ ! -s err ]
verdict 'check prints a candidate, and has no warning for its percent' $?
printf 'api = fixed_window limit=10 period=1h, candidate limit=ten\n' >half.conf
run 1 check half.conf && has err 'half.conf:1: column 50: "limit=ten"'
verdict 'check reports a bad candidate with its column' $?
printf 'api = token_bucket limit=5 period=1s\nbad = nonsense\n\n3\n' >bad.conf
run 1 check bad.conf && has err 'bad.conf:2: ' 'bad.conf:4: ' 'nonsense' && [ ! -s out ]
verdict 'check reports every bad line and prints nothing else' $?
run 1 check good.conf bad.conf && has out 'api = ' && has err 'bad.conf:2: '
verdict 'check takes several files' $?
printf '# nothing\n\n' >empty.conf
run 0 check empty.conf && [ ! -s out ] && has err 'empty.conf: holds no limit'
verdict 'check reports a file without a limit' $?
run 2 check missing.conf && has err 'missing.conf: No such file'
verdict 'check of a file that cannot be read ends with 2' $?

: >in
run 0 try -p 'token_bucket limit=5 period=1s' --cost 2 && is out 'allowed: token_bucket limit=5 period=1s, cost 2, 3 of 5 permits left, all back after 400 ms'
verdict 'try exits with 0 if the request is allowed' $?
run 1 try -p 'token_bucket limit=5 period=1s' --cost 6 && is out 'denied: token_bucket limit=5 period=1s, cost 6, 5 of 5 permits left, can never be allowed'
verdict 'try exits with 1 if the request is denied' $?
run 0 try -f good.conf --limit login --json --key '"' && is out '{"policy":"sliding_window limit=3 period=1m","key":"\"","cost":1,"allowed":true,"limit":3,"remaining":2,"retry_after_us":0,"reset_after_us":'"$(sed 's/.*reset_after_us":\([0-9]*\).*/\1/' out)"',"delay_us":0,"would_deny":false,"source":"memory"}'
verdict 'try takes from a limit of a policy file and answers in JSON' $?
run 0 try -p "$once" --stats && has out 'allowed: ' 'weir_allowed_total 1' 'weir_denied_total 0' '# TYPE weir_keys gauge' &&
    [ "$(sed 1d out | grep -vc '^# ')" -eq "$(grep -c '^# TYPE weir_' out)" ]
verdict 'try prints stats after its answer' $?
run 1 try -p "$once" --cost 2 --json --stats && has out 'weir_denied_total 1' 'weir_keys 0' &&
    [ "$(head -n 1 out | cut -c 1)" = '{' ] && sed -n 2p out | grep -q '^# HELP weir_'
verdict 'try prints stats after an answer in JSON, as Prometheus reads them' $?
run 2 try -f good.conf && has err '--limit'
verdict 'try requires --limit if a file has several limits' $?
run 2 try -f good.conf --limit nonsense && has err "'nonsense'"
verdict 'try of an undefined limit exits with 2' $?
run 2 try -f bad.conf --limit api && has err 'bad.conf:2: '
verdict 'try with a bad policy file ends with 2' $?

# Overrides: policies for some keys of a limit.
cat >gold.conf <<'END'
api/gold-* = fixed_window limit=3 period=1h
api = fixed_window limit=1 period=1h # after its overrides
api/gold-%31 = fixed_window limit=2 period=1h
login = sliding_window limit=3 period=1m
END
run 0 check gold.conf && has out 'api/gold-* = fixed_window limit=3 period=1h' 'api/gold-%31 = fixed_window limit=2 period=1h'
verdict 'check prints the overrides of a file' $?
printf 'api/a b = %s\napi/%%zz = %s\n/x = %s\nnobody/x = %s\nnobody/%%78 = %s\n' "$once" "$once" "$once" "$once" "$once" >bad-keys.conf
run 1 check bad-keys.conf && has err 'bad-keys.conf:1: column 1: pattern: byte 2 must be written %20' 'bad-keys.conf:2: ' \
    'bad-keys.conf:3: ' 'bad-keys.conf:5: "nobody/%78" is defined already on line 4' && ! has err 'bad-keys.conf:4: '
verdict 'check reports the fault of a pattern' $?
run 0 try -f gold.conf --limit api --key gold-7 && has out 'allowed: fixed_window limit=3 period=1h, cost 1, 2 of 3 permits left'
verdict 'try uses the override of its key' $?
run 0 try -f gold.conf --limit api --key gold-1 --json && has out '"policy":"fixed_window limit=2 period=1h"' '"limit":2,"remaining":1'
verdict 'try prefers an override for the key itself to one for a prefix' $?
run 0 try -f gold.conf --limit api --key lead && has out '0 of 1 permits left'
verdict 'try uses the limit if its key has no override' $?
printf 'nobody/x = %s\napi = %s\n' "$once" "$once" >nobody.conf
run 2 try -f nobody.conf && has err "nobody.conf:1: the file has no limit 'nobody' to override"
verdict 'try refuses an override without its limit' $?
grep '^api' gold.conf >gold-alone.conf
printf '1000000,lead,1\n1000000,gold-1,1\n1000000,gold-1,1\n1000000,gold-1,1\n1000000,gold-2,3\n1000000,gold-2,1\n1000000,lead,1\n' >in
run 0 replay -f gold-alone.conf --decisions && is out "$(printf '1,0,0,3600000000,0\n1,1,0,3600000000,0\n1,0,0,3600000000,0\n0,0,3600000000,3600000000,0\n1,0,0,3600000000,0\n0,0,3600000000,3600000000,0\n0,0,3600000000,3600000000,0')"
verdict 'replay decides each key by its override' $?
run 0 replay -f gold-alone.conf && has out 'api = fixed_window limit=1 period=1h' 'api/gold-* = fixed_window limit=3 period=1h'
verdict 'the report of a replay lists the overrides' $?
run 0 replay -f gold.conf --json && has out '"overrides":[{"pattern":"gold-*","policy":"fixed_window limit=3 period=1h"},{"pattern":"gold-%31","policy":"fixed_window limit=2 period=1h"}]'
verdict 'the JSON report of a replay lists the overrides' $?
: >in

# full STATUS WORD...: test that output to a full device is reported and exits with STATUS.
full() {
    status=$1
    shift
    "$weir" "$@" <in >/dev/full 2>err
    [ $? -eq "$status" ] && has err 'cannot write'
    verdict "weir $* reports an error if its output device is full" $?
}
if [ -c /dev/full ]; then
    : >out
    { seq -f '%.0f,a,1' 0 99999; echo '100000,b,1'; } >in
    full 2 version
    full 2 --help
    full 2 try -p "$once"
    full 2 check good.conf
    full 1 replay -p "$once"
    full 1 replay -p "$once" --json
    full 1 replay -p "$once" --decisions
else
    echo 'skip full devices: there is no /dev/full here'
fi
{ "$weir" replay -p "$once" --decisions <in 2>said | head -n 1 >out; } && [ "$(wc -l <out)" -eq 1 ] && ! grep -v detected said >err
verdict 'closing the output early causes no error message' $?

# Behaviour on a terminal, which script(1) provides.
if command -v script >script.path && script -qec true /dev/null </dev/null >script.path 2>&1; then
    script -qec "'$weir' replay -p '$once'" /dev/null </dev/null >out 2>err
    has out 'no FILE to read' '--help'
    verdict 'replay without a file does not wait for a terminal' $?
    mkfifo pipe
    { seq -f '%.0f,a,1' 1 4000; sleep 1; seq -f '%.0f,a,1' 4001 9000; } >pipe &
    script -qec "'$weir' replay -p '$once' pipe" /dev/null </dev/null >out 2>err
    has out 'replaying: 4096 rows' && grep -q '^requests  *9000' out
    verdict 'a terminal shows how much of a long input has been read' $?
    wait
else
    echo 'skip terminals: there is no script here'
fi

# ---- Completion ----

if command -v bash >/dev/null; then
    # completed WORD...: print what bash offers for the last word, in one line.
    completed() {
        # shellcheck disable=SC2016 # for bash
        PATH=$(dirname "$weir"):$PATH bash -c '. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _weir && echo "${COMPREPLY[*]}"' \
            "$here/../../src/cli/completion/weir.bash" weir "$@"
    }
    [ "$(completed re)" = 'replay reset reload' ] && [ "$(completed help su)" = suggest ] && [ "$(completed keys --de)" = --denied ] &&
        [ "$(completed peek --redis-pa)" = --redis-password-file ] && [ -z "$(completed nothing --x)" ] &&
        [ -z "$(completed check lim)" ]
    verdict 'bash completes commands and options' $?
    if localedef -i tr_TR -f UTF-8 "$scratch/tr_TR.UTF-8" 2>err; then # there, [a-z] lacks some letters
        [ "$(LOCPATH=$scratch LC_ALL=tr_TR.UTF-8 completed re)" = 'replay reset reload' ] &&
            [ "$(LOCPATH=$scratch LC_ALL=tr_TR.UTF-8 completed help ve)" = version ] &&
            [ "$(LOCPATH=$scratch LC_ALL=tr_TR.UTF-8 completed keys --de)" = --denied ]
        verdict 'bash completes them in a Turkish locale' $?
    else
        echo "skip completion in a Turkish locale: Debian's package locales is missing"
    fi
else
    echo 'skip completion: there is no bash here'
fi
