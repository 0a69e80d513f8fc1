#!/bin/sh
# redis_cli.sh PORT NAME - redis-cli: one command, RESP3, and bulk loading, whose end is an ECHO.
# shellcheck disable=SC2016 # the protocol's own $
set -eu
[ "$(redis-cli -p "$1" weir.try login "$2" | head -n 1)" = 1 ]
[ "$(redis-cli -3 -n 0 -p "$1" weir.try login "$2" | head -n 1)" = 1 ]
printf '*3\r\n$8\r\nWEIR.TRY\r\n$6\r\ntokens\r\n$1\r\nz\r\n' | redis-cli -p "$1" --pipe | grep -q 'errors: 0, replies: 1'
[ "$(printf 'MULTI\nECHO "a b"\nEXEC\n' | redis-cli -p "$1" | tail -n 1)" = 'a b' ]
echo ok
