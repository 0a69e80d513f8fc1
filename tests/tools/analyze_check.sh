#!/bin/sh
# analyze_check.sh - tests analyze.sh with gcc on a file that has faults: it reports them, except those in the list. It
# refuses a list whose entry has no reason or matches nothing.
set -eu
cd "$(dirname "$0")/../.."
command -v gcc >/dev/null 2>&1 || {
    echo 'no gcc'
    exit 77
}
. tests/tools/scratch.sh
failed=0

cat >"$scratch/faults.c" <<'C'
#include <stdlib.h>
int lose(void);
int lose(void)
{
    char *lost = malloc(7);
    return lost != NULL;
}
void end(char *twice);
void end(char *twice)
{
    free(twice);
    free(twice);
}
C
cat >"$scratch/compile_commands.json" <<JSON
[
{
  "directory": "$scratch",
  "command": "gcc -DTEXT=\\"a b\\" -std=c11 -o faults.o -c $scratch/faults.c",
  "file": "$scratch/faults.c"
}
]
JSON

# says NAME STATUS TEXT: with the list on standard input, analyze.sh exits with STATUS and prints TEXT.
says() {
    cat >"$scratch/list"
    status=0
    sh tests/tools/analyze.sh --build "$scratch" --out "$scratch/logs" --list "$scratch/list" gcc >"$scratch/said" 2>&1 || status=$?
    if [ "$status" -eq "$2" ] && grep -qE -- "$3" "$scratch/said"; then
        echo "ok   $1"
    else
        echo "FAIL $1: status $status"
        sed 's/^/     /' "$scratch/said"
        failed=1
    fi
}

leak="gcc $scratch/faults.c -Wanalyzer-malloc-leak return lost"
free="gcc $scratch/faults.c -Wanalyzer-double-free free(twice)"
reason='    so that it can be found'

says what_is_found_is_told 1 'faults.c:6:.*malloc-leak' <<LIST
$free
$reason
LIST
says and_counted 1 '^gcc .* 1 +2 +1$' <<LIST
$free
$reason
LIST
says what_is_known_is_not_told 0 '^gcc .* 1 +2 +2$' <<LIST
# both
$leak
$reason
$free
$reason
LIST
says an_entry_that_nothing_needs_is_told 1 'list:5: no finding matches this entry' <<LIST
$leak
$reason
$free
$reason
gcc src/none.c -Wanalyzer-malloc-leak lost
$reason
LIST
says an_entry_without_a_reason_is_refused 2 'list:1: an entry without a reason' <<LIST
$leak
$free
$reason
LIST
says a_tool_that_there_is_not_is_refused 2 '"lint" is no tool' <<LIST
lint a.c check part
$reason
LIST
echo 'int broken( {' >"$scratch/faults.c"
says what_cannot_be_compiled_is_a_finding 1 'the tool failed' </dev/null
exit $failed
