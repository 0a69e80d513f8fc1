#!/bin/sh
# abi.sh - holds the shared library's interface against that of the last release, by libabigail's abidiff. See --help.
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
        echo 'There is no tag v* of a release yet: nothing to compare with.'
        exit 0
    fi
fi
commit=$(git rev-parse --verify --quiet "$tag^{commit}") || die "there is no $tag"
# shellcheck disable=SC2086,SC2154 # lists of words, of setup.sh
need_packages $build_packages $redis_packages $consul_packages abigail-tools

# library SOURCE BUILD - builds it with debugging information, of which abidiff reads the types; prints where it is.
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
say 'building what is here'
new=$(library "$PWD" "$at/new") || exit 2

soname() {
    readelf --wide --dynamic "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p'
}

# abidiff's status is a set of bits: 1 and 2 an error, 4 a change, 8 one that is incompatible for certain. What it cannot
# tell to be harmless, such as a struct of ours that has grown, is a change: so any change counts, save for new functions
# and what abi.ini allows.
say "$tag and what is here"
status=0
abidiff --headers-dir1 "$at/tag/include" --headers-dir2 include --no-added-syms --drop-private-types \
    --suppressions tests/package/abi.ini "$old" "$new" || status=$?
if [ $((status & 3)) -ne 0 ]; then
    die 'abidiff cannot compare them'
elif [ "$status" -eq 0 ]; then
    echo "compatible: what is linked to $tag runs with this"
elif [ "$(soname "$old")" != "$(soname "$new")" ]; then
    echo "incompatible with $tag, and called $(soname "$new") no longer $(soname "$old"): as it must be"
else
    echo "incompatible with $tag, and still called $(soname "$new"): take the change back, or raise SOVERSION" >&2
    exit 1
fi
