/* load.h - reads access logs and CSV files into rows.
 *
 * A bad row is reported with its file, line and reason, counted and left out; only the first LOAD_MAX_SHOWN are
 * reported. If more than one row in a hundred is bad, loading fails: the file is probably not in the assumed format.
 */
#ifndef WEIR_CLI_LOAD_H
#define WEIR_CLI_LOAD_H

#include "cli/replay/input/csv.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/progress.h"

#define LOAD_MAX_SHOWN 20

enum load_format { LOAD_AUTO, LOAD_CLF, LOAD_CSV };

struct load_options {
    enum load_format format;
    struct csv_choice choice; /* choice.key is also the key of an access log: client, path, user or method */
    bool is_lenient;
};

struct loader {
    struct rows *rows;
    const struct load_options *options;
    struct progress *progress;
    size_t unreadable;
    char key_name[64]; /* what the keys are; empty: all rows have the same one */
    bool has_key_name;
};

/* Add the rows of a file, or of stdin if `path` is "-". Return EXIT_OK, or after a complaint EXIT_FAILED or EXIT_ERROR.
 */
int load_file(struct loader *load, const char *path);

/* Report the number of bad rows after the last file. Return EXIT_FAILED if there are too many. */
int load_finish(const struct loader *load);

#endif
