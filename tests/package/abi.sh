#!/bin/sh
# abi.sh - compares the shared library's interface with the last release's, using libabigail's abidiff. See --help.
set -eu
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --abi [TAG]

Builds the shared library as it is, and as it was at TAG (the last tag v* that leads here if none is given), and prints how
the interfaces differ. Programs that are linked to the old one must run with the new one, or else SOVERSION must be
another. If there is no such tag there is nothing to compare with, which is no failure. Both builds are in build/abi.

Exit status: 0 compatible, or another SOVERSION, or nothing to compare with; 1 incompatible; 2 not run: wrong arguments,
missing packages, or a tag that cannot be built.
TEXT
}

die() {
    echo "abi.sh: $*" >&2
    exit 2
}

case ${1-} in
--help | -h)
    usage
    exit 0
    ;;
-*)
    usage >&2
    exit 2
    ;;
esac
[ $# -le 1 ] || die 'one tag at most'

cd "$(dirname "$0")/../.."
. tests/tools/setup.sh
git rev-parse --git-dir >/dev/null 2>&1 || die 'not a git repository: there are no tags'
tag=${1-}
if [ -z "$tag" ]; then
    tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || tag=
    if [ -z "$tag" ]; then
        echo 'No release has a tag v* yet: nothing to compare with.'
        exit 0
    fi
fi
commit=$(git rev-parse --verify --quiet "$tag^{commit}") || die "there is no $tag"
# shellcheck disable=SC2086,SC2154 # lists of words, of setup.sh
need_packages $build_packages $redis_packages $consul_packages abigail-tools

# library SOURCE BUILD - build it with debugging information, from which abidiff reads the types; print its path.
library() {
    { cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=OFF -DWEIR_CLI=OFF \
        -DWEIR_STATIC=OFF && cmake --build "$2" --target weir_shared --parallel "$jobs"; } >"$2.log" 2>&1 || {
        tail -n 20 "$2.log" >&2
        die "$1 cannot be built"
    }
    echo "$2/src/libweir.so"
}

mkdir -p build/abi
at=$PWD/build/abi
rm -rf "$at/tag"
mkdir "$at/tag"
git archive "$commit" | tar -x -C "$at/tag" || die "$tag cannot be unpacked"
say "building $tag"
old=$(library "$at/tag" "$at/old") || exit 2
say 'building the working tree'
new=$(library "$PWD" "$at/new") || exit 2

soname() {
    readelf --wide --dynamic "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p'
}

# abidiff's status is a set of bits: 1 and 2 an error, 4 a change, 8 a change that is certainly incompatible. It reports
# a change that may be harmful, such as a larger struct, as 4. So any change counts, except new functions and what
# abi.ini allows.
say "$tag and the working tree"
status=0
abidiff --headers-dir1 "$at/tag/include" --headers-dir2 include --no-added-syms --drop-private-types \
    --suppressions tests/package/abi.ini "$old" "$new" || status=$?
if [ $((status & 3)) -ne 0 ]; then
    die 'abidiff cannot compare them'
elif [ "$status" -eq 0 ]; then
    echo "compatible: programs linked with $tag run with this build"
elif [ "$(soname "$old")" != "$(soname "$new")" ]; then
    echo "incompatible with $tag, and named $(soname "$new") instead of $(soname "$old"), as it must be"
else
    echo "incompatible with $tag, but still named $(soname "$new"): revert the change, or raise SOVERSION" >&2
    exit 1
fi
