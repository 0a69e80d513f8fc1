/* reader.h - one input: its format, and the values of the requested fields. */
#ifndef WEIR_CLI_READER_H
#define WEIR_CLI_READER_H

#include "cli/replay/input/json_lines.h"
#include "cli/replay/input/loader.h"
#include "cli/replay/input/unwrap.h"

enum reader_kind { READER_NONE, READER_LOG, READER_JSON, READER_CSV };

struct reader { /* one file */
    struct loader *load;
    const char *name;
    struct lines lines;
    enum reader_kind kind;
    struct format *format; /* of a log; allocated */
    struct csv *csv;       /* allocated */
    struct csv_choice choice;
    struct json_lines json;
    bool is_docker, is_caddy;  /* see unwrap.h */
    struct json_lines wrapper; /* Docker's, around the current line */
    size_t rows, bad;          /* of this file */
    bool is_guessed;
    size_t early; /* times of JSON early in 1970, see csv_unit_is_doubtful() */

    /* The fields asked for: [0] is the first of the first key. */
    const char *names[LOAD_MAX_FIELDS];
    size_t count;
    struct key_spec keys[ROWS_MAX_KEYS];
    size_t key_count;
    size_t costs[ROWS_MAX_COSTS]; /* numbers of fields; LOAD_MAX_FIELDS: 1, or the usual field of CSV */
    size_t cost_count;
    size_t duration; /* the number of the field; LOAD_MAX_FIELDS: none */
    /* Where each field is in each layout of the format. */
    size_t at[FORMATS_MAX_TEXTS][LOAD_MAX_FIELDS];
    enum layout_part parts[FORMATS_MAX_TEXTS][LOAD_MAX_FIELDS];
};

struct reader_row {
    int64_t time_us, repeat;
    int64_t cost; /* the usual one */
    struct span values[LOAD_MAX_FIELDS];
};

/* Find the format by the first lines; `line` is the first that is not blank, and is read again afterwards. Return
 * EXIT_OK, or after a complaint EXIT_FAILED or EXIT_ERROR. */
int reader_begin(struct reader *reader, struct span line);

/* Read a row: FORMAT_ROW, FORMAT_BAD with a fault, FORMAT_OTHER; -1 after a complaint. */
int reader_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault);

#endif
