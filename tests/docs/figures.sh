#!/bin/sh
# figures.sh SOURCE WEIR_BENCH - measured figures in README.md and docs/ say how they were taken. A comment in the page,
#     <!-- figures: COMMAND -->
# begins a passage with figures, which ends at the next such comment or heading. The passage must name the command, the
# processor, and the options: "default", and `name=value` or the life of leases for each that the benchmark sets itself.
# WEIR_BENCH runs with the command's options, only briefly, and its results tell which these are. A page that names a
# processor outside such a passage is wrong.
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
bench=$2
# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
here=$PWD
# shellcheck source=tests/docs/rules.sh
. "$here/rules.sh"
cd "$source"
failed=0
count=0

wrong() {
    echo "$page: $command: $*" >&2
    failed=1
}

has() {
    grep -qF -e "$1" "$scratch/passage" || wrong "the text beside the figures does not say: $1"
}

# options_of OPTION...: write what the benchmark sets with these options to $scratch/options, one a line.
options_of() {
    "$bench" "$@" --quick --repeat 1 --seconds 0.001 --json "$scratch/json" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        wrong "weir-bench failed"
    }
    sed -n '/"options": \[/,/\]/s/^ *"\([^"]*\)",*$/\1/p' "$scratch/json" | sort -u >"$scratch/options"
    ! grep 'NOT MEASURED' "$scratch/log" >&2 || return 1
}

check() {
    count=$((count + 1))
    has "\`$command\`"
    grep -qE 'EPYC|Xeon' "$scratch/passage" || wrong 'the text beside the figures does not name a processor: EPYC or Xeon'
    grep -qi default "$scratch/passage" || wrong 'the text beside the figures does not say what the default options are'
    set -f
    # shellcheck disable=SC2086 # a list of words
    set -- $command
    set +f
    shift
    case $1 in
    bench/run.sh) ;;
    replay | suggest) return ;; # the program's options are in the command
    *)
        sh "$1" --help | tr '\n' ' ' | grep -q 'default' || wrong "$1 --help does not say that options are the defaults"
        return
        ;;
    esac
    shift
    options_of "$@" || return 0 # without Consul, for one
    while read -r option; do
        case $option in
        leases*) has "$option" ;;
        *) has "\`$option\`" ;;
        esac
    done <"$scratch/options"
    tr -d '\140' <"$scratch/passage" | tr ' ,;()' '\n' | grep '^[a-z_]*=[A-Z_0-9]*$' >"$scratch/said" || true
    while read -r option; do
        grep -qxF -e "$option" "$scratch/options" || wrong "the benchmark does not set $option"
    done <"$scratch/said"
}

for page in $(pages); do
    rm -f "$scratch"/passage.*
    awk -v out="$scratch/passage" '
        /^<!-- figures: .* -->$/ {
            file = out "." ++n
            command = $0; sub(/^<!-- figures: /, "", command); sub(/ -->$/, "", command)
            print command >(file ".command")
            next
        }
        /^#/ { file = "" }
        file { printf "%s ", $0 >file }
        !file && /EPYC/ { print FILENAME ":" FNR ": a processor, but no <!-- figures: COMMAND --> before it" >"/dev/stderr"; bad = 1 }
        END { exit bad }' "$page" || failed=1
    for file in "$scratch"/passage.*.command; do
        [ -e "$file" ] || continue
        command=$(cat "$file")
        mv "${file%.command}" "$scratch/passage"
        check
    done
done
[ "$count" -ge 8 ] || {
    echo "only $count passages have figures: too few were found" >&2
    exit 1
}
[ $failed -eq 0 ] || exit 1
echo "$count passages say how their figures were taken"
