/* accuracy.h - what several processes that share a limit admit of it: the cells of a run, and what came of each. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include "modes/instances.h"

/* A fixed window that outlasts the run, and a token bucket. */
enum { ACCURACY_WINDOW, ACCURACY_BUCKET, ACCURACY_LIMITS };
enum { ACCURACY_EVEN, ACCURACY_UNEVEN, ACCURACY_HOT, ACCURACY_TRAFFICS }; /* 1:1:1, 3:1:1, 1:0:0 */
enum { ACCURACY_TWICE = 2, ACCURACY_DEMANDS = 4 };                        /* the former is the place of that demand */
#define ACCURACY_SETTINGS (ACCURACY_LIMITS * ACCURACY_TRAFFICS * ACCURACY_DEMANDS)
#define ACCURACY_CELLS (ACCURACY_SETTINGS + ACCURACY_LIMITS * ACCURACY_TRAFFICS)
#define ACCURACY_BUCKET_RATE 200 /* a second */
#define ACCURACY_BUCKET_BURST 50

extern const double accuracy_demands[ACCURACY_DEMANDS]; /* times the limit */

/* The name of a way to deal requests to that many instances. */
const char *accuracy_traffic_name(int traffic, int instances);

struct setting { /* of a cell */
    int limit, traffic, demand;
    bool clocks_differ;
};

/* Where a cell is: with clocks that agree, which are all of the first ACCURACY_SETTINGS, by limit; and, at twice the
 * limit alone, with clocks that do not. */
int accuracy_cell(int limit, int traffic, int demand);
int accuracy_wrong_clock_cell(int limit, int traffic);

struct outcome {                                    /* of a cell; a value a run */
    struct sample admitted[MODES], of_exact[MODES]; /* permits; percent of what is right */
    struct sample predicted;                        /* of local mode's split, percent; windows only */
    double over[MODES];    /* beyond the limit in any stretch of time, permits: the worst of all runs */
    double off_prediction; /* local mode, permits: likewise */
};

struct accuracy {
    struct modes *modes;
    int runs;
    int64_t length_us, window_permits;
    struct setting settings[ACCURACY_CELLS];
    struct instances_cell cells[ACCURACY_CELLS];
    struct instances_limit limits[ACCURACY_LIMITS];
    struct outcome outcomes[ACCURACY_CELLS];
    double hybrid_over_max; /* of the bucket, as hybrid mode states it */
};

/* Rows and pictures of it, when all runs are done: accuracy_table.c. */
void accuracy_report(const struct accuracy *accuracy);

#endif
