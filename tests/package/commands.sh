#!/bin/sh
# commands.sh SOURCE_DIR - no function of hiredis that takes a format is named in the library: keys and passwords are
# data, and a format would read them as one. Proves first that it finds such a call.
set -eu
formats='redis(v?(Append|Async|Format)?Command|FormattedCommand) *\('
printf 'redisCommand(c, key)\nredisvAppendCommand (c, key)\nredisFormatCommand(&s, key)\n' | grep -cE "$formats" |
    grep -qx 3 || { echo 'the pattern does not find what it is for'; exit 1; }
if grep -rnE "$formats" "$1/src" "$1/include"; then
    echo 'a command is made from a format'
    exit 1
fi
