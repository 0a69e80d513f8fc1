/* sheet.h - tables of text: CSV, also with tabs, semicolons or bars between the fields, and W3C's extended format.
 *
 * Without a header row and without a chosen column, a row with commas is `time_us,key,cost`, split at the first and the
 * last comma. Keys may contain commas, and nothing is quoted. A row with one comma is bad: it does not say which field
 * it lacks.
 *
 * With a header row, or with columns chosen by number, RFC 4180 applies: quoted fields may contain separators, line
 * feeds and doubled quotes. Every row must have as many fields as the header. A quote that is never closed would turn
 * the rest of the file into one field: then only its line is bad, and the rest is read again.
 *
 * The header is the first row with a field of a name that the user chose, or with the usual name of a time. Rows before
 * it are bad. Otherwise it is the first row of several fields of which none is a number or a date, unless the first row
 * of data has a different number of fields. A header is searched for in the first SHEET_SEARCHED rows, and only before
 * the first row of data.
 *
 * In W3C's format the line #Fields names the fields, again and again if a file is joined from several.
 */
#ifndef WEIR_CLI_SHEET_H
#define WEIR_CLI_SHEET_H

#include "cli/replay/input/lines.h"
#include "cli/replay/input/record.h"

#define SHEET_SEARCHED 200
#define SHEET_MAX_RECORD ((size_t)1 << 20) /* bytes of a row: a missing quote must not consume the file */
#define SHEET_MAX_ASKED 64

struct sheet {
    char separator;
    bool is_w3c, has_header, is_plain; /* plain: time_us,key,cost */
    size_t skipped;                    /* rows before the header */
    size_t widest;                     /* fields of the longest row that was looked at */
    struct span *names;                /* of the header; allocated, as their bytes are */
    size_t name_count;
    char *name_bytes;
    const char *asked[SHEET_MAX_ASKED]; /* the columns that the user chose, by name or number */
    size_t asked_count;
    const char *asked_time; /* one of them; NULL: the time was not chosen */
};

void sheet_free(struct sheet *sheet);

/* Find the header; `line` is the first row. Afterwards the next line is the one after the header, or the first row if
 * there is no header. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int sheet_begin(struct sheet *sheet, struct record *record, struct lines *lines, struct span line);

/* Read the row that begins with `line`: 1; 0 if it is bad, and the fault says why; -1 after a complaint; 2 if it is not a
 * row, as a comment is not. */
int sheet_read(struct sheet *sheet, struct record *record, struct lines *lines, struct span line, struct fault *fault);

/* Find a column by its name, in whatever case, or by its number from 1. RECORD_NONE: there is none. */
size_t sheet_find(const struct sheet *sheet, const char *wanted);

/* Return the separator that splits most of the lines into the same number of fields, at least two; '\0': none splits
 * half of them, or no column of the result is a time. `has_time`: the user has said which column that is. */
char sheet_guess(const struct span *lines, size_t count, bool has_time);

#endif
