/* csv.h - rows of CSV files: a time, a key and a cost.
 *
 * Without a header row and with no column chosen, a row is `time_us,key,cost`, split at the first and the last comma:
 * keys may hold commas, and nothing is quoted. A row with one comma is bad, for it does not say which field it lacks.
 *
 * With a header row, or with columns chosen by number, RFC 4180 holds: fields may be quoted, and then hold commas, line
 * feeds and doubled quotes. Every row must have as many fields as the header.
 *
 * The first row is a header if it has a field of a name that was asked for, or else if none of its fields is a number
 * or a date.
 */
#ifndef WEIR_CLI_CSV_H
#define WEIR_CLI_CSV_H

#include "cli/replay/input/lines.h"
#include "cli/times.h"

#define CSV_MAX_FIELDS 4096
#define CSV_MAX_RECORD ((size_t)1 << 20) /* bytes of a record over several lines: a lost quote must not eat the file */

/* What was asked for on the command line; NULL: find it out. A name, or a column's number from 1. */
struct csv_choice {
    const char *time, *key, *cost;
    bool has_unit;
    enum time_unit unit; /* of times that are whole numbers */
};

struct csv {
    const struct csv_choice *choice;
    bool has_header, is_plain; /* plain: time_us,key,cost */
    size_t time, key, cost;    /* columns from 0; CSV_MAX_FIELDS: there is none */
    enum time_unit unit;
    char key_name[64];    /* for the report: the key's field; empty: every row has the same key */
    size_t header_fields; /* how many */
    size_t count;         /* fields of the row at hand */
    bool is_unit_assumed; /* neither the command line nor the column's name says it */
    size_t rows, early;   /* rows read, and those with a time that would fit Unix seconds or milliseconds better */
    char *unquoted;       /* the key without its quotes */
    size_t unquoted_size;
    bool is_quoted[CSV_MAX_FIELDS];
    struct span fields[CSV_MAX_FIELDS]; /* quoted ones without the outer quotes, the inner ones still doubled */
};

struct csv_row {
    int64_t time_us, cost;
    struct span key; /* valid until the next row */
};

void csv_start(struct csv *csv, const struct csv_choice *choice);
void csv_free(struct csv *csv);

/* Learn from the first row what the columns are. Afterwards the next line is the first row of data. EXIT_OK, or after a
 * complaint EXIT_ERROR, if a column that was asked for is not there or none is a time, or EXIT_FAILED. */
int csv_begin(struct csv *csv, struct lines *lines, struct span line);

/* Read the record that begins with `line`: 1; 0: it cannot be read, and the fault says why; -1 after a complaint. */
int csv_read(struct csv *csv, struct lines *lines, struct span line, struct csv_row *out, struct fault *fault);

/* After the last row: whether every time looks like one in seconds or milliseconds that was taken for microseconds. */
bool csv_unit_is_doubtful(const struct csv *csv);

#endif
