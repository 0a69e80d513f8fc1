#!/bin/sh
# install.sh SOURCE COMPILER GENERATOR - run the lines of docs/build.md that build, install and uninstall, from sources
# without a build, into a folder that DESTDIR names. Before uninstalling, build the first program of README.md from the
# installed files: with the CMake lines of docs/build.md and with README.md's line for cc. apt-get only checks whether it
# knows the packages.
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
compiler=$(command -v "$2")
generator=$3
# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
here=$PWD
# shellcheck source=tests/docs/rules.sh
. "$here/rules.sh"
page=README.md

fail() {
    echo "$page: $*" >&2
    exit 1
}

# Take the first program, its output, and the line that builds it.
take "$source/$page"
number=$(awk '$3 == "c" { print $1; exit }' "$blocks/blocks")
expected=$scratch/expected
cp "$blocks/$number.c" "$scratch/login.c"
cp "$blocks/$((number + 1)).text" "$expected"
cc_line=$(sed -n 's/^[0-9]*.\(cc login\.c .*\)/\1/p' "$blocks/spans")
[ -n "$cc_line" ] || fail "no line is for cc login.c"
page=docs/build.md
take "$source/$page"

# ---- A stand-in for the system ----

mkdir "$scratch/system" "$scratch/sources"
system() { # NAME - the rest is on standard input
    { echo '#!/bin/sh' && cat; } >"$scratch/system/$1"
    chmod +x "$scratch/system/$1"
}
system sudo <<'SUDO'
exec "$@"
SUDO
system ldconfig <<'LDCONFIG'
exec /sbin/ldconfig -n "$DESTDIR/usr/local/lib"
LDCONFIG
system cc <<CC
exec $compiler "\$@"
CC
system apt-get <<'APT'
shift
for package in "$@"; do
    if command -v apt-cache >/dev/null && ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 &&
        ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "apt-get knows no package $package" >&2
        exit 1
    fi
done
APT
for name in "$source"/*; do
    case $name in
    */build) ;;
    *) ln -s "$name" "$scratch/sources/" ;;
    esac
done
cd "$scratch/sources"
CMAKE_BUILD_PARALLEL_LEVEL=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL CMAKE_GENERATOR="$generator" CC="$compiler" DESTDIR="$scratch/root"
PATH=$scratch/system:$PATH
prefix=$DESTDIR/usr/local

# ---- Build and install ----

run() { # LINE
    echo "$1"
    sh -e -c "$1" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2 && fail "this fails: $1"; }
}

: >"$scratch/lines"
number=0
while [ "$number" -lt "$(cat "$blocks/count")" ]; do
    number=$((number + 1))
    [ "$(rule_of "$number")" != install ] || cat "$blocks/$number.sh" >>"$scratch/lines"
done
sed -e ':more' -e '/\\$/{N; s/\\\n *//; b more' -e '}' "$scratch/lines" >"$scratch/whole"
[ "$(grep -c -e '--target uninstall' "$scratch/whole")" -eq 1 ] || fail "one line is to uninstall"
grep -v -e '--target uninstall' "$scratch/whole" >"$scratch/install"
while read -r line; do
    case $line in
    *'--target reference'*)
        command -v doxygen >/dev/null || { echo "skipped, no doxygen here: $line" && continue; }
        ;;
    esac
    run "$line" </dev/null
done <"$scratch/install"
if [ -d build/plain/reference ] && command -v man >/dev/null; then
    line=$(sed -n 's/^[0-9]*.\(man .*\)/\1/p' "$blocks/spans")
    run "$line"
    grep -q 'int weir_try (' "$scratch/log" || fail "this does not show weir_try(): $line"
fi
[ -x "$prefix/bin/weir" ] || fail "no program is installed"

# ---- Use ----

prints() { # WHAT COMMAND... - check what the command prints
    what=$1
    shift
    "$@" >"$scratch/answer" || fail "$what exits with $?"
    diff -u "$expected" "$scratch/answer" >&2 || fail "$what prints other than the text (lines with +)"
}

mkdir "$scratch/project"
cp "$scratch/login.c" "$scratch/project/"
number=$(awk '$3 == "cmake" { print $1; exit }' "$blocks/blocks")
cp "$blocks/$number.cmake" "$scratch/server"
grep -q 'weir::weir_static' "$scratch/server" || fail "the CMake lines do not name weir::weir_static"
{
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(server LANGUAGES C)\nadd_executable(server login.c)\n'
    printf 'add_executable(server_static login.c)\n'
    cat "$scratch/server"
    sed -n 's/(server \(.*\)weir::weir)/(server_static \1weir::weir_static)/p' "$scratch/server"
} >"$scratch/project/CMakeLists.txt"
cd "$scratch/project"
run "cmake -S . -B build -DCMAKE_PREFIX_PATH='$prefix'"
run 'cmake --build build'
prints 'what find_package makes' build/server
prints 'what find_package makes, static,' build/server_static

libdir=$(dirname "$(find "$prefix" -name libweir.so)")
run "PKG_CONFIG_PATH='$libdir/pkgconfig' && export PKG_CONFIG_PATH && $cc_line"
prints "what '$cc_line' makes" env LD_LIBRARY_PATH="$libdir" ./a.out

# ---- Uninstall ----

cd "$scratch/sources"
run "$(grep -e '--target uninstall' "$scratch/whole")"
find "$DESTDIR" -mindepth 1 | grep . && fail "uninstall left these"
echo "the lines of docs/build.md install what they say, and remove it"
