#!/bin/sh
# options.sh SOURCE COMPILER GENERATOR WERROR [OPTION]... - builds the library with these options of cmake, and what they
# leave on besides it: the program, and the simulator of a core without Redis, which mutation tests use. Then decides by
# the library in local mode. The compiler may be musl-gcc: exit status 77 if it is not installed.
set -eu
source=$1 compiler=$2 generator=$3 werror=$4
shift 4
command -v "$compiler" >/dev/null || { echo "skipped: there is no $compiler"; exit 77; }
# shellcheck source=tests/tools/scratch.sh
. "$source/tests/tools/scratch.sh"
build=$scratch/build

fail() {
    echo "failed: $*" >&2
    tail -n 40 "$scratch/log" >&2
    exit 1
}

is_off() { # OPTION
    grep -q "^$1:BOOL=OFF" "$build/CMakeCache.txt"
}

if [ "$compiler" = musl-gcc ]; then
    # It does not search the system's headers. A folder shows it those of uthash and of the kernel, and no others.
    mkdir "$scratch/include"
    printf '#include <uthash.h>\n#include <linux/types.h>\n' | cc -M -E -x c - 2>/dev/null | tr ' ' '\n' >"$scratch/found" ||
        { echo "skipped: there is no uthash.h, or there are no headers of the kernel"; exit 77; }
    for header in uthash utlist; do
        ln -s "$(dirname "$(grep '/uthash\.h$' "$scratch/found")")/$header.h" "$scratch/include"
    done
    for folder in linux asm asm-generic; do
        ln -s "$(dirname "$(grep "/$folder/[a-z_-]*\.h\$" "$scratch/found" | head -n 1)")" "$scratch/include/$folder"
    done
    set -- "$@" "-DUTHASH_INCLUDE_DIR=$scratch/include"
fi
testing=OFF
case " $* " in
*" -DWEIR_REDIS=OFF -DWEIR_CONSUL=OFF -DWEIR_CLI=OFF "*) [ "$compiler" = musl-gcc ] || testing=ON ;;
esac
cmake -S "$source" -B "$build" -G "$generator" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug \
    -DWEIR_WERROR="$werror" -DBUILD_TESTING=$testing "$@" >"$scratch/log" 2>&1 || fail "cmake $*"
if [ $testing = ON ]; then
    cmake --build "$build" --target weir_static --target sim >"$scratch/log" 2>&1 || fail "building with $*"
else
    cmake --build "$build" >"$scratch/log" 2>&1 || fail "building with $*"
fi
is_off WEIR_CLI || [ "$("$(find "$build" -name weir -type f -perm -u+x)" version | cut -d' ' -f1)" = weir ] ||
    fail "the program built with $*"
library=$(find "$build" -name libweir.so)
[ -n "$library" ] || library=$(find "$build" -name libweir.a)
[ -n "$library" ] || fail "there is no library with $*"

# A static library needs those that it was built with.
needs='-lm -pthread'
if [ "$(basename "$library")" = libweir.a ]; then
    is_off WEIR_CONSUL || needs="$needs $(pkg-config --libs libcurl jansson)"
    is_off WEIR_REDIS || needs="$needs $(pkg-config --libs hiredis libmd)"
    is_off WEIR_REDIS || is_off WEIR_TLS || needs="$needs $(pkg-config --libs openssl)"
fi
# shellcheck disable=SC2086 # the flags are words
"$compiler" -I"$source/include" "$source/tests/package/consumer.c" -o "$scratch/consumer" "$library" \
    -Wl,-rpath,"$(dirname "$library")" $needs >"$scratch/log" 2>&1 || fail "linking with $*"
answer=$("$scratch/consumer") || fail "the program linked with $*"
case $answer in
weir*': 1 0') echo "ok: $answer" ;;
*) fail "it printed: $answer" ;;
esac
