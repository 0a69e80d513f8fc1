#!/bin/sh
# example.sh README COMPILER INCLUDE LIBRARY PROGRAMS - what README shows is what happens; LIBRARY is the shared one. A
# ```c or ```sh block that a ```text block follows is compiled and run, or run with the folder PROGRAMS first in PATH, and
# must print that text. A ```c block that begins with "/* NAME.c - " is compiled to ./NAME for the blocks after it.
set -eu
readme=$1
compiler=$2
include=$3
library=$4
PATH=$5:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

awk -v scratch="$scratch" '
    /^```/ && !inside { inside = 1; file = sprintf("%s/%d.%s", scratch, ++n, substr($0, 4)); printf "" >file; next }
    /^```/ { inside = 0; close(file); next }
    inside { print >file }
    END { print n > (scratch "/count") }' "$readme"
count=$(cat "$scratch/count")

# The server that the tests are told to run; or Debian's, which redis-tools holds under another name.
if [ -n "${WEIR_TEST_REDIS_SERVER-}" ]; then
    mkdir "$scratch/servers"
    printf '#!/bin/sh\nexec %s "$@"\n' "$WEIR_TEST_REDIS_SERVER" >"$scratch/servers/redis-server"
    chmod +x "$scratch/servers/redis-server"
    PATH=$scratch/servers:$PATH
elif ! command -v redis-server >/dev/null 2>&1; then
    mkdir "$scratch/servers"
    ln -s "$(command -v redis-check-rdb)" "$scratch/servers/redis-server"
    PATH=$scratch/servers:$PATH
fi
mkdir "$scratch/folder"
cd "$scratch/folder"

programs=0
commands=0
compile() {
    "$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$include" "$1" "$library" -Wl,-rpath,"${library%/*}" -o "$2"
    programs=$((programs + 1))
}
i=1
while [ "$i" -lt "$count" ]; do
    block=$scratch/$i
    expected=$scratch/$((i + 1)).text
    i=$((i + 1))
    name=
    [ ! -e "$block.c" ] || name=$(sed -n '1s|^/\* \([a-z_]*\)\.c - .*|\1|p' "$block.c")
    if [ -n "$name" ]; then
        compile "$block.c" "$name"
        continue
    fi
    [ -e "$expected" ] || continue
    if [ -e "$block.c" ]; then
        compile "$block.c" "$block.run"
    elif [ -e "$block.sh" ]; then
        { echo 'set -e' && cat "$block.sh"; } >"$block.run"
        commands=$((commands + 1))
    else
        continue
    fi
    status=0
    if [ -e "$block.c" ]; then
        "$block.run" >"$block.out" || status=$?
    else
        sh "$block.run" >"$block.out" || status=$?
    fi
    if [ "$status" -ne 0 ] || ! diff -u "$expected" "$block.out"; then
        echo "this block of README exits with $status, or prints other than the text below it (lines with +):" >&2
        cat "$block.c" "$block.sh" 2>/dev/null >&2 || true
        exit 1
    fi
done
if [ "$programs" -eq 0 ] || [ "$commands" -eq 0 ]; then
    echo "README has no program, or no command, with its output: nothing was checked" >&2
    exit 1
fi
echo "$programs programs and $commands commands of README print what it says"
