/* failing_runs.h - plays a scene again and again, each time with another system call of it made to fail.
 *
 * The first run notes the calls that the scene makes. Then each place that calls is tried in every way in which such a
 * call can fail, once at each of the first times that it is come by (WEIR_TEST_OCCURRENCES: how many; default 2, under
 * a sanitizer 1), and once for good, until the scene says that the failure is over. Each run is a process of its own,
 * so that what happens once in a process happens in each. Who crashes, who is not done in time, who takes the
 * processor for long, who leaves a descriptor, a thread or (under AddressSanitizer) memory behind, and whom the scene
 * blames, is told of with the call that failed.
 */
#ifndef WEIR_TESTS_FAILING_RUNS_H
#define WEIR_TESTS_FAILING_RUNS_H

#include "failing_calls.h"

#include <weir/weir.h>

#include <stdatomic.h>

struct failing_run;

struct failing_scene {
    const char *name;
    void (*play)(struct failing_run *run); /* with calls watched, on the process's only thread */
    const void *user;
    int at_once;         /* how many runs may go on at the same time */
    double seconds_most; /* for one run, on an idle machine */
};

/* Shared by the process of the run and the one that waits for it. */
struct failing_run {
    const struct failing_scene *scene;
    int number; /* 0: nothing fails */
    struct calls_plan plan;
    struct calls_record record;
    int64_t errors, fallbacks; /* of weir's, for the scene to count */
    int64_t processor_ms;      /* that it took */
    atomic_int lines;          /* in the log */
    char log[2000];            /* cut where it is full */
    char blame[500];           /* what was wrong; empty: nothing */
};

/* End this run: that was wrong. */
_Noreturn void run_blame(struct failing_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The processor's time that a run may take. Those of weir take some milliseconds. */
int64_t run_processor_most_ms(void);

/* For weir_options.log, with the run as its user. */
void run_log(void *user, enum weir_log_level level, const char *line);

struct failing_sum {
    int64_t runs, reached; /* all; those in which something failed */
    int64_t elsewhere;     /* places that call in libraries, not in this program */
    int64_t blamed;
    char blame[700]; /* the last one's */
};

/* Play it, print a table of what was tried, and every blame unless `expects_blame`. */
void failing_play(const struct failing_scene *scene, bool expects_blame, struct failing_sum *out);

#endif
