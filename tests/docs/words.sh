#!/bin/sh
# words.sh SOURCE BUILD - what README.md names in its sentences is there: commands with their options, names of the API,
# files, and what its links point at. BUILD is the folder of the build; of programs that are not in it nothing is said.
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
here=$PWD
# shellcheck source=tests/docs/rules.sh
. "$here/rules.sh"
take "$source/README.md"
cd "$source"
failed=0
told=0

wrong() {
    echo "README.md:$line: $*" >&2
    failed=1
}

# help_of COMMAND... - what it says of its options, into $scratch/help.
help_of() {
    "$@" --help >"$scratch/help" 2>&1 || [ -s "$scratch/help" ] || wrong "$* says nothing of its options"
    told=$((told + 1))
}

# tells WORD... - the help has each of them that is an option, and all that is given to --only and --scenario.
tells() {
    before=
    for word in "$@"; do
        word=${word#[}
        word=${word%]}
        case $before/$word in
        */--* | --only/* | --scenario/*)
            for one in $(echo "$word" | tr , ' '); do
                grep -qw -e "$one" "$scratch/help" || wrong "there is no $one in: $span"
            done
            ;;
        esac
        before=$word
    done
}

# program FILE WORD... - one of the build's.
program() {
    file=$build/$1
    shift
    if [ -x "$file" ] && [ $# -gt 0 ]; then
        help_of "$file"
        tells "$@"
    fi
}

script() { # FILE WORD...
    if ! [ -f "$1" ] || ! sh -n "$1"; then
        wrong "there is no script $1"
        return 0
    fi
    help_of sh "$1"
    if [ "$1" = bench/run.sh ]; then # its options are the program's
        [ -x "$build/bench/weir-bench" ] || return 0
        help_of "$build/bench/weir-bench"
    fi
    shift
    tells "$@"
}

weir_command() { # WORD...
    name=$1
    shift
    [ "$name" != help ] || { name=$1 && shift; }
    "$build/src/weir" help "$name" >"$scratch/help" || wrong "there is no command: $span"
    told=$((told + 1))
    tells "$@"
}

# An option in a sentence of its own is one of some command's.
option() {
    for name in replay check try; do
        "$build/src/weir" help "$name"
    done >"$scratch/help"
    tells "$@"
}

preset() { # --workflow --preset NAME
    if [ "$1 $2" != '--workflow --preset' ] ||
        ! sed -n '/"workflowPresets"/,$p' CMakePresets.json | grep -qF "\"name\": \"$3\""; then
        wrong "there is no such preset: $span"
    fi
}

policy() {
    echo "p = $span" | "$build/src/weir" check - >"$scratch/help" || wrong "weir check refuses: $span"
}

# A name of the API, an option of CMake, or of the environment.
name() {
    grep -qrw -e "${span%()}" include CMakeLists.txt src || wrong "nothing is called $span"
}

command_of() {
    set -f
    # shellcheck disable=SC2086 # a list of words
    set -- $span
    set +f
    case $span in
    'sh '*) shift && script "$@" ;;
    build/release/*) file=${1#build/release/} && shift && program "$file" "$@" ;;
    'sim '*) shift && program tests/sim "$@" ;;
    'weir-bench '*) shift && program bench/weir-bench "$@" ;;
    'cmake --workflow '*) shift && preset "$@" ;;
    'weir '*) shift && weir_command "$@" ;;
    --*) option "$@" ;;
    'cc '* | 'pkg-config '* | 'man '*) : ;; # by install.sh
    cmake* | ctest* | sudo* | apt* | bash* | ./*) wrong "a command that no rule in tests/docs/words.sh knows: $span" ;;
    *_bucket\ * | *_window\ *) policy ;;
    weir_*[!a-z0-9_\(\)]*) : ;;
    weir_* | WEIR_*) name ;;
    */*.[ch] | */*.sh | tests/* | src/* | bench/* | lua/*)
        path=$(echo "$span" | sed 's/<algorithm>/token_bucket/')
        [ -e "$path" ] || [ -e "include/$path" ] || wrong "there is no $span"
        ;;
    esac
}

while IFS="$(printf '\t')" read -r line span; do
    command_of </dev/null
done <"$blocks/spans"

# The anchors of headings, as GitHub makes them.
# shellcheck disable=SC2016 # backticks as they are
sed -n '/^```/,/^```/!s/^##* //p' README.md | tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g' \
    >"$scratch/anchors"
while IFS="$(printf '\t')" read -r line target; do
    case $target in
    https://*) : ;;
    '#'*) grep -qxF -e "${target#?}" "$scratch/anchors" || wrong "no heading is $target" ;;
    *) [ -e "$target" ] || wrong "there is no $target" ;;
    esac
done <"$blocks/links"
twice=$(sort "$scratch/anchors" | uniq -d)
[ -z "$twice" ] || wrong "two headings are called $twice"

if [ "$told" -lt 10 ]; then
    echo "README.md names $told commands: too few were found" >&2
    exit 1
fi
[ $failed -eq 0 ] || exit 1
echo "$(wc -l <"$blocks/spans") words and $(wc -l <"$blocks/links") links of README.md, $told commands among them"
