#!/bin/sh
# analyze.sh - analyzes the sources with four tools; analyze.conf lists their false positives. See --help.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."
. tests/tools/setup.sh

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh --analyze [--files PATTERN] [--list FILE] [--build FOLDER] [--out FOLDER] [TOOL...]

Runs static analysis and prints a table: the tool, the files, the findings, and how many of them are listed as false
positives in tests/tools/analyze.conf. Any other finding is a failure, and so is an entry of that list that matches
nothing. The logs in build/analyze/logs show the path to each finding. It takes about ten minutes on two processors.

  gcc       gcc -fanalyzer over src, bench, and the programs and helpers of the tests
  tidy      clang-tidy with the checks in .clang-tidy over src
  cppcheck  cppcheck over the same files except the fuzz targets
  shell     shellcheck over all shell scripts

  --files PATTERN  analyze only files whose path matches this extended regular expression
  --list FILE      read the false positives from this file instead of tests/tools/analyze.conf
  --build FOLDER   analyze all files in this folder's compile_commands.json, and configure nothing
  --out FOLDER     write the logs into this folder

Exit status: 0 no finding, 1 findings, 2 wrong arguments, a list that cannot be read, or missing packages.
TEXT
}

die() {
    echo "analyze.sh: $*" >&2
    exit 2
}

list=tests/tools/analyze.conf files='' build='' out='' tools=''
while [ $# -gt 0 ]; do
    case $1 in
    --files | --list | --build | --out)
        [ $# -gt 1 ] || die "$1 must be followed by a word"
        case $1 in
        --files) files=$2 ;;
        --list) list=$2 ;;
        --build) build=$2 ;;
        --out) out=$2 ;;
        esac
        shift
        ;;
    gcc | tidy | cppcheck | shell) tools="$tools $1" ;;
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
[ -n "$tools" ] || tools=' gcc tidy cppcheck shell'
[ -r "$list" ] || die "$list cannot be read"

tab=$(printf '\t')
own=false # whether the build is made here
[ -n "$build" ] || own=true
build=${build:-build/analyze}
out=${out:-$build/logs}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# ---- The list: tool, file, check, part; the reason is on the lines below ----

awk -v OFS="$tab" '
    function bad(why) { print FILENAME ":" line ": " why >"/dev/stderr"; failed = 1 }
    function entry_ends() {
        if (entry == "") return
        if (!has_reason) bad("an entry without a reason")
        print entry
        entry = ""
    }
    /^#/ || /^[ \t]*$/ { next }
    /^[ \t]/ { if (entry == "") { line = FNR; bad("a reason of nothing") } has_reason = 1; next }
    {
        entry_ends()
        line = FNR
        has_reason = 0
        if ($1 !~ /^(gcc|tidy|cppcheck|shell)$/) bad("\"" $1 "\" is no tool: gcc, tidy, cppcheck, shell")
        if (NF < 4) bad("an entry is a tool, a file, a check, and a part of the message or of the line that it is of")
        part = $0
        sub(/^[^ \t]+[ \t]+[^ \t]+[ \t]+[^ \t]+[ \t]+/, "", part)
        entry = FNR OFS $1 OFS $2 OFS $3 OFS part
    }
    END { entry_ends(); exit failed }
' "$list" >"$out/list" || exit 2

# ---- The files ----

if $own && [ "$tools" != ' shell' ]; then
    need_packages clang-tidy cppcheck
    say "configuring $build"
    cmake --preset debug -B "$build" -DWEIR_BENCH=ON >/dev/null
    cmake --build "$build" --target src/redis_scripts.c >/dev/null
fi

# Each file once, with the folder and the command of its first compilation: file, folder, command.
if [ "$tools" != ' shell' ]; then
    [ -r "$build/compile_commands.json" ] || die "there is no compile_commands.json in $build"
    awk -v OFS="$tab" -v root="$PWD/" -v pattern="$files" '
        function value(line) {
            sub(/^ *"[a-z]*": "/, "", line)
            sub(/",? *$/, "", line)
            gsub(/\\"/, "\"", line)
            gsub(/\\\\/, "\\", line)
            return line
        }
        /^ *"directory": / { folder = value($0) }
        /^ *"command": / { command = value($0) }
        /^ *"file": / {
            file = value($0)
            if (index(file, root) == 1) file = substr(file, length(root) + 1)
            if (!(file in seen) && (pattern == "" || file ~ pattern)) print file, folder, command
            seen[file] = 1
        }
    ' "$build/compile_commands.json" | sort >"$out/all"
    [ -s "$out/all" ] || die "no file to look at"
fi

# files_of PATTERN - writes the files that a tool analyzes into $out/units; with --build, all of them.
files_of() {
    if $own; then
        grep -E "^($1)" "$out/all" >"$out/units" || true
    else
        cp "$out/all" "$out/units"
    fi
}

everything='src/|bench/|build/|tests/(lab|sim|examples|fuzz)/|tests/[a-su-z][^/]*$'

# each TOOL LIMIT COMMAND - runs COMMAND for each of $out/units, for at most LIMIT seconds; it can use $file, $folder and
# $compile, the command that compiles it without its output. The tools' output goes to $out/TOOL.log. A file that a tool
# cannot analyze is a finding.
each() {
    tool=$1 limit=$2
    export command="$3"
    rm -rf "${out:?}/$tool.d"
    mkdir "$out/$tool.d"
    awk -F "$tab" -v at="$out/$tool.d/" '{ print $0 >(at NR ".unit"); close(at NR ".unit") }' "$out/units"
    # shellcheck disable=SC2016 # of that shell
    find "$out/$tool.d" -name '*.unit' -print0 | sort -z -V |
        xargs -0 -r -n 1 -P "$jobs" timeout "$limit" sh -c '
            tab=$(printf "\t")
            IFS=$tab read -r file folder compile <"$1"
            compile=$(printf "%s\n" "$compile" | sed "s/ -o [^ ]* -c / /")
            cd "$folder" && eval "$command" >"${1%.unit}.log" 2>&1 && rm "$1"
        ' look || true
    find "$out/$tool.d" -name '*.log' -print0 | sort -z -V | xargs -0 -r cat >"$out/$tool.log"
    for unit in "$out/$tool.d"/*.unit; do
        [ ! -e "$unit" ] ||
            echo "$(cut -f 1 "$unit"):1:1: warning: the tool failed, or took more than $limit s [failed]" >>"$out/$tool.log"
    done
    rm -r "$out/$tool.d"
}

# uthash's hash function is a macro with more paths than the analyzer can follow in an hour. A trivial hash replaces it,
# because it only computes a number.
run_gcc() {
    each gcc 300 "eval \"\$compile\" -fanalyzer -O0 -U_FORTIFY_SOURCE -fdiagnostics-color=never -S -o /dev/null \
        \"'-DHASH_FUNCTION(key,len,out)=((out)=(unsigned)(len))'\""
}

run_tidy() {
    # shellcheck disable=SC2016 # by the shell of each()
    each tidy 900 'case $file in /*) ;; *) file=$root/$file ;; esac
        clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option --config-file="$root/.clang-tidy" "$file"'
}

run_cppcheck() {
    mkdir -p "$out/cppcheck"
    cut -f 1 "$out/units" >"$out/names"
    # A separate list of these files only: cppcheck would analyze a file once for each of its commands.
    awk -F "$tab" -v root="$PWD/" '
        function text(value) { gsub(/\\/, "&&", value); gsub(/"/, "\\\\&", value); return "\"" value "\"" }
        BEGIN { print "[" }
        {
            print (NR == 1 ? "" : ",") "{ \"directory\": " text($2) ", \"command\": " text($3) ", \"file\": " \
                text(($1 ~ /^\//) ? $1 : (root $1)) " }"
        }
        END { print "]" }
    ' "$out/units" >"$out/cppcheck.json"
    uthash=$(sed -n 's/^UTHASH_INCLUDE_DIR:PATH=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
    # It does not read the system's headers; without its macros uthash's lists are none. NULL as the last of a list of
    # arguments is a pointer in every libc that weir is for.
    cppcheck --project="$out/cppcheck.json" --cppcheck-build-dir="$out/cppcheck" -j "$jobs" -q --library=posix,gnu \
        ${uthash:+--include="$uthash/uthash.h"} '-DHASH_FUNCTION(key,len,out)=((out)=(unsigned)(len))' \
        --enable=warning,performance,portability --suppress=missingIncludeSystem --suppress='*:/usr/include/*' \
        --suppress=varFuncNullUB \
        --template='{file}:{line}:{column}: warning: {message} [{id}]' >"$out/cppcheck.log" 2>&1 ||
        echo 'cppcheck: error: it ended with an error' >>"$out/cppcheck.log"
    sed -i 's/^cppcheck: error: \(.*\)/cppcheck:1:1: warning: \1 [failed]/' "$out/cppcheck.log"
}

run_shell() {
    find tests bench .ci -name '*.sh' -o -path .ci/run | sort >"$out/units"
    if [ -n "$files" ]; then
        grep -E "$files" "$out/units" >"$out/names" || true
        mv "$out/names" "$out/units"
    fi
    # Its notes count like its warnings.
    xargs -r shellcheck -x -f gcc <"$out/units" 2>&1 | sed -E 's/: (note|error): /: warning: /' >"$out/shell.log" || true
}

# ---- Running the tools, and comparing their findings with the list ----

root=$PWD
build=$(cd "$build" 2>/dev/null && pwd) || build=
export root build
: >"$out/used"
printf '%-10s %-9s %6s %9s %7s\n' tool version files findings 'of them known' >"$out/table"
status=0
for tool in $tools; do
    say "$tool"
    case $tool in
    gcc)
        version=$(gcc -dumpfullversion)
        files_of "$everything"
        run_gcc
        ;;
    tidy)
        version=$(clang-tidy --version | sed -n 's/.*version \([0-9.]*\).*/\1/p')
        files_of 'src/'
        run_tidy
        ;;
    cppcheck)
        version=$(cppcheck --version | sed 's/.* //')
        files_of "$(echo "$everything" | sed 's/|fuzz//')"
        run_cppcheck
        ;;
    shell)
        need_packages shellcheck
        version=$(shellcheck --version | sed -n 's/^version: //p')
        run_shell
        ;;
    esac
    # Every file that includes a header reports the header's findings.
    sed -n -E "s|^$root/||; /^[^ ]+:[0-9]+:[0-9]+: (warning|error): /p" "$out/$tool.log" |
        sort -u -t : -k 1,1 -k 2,2n -k 3,3n -k 4 >"$out/found"
    awk -F "$tab" -v OFS="$tab" -v tool="$tool" -v used="$out/used" '
        FILENAME != "-" { n++; at[n] = $1; tools[n] = $2; files[n] = $3; checks[n] = $4; parts[n] = $5; next }
        {
            file = $0
            sub(/:[0-9]+:[0-9]+: .*/, "", file)
            row = substr($0, length(file) + 2)
            sub(/:.*/, "", row)
            check = $0
            sub(/.*\[/, "", check)
            sub(/\].*/, "", check)
            source = ""
            for (i = 1; i <= row + 0 && (getline line <file) > 0; i++) source = line
            close(file)
            known = 0
            for (i = 1; i <= n; i++)
                if (tools[i] == tool && files[i] == file && index("," check ",", "," checks[i] ",") &&
                    (index($0, parts[i]) || index(source, parts[i]))) {
                    known = 1
                    print at[i] >>used
                    break
                }
            if (!known) print $0 "\n    " source
        }
    ' "$out/list" - <"$out/found" >"$out/new"
    cat "$out/new"
    found=$(wc -l <"$out/found") new=$(($(wc -l <"$out/new") / 2))
    [ "$new" -eq 0 ] || status=1
    printf '%-10s %-9s %6d %9d %7d\n' "$tool" "$version" "$(wc -l <"$out/units")" "$found" $((found - new)) >>"$out/table"
done

# A stale entry would hide a later finding.
if [ -z "$files" ]; then
    awk -F "$tab" -v tools="$tools " -v list="$list" '
        FILENAME ~ /used$/ { used[$1] = 1; next }
        index(tools, " " $2 " ") && !($1 in used) { print list ":" $1 ": no finding matches this entry"; stale = 1 }
        END { exit stale }
    ' "$out/used" "$out/list" || status=1
fi

say 'static analysis'
cat "$out/table"
exit $status
