/* options.h - the command line of weir-bench. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench.h"

#define OPTIONS_MAX_SECTIONS 8
#define OPTIONS_LOG_POLICY "token_bucket limit=10 period=1s burst=20"

struct section {
    const char *name;
    void (*run)(struct bench *bench);
    bool is_usual; /* measured unless --only says otherwise */
};

struct options {
    const struct section *sections; /* set by the caller, with the next; section modes comes first */
    int sections_len;
    bool is_chosen[OPTIONS_MAX_SECTIONS];
    struct bench bench;
    const char *json; /* NULL: only that of bench.results */
};

/* Read the options and make the folder for results. Ends the program after printing the help, or with status 2 and a
 * line on stderr that names the wrong option. */
void options_parse(struct options *options, int argc, char **argv);

#endif
