#!/bin/sh
# manual.sh SOURCE BUILD - check the manual pages. Each command has a page with exactly the options that `weir help` lists.
# Each page names all the others. The grammar of policies is that of policy.h, and the examples are valid. If the pages have
# been built, mandoc or man checks them; with neither of the two the exit status is 77.
set -eu
source=$1
build=$2
weir=$build/src/weir
pages=$source/src/cli
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
failed=0

wrong() {
    echo "$*" >&2
    failed=1
}

# options FILE - print each -x and --word of the file, one a line.
options() {
    grep -oE -e '(^|[^-a-z])--?[a-zA-Z][a-z-]*' "$1" | sed 's/^[^-]*//' | sort -u
}

# same WHAT FILE FILE - check that both files have the same lines; WHAT describes a difference.
same() {
    what=$1
    shift
    diff "$@" >"$scratch/difference" || { wrong "$what" && cat "$scratch/difference" >&2; }
}

# ---- Commands and options ----

"$weir" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p' >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 5 ] || wrong 'weir help names no commands'
while read -r command; do
    page=$pages/weir-$command.1.scd
    if ! [ -f "$page" ]; then
        wrong "weir $command has no manual page"
        continue
    fi
    "$weir" help "$command" >"$scratch/help"
    # Compare the lines of the help that begin with an option with those in the page's OPTIONS.
    sed -n 's/^  *\(\(-[a-zA-Z], \)\{0,1\}--[a-z-]*\).*/\1/p' "$scratch/help" >"$scratch/lines"
    options "$scratch/lines" >"$scratch/said"
    sed -n '/^# OPTIONS/,/^# [A-NP-Z]/s/^\*-/*-/p' "$page" | tr -d '*' >"$scratch/lines"
    options "$scratch/lines" >"$scratch/written"
    same "lines with <: options of 'weir help $command' that weir-$command(1) lacks; with >: the other way round" \
        "$scratch/said" "$scratch/written"
    # Examples use only these options.
    sed -n -e "s/^	weir $command //p" -e "s/^	weir $command\$//p" "$page" >"$scratch/lines"
    options "$scratch/lines" | while read -r option; do
        grep -qxF -e "$option" "$scratch/said" || echo "$option"
    done >"$scratch/unknown"
    [ ! -s "$scratch/unknown" ] || wrong "examples of weir-$command(1) have unknown options:" \
        "$(cat "$scratch/unknown")"
done <"$scratch/commands"

# ---- Each page names the others ----

for page in "$pages"/*.scd; do
    sed -n '/^# SEE ALSO/,$p' "$page" | tr ' ' '\n' | tr -d '*,' >"$scratch/see"
    for other in "$pages"/*.scd; do
        name=$(basename "$other" .scd)
        name=${name%.*}'('${name##*.}')'
        if [ "$page" = "$other" ]; then
            sed 1q "$page" | grep -qxF -e "$name" || wrong "$page does not begin with $name"
        else
            grep -qxF -e "$name" "$scratch/see" || wrong "$page does not name $name"
        fi
    done
done

# ---- Policies ----

sed -n 's/^ \* *\([a-z_]* *limit=N period=TIME.*\)/\1/p' "$source/include/weir/policy.h" | tr -s ' ' >"$scratch/header"
sed -n 's/^	\([a-z_]* limit=_N_ period=_TIME_.*\)/\1/p' "$pages/weir-policy.5.scd" |
    sed -e 's/_N_/N/g' -e 's/_TIME_/TIME/g' >"$scratch/page"
[ -s "$scratch/header" ] || wrong 'policy.h has no grammar of policies'
same 'lines with <: the grammar in policy.h; with >: in weir-policy(5)' "$scratch/header" "$scratch/page"
sed -n 's/^	\([a-z].* = .*\)/\1/p' "$pages/weir-policy.5.scd" | sed 's|[\\]||g' >"$scratch/policies"
[ "$(wc -l <"$scratch/policies")" -ge 5 ] || wrong 'weir-policy(5) has no examples'
"$weir" check "$scratch/policies" >"$scratch/answer" || wrong 'weir check refuses the examples of weir-policy(5)'

# ---- The built pages ----

[ $failed -eq 0 ] || exit 1
set -- "$build"/src/weir*.[15]
if [ ! -f "$1" ]; then
    echo "$(wc -l <"$scratch/commands") commands have their pages, which were not built: scdoc is missing"
    exit 0
fi
[ $# -eq "$(find "$pages" -name '*.scd' | wc -l)" ] || wrong "not every page was built: $*"
if command -v mandoc >/dev/null; then
    # Ignore that scdoc writes redundant paragraphs, that names are in lower case, and that lines are long.
    mandoc -T lint "$@" | grep -v -e 'skipping paragraph macro' -e 'STYLE: input text line longer' \
        -e 'STYLE: lower case character in document title' >&2 && wrong 'mandoc reports this about the pages'
elif command -v man >/dev/null; then
    for page in "$@"; do
        man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null | grep . >&2 && wrong "man reports this about $page"
    done
else
    echo 'SKIPPED: neither mandoc nor man is here to check the pages' >&2
    exit 77
fi
[ $failed -eq 0 ] || exit 1
echo "$(wc -l <"$scratch/commands") commands have pages without mistakes"
