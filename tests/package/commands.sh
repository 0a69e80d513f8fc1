#!/bin/sh
# commands.sh SOURCE_DIR - checks that the library uses no hiredis function that takes a format: keys and passwords are
# data and must not be read as one. Checks first that it finds such a call.
set -eu
formats='redis(v?(Append|Async|Format)?Command|FormattedCommand) *\('
printf 'redisCommand(c, key)\nredisvAppendCommand (c, key)\nredisFormatCommand(&s, key)\n' | grep -cE "$formats" |
    grep -qx 3 || { echo 'the pattern does not find a call that it should'; exit 1; }
if grep -rnE "$formats" "$1/src" "$1/include"; then
    echo 'a command is made from a format'
    exit 1
fi
