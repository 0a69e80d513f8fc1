# weir keys, peek and reset at a file in which processes of this machine count, while no process uses it.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

printf 'login = fixed_window limit=3 period=1d\napi = token_bucket limit=20 period=1d\n' >shared.conf
for key in a a a b; do
    run 0 try -f shared.conf --key $key --shared ./counts.file --limit login || break
done
run 0 try -f shared.conf --key 10.0.0.7 --shared ./counts.file --limit api && run 0 keys --shared ./counts.file && sort out >sorted &&
    [ "$(cut -d, -f1 sorted | paste -sd,)" = 'api/10.0.0.7: 1 of 20 permits used,login/a: 3 of 3 permits used,login/b: 1 of 3 permits used' ]
verdict 'keys lists the keys of a shared file' $?
run 0 keys --shared ./counts.file --denied && [ "$(wc -l <out)" = 1 ] && has out 'login/a: 3 of 3 permits used, denied for ' &&
    run 0 keys --json --shared ./counts.file --match '10.*' && [ "$(wc -l <out)" = 1 ] && has out '"limit":"api","key":"10.0.0.7"' &&
    run 0 keys --shared ./counts.file --limit login --most 1 && [ "$(wc -l <out)" = 1 ] &&
    run 0 keys --shared ./counts.file --limit other && [ ! -s out ] && has err 'no such key' &&
    run 2 keys --shared ./counts.file --match 'a*b' && has err 'pattern'
verdict 'keys of a shared file can be chosen by limit, pattern and number' $?
run 0 peek --shared ./counts.file login nobody && has out 'nothing: all permits are there' && [ ! -s err ] &&
    run 2 peek --shared ./counts.file lgoin a && has err 'the file knows no limit "lgoin"' && [ ! -s out ] &&
    run 2 peek --json --shared ./counts.file lgoin a && [ ! -s out ] &&
    run 0 reset --shared ./counts.file lgoin a && has out 'nothing to forget'
verdict 'peek fails for a limit that a shared file does not know' $?
run 0 try -f shared.conf --key c --mode machine --shared ./named.file --limit login && run 0 peek --shared ./named.file login c &&
    has out 'used       1 of 3 permits' && run 0 help try && has out '  local (default), machine, distributed or hybrid'
verdict 'try takes machine for a mode' $?
run 0 stats --shared ./counts.file && has out '           2            1            0            4            0  login = fixed_window limit=3 period=1d' &&
    has out '  api = token_bucket limit=20 period=1d' && [ "$(wc -l <out)" = 3 ] && run 0 stats --json --shared ./counts.file --scan 1 &&
    has out '"is_all":false}' && run 0 top --shared ./counts.file --limit login && [ "$(wc -l <out)" = 2 ] &&
    [ "$(sed 1q out | cut -d, -f1)" = 'login/a: 3 of 3 permits used' ] && run 0 watch --shared ./counts.file --turns 1 --keys 0 &&
    [ "$(wc -l <out)" = 2 ] && has out 'Z login keys 2 denied 1 near 0 permits 4'
verdict 'stats, top and watch add up the keys of a shared file' $?
misuse '--redis URL or --shared FILE is needed' keys
misuse 'exclude each other' keys --shared ./counts.file --redis redis://localhost
printf 'no counts' >alien.file && chmod 600 alien.file
run 2 try -p "$once" --shared ./alien.file &&
    is err "weir: shared: ./alien.file is not a file of weir's; remove it or name another one"
verdict 'try says once why a shared file cannot be used' $?
chmod 640 counts.file
run 1 keys --shared ./counts.file && has err 'chmod 600' && run 1 keys --shared ./none.file && has err 'cannot be opened' && [ ! -e none.file ] &&
    run 1 stats --shared ./none.file && has err 'cannot be opened' && [ ! -e none.file ]
verdict 'keys reports why a shared file cannot be used' $?
