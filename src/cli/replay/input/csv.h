/* csv.h - rows of CSV files: a time, a key and a cost.
 *
 * Without a header row and without a chosen column, a row is `time_us,key,cost`, split at the first and the last comma.
 * Keys may contain commas, and nothing is quoted. A row with one comma is bad: it does not say which field it lacks.
 *
 * With a header row, or with columns chosen by number, RFC 4180 applies: quoted fields may contain commas, line feeds
 * and doubled quotes. Every row must have as many fields as the header.
 *
 * The header is the first row with a field of a name that the user chose, or with the usual name of a time. Rows before
 * it are bad. Otherwise it is the first row of several fields of which none is a number or a date, unless the first row
 * of data has a different number of fields. A header is searched for in the first CSV_SEARCHED rows, and only before
 * the first row of data.
 */
#ifndef WEIR_CLI_CSV_H
#define WEIR_CLI_CSV_H

#include "cli/replay/input/lines.h"
#include "cli/times.h"

#define CSV_MAX_FIELDS 4096
#define CSV_MAX_MORE 64
#define CSV_SEARCHED 200
#define CSV_MAX_RECORD ((size_t)1 << 20) /* bytes of a record: a missing quote must not consume the file */

/* The choices on the command line; NULL: find out. A column's name, or its number from 1. */
struct csv_choice {
    const char *time, *key, *cost;
    const char *const *more; /* further columns, whose values csv_row.more has */
    size_t more_count;       /* up to CSV_MAX_MORE */
    bool has_unit;
    enum time_unit unit; /* of whole-number times */
};

struct csv {
    const struct csv_choice *choice;
    bool has_header, is_plain; /* plain: time_us,key,cost */
    size_t time, key, cost;    /* columns from 0; CSV_MAX_FIELDS: none */
    enum time_unit unit;
    char key_name[64];    /* for the report: the key's field; empty: every row has the same key */
    size_t header_fields; /* how many */
    size_t skipped;       /* rows before the header */
    size_t count;         /* fields of the current row */
    bool is_unit_assumed; /* neither the command line nor the column's name sets it */
    size_t rows, early;   /* rows read, and those whose time would be more plausible in Unix seconds or milliseconds */
    size_t more[CSV_MAX_MORE];
    char *unquoted; /* fields of the current row without their quotes */
    size_t unquoted_len, unquoted_size;
    bool is_quoted[CSV_MAX_FIELDS];
    struct span fields[CSV_MAX_FIELDS]; /* quoted fields without the outer quotes, with inner quotes still doubled */
};

struct csv_row {
    int64_t time_us, cost;
    struct span key; /* valid until the next row, as the others are */
    struct span more[CSV_MAX_MORE];
};

void csv_start(struct csv *csv, const struct csv_choice *choice);
void csv_free(struct csv *csv);

/* Find the columns; `line` is the first row. Afterwards the next line is the one after the header, or the first row if
 * there is no header. Return EXIT_OK; after a complaint EXIT_ERROR, if a chosen column is missing or no column is a
 * time, or EXIT_FAILED. */
int csv_begin(struct csv *csv, struct lines *lines, struct span line);

/* Read the record that begins with `line`: 1; 0 if it is bad, and the fault says why; -1 after a complaint. */
int csv_read(struct csv *csv, struct lines *lines, struct span line, struct csv_row *out, struct fault *fault);

/* True if a time lies early in 1970, as Unix seconds or milliseconds that were read as microseconds do. */
bool csv_time_is_early(int64_t time_us);

/* True, after the last row, if every time looks like seconds or milliseconds that were read as microseconds. */
bool csv_unit_is_doubtful(const struct csv *csv);

#endif
