# reference.awk - turn a header's plain comments into Doxygen's, and print the header. Doxygen runs it with the path of a
# header. A comment documents the declaration after it, or the member before it on the same line. The first comment, and
# one followed by a blank line, documents the file. `---- Title ----` begins a group.

{ lines[FNR] = $0 }

END {
    name = FILENAME
    sub(/.*\//, "", name)
    for (i = 1; i <= FNR; i++)
        if (lines[i] ~ /^\/\* ---- .* ---- \*\/$/)
            group(lines[i])
        else if (lines[i] !~ /\/\* / || for_writers())
            plain(lines[i])
        else if (lines[i] ~ /^ *\/\*/)
            before()
        else
            behind()
}

# True for a comment that is meant for the authors of the header: at the end of a struct, or for clang-format.
function for_writers() {
    return lines[i] ~ /clang-format/ || (lines[i] ~ /^ *\/\*/ && lines[i + 1] ~ /^\};/)
}

# Begin a group. It ends with the next group or with the header.
function group(line) {
    gsub(/^\/\* ---- | ---- \*\/$/, "", line)
    print (grouped ? "/** @} */ " : "") "/** @name " line "\n@{ */"
    grouped = 1
}

function plain(line) {
    if (grouped && (line ~ /^#ifdef __cplusplus/ || i == FNR)) {
        print "/** @} */"
        grouped = 0
    }
    print line
}

# Print a comment on separate lines: for the declaration directly after it, or else for the file. The top comment of weir.h
# is also the first page.
function before(  first, last) {
    first = i
    last = comment_end(first)
    i = last
    if (first == 1) {
        sub("/\\* " name " - ", "/* ", lines[1])
        if (name == "weir.h")
            print_comment("/** @mainpage\n", first, last)
    }
    if (first == 1)
        print_comment("/** @file " name "\n", first, last)
    else
        print_comment(lines[last + 1] ~ /^ *$/ ? "/** @file " name "\n@details " : "/** ", first, last)
}

# Print a comment behind code: for that code or, behind a struct's first line, for the struct.
function behind(  at, code, first) {
    at = index(lines[i], "/* ")
    code = substr(lines[i], 1, at - 1)
    first = i
    lines[i] = substr(lines[i], at)
    i = comment_end(first)
    if (code ~ /^(struct|enum) .*\{ *$/) {
        print_comment("/** ", first, i)
        print code
    } else
        print_comment(code "/**< ", first, i)
}

function comment_end(k) {
    while (lines[k] !~ /\*\//)
        k++
    return k
}

# Lines indented by 4 to 7 after a blank line are code, in which nothing is escaped. "Units    Every time" is a definition;
# it continues in lines that are indented as far as its text. The word of the next one may be longer.
function print_comment(start, first, last,  k, line, blank, code, column) {
    ticked = 0
    for (k = first; k <= last; k++) {
        line = lines[k]
        if (line ~ /^ *\*\//) {
            print " */"
            continue
        }
        sub(/^ *\/?\* ?/, "", line)
        code = line ~ /^    / && (code || (blank && line ~ /^ ? ? ? ?    [^ ]/ && line !~ /^        /))
        blank = line ~ /^ *$/
        if (line ~ /^[A-Z][a-z]+  +[^ ]/) {
            match(line, /  +/)
            column = RSTART + RLENGTH
            line = defined(line, column)
        } else if (column && line ~ /^[A-Z][a-z]+ / && index(line, " ") == column - 1)
            line = defined(line, column)
        else if (!code && !blank)
            sub(/^    +/, "  ", line)
        print (k == first ? start : " * ") (code ? line : text(line))
    }
}

function defined(line, column,  word) {
    word = substr(line, 1, column - 1)
    sub(/ +$/, "", word)
    return "- **" word "** " substr(line, column)
}

# Escape everything that Doxygen would interpret, except `code` and *emphasis*.
function text(line,  parts, n, j, out) {
    n = split(line, parts, "`")
    for (j = 1; j <= n; j++) {
        if (j > 1) {
            out = out "`"
            ticked = !ticked
        }
        if (!ticked) {
            gsub(/\\/, "\\\\\\\\", parts[j])
            gsub(/[<>%#@&]/, "\\\\&", parts[j])
        }
        out = out parts[j]
    }
    return out
}
