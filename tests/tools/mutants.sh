#!/bin/sh
# mutants.sh - makes small mistakes in src/core and src/backends, one at a time, and counts those that the tests catch. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --mutants [--file FILE]... [--sample N] [--seed S] [--shard I/N] [--workers N] [--list] [--check]

Makes small mistakes in src/core and src/backends, one at a time: another bound, operator or constant, a condition turned round, a
statement left out. Then it runs the tests that reach the place until one fails, and prints a table: how many mutants of
each file the tests caught, and below it those that they did not. It uses the tests that need no server, with fewer random
steps than they take by themselves; what survives them is tried once more under AddressSanitizer and
UndefinedBehaviorSanitizer, and has its locks checked by clang if that is there. All of them take many hours.

  --file FILE     of this file only (src/core/ground/x.c), or of the files of this folder (src/backends); may be given
                  more than once
  --sample N      N mutants by chance, rather than all
  --seed S        another sample of that size; the default is 1
  --shard I/N     every N-th mutant from the I-th on: to share the work
  --workers N     how many at once; the default is four a processor, for tests wait more than they count
  --list          print the mutants, and make none
  --check         make none, and say what is wrong with tests/tools/mutants.conf

Not counted: what does not compile, what compiles to the same code, and what tests/tools/mutants.conf says a caller cannot
see, and why: those are told as argued. The results stay in build/mutants/results.
Exit status: 0 at least 95 % are caught, 1 fewer are, 2 wrong arguments, a mistake in the list, or a build that fails.
TEXT
}

die() {
    echo "mutants.sh: $*" >&2
    exit 2
}

number() { # OPTION WORD
    case $2 in
    '' | *[!0-9]*) die "$1 must be followed by a number, not \"$2\"" ;;
    esac
}

sources_in() { # FILE or FOLDER...
    find "$@" -name '*.[ch]' | sort | tr '\n' ' '
}

files='' sample='' seed=1 shard=1 shards=1 workers=$((4 * jobs)) only=''
conf=${MUTANTS_CONF:-tests/tools/mutants.conf} build=${MUTANTS_BUILD:-build/mutants} goal=95
while [ $# -gt 0 ]; do
    case $1 in
    --file | --sample | --seed | --shard | --workers)
        [ $# -gt 1 ] || die "$1 must be followed by a word"
        case $1 in
        --file)
            case $2 in
            src/core | src/core/* | src/backends | src/backends/*) [ -r "$2" ] || die "$2 cannot be read" ;;
            *) die "--file must be followed by a file or folder of src/core or src/backends, not \"$2\"" ;;
            esac
            files="$files $(sources_in "$2")"
            ;;
        --sample) number "$1" "$2" && sample=$2 ;;
        --seed) number "$1" "$2" && seed=$2 ;;
        --workers) number "$1" "$2" && workers=$2 ;;
        --shard)
            shard=${2%/*} shards=${2#*/}
            number "$1" "$shard"
            number "$1" "$shards"
            if [ "$shard" -lt 1 ] || [ "$shard" -gt "$shards" ]; then
                die "--shard is I/N with I from 1 to N, not \"$2\""
            fi
            ;;
        esac
        shift
        ;;
    --list | --check) only=$1 ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
[ "$workers" -gt 0 ] || die "--workers must be at least 1"
[ -n "$files" ] || files=$(sources_in src/core src/backends)

# ---- The mutants ----

mkdir -p "$build"
cc=${CC:-cc}
$cc -std=c11 -O1 tests/mutants/mutator.c tests/mutants/tokens.c -o "$build/mutator"
# shellcheck disable=SC2086 # lists of words
"$build/mutator" list ${sample:+--sample "$sample" --seed "$seed"} $files |
    awk -v shard="$shard" -v shards="$shards" 'NR % shards == shard % shards' >"$build/list"
if [ "$only" = --list ]; then
    cat "$build/list"
    exit 0
fi

# What is argued, as lines of file, function, text before, text after.
argued() {
    awk -v OFS='\t' '
        function bad(why) { print FILENAME ":" FNR ": " why >"/dev/stderr"; failed = 1 }
        function ends() { if (open) bad("the mutants above have no `why`") }
        /^#/ || /^[ \t]*$/ { next }
        /^[^ \t]/ {
            ends()
            file = $1
            name = $0
            sub(/^[^ \t]+[ \t]+/, "", name)
            before = ""
            if (file !~ /^src\/(core|backends)\//) bad("\"" file "\" is no file of src/core or src/backends")
            next
        }
        {
            rest = $0
            sub(/^[ \t]+/, "", rest)
            if (rest ~ /^why ./) { if (!open) bad("a `why` of nothing"); open = 0; before = "" }
            else if (rest ~ /^=> /) {
                if (before == "") bad("what the text was comes before what it becomes")
                print file, name, before, substr(rest, 4)
                open = 1
            } else { ends(); before = rest }
        }
        END { ends(); exit failed }' "$conf"
}
argued >"$build/argued" || exit 2

# Of each that is argued there must be a mutant.
cut -f 1 "$build/argued" | sort -u | while read -r file; do
    [ ! -r "$file" ] || "$build/mutator" list "$file"
done | awk -F '\t' -v conf="$conf" '
    FNR == NR { there[$1, $4, $6, $7] = 1; next }
    !(($1, $2, $3, $4) in there) { print conf ": there is no such mutant: " $1 " " $2 ": " $3 " => " $4; failed = 1 }
    END { exit failed }' - "$build/argued" >&2 || exit 2
if [ "$only" = --check ]; then
    echo "$(wc -l <"$build/argued") mutants argued, all of them there"
    exit 0
fi

# ---- Builds: the tests, the tests with their lines counted, and those with sanitizers ----

build_tests() { # FOLDER [CMAKE ARGUMENTS...]
    folder=$build/$1
    shift
    say "building $folder"
    {
        cmake -S . -B "$folder" -G Ninja -DBUILD_TESTING=ON -DWEIR_CLI=OFF -DWEIR_SHARED=OFF -DWEIR_INSTALL=OFF \
            -DCMAKE_BUILD_TYPE=Debug -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" &&
            ninja -C "$folder" -j "$jobs"
    } >"$folder.log" 2>&1 || {
        tail -n 20 "$folder.log" >&2
        die "$folder cannot be built, see $folder.log"
    }
}
build_tests plain -DCMAKE_C_FLAGS_DEBUG=-O1
build_tests lines -DCMAKE_C_FLAGS_DEBUG=-O0 -DWEIR_COVERAGE=ON
build_tests sanitized -DCMAKE_C_FLAGS_DEBUG=-O1 "-DWEIR_SANITIZE=address;undefined"

say "looking which tests reach what"
sh tests/mutants/reach.sh "$build"

# How each object is compiled and each program linked: object, command, source; program, command.
for flavour in plain sanitized; do
    awk -v OFS='\t' '
        /"command":/ {
            sub(/^ *"command": "/, "")
            sub(/",$/, "")
            gsub(/\\"/, "\"")
            command = $0
            match(command, / -o [^ ]+/)
            object = substr(command, RSTART + 4, RLENGTH - 4)
            match(command, / -c [^ ]+/)
            source = substr(command, RSTART + 4, RLENGTH - 4)
            sub(/ -o [^ ]+/, " -o @OUT@", command)
            sub(/ -c [^ ]+/, " -w -c @SOURCE@", command)
            sub(/ /, " @FIRST@ ", command)
            print object, command, source
        }' "$build/$flavour/compile_commands.json" >"$build/$flavour.commands"
    ninja -C "$build/$flavour" -t commands all | awk -v OFS='\t' '
        match($0, / -o tests\/[^ ]+ /) {
            name = substr($0, RSTART + 10, RLENGTH - 11)
            sub(/^: && /, "")
            sub(/ && :$/, "")
            sub(/ -o tests\/[^ ]+ /, " @OBJECTS@ -o @OUT@ ")
            if (name !~ /\.(o|a)$/) print name, $0
        }' >"$build/$flavour.links"
done

# Which objects use which function: unused ones of headers are not there without optimisation.
(cd "$build/lines" && find src tests -name '*.c.o' -exec nm -A {} +) | awk -v OFS='\t' '
    $2 ~ /^[a-zA-Z]$/ && $2 != "U" { sub(/:.*/, "", $1); print $1, $3 }' >"$build/uses"

# The tests by their time, with the seconds after which one hangs, and the mutants each with those that reach its line.
# A line without code is of the code before it or soon after it; a value's is any line of its file.
awk -v OFS='\t' '{
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\.tests$/, "", name)
    print $1, int(10 * $1 + 5), $2, $3, $4 == "" ? "" : substr($0, index($0, $4)), name ":" FNR
}' FS='\t' "$build"/reach/*.tests | sort -n | cut -f 2- | awk '{ print NR "\t" $0 }' >"$build/tests"
[ -s "$build/tests" ] || die "there is no test"
awk -F '\t' -v OFS='\t' '
    FILENAME == ARGV[1] { rank[$6] = $1; next }
    FNR == 1 { name = FILENAME; sub(/.*\//, "", name); sub(/\.lines$/, "", name) }
    { print $1, ($2 > 0 ? rank[name ":" $2] : 0) }
    $2 > 0 { sub(/:.*/, "", $1); print $1 ":any", rank[name ":" $2] }' "$build/tests" "$build"/reach/*.lines |
    sort -u | sort -t "$(printf '\t')" -k 2,2n >"$build/reached"
awk -F '\t' -v OFS='\t' '
    FILENAME == ARGV[1] { if ($2 > 0) by[$1] = by[$1] " " $2; is_code[$1] = 1; next }
    function tests_of(at, line) {
        if ($4 ~ / =$/) return by[$1 ":any"]
        line = $3
        if (is_code[$1 ":" line]) return by[$1 ":" line]
        while (line > 0 && !is_code[$1 ":" line]) line--
        if (by[$1 ":" line] != "") return by[$1 ":" line]
        for (line = $3; line < $3 + 4 && !is_code[$1 ":" line]; line++);
        return by[$1 ":" line]
    }
    { print $0, tests_of() }' "$build/reached" "$build/list" >"$build/work"

# ---- The run ----

say "$(wc -l <"$build/work") mutants, $workers at once"
rm -f "$build"/results.* "$build"/work.*
awk -v workers="$workers" -v to="$build/work." '{ print >(to NR % workers) }' "$build/work"
pids=
trap 'kill $pids 2>/dev/null || true; exit 2' INT TERM
for part in "$build"/work.*; do
    sh tests/mutants/worker.sh "$PWD/$build" "$PWD/$part" "$PWD/$build/results.${part##*.}" &
    pids="$pids $!"
done
failed=false
for pid in $pids; do
    wait "$pid" || failed=true
done
cat "$build"/results.[0-9]* | sort -t "$(printf '\t')" -k 3,3 -k 4,4n >"$build/results"
! $failed || die "a worker ended before its time; what there is lies in $build/results"

# ---- The table ----

awk -F '\t' -v goal=$goal '
    FILENAME == ARGV[1] { argued[$1, $2, $3, $4] = 1; next }
    {
        what = $1
        if (what == "survived" && ($3, $6, $8, $9) in argued) what = "argued"
        if (!($3 in seen)) { seen[$3] = 1; files[++count] = $3 }
        n[$3, what]++
        all[what]++
        if (what == "survived") survivors[++survived] = $3 ":" $5 ": " $6 ": " $7 "\n    " $8 "\n    => " $9 "\n"
    }
    function row(name, caught, survived, argued, same, impossible) {
        return sprintf("%-44s %7d %7d %9s %7d %6d %11d\n", name, caught, survived,
            caught + survived ? sprintf("%.1f %%", 100 * caught / (caught + survived)) : "-", argued, same, impossible)
    }
    END {
        printf "%-44s %7s %7s %9s %7s %6s %11s\n", "file", "caught", "missed", "score", "argued", "same", "impossible"
        for (i = 1; i <= count; i++) {
            file = files[i]
            printf "%s", row(file, n[file, "caught"], n[file, "survived"], n[file, "argued"], n[file, "same"],
                n[file, "impossible"])
        }
        printf "%s", row("all", all["caught"], all["survived"], all["argued"], all["same"], all["impossible"])
        for (i = 1; i <= survived; i++) printf "\nSURVIVED %s", survivors[i]
        exit 100 * all["caught"] < goal * (all["caught"] + all["survived"])
    }' "$build/argued" "$build/results" >"$build/table" && status=0 || status=1
say "mutants caught"
cat "$build/table"
exit "$status"
