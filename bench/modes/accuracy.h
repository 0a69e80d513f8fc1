/* accuracy.h - what several processes that share a limit admit of it: the cells of a run, and the outcome of each. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include "modes/instances.h"

/* A fixed window that outlasts the run, and a token bucket. */
enum { ACCURACY_WINDOW, ACCURACY_BUCKET, ACCURACY_LIMITS };
enum { ACCURACY_EVEN, ACCURACY_UNEVEN, ACCURACY_HOT, ACCURACY_TRAFFICS }; /* 1:1:1, 3:1:1, 1:0:0 */
enum { ACCURACY_TWICE = 2, ACCURACY_DEMANDS = 4 };                        /* ACCURACY_TWICE is the index of demand 2 */
#define ACCURACY_SETTINGS (ACCURACY_LIMITS * ACCURACY_TRAFFICS * ACCURACY_DEMANDS)
#define ACCURACY_CELLS (ACCURACY_SETTINGS + ACCURACY_LIMITS * ACCURACY_TRAFFICS)
#define ACCURACY_BUCKET_RATE 200 /* a second */
#define ACCURACY_BUCKET_BURST 50

extern const double accuracy_demands[ACCURACY_DEMANDS]; /* times the limit */

/* Return the name of a way to deal requests to that many instances. */
const char *accuracy_traffic_name(int traffic, int instances);

struct setting { /* what a cell runs */
    int limit, traffic, demand;
    bool clocks_differ;
};

/* Return a cell's index. The first ACCURACY_SETTINGS cells have clocks that agree; the rest, for twice the limit, have
 * clocks that do not. */
int accuracy_cell(int limit, int traffic, int demand);
int accuracy_wrong_clock_cell(int limit, int traffic);

struct outcome {                                    /* of a cell; one value per run */
    struct sample admitted[MODES], of_exact[MODES]; /* permits; percent of the right number */
    struct sample predicted;                        /* what local mode's split predicts, percent; windows only */
    double over[MODES];    /* permits beyond the limit in any stretch of time: the worst of all runs */
    double off_prediction; /* local mode, permits: the worst of all runs */
};

struct accuracy {
    struct modes *modes;
    int runs;
    int64_t length_us, window_permits;
    struct setting settings[ACCURACY_CELLS];
    struct instances_cell cells[ACCURACY_CELLS];
    struct instances_limit limits[ACCURACY_LIMITS];
    struct outcome outcomes[ACCURACY_CELLS];
    double hybrid_over_max; /* of the bucket: the bound that hybrid mode states */
};

/* Add rows and plots after all runs. */
void accuracy_report(const struct accuracy *accuracy);

#endif
