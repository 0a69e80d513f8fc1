#!/bin/sh
# options.sh SOURCE PROGRAM - docs/options.md is what PROGRAM, tests/docs/options.c, prints.
set -eu
if ! "$2" | diff -u "$1/docs/options.md" -; then
    echo "docs/options.md is not what the library says: build/release/tests/options_page >docs/options.md"
    exit 1
fi
