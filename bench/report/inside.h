/* inside.h - the tables of a report, as the functions that print them need them. */
#ifndef BENCH_INSIDE_H
#define BENCH_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define MAX_COLUMNS 16
#define MAX_ROWS 512
#define MAX_NOTES 16
#define MAX_TEXT 96
#define MAX_PATH 4096

struct value {
    char table[MAX_TEXT]; /* empty: none */
    char json[MAX_TEXT];
};

struct report {
    FILE *json;  /* NULL: none */
    FILE *table; /* in addition to stdout; NULL: none */
    FILE *page;  /* the same as HTML; NULL: none */
    char page_path[MAX_PATH];
    char section[MAX_TEXT], sentence[MAX_TEXT * 4];
    char machine[MAX_TEXT * 10]; /* the facts in one line */
    size_t facts_width;          /* used in the current line */
    char columns[MAX_COLUMNS][MAX_TEXT];
    int columns_len, rows_len, notes_len, sections_len, facts_len;
    struct value rows[MAX_ROWS][MAX_COLUMNS];
    char headings[MAX_ROWS][MAX_TEXT * 3]; /* above a row; empty: none */
    char notes[MAX_NOTES][MAX_TEXT * 4];
    char options[MAX_TEXT * 4]; /* of the section, see differs.h; empty: the defaults */
};

#endif
