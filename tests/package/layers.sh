#!/bin/sh
# layers.sh COMPILER SOURCE BUILD - with the core's include path a file of the core can reach the core, not a backend;
# and no file reaches around that path with "../".
set -eu
compiler=$1
source=$2
build=$3

compiles() {
    printf '#include "%s"\n' "$1" | "$compiler" -std=c11 -D_GNU_SOURCE -fsyntax-only \
        -I"$source/include" -I"$build/src/layer" -x c - 2>/dev/null
}

compiles core/policy/plan.h || { echo "the core cannot include core/policy/plan.h: the test itself is broken" >&2; exit 1; }
find "$source/src/backends" -name '*.h' | while read -r header; do
    name=${header#"$source/src/"}
    if compiles "$name"; then
        echo "the core can include $name" >&2
        exit 1
    fi
done
if find "$source/src" -name '*.[ch]' -exec grep -n '^ *# *include *"\.\./' {} +; then
    echo "an include goes up a folder, around the layers" >&2
    exit 1
fi
if grep -rnE '^ *# *include *[<"](core|backends)/' "$source/src/cli"; then
    echo "the program includes a private header" >&2
    exit 1
fi
