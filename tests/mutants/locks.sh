#!/bin/sh
# locks.sh COMMAND SOURCE FLAG - whether clang's analysis finds each lock of SOURCE held where it has to be, and given
# back. COMMAND compiles it, with places for compiler, source, object and one more flag as worker.sh has them. Without
# clang nothing is found.
set -eu
command -v clang >/dev/null 2>&1 || exit 0
command=$(printf '%s\n' "$1" | sed "s|^[^ ]*|clang|; s| -w | |; s|-o @OUT@||; s|@SOURCE@|$2|; s|@FIRST@|$3|")
eval "$command -fsyntax-only -Wno-everything -Wthread-safety -Werror=thread-safety"
