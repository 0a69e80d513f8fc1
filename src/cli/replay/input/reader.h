/* reader.h - one input: its format, and the values of the requested fields in each line.
 *
 * A line is either text of a known format (formats.h), or a record of named values: JSON, logfmt, or a row of a table.
 * Around a line may stand what containers add: Docker's object {"log":"LINE\n","stream":"stdout","time":"..."}, or text
 * before an object, such as Caddy's console format, which is the time, the level, the logger and a message between
 * tabs. The time around a line counts if the line itself has none.
 *
 * Which member of a record is the client and which is the time is decided once, by the first lines. Lines of JSON or
 * logfmt without the member that was found to be the client are no requests; they are counted apart.
 */
#ifndef WEIR_CLI_READER_H
#define WEIR_CLI_READER_H

#include "cli/replay/input/formats.h"
#include "cli/replay/input/load.h"
#include "cli/replay/input/roles.h"
#include "cli/replay/input/sheet.h"

enum reader_kind { READER_NONE, READER_LOG, READER_JSON, READER_LOGFMT, READER_TABLE };

struct reader_field {
    const char *name;           /* as the user has it; empty: the usual key of a table */
    char path[ROLES_PATH_SIZE]; /* of the member in a record; empty: every row has the value "*" */
    size_t at;                  /* the column of a table; in other records where it was last */
    enum role role;
    bool is_guessed; /* by a usual name */
    bool is_default; /* the client, which no option names */
    /* Where the field is in each layout of a log. */
    size_t fields[FORMATS_MAX_TEXTS];
    enum layout_part parts[FORMATS_MAX_TEXTS];
};

struct reader { /* one file */
    struct loader *load;
    const char *name;
    struct lines lines;
    enum reader_kind kind;
    struct format format; /* of a log */
    struct sheet sheet;
    struct record record, wrapper; /* of the line, and Docker's around it */
    bool is_docker, is_behind;     /* text stands before the objects */
    bool is_guessed;
    size_t rows, bad; /* of this file */
    struct reader_field time, date;
    enum time_unit unit; /* of times that are whole numbers */

    /* The fields asked for: [0] is the first of the first key. */
    struct reader_field fields[LOAD_MAX_FIELDS];
    size_t count;
    struct key_spec keys[ROWS_MAX_KEYS];
    size_t key_count;
    size_t costs[ROWS_MAX_COSTS]; /* numbers of fields; LOAD_MAX_FIELDS: each row costs 1 */
    size_t cost_count;
    size_t duration; /* the number of the field; LOAD_MAX_FIELDS: none */
};

struct reader_row {
    int64_t time_us, repeat;
    struct span values[LOAD_MAX_FIELDS];
};

/* Find the format by the first lines; `line` is the first that is not blank, and is read again afterwards. Return
 * EXIT_OK, or after a complaint EXIT_FAILED or EXIT_ERROR. */
int reader_begin(struct reader *reader, struct span line);

void reader_free(struct reader *reader);

/* Read a row: FORMAT_ROW, FORMAT_BAD with a fault, FORMAT_OTHER; -1 after a complaint. */
int reader_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault);

/* Return the name of the format to show to people. */
const char *reader_format(const struct reader *reader);

#endif
