# weir stats, top, watch, reload, peek and reset at the control socket of a process. What the socket answers to others is
# in tests/control.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

for command in stats top watch; do
    misuse '--redis URL, --control PATH or --shared FILE is needed' $command
    misuse 'exclude each other' $command --control c.sock --redis redis://localhost
    misuse '--limit and --scan are for --redis and --shared' $command --control c.sock --limit login
    misuse "--scan '0'" $command --redis redis://localhost --scan 0
    run 2 $command --redis nonsense && has err 'redis_url' && [ ! -s out ]
    verdict "$command reports an invalid URL" $?
done
misuse '--control PATH is needed' reload
misuse "unknown or ambiguous option '--redis'" reload --redis redis://localhost
for command in stats top watch reload; do
    misuse "'word'" $command --control c.sock word
    run 1 $command --control none.sock && has err 'cannot ask at none.sock' && [ ! -s out ]
    verdict "$command reports a socket without a process" $?
done
misuse "--keys '1025'" top --control c.sock --keys 1025
misuse "--turns 'x'" watch --control c.sock --turns x
misuse "--every '0'" watch --control c.sock --every 0
misuse '--redis-prefix needs --redis URL' top --control c.sock --redis-prefix x:
misuse '--redis-ca-file needs --redis URL' peek --control c.sock --redis-ca-file ca.pem login a
misuse '--redis-password-file needs --redis URL' keys --shared ./counts.file --redis-password-file pw
misuse 'exclude each other' peek --control c.sock --redis redis://localhost login a
misuse '--redis URL, --control PATH or --shared FILE is needed' reset login a
misuse 'exclude each other' peek --control c.sock --shared counts login a

printf 'login = fixed_window limit=3 period=1h\nlogin/vip* = fixed_window limit=9 period=1h\n' >live.conf
serve_start -f live.conf --control c.sock --top-keys 5
[ "$(stat -c %a c.sock)" = 600 ]
verdict 'the control socket is only for the user of the process' $?
run 0 stats --control c.sock && has out 'login = fixed_window limit=3 period=1h' 'login/vip* = ' '0 keys in '
verdict 'stats prints a line for each limit and override' $?
run 0 stats --json --control c.sock && has out '{"limiter":{"allowed":0,' '"limits":[{"name":"login","allowed":0,' \
    '"policy":"fixed_window limit=3 period=1h"}'
verdict 'stats prints JSON' $?
run 0 peek --control c.sock login 'a key with 100%' && has out 'key        a key with 100%' 'used       0 of 3 permits' \
    'remaining  3' 'a request  allowed' 'idle       now'
verdict 'peek shows a key of a running process' $?
run 0 peek --json --control c.sock login vip-7 &&
    is out '{"limit":"login","key":"vip-7","is_cut":false,"found":"state","policy":"fixed_window limit=9 period=1h","used":0,"size":9,"remaining":9,"allowed":true,"would_deny":false,"retry_after_us":0,"reset_after_us":0}'
verdict 'peek prints JSON, and uses overrides' $?
run 1 peek --control c.sock none a && has err 'the limiter has no such limit'
verdict 'peek reports an undefined limit' $?
run 0 reset --control c.sock login a && is out 'the key is forgotten' && run 0 reset --json --control c.sock login a &&
    is out '{"reset":true}'
verdict 'reset forgets a key of a running process' $?
run 0 top --control c.sock && has out 'at most over' && run 0 top --json --control c.sock && is out '{"keys":[]}'
verdict 'top prints the most denied keys' $?
run 0 watch --control c.sock --turns 1 && has out 'Z login allowed 0/s denied 0/s would deny 0/s near 0/s' &&
    run 0 watch --json --control c.sock --turns 1 --keys 0 && has out '"limits":[{"name":"login","allowed_per_s":0,'
verdict 'watch prints a line for each limit when there is no terminal' $?
printf 'login = fixed_window limit=4 period=1h\n' >live.conf
run 0 reload --control c.sock && is out 'the policies are in force' && run 0 stats --control c.sock &&
    has out 'login = fixed_window limit=4 period=1h' && ! has out 'vip' 2>/dev/null
verdict 'reload puts the policy file into force' $?
printf 'login = fixed_window limit=4\n' >live.conf
run 1 reload --control c.sock && has err 'live.conf:1: ' && run 0 stats --control c.sock && has out 'limit=4 period=1h'
verdict 'reload reports the bad line, and changes nothing' $?
kill "$served"
wait "$served"
[ ! -e c.sock ]
verdict 'the control socket is removed when the process ends' $?

serve_start --control c.sock
run 1 top --control c.sock && has err 'it needs the option top_keys' && run 1 reload --control c.sock &&
    has err 'has no policy_file' && run 0 watch --control c.sock --turns 0 --keys 0
verdict 'top and reload name the option that the process lacks' $?
"$weir" serve --unix other.sock --control c.sock >other 2>err &
other=$!
await grep -q 'other.sock$' other && has err 'another process listens at control_socket c.sock'
status=$?
kill "$other" && wait "$other" && [ "$status" -eq 0 ] && run 0 stats --control c.sock
verdict 'a process whose control socket is taken serves, and leaves it to the other' $?
kill "$served"
wait "$served"

# What a socket answers may come from any program.
cat >liar.pl <<'EOF'
use IO::Socket::UNIX;
my $socket = IO::Socket::UNIX->new(Local => "liar.sock", Listen => 1) or die;
while (my $client = $socket->accept) {
    my $request = <$client>;
    print $client $request =~ /^top/ ? "key limit=a\e[31m denied=1 error=0 hash=\e[2J len=0 key=\nend\n"
        : "limiter keys=1\e[31m bytes=0\nlimit name=a\e[31m allowed=1 near=\e[2J policy=p\e[2J q\nend\n";
}
EOF
rm -f liar.sock
perl liar.pl &
liar=$!
tries=0
while [ ! -S liar.sock ] && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
esc=$(printf '\033')
is_good=0
for command in stats top 'watch --turns 1'; do
    for json in '' --json; do
        # shellcheck disable=SC2086 # words
        run 0 $command $json --control liar.sock && ! grep -q "$esc" out && ! grep -q "$esc" said && [ -s out ] || is_good=1
    done
done
verdict 'what a control socket answers is shown without obeying it' $is_good
kill "$liar"
