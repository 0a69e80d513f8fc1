/* options.h - the command line of weir-bench. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench.h"

#define OPTIONS_MAX_SECTIONS 32
#define OPTIONS_LOG_POLICY "token_bucket limit=10 period=1s burst=20"

struct section {
    const char *name;
    void (*run)(struct bench *bench);
    bool is_usual; /* measured unless --only or --full says otherwise */
};

struct options {
    const struct section *sections; /* given: this and the next */
    int sections_len;
    bool is_chosen[OPTIONS_MAX_SECTIONS];
    struct bench bench;
    const char *json; /* NULL: none wanted but that of bench.results */
};

/* Reads them all, and makes the folder for results. Ends the program: with its help, if that is asked for, or with
 * status 2 and a line on stderr that names the option that is wrong. */
void options_parse(struct options *options, int argc, char **argv);

#endif
