#!/bin/sh
# words.sh SOURCE BUILD - check that what README.md and docs/ name in their sentences exists: commands with their options,
# names of the API, files, the targets of links, and metrics. BUILD is the folder of the build; programs that it lacks are
# skipped.
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
build=$2
# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
here=$PWD
# shellcheck source=tests/docs/rules.sh
. "$here/rules.sh"
cd "$source"
failed=0
told=0
spans=0
links=0

wrong() {
    echo "$page:$line: $*" >&2
    failed=1
}

# help_of COMMAND... - write its --help to $scratch/help.
help_of() {
    "$@" --help >"$scratch/help" 2>&1 || [ -s "$scratch/help" ] || wrong "$* says nothing of its options"
    told=$((told + 1))
}

# tells WORD... - check that the help has each WORD that is an option, and each argument of --only and --scenario.
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

# program FILE WORD... - check a program of the build.
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

# A lone option in a sentence belongs to one of these commands.
option() {
    for name in replay suggest check try serve; do
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

policy() { # with or without a name
    case $span in
    *' = '*) echo "$span" ;;
    *) echo "p = $span" ;;
    esac | "$build/src/weir" check - >"$scratch/help" || wrong "weir check refuses: $span"
}

# A name of the API, an option of CMake, or an environment variable.
name() {
    grep -qrw -e "${span%()}" include CMakeLists.txt src || wrong "nothing is called $span"
}

# A directive of the nginx module.
directive() { # NAME...
    grep -qF "ngx_string(\"${1%;}\")" src/nginx/directives.c || wrong "the nginx module has no directive $span"
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
    weir*\;) directive "$@" ;;
    'weir '*) shift && weir_command "$@" ;;
    --*) option "$@" ;;
    'cc '* | 'pkg-config '* | 'man '*) : ;; # by install.sh
    cmake* | ctest* | sudo* | apt* | bash* | ./*) wrong "a command that no rule in tests/docs/words.sh knows: $span" ;;
    *_bucket\ * | *_window\ *) policy ;;
    weir_*[!a-z0-9_\(\)]*) : ;;
    weir_* | WEIR_*) name ;;
    */*.[ch] | */*.sh | tests/* | src/* | bench/* | lua/*)
        path=$(echo "$span" | sed -e 's/<algorithm>/token_bucket/' -e 's/\[ch\]$/c/')
        [ -e "$path" ] || [ -e "include/$path" ] || [ -e "src/backends/$path" ] || wrong "there is no $span"
        ;;
    esac
}

# anchors PAGE - print the anchors of a page's headings, as GitHub makes them.
anchors() {
    # shellcheck disable=SC2016 # backticks as they are
    sed -n '/^```/,/^```/!s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

# link TARGET - check a link of $page.
link() {
    case $1 in
    https://*) return ;;
    '#'*) file=$page ;;
    *) file=$(dirname "$page")/${1%%#*} ;;
    esac
    if ! [ -e "$file" ]; then
        wrong "there is no $1"
        return
    fi
    case $1 in
    *'#'*) anchors "$file" | grep -qxF -e "${1#*#}" || wrong "no heading is $1" ;;
    esac
}

for page in $(pages); do
    take "$page"
    touch "$blocks/spans" "$blocks/links"
    while IFS="$(printf '\t')" read -r line span; do
        command_of </dev/null
    done <"$blocks/spans"
    while IFS="$(printf '\t')" read -r line target; do
        link "$target"
    done <"$blocks/links"
    twice=$(anchors "$page" | sort | uniq -d)
    line=1
    [ -z "$twice" ] || wrong "two headings are called $twice"
    spans=$((spans + $(wc -l <"$blocks/spans")))
    links=$((links + $(wc -l <"$blocks/links")))
done

# The metrics that alert rules and the dashboard use.
for page in docs/alerts.yml docs/dashboard.json; do
    grep -no 'weir_[a-z_]*' "$page" >"$scratch/metrics" || echo "1:none" >"$scratch/metrics"
    while IFS=: read -r line metric; do
        cat src/core/text/*_text.c | grep -qF "\"$metric\"" || wrong "no metric is called $metric"
    done <"$scratch/metrics"
done

if [ "$told" -lt 10 ]; then
    echo "the pages name $told commands: too few were found" >&2
    exit 1
fi
[ $failed -eq 0 ] || exit 1
echo "$spans words and $links links of all pages, $told commands among them"
