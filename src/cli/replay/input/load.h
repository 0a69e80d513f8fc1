/* load.h - reads access logs and CSV files into rows.
 *
 * A bad row is reported with its file, line and reason, counted and left out; only the first LOAD_MAX_SHOWN are
 * reported. If fewer than LOAD_MIN_PERCENT of all rows fit, the files are probably not in the assumed format.
 */
#ifndef WEIR_CLI_LOAD_H
#define WEIR_CLI_LOAD_H

#include "cli/replay/input/csv.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/progress.h"

#define LOAD_MAX_SHOWN 20
#define LOAD_MIN_PERCENT 95
#define LOAD_MANY_ROWS 200 /* with one key in this many rows, the key is probably the wrong field */

enum load_format { LOAD_AUTO, LOAD_CLF, LOAD_CSV };

struct load_options {
    enum load_format format;
    struct csv_choice choice; /* choice.key is also the key of an access log: client, path, user or method */
    bool is_lenient;          /* the caller uses the rows even if too few of them fit */
};

struct loader {
    struct rows *rows;
    const struct load_options *options;
    struct progress *progress;
    size_t unreadable;
    const char *first_unreadable; /* the file of the first unreadable row */
    int64_t first_unreadable_line;
    enum load_format first_unreadable_format;
    char key_name[64]; /* what the keys are; empty: all rows have the same one */
    bool has_key_name;
};

/* Add the rows of a file, or of stdin if `path` is "-". Return EXIT_OK, or after a complaint EXIT_FAILED or EXIT_ERROR.
 */
int load_file(struct loader *load, const char *path);

/* After the last file, report the number of bad rows, and warn if many rows all have the same key. True if at least
 * LOAD_MIN_PERCENT of all rows fit. */
bool load_finish(const struct loader *load);

#endif
