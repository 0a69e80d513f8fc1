#!/bin/sh
# worker.sh BUILD LIST OUT - makes the mutants of LIST, runs the tests that reach each until one fails, and reports the
# results; for tests/tools/mutants.sh.
#
# A line of LIST is one of `mutator list`, then the tests' ranks (lines of BUILD/tests), the quickest first. OUT gets
# a line for each mutant: result, test, file, number, line, function, kind, the text before, the text after.
#
#     caught       a test failed, or hung (took much longer than usual); or clang found a lock that is not held
#     survived     no test failed
#     same         the compiler makes the same code of it in an installed build: it changes nothing
#     impossible   it does not compile
#
# Only the changed code is compiled: the mutant's file or, if that is a header, the objects that use the function. A
# program is linked when its first test runs, with these objects before the library. A survivor is tried once more in
# BUILD/sanitized, where leaks and invalid reads are failures.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
build=$1 list=$2 out=$3
. tests/tools/scratch.sh
work=$scratch
trap 'exit 2' INT TERM
ulimit -f 200000 # blocks: a test may print without end
mkdir -p "$work/source" "$work/last"

die() {
    echo "worker.sh: $*" >&2
    exit 2
}

# ---- Compiling ----

# compile FLAVOUR OBJECT SOURCE OUT [FLAG...] - compile as FLAVOUR's build does; headers of $work/over come first.
compile() {
    command=$(awk -F '\t' -v object="$2" '$1 == object { print $2 }' "$build/$1.commands" |
        sed "s|@SOURCE@|$3|; s|@OUT@|$4|; s|@FIRST@|-I$work/over|")
    shift 4
    (cd "$build/plain" && eval "$command $*") 2>"$work/errors"
}

# source_of OBJECT - print the path of the mutant's source, or of a source that uses its header.
source_of() {
    case $file in
    *.c) echo "$work/source/$(basename "$file")" ;;
    *) awk -F '\t' -v object="$1" '$1 == object { print $3 }' "$build/plain.commands" ;;
    esac
}

# make_objects FOLDER FLAVOUR [FLAG...] - compile the source in place: the mutant or the original.
make_objects() {
    folder=$1 flavour=$2
    shift 2
    mkdir -p "$folder"
    for object in $objects; do
        compile "$flavour" "$object" "$(source_of "$object")" "$folder/$(echo "$object" | tr / +)" "$@" || return 1
    done
}

# same_code FOLDER FOLDER - succeed if the objects in both are identical.
same_code() {
    for object in $objects; do
        cmp -s "$1/$(echo "$object" | tr / +)" "$2/$(echo "$object" | tr / +)" || return 1
    done
}

place_original() {
    mkdir -p "$(dirname "$place")"
    cp "$file" "$place"
}

place_mutant() {
    "$build/mutator" apply "$file" "$number" >"$place"
}

# ---- Testing ----

# link_program FLAVOUR OBJECTS-FOLDER PROGRAM - link with the mutant's objects before the library and in place of the test's.
link_program() {
    command=$(awk -F '\t' -v program="$3" '$1 == program { print $2 }' "$build/$1.links")
    [ -n "$command" ] || die "found no link command for $3"
    front=
    for object in $objects; do
        made=$2/$(echo "$object" | tr / +)
        case $object:$3 in
        tests/CMakeFiles/weir_test_support.dir/*:test_* | tests/fuzz/CMakeFiles/*_support.dir/*:fuzz/* | src/*)
            front="$front $made"
            ;;
        tests/*/CMakeFiles/"$3".dir/* | tests/fuzz/CMakeFiles/"${3#fuzz/}".dir/* | tests/*/CMakeFiles/shared_*.dir/* | \
            tests/fuzz/CMakeFiles/weir_fuzz_seeds.dir/*)
            command=$(echo "$command" | sed "s|$object|$made|")
            ;;
        esac
    done
    command=$(echo "$command" | sed "s|@OUT@|$4|; s|@OBJECTS@|$front|")
    (cd "$build/$1" && eval "$command") 2>"$work/errors"
}

# run_test PROGRAM SECONDS RANK - return the test's exit status, or one of those below if it hung. It may use that much
# processor time, and a minute plus ten times as long on a busy machine.
run_test() {
    entry=$(sed -n "$3p" "$build/tests")
    IFS=$tab read -r name steps case <<LINE
$(echo "$entry" | cut -f 3-5)
LINE
    (
        cd "$build/plain/tests"
        [ "$steps" = - ] || export WEIR_TEST_STEPS="$steps"
        export CK_FORK=no
        # shellcheck disable=SC3045 # all current shells have it
        ulimit -t "$2"
        wait=$((60 + 10 * $2))
        case $name in
        test_*)
            [ -z "$case" ] || export CK_RUN_CASE="$case"
            exec timeout -k 1 $wait "$1"
            ;;
        *)
            # shellcheck disable=SC2086 # a list of words
            exec timeout -k 1 $wait "$1" $case
            ;;
        esac
    ) >"$work/log" 2>&1 </dev/null
}

# try_tests FLAVOUR OBJECTS-FOLDER FACTOR - run the tests; set `what` and `by`.
try_tests() {
    rm -rf "$work/programs"
    mkdir -p "$work/programs"
    for rank in $tests; do
        name=$(sed -n "${rank}p" "$build/tests" | cut -f 3)
        limit=$(sed -n "${rank}p" "$build/tests" | cut -f 2)
        program=$work/programs/$(basename "$name")
        if [ ! -e "$program" ] && ! link_program "$1" "$2" "$name" "$program"; then
            what=impossible by=$name # a symbol is missing
            return
        fi
        status=0
        run_test "$program" $((limit * $3)) "$rank" || status=$?
        [ $status -ne 0 ] || continue
        case $status in
        125 | 126 | 127) die "$name cannot be run: $(tail -n 1 "$work/log")" ;;
        esac
        what=caught by=$(sed -n "${rank}p" "$build/tests" | cut -f 3,5 | tr '\t' ' ')
        case $status in
        124 | 137 | 152) by="hung: $by" ;;
        esac
        echo "$rank" >"$work/last/$(basename "$file")"
        return
    done
}

# A test that also fails with the original under the sanitizers catches nothing.
try_sanitized() {
    [ -e "$build/sanitized.commands" ] || return 0
    make_objects "$work/sanitized" sanitized || return 0
    try_tests sanitized "$work/sanitized" 10
    [ "$what" = caught ] || return 0
    if ! run_test "$build/sanitized/tests/$name" $((limit * 10)) "$rank"; then
        what=survived by=-
        rest=
        for other in $tests; do
            [ "$other" = "$rank" ] || rest="$rest $other"
        done
        tests=$rest
        try_sanitized
        return
    fi
    by="sanitizers: $by"
}

# ---- One mutant ----

objects_of() {
    case $file in
    src/core/*.c) echo "src/CMakeFiles/weir_core.dir/${file#src/}.o" ;;
    *.c) echo "src/CMakeFiles/weir_backends.dir/${file#src/}.o" ;;
    *) awk -F '\t' -v name="${function% =}" '$2 == name { print $1 }' "$build/uses" ;;
    esac
}

locks_are_held() {
    for object in $objects; do
        command=$(awk -F '\t' -v object="$object" '$1 == object { print $2 }' "$build/plain.commands")
        (cd "$build/plain" && sh "$root/tests/mutants/locks.sh" "$command" "$(source_of "$object")" "-I$work/over") \
            2>"$work/errors" || return 1
    done
}

one() {
    what=survived by=-
    rm -rf "${work:?}/over"
    case $file in
    *.c) place=$work/source/$(basename "$file") ;;
    *) place=$work/over/${file#src/} ;;
    esac
    objects=$(objects_of)
    if [ -z "$objects" ]; then
        by='used by nothing'
        return
    fi
    original=$work/original/$(echo "$file $objects" | cksum | tr ' ' -)
    if [ ! -d "$original" ]; then
        place_original
        make_objects "$original" plain
    fi
    place_mutant
    if ! make_objects "$work/mutant" plain; then
        what=impossible
        return
    elif same_code "$original" "$work/mutant"; then
        what=same
        return
    fi
    last=$(cat "$work/last/$(basename "$file")" 2>/dev/null) || last=
    case " $tests " in
    *" $last "*) tests="$last $tests" ;;
    esac
    try_tests plain "$work/mutant" 1
    [ "$what" = survived ] || return 0
    if ! locks_are_held; then
        what=caught by="clang's analysis of locks"
        return
    fi
    make_objects "$work/mutant2" plain -O2 -DNDEBUG
    place_original
    make_objects "$work/original2" plain -O2 -DNDEBUG
    if same_code "$work/original2" "$work/mutant2"; then
        what=same
        return
    fi
    place_mutant
    try_sanitized
}

tab=$(printf '\t')
: >"$out"
while IFS=$tab read -r file number line function sort before after tests; do
    one
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$what" "$by" "$file" "$number" "$line" "$function" "$sort" "$before" \
        "$after" >>"$out"
done <"$list"
