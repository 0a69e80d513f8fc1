#!/bin/sh
# layers.sh SOURCE - src/layers.cmake accepts the sources as they are, and refuses each of a few planted includes.
set -eu
source=$1
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
work=$scratch
cp -R "$source/src" "$work/src"

check() {
    cmake -DSOURCE="$work/src" -P "$work/src/layers.cmake" > "$work/log" 2>&1
}

check || { cat "$work/log"; exit 1; }
while read -r file header; do
    printf '#include %s\n' "$header" > "$work/src/$file"
    if check; then
        echo "src/$file may include $header: nothing has refused it" >&2
        exit 1
    fi
    grep -q "^src/$file: .* may not include" "$work/log" || { cat "$work/log"; exit 1; }
    rm "$work/src/$file"
done <<'PLANTED'
core/ground/planted.c "core/policy/plan.h"
core/limiter/planted.h "core/outage/failure.h"
core/outage/planted.c "core/follow/follow.h"
core/follow/planted.c "core/api/verbs.h"
core/api/planted.c "backends/memory/memory.h"
backends/memory/planted.c "backends/hybrid/hybrid.h"
backends/hybrid/planted.c "core/outage/failure.h"
backends/shared/planted.c "backends/redis/wire/wire.h"
backends/redis/wire/planted.c "../engine/engine.h"
cli/planted.c <core/ground/log.h>
PLANTED
check || { echo "a check without planted files fails: the test itself is broken" >&2; exit 1; }
