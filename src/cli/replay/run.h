/* run.h - one replay: reads the rows, has them decided, and shows the outcome.
 *
 * In local mode the rows are decided while they are read, so memory grows with the keys only. All rows are kept where
 * something needs them: --decisions, whose lines have the order of the input, --keep-order, and counts in Redis, so
 * that no key is left there while the input makes the program wait.
 */
#ifndef WEIR_CLI_RUN_H
#define WEIR_CLI_RUN_H

#include "cli/policies.h"
#include "cli/replay/input_options.h"
#include "cli/store.h"

struct replay { /* what the command line asks for */
    struct policies policies;
    struct store store;
    struct input_options input;
    bool keep_order, sort, json, decisions_only, compare;
    const char *html_path;
    size_t top;
};

/* Return EXIT_OK, or EXIT_FAILED or EXIT_ERROR after a complaint. */
int run_replay(const struct replay *replay);

#endif
