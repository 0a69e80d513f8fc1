#!/bin/sh
# locks.sh COMMAND SOURCE FLAG - succeeds if clang's analysis finds each lock of SOURCE held where required, and released.
# COMMAND compiles it, with worker.sh's placeholders for compiler, source, object and one more flag. Without clang it
# succeeds.
set -eu
command -v clang >/dev/null 2>&1 || exit 0
command=$(printf '%s\n' "$1" | sed "s|^[^ ]*|clang|; s| -w | |; s|-o @OUT@||; s|@SOURCE@|$2|; s|@FIRST@|$3|")
eval "$command -fsyntax-only -Wno-everything -Wthread-safety -Werror=thread-safety"
