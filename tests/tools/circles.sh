#!/bin/sh
# circles.sh [BUILD [LIST]] - print the circles between the object files of the library, and between their folders.
#
# An object file depends on another one if it uses a symbol that the other defines, as nm tells. A circle is a set of
# files, or of folders, that all depend on one another: none of them can be read, tested or replaced alone.
#
# BUILD is the build folder, build/release by default. LIST names the circles that may stay and says why, one in a line:
#
#     files NAME... : why        or        folders NAME... : why
#
# A line covers a circle if it names all its members; it may name at most MOST lines. Exit status: 0 if the list covers
# every circle and has no line too many, else 1.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/release}
list=${2:-$root/tests/tools/circles.list}
most=5
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/scratch.sh"
work=$scratch

objects=$build/src/CMakeFiles
[ -d "$objects/weir_core.dir" ] || { echo "circles.sh: no objects of weir in $build: build it first" >&2; exit 1; }
# Objects of sources that have been moved or deleted may still lie there.
(cd "$objects" && find weir_core.dir weir_backends.dir -name '*.c.o' | sort) | while read -r object; do
    source=${object#*/}
    [ ! -f "$root/src/${source%.o}" ] || echo "$object"
done > "$work/objects"
(cd "$objects" && xargs "${NM:-nm}" -A -P < "$work/objects") > "$work/symbols"

cat > "$work/circles.awk" <<'AWK'
    function name_of(object) {
        sub(/^[^\/]*\//, "", object)
        sub(/\.c\.o:$/, "", object)
        return object
    }
    function folder_of(file) {
        return sub(/\/[^\/]*$/, "", file) ? file : "."
    }
    # Depend, one level: from, to. Both become nodes of the graph of that name.
    function depend(graph, from, to) {
        if (from == to)
            return
        if (!((graph, from) in number)) { number[graph, from] = count[graph]++; node[graph, number[graph, from]] = from }
        if (!((graph, to) in number)) { number[graph, to] = count[graph]++; node[graph, number[graph, to]] = to }
        reach[graph, number[graph, from], number[graph, to]] = 1
        direct[graph, from] = direct[graph, from] " " to
    }
    # True if a line of the list names every member.
    function is_argued(graph, members,    i, j, n, name, all) {
        n = split(members, name, " ")
        for (i = 1; i <= lines; i++) {
            all = kind[i] == graph
            for (j = 1; j <= n && all; j++)
                all = index(" " named[i] " ", " " name[j] " ") > 0
            if (all) { needed[i] = 1; return 1 }
        }
        return 0
    }
    function find_circles(graph,    i, j, k, n, members, uses, to, used, m) {
        n = count[graph]
        for (k = 0; k < n; k++)
            for (i = 0; i < n; i++)
                if ((graph, i, k) in reach)
                    for (j = 0; j < n; j++)
                        if ((graph, k, j) in reach)
                            reach[graph, i, j] = 1
        for (i = 0; i < n; i++) {
            if (((graph, i) in done) || !((graph, i, i) in reach))
                continue
            members = ""
            for (j = i; j < n; j++)
                if (((graph, i, j) in reach) && ((graph, j, i) in reach)) {
                    done[graph, j] = 1
                    members = members " " node[graph, j]
                }
            sub(/^ /, "", members)
            circles++
            if (is_argued(graph, members))
                print "circle of " graph ", argued for: " members
            else {
                print "circle of " graph ": " members
                failed = 1
            }
            m = split(members, used, " ")
            for (j = 1; j <= m; j++) {
                uses = ""
                for (k = 1; k <= m; k++)
                    if (index(direct[graph, used[j]] " ", " " used[k] " "))
                        uses = uses " " used[k]
                print "    " used[j] " uses" uses
            }
        }
    }
    BEGIN {
        while ((getline line < list) > 0) {
            if (line ~ /^[ \t]*(#|$)/)
                continue
            if (line !~ /^(files|folders) [^:]+: *[^ ]/) {
                print list ": not \"files NAME... : why\" or \"folders NAME... : why\": " line
                failed = 1
                continue
            }
            lines++
            kind[lines] = substr(line, 1, index(line, " ") - 1)
            named[lines] = substr(line, index(line, " ") + 1, index(line, ":") - index(line, " ") - 1)
            gsub(/ +/, " ", named[lines])
        }
    }
    $3 ~ /^[TDBRVWC]$/ { defines[$2] = name_of($1) }
    $3 == "U" { user[++users] = name_of($1); symbol[users] = $2 }
    END {
        for (i = 1; i <= users; i++) {
            if (!(symbol[i] in defines))
                continue
            from = user[i]
            to = defines[symbol[i]]
            if ((from, to) in met)
                continue
            met[from, to] = 1
            depend("files", from, to)
            depend("folders", folder_of(from), folder_of(to))
        }
        if (count["files"] < 20) { print "circles.sh: too few object files depend on one another: is nm right?"; exit 1 }
        find_circles("files")
        find_circles("folders")
        for (i = 1; i <= lines; i++)
            if (!needed[i]) {
                print list ": no such circle is left, take the line out: " kind[i] " " named[i]
                failed = 1
            }
        if (lines > most) {
            print list ": " lines " lines, which may be " most " at most"
            failed = 1
        }
        print circles + 0 " circles among " count["files"] " files in " count["folders"] " folders"
        exit failed
    }
AWK

# A planted circle must be found, or the test itself is broken.
for edge in 'a b' 'b a'; do
    printf 'weir_core.dir/planted/%s.c.o: planted_%s T 0\nweir_core.dir/planted/%s.c.o: planted_%s U\n' \
        "${edge% *}" "${edge% *}" "${edge% *}" "${edge#* }"
done | awk -v list="$list" -v most=$most -f "$work/circles.awk" - "$work/symbols" > "$work/planted" || true
grep -q '^circle of files: planted/a planted/b$' "$work/planted" ||
    { echo "circles.sh: a planted circle was not found: the test itself is broken" >&2; exit 1; }

awk -v list="$list" -v most=$most -f "$work/circles.awk" "$work/symbols"
