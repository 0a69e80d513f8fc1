# take.awk - take a Markdown file apart into the folder `out`. Each block of code becomes the file <number>.<kind>; the kind
# is the word after ```, "none" without one, or "indented". The files blocks (number, line, kind), spans (line, text between
# backticks) and links (line, target) are tab-separated. An open fence or backtick is an error.
# Run as: awk -v out=FOLDER -f take.awk FILE

/^```/ {
    if (fenced) {
        fenced = 0
        close(file)
    } else {
        paragraph_end()
        kind = substr($0, 4)
        gsub(/[^a-z0-9]/, "", kind)
        block_begin(kind == "" ? "none" : kind)
        fenced = FNR
    }
    next
}
fenced { print >file; next }

# Indented code follows a blank line. The lines of a list item are indented by less.
/^    / && (indented || (blank && paragraph == "")) {
    if (!indented)
        block_begin("indented")
    indented = 1
    print substr($0, 5) >file
    next
}
indented { indented = 0; close(file) }

/^[ \t]*$/ { paragraph_end(); blank = 1; next }
{
    if (/^\|/) # a row of a table is a paragraph
        paragraph_end()
    if (paragraph == "")
        begin = FNR
    paragraph = paragraph (paragraph == "" ? "" : " ") $0
    blank = 0
}

END {
    paragraph_end()
    if (fenced)
        wrong("a block begins in line " fenced " and does not end")
    print count + 0 >(out "/count")
    exit failed
}

function block_begin(kind) {
    file = out "/" ++count "." kind
    printf "" >file
    print count "\t" FNR "\t" kind >(out "/blocks")
}

function paragraph_end(  parts, n, i, rest, target) {
    n = split(paragraph, parts, "`")
    if (n && n % 2 == 0)
        wrong("in the paragraph of line " begin " a backtick is left open")
    rest = ""
    for (i = 1; i <= n; i++)
        if (i % 2)
            rest = rest parts[i]
        else
            print begin "\t" parts[i] >(out "/spans")
    while (match(rest, /\]\([^)]*\)/)) {
        target = substr(rest, RSTART + 2, RLENGTH - 3)
        print begin "\t" target >(out "/links")
        rest = substr(rest, RSTART + RLENGTH)
    }
    paragraph = ""
}

function wrong(what) {
    print FILENAME ": " what >"/dev/stderr"
    failed = 1
}
