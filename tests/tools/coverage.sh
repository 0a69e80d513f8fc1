#!/bin/sh
# coverage.sh BUILD [tests] - runs the tests of a build made with WEIR_COVERAGE=ON and prints what they have covered of
# src, file by file, in three groups, each with a least share of its branches. With the word `table` instead of `tests`
# none is run: the table is of what has been counted so far. Branches inside uthash's macros are not counted: they are
# not ours. See usage below, and tests/support/counts.c for processes that do not end by exit().
#
#   core    src/core: at least 95 % of its branches
#   codecs  what makes bytes from outside into meaning, or meaning into bytes: at least 95 %
#   rest    of src: backends and program: at least 85 %
set -eu
cd "$(dirname "$0")/../.."
build=$1
what=${2-tests}

# Which files are codecs, by the names of their sources and headers.
codecs='src/backends/(consul_answer|redis_(answer|bytes|key|map|node|sentinel|state|url|wire))[.]
src/cli/(json|span|times|replay/input/(bytes|clf|csv|csv_fields|lines))[.]'

case $what in
tests)
    find "$build" -name '*.gcda' -delete
    ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc 2>/dev/null || echo 2)"
    ;;
table) ;;
*)
    echo "usage: coverage.sh BUILD [tests | table]" >&2
    exit 2
    ;;
esac

gcovr --root . --filter 'src/(core|backends|cli)/' --exclude-unreachable-branches \
    --exclude-branches-by-pattern '.*\bHASH_[A-Z_]+\(' --csv "$build/coverage.csv" "$build"

# One line for each file: group, file, lines and branches. A file without branches has none that could be missed.
awk -F , -v codecs="$(printf '%s\n' "$codecs" | paste -s -d '|')" '
    NR == 1 {
        for (i = 1; i <= NF; i++)
            column[$i] = i
        next
    }
    {
        file = $column["filename"]
        group = file ~ "^src/core/" ? "core" : file ~ "^(" codecs ")" ? "codecs" : "rest"
        print group, file, $column["line_covered"], $column["line_total"], $column["branch_covered"], \
            $column["branch_total"]
    }' "$build/coverage.csv" | sort >"$build/coverage.files"

# The table. A group without a file is a mistake in this script, and a failure.
awk '
    function percent(part, whole) { return whole ? 100 * part / whole : 100 }
    function print_row(name, lines, all_lines, branches, all_branches) {
        printf "%-40s %6d of %6d %6.1f %% %6d of %6d %6.1f %%\n", name, lines, all_lines, percent(lines, all_lines),
            branches, all_branches, percent(branches, all_branches)
    }
    BEGIN {
        groups = split("core codecs rest", group)
        least["core"] = 95; least["codecs"] = 95; least["rest"] = 85
        printf "%-40s %25s %25s\n", "", "lines", "branches"
    }
    {
        print_row($2, $3, $4, $5, $6)
        files[$1]++
        for (i = 3; i <= 6; i++)
            sum[$1, i] += $i
    }
    END {
        print ""
        for (g = 1; g <= groups; g++) {
            name = group[g]
            if (!files[name]) {
                print name ": no file of it was found"
                failed = 1
                continue
            }
            print_row(name " (" files[name] " files)", sum[name, 3], sum[name, 4], sum[name, 5], sum[name, 6])
            if (percent(sum[name, 5], sum[name, 6]) < least[name]) {
                short[name] = 1
                failed = 1
            }
        }
        print ""
        for (g = 1; g <= groups; g++)
            printf "%-8s at least %d %% of its branches: %s\n", group[g], least[group[g]],
                files[group[g]] && !short[group[g]] ? "yes" : "NO"
        exit failed
    }' "$build/coverage.files"
