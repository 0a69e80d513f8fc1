#!/bin/sh
# self.sh WORK CC - tests the mutator and tests/tools/mutants.conf. The mutator finds all mutants of sample.c, each
# mutant is the source with one mistake, a sample is reproducible, and a list with an unknown mutant is refused.
set -eu
cd "$(dirname "$0")/../.."
work=$1
export CC="$2"
mkdir -p "$work"

die() {
    echo "self.sh: $*" >&2
    exit 1
}

$CC -std=c11 tests/mutants/mutator.c tests/mutants/tokens.c -o "$work/mutator"
"$work/mutator" list tests/mutants/sample.c >"$work/found"
diff tests/mutants/sample.list "$work/found" || die "the mutants of sample.c are not those of sample.list"

# Each mutant differs from the source as its list entry says.
tab=$(printf '\t')
while IFS=$tab read -r file number line _ _ before after; do
    "$work/mutator" apply "$file" "$number" >"$work/mutant.c"
    diff "$file" "$work/mutant.c" >"$work/diff" && die "mutant $number is the source"
    grep -q "^${line}c$line\$" "$work/diff" || die "mutant $number changed another line than $line"
    sed -n 's/^> *//p' "$work/diff" | grep -qF "$after" || die "mutant $number has no \"$after\""
    sed -n 's/^< *//p' "$work/diff" | grep -qF "$before" || die "mutant $number did not replace \"$before\""
done <tests/mutants/sample.list

# A lock that is released without being taken is reported; one that was taken is not.
for taken in 'lock_take(lock);' ''; do
    cat >"$work/locks.c" <<TEXT
#include "core/ground/lock.h"
void both(struct lock *lock);
void both(struct lock *lock)
{
    $taken
    lock_give(lock);
}
TEXT
    expected=${taken:+held}
    sh tests/mutants/locks.sh 'cc @FIRST@ -D_GNU_SOURCE -std=c11 -o @OUT@ -w -c @SOURCE@' "$work/locks.c" -Isrc \
        2>"$work/errors" && found=held || found=
    [ "$found" = "$expected" ] || ! command -v clang >/dev/null || die "clang's analysis of \"$taken\": $found"
done

# A sample is reproducible, has the requested size, depends on the seed, and is part of the whole.
for seed in 1 1 2; do
    "$work/mutator" list --sample 9 --seed $seed tests/mutants/sample.c >"$work/sample"
    [ "$(wc -l <"$work/sample")" -eq 9 ] || die "a sample of 9 does not have 9 mutants"
    [ "$(sort "$work/found" "$work/sample" | uniq -d | wc -l)" -eq 9 ] || die "a sample has a mutant that the whole list lacks"
    cksum <"$work/sample"
done >"$work/sums"
[ "$(sort "$work/sums" | uniq -c | awk '{ print $1 }' | sort | tr '\n' ' ')" = '1 2 ' ] ||
    die "samples of one seed differ, or samples of two seeds do not"

# Wrong arguments are refused.
for wrong in '--sample x' '--shard 3/2' '--file README.md' '--workers 0' '--nothing' '--seed'; do
    status=0
    # shellcheck disable=SC2086 # lists of words
    sh tests/tools/mutants.sh $wrong >"$work/out" 2>&1 || status=$?
    [ $status -eq 2 ] || die "\"$wrong\" has status $status instead of 2"
done

MUTANTS_BUILD=$work sh tests/tools/mutants.sh --check || die "tests/tools/mutants.conf is wrong"
check_refuses() { # LINE...
    printf '%s\n' "$@" >"$work/conf"
    ! MUTANTS_BUILD=$work MUTANTS_CONF=$work/conf sh tests/tools/mutants.sh --check >"$work/out" 2>&1 ||
        die "a list was not refused: $*"
}
check_refuses 'src/core/ground/arith.h min_of' '    return a < b ? b : a;' '    => return a <= b ? b : a;' '    why it is not there'
check_refuses 'src/core/ground/arith.h min_of' '    return a < b ? a : b;' '    => return a <= b ? a : b;'
check_refuses 'src/core/ground/arith.h min_of' '    => return a <= b ? a : b;' '    why it was nothing before'
# A build that fails is reported and ends the run.
mkdir -p "$work/programs"
printf '#!/bin/sh\n' >"$work/programs/cmake"
printf '#!/bin/sh\necho "FAILED: a file"\nexit 1\n' >"$work/programs/ninja"
chmod +x "$work/programs/cmake" "$work/programs/ninja"
status=0
PATH=$work/programs:$PATH MUTANTS_BUILD=$work/dead sh tests/tools/mutants.sh --sample 1 >"$work/out" 2>&1 || status=$?
[ $status -eq 2 ] || die "a build that fails gives the status $status instead of 2"
[ "$(grep -c -e 'FAILED: a file' -e 'plain cannot be built' "$work/out")" -eq 2 ] || die "a build that fails is not reported"
echo "$(wc -l <"$work/found") mutants of the sample found, all as expected"
