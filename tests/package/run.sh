#!/bin/sh
# run.sh SOURCE BUILD COMPILER GENERATOR - installs BUILD under a private prefix and uses it there as a user would:
# through find_package, pkg-config and as a subproject. It repeats this after moving the tree, then uninstalls.
set -eu
source=$1
build=$2
compiler=$3
generator=$4
consumer=$source/tests/package
scratch=$build/tests/package-scratch
prefix=$scratch/prefix
manifest=$build/install_manifest.txt

fail() {
    echo "failed: $*" >&2
    exit 1
}

is_on() { # OPTION
    grep -q "^$1:BOOL=ON" "$build/CMakeCache.txt"
}

# The packages that this build links.
dependencies=
if is_on WEIR_REDIS; then
    dependencies='hiredis libmd'
    ! is_on WEIR_TLS || dependencies="$dependencies openssl"
fi
! is_on WEIR_CONSUL || dependencies="$dependencies libcurl jansson"

# expect WHAT COMMAND... - check that the consumer prints the library's version, one admission and one denial.
expect() {
    what=$1
    shift
    answer=$("$@") || fail "$what: exit status $?"
    [ "$answer" = "weir $version: 1 0" ] || fail "$what printed: $answer"
    echo "ok: $what"
}

use_cmake() {
    rm -rf "$scratch/cmake"
    if ! { cmake -S "$consumer" -B "$scratch/cmake" -G "$generator" -DCMAKE_C_COMPILER="$compiler" "$@" &&
        cmake --build "$scratch/cmake"; } >"$scratch/log" 2>&1; then
        cat "$scratch/log" >&2
        fail "building with cmake $*"
    fi
    expect "cmake, weir::weir, $*" "$scratch/cmake/consumer_weir"
    expect "cmake, weir::weir_static, $*" "$scratch/cmake/consumer_weir_static"
}

# use_prefix PREFIX - use what is installed there.
use_prefix() {
    use_cmake -DCMAKE_PREFIX_PATH="$1"
    libdir=$(dirname "$(find "$1" -name 'libweir.so')")
    PKG_CONFIG_PATH=$libdir/pkgconfig
    export PKG_CONFIG_PATH

    # shellcheck disable=SC2046 # the flags are words
    "$compiler" "$consumer/consumer.c" -o "$scratch/shared" $(pkg-config --cflags --libs weir)
    expect "pkg-config, shared" env LD_LIBRARY_PATH="$libdir" "$scratch/shared"
    [ "$(pkg-config --cflags weir | wc -w)" -eq 1 ] ||
        fail "pkg-config --cflags names more than weir's folder: $(pkg-config --cflags weir)"
    cflags=$(pkg-config --cflags weir)
    static_libs=$(pkg-config --static --libs weir)
    # shellcheck disable=SC2086
    for library in $(pkg-config --static --libs-only-l $dependencies); do
        case " $static_libs " in
        *" $library "*) ;;
        *) fail "pkg-config --static --libs lacks $library: $static_libs" ;;
        esac
    done
    # Debian lacks archives of some of libcurl's libraries: with Consul only weir is linked statically.
    # shellcheck disable=SC2086
    case $static_libs in
    *' -lcurl '*) static_libs="-L$libdir -l:libweir.a $(pkg-config --libs $dependencies)" ;;
    *) static_libs="-static $static_libs" ;;
    esac
    # shellcheck disable=SC2086
    "$compiler" "$consumer/consumer.c" -o "$scratch/static" $cflags $static_libs
    expect "pkg-config, static" "$scratch/static"

    if [ -x "$1/bin/weir" ]; then
        "$1/bin/weir" version >"$scratch/log" || fail "the installed program does not run"
        grep -qF "$version" "$scratch/log" || fail "weir version printed: $(cat "$scratch/log")"
        echo "ok: bin/weir version"
        doc=$1/share/doc/weir
        for file in LICENSE examples/weir-serve.service examples/serve_client.py; do
            [ -s "$doc/$file" ] || fail "$doc/$file is not installed"
        done
        # The threshold is ten times the exposure level that systemd-analyze prints, from 0.0 (safe) to 10.0.
        if systemd-analyze --help 2>/dev/null | grep -q -e --threshold; then
            systemd-analyze security --offline=true --threshold=30 "$doc/examples/weir-serve.service" \
                >"$scratch/log" 2>&1 || fail "weir-serve.service is exposed: $(tail -n 1 "$scratch/log")"
            echo "ok: $(tail -n 1 "$scratch/log")"
        fi
    fi
}

rm -rf "$scratch"
mkdir -p "$scratch"
version=$(sed -n 's/^project(weir VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")

# If this build is already installed, its manifest is restored at the end.
if [ -e "$manifest" ]; then
    cp -p "$manifest" "$scratch/manifest"
fi
restore() {
    rm -f "$manifest"
    if [ -e "$scratch/manifest" ]; then
        cp -p "$scratch/manifest" "$manifest"
    fi
}
trap restore EXIT

DESTDIR='' cmake --install "$build" --prefix "$prefix" >"$scratch/log" || fail "installing"
grep -rlF -e "$build" -e "$source" "$prefix" --include='*.cmake' --include='*.pc' --include='*.h' &&
    fail "an installed file names the folder it was built in"
find "$prefix" ! -type d | sort >"$scratch/files"
use_prefix "$prefix"

mv "$prefix" "$scratch/elsewhere"
echo "moved to another folder"
use_prefix "$scratch/elsewhere"
mv "$scratch/elsewhere" "$prefix"

DESTDIR='' cmake --build "$build" --target uninstall >"$scratch/log" || fail "uninstalling"
[ ! -e "$prefix" ] || { find "$prefix" >&2 && fail "uninstall left these"; }
echo "ok: uninstall removed all $(wc -l <"$scratch/files") files and their folders"

use_cmake -DWEIR_SOURCE="$source"
