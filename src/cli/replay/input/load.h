/* load.h - access logs and CSV files into rows.
 *
 * A row that cannot be read is reported with its file, line and reason, counted and left out: the first LOAD_MAX_SHOWN
 * of them in full. More than one in a hundred is an error, for then the file is not what it was taken for.
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

struct load {
    struct rows *rows;
    const struct load_options *options;
    struct progress *progress;
    size_t unreadable;
    char key_name[64]; /* what the keys are; empty: all rows have the same one */
    bool has_key_name;
};

/* Add the rows of a file, or of stdin if `path` is "-". EXIT_OK, or after a complaint EXIT_FAILED or EXIT_ERROR. */
int load_file(struct load *load, const char *path);

/* After the last file: say how many rows were unreadable. EXIT_FAILED if that is too many. */
int load_finish(const struct load *load);

#endif
