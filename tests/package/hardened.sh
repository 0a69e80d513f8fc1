#!/bin/sh
# hardened.sh COMPILER LIBRARY ARCHIVE [PROGRAM] - checks with readelf that the built files have the hardening that
# CMakeLists.txt requests; flags alone prove nothing. Control-flow markings are checked in the archive, which contains
# only weir's code. In a library or a program the linker drops them if the system's start files have none (Debian 12).
set -eu
compiler=$1
library=$2
archive=$3
program=${4-}
export LC_ALL=C
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
failed=0

# has FILE WHAT PATTERN: check that the current dump has a matching line.
has() {
    if grep -qE -- "$3" "$scratch/dump"; then
        echo "ok   $(basename "$1"): $2"
    else
        echo "FAIL $(basename "$1"): $2"
        failed=1
    fi
}

# lacks FILE WHAT PATTERN: check that it has none.
lacks() {
    if grep -E -- "$3" "$scratch/dump"; then
        echo "FAIL $(basename "$1"): $2"
        failed=1
    else
        echo "ok   $(basename "$1"): $2"
    fi
}

# linked FILE: check what the linker does.
linked() {
    readelf --wide --program-headers --dynamic "$1" >"$scratch/dump"
    has "$1" 'what the loader has filled in is read-only' 'GNU_RELRO'
    has "$1" 'all of it is filled in before anything runs' 'FLAGS_1\).* NOW'
    has "$1" 'the stack cannot be executed' 'GNU_STACK .* RW +0x'
    lacks "$1" 'nothing can be written and executed' 'LOAD .* RWE'
    lacks "$1" 'code needs no changes where it is loaded' 'TEXTREL'
}

# compiled FILE: check what the compiler does.
compiled() {
    readelf --wide --symbols "$1" >"$scratch/dump"
    has "$1" 'the stack is guarded' '__stack_chk_fail'
    has "$1" 'calls of libc that write look at the room' '__(snprintf|memcpy|vsnprintf)_chk'
}

# A library without hardening must be reported.
echo 'char *text(char *out) { return __builtin_strcpy(out, "soft"); }' >"$scratch/soft.c"
"$compiler" -O0 -shared -fPIC -fno-stack-protector -U_FORTIFY_SOURCE -Wl,-z,norelro,-z,lazy,-z,execstack \
    "$scratch/soft.c" -o "$scratch/soft.so"
{ linked "$scratch/soft.so" && compiled "$scratch/soft.so"; } >"$scratch/told"
if [ "$(grep -c '^FAIL' "$scratch/told")" -ne 5 ]; then
    cat "$scratch/told"
    echo 'a library without hardening is not reported'
    exit 1
fi
failed=0

linked "$library"
compiled "$library"
readelf --wide --dynamic "$library" >"$scratch/dump"
has "$library" 'it stays where it is loaded' 'FLAGS_1\).* NODELETE'
lacks "$library" 'it can be loaded with dlopen, as modules of programs are' 'FLAGS_1\).* NOOPEN'
lacks "$library" 'it looks for other libraries where the system does' '\((RPATH|RUNPATH)\)'
compiled "$archive"
readelf --wide --file-header --notes "$archive" >"$scratch/dump"
if grep -q 'Machine: .*X86-64' "$scratch/dump"; then
    has "$archive" 'jumps and returns can be held to their places, by IBT and SHSTK' 'x86 feature:.* IBT.* SHSTK'
elif grep -q 'Machine: .*AArch64' "$scratch/dump"; then
    has "$archive" 'jumps and returns can be held to their places, by BTI and PAC' 'AArch64 feature:.* BTI.* PAC'
fi
if [ -n "$program" ]; then
    linked "$program"
    readelf --wide --file-header "$program" >"$scratch/dump"
    has "$program" 'it can be loaded anywhere' 'Type: +DYN'
fi
exit $failed
