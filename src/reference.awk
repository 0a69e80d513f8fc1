# reference.awk - makes Doxygen's comments out of a header's, which are plain: that before a declaration; that behind a
# member; that at the top, which is the file's, as is one with nothing right after it; and `---- Title ----`, which begins
# a group. Run by Doxygen, with the path of a header, which it prints.

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

# Of a comment for those who write the header: what goes at the end of a struct, or how a tool is to take it.
function for_writers() {
    return lines[i] ~ /clang-format/ || (lines[i] ~ /^ *\/\*/ && lines[i + 1] ~ /^\};/)
}

# A group ends with the next, or with what the header ends with.
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

# A comment on lines of its own: of what follows at once, or else of the file. The top of weir.h is the first page as well.
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

# A comment behind code, of that or, behind a struct's first line, of the struct.
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

# What is indented by 4 to 7 after a blank line is code, in which nothing is escaped. "Units    Every time" is a definition,
# which goes on in lines that are indented as far as its text; the next one may have a longer word.
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

# What means something to Doxygen is taken literally, but for `code` and *emphasis*.
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
