/* failing_runs.h - play a scene repeatedly, and make another of its system calls fail each time.
 *
 * The first run notes the calls that the scene makes. Then each call site fails in every form of its call: once at each
 * of its first WEIR_TEST_OCCURRENCES calls (default 2, under a sanitizer 1), and once stubbornly until the scene ends
 * the failure. Each run is a separate process, so one-time initialisation happens in each. A run is reported, with
 * the call that failed, if the scene blames it, if it crashes, exceeds its time or its processor time, or if it leaks a
 * descriptor, a thread or (under AddressSanitizer) memory.
 */
#ifndef WEIR_TESTS_FAILING_RUNS_H
#define WEIR_TESTS_FAILING_RUNS_H

#include "failing_calls.h"

#include <weir/weir.h>

#include <stdatomic.h>

struct failing_run;

struct failing_scene {
    const char *name;
    void (*play)(struct failing_run *run); /* calls are watched; starts on the process's only thread */
    const void *user;
    int at_once;         /* parallel runs */
    double seconds_most; /* for one run, on an idle machine */
};

/* In memory shared by the run's process and the one that waits for it. */
struct failing_run {
    const struct failing_scene *scene;
    int number; /* 0: nothing fails */
    struct calls_plan plan;
    struct calls_record record;
    int64_t errors, fallbacks; /* which the scene counts */
    int64_t processor_ms;
    atomic_int lines; /* in the log */
    char log[2000];   /* truncated when full */
    char blame[500];  /* the defect; empty: none */
};

/* End this run and report the defect. */
_Noreturn void run_blame(struct failing_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return the processor time that a run may use. Runs of weir use some milliseconds. */
int64_t run_processor_most_ms(void);

/* For weir_options.log, with the run as its user. */
void run_log(void *user, enum weir_log_level level, const char *line);

struct failing_sum {
    int64_t runs, reached; /* all runs; those in which a call failed */
    int64_t elsewhere;     /* call sites in libraries */
    int64_t blamed;
    char blame[700]; /* the last one */
};

/* Play the scene, print a table of the trials and, unless `expects_blame`, every blame. */
void failing_play(const struct failing_scene *scene, bool expects_blame, struct failing_sum *out);

#endif
