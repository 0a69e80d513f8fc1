/* run.h - a run of the soak, and its report. */
#ifndef SOAK_RUN_H
#define SOAK_RUN_H

#include "faults.h"
#include "flat.h"

enum { FLAT_REDIS = PROCESSES, FLAT_JUDGE, FLATS, MISHAPS_MOST = 16 };

struct run {
    int64_t wanted_us, every_us, lasts_us; /* how long; time between faults; a fault's length */
    int64_t start_us, end_us;
    uint64_t seed;
    const char *only; /* only this fault; NULL: all */
    bool with_cluster, tells;
    unsigned planted;
    int64_t pace_us; /* pace_us, planted and tells as in struct ledger */
    struct place place;
    struct faults faults;
    struct flat flats[FLATS];
    int mishaps; /* failures that no table shows */
    char mishap[MISHAPS_MOST][240];
};

bool is_run(const struct run *run, int mode);
void run_mishap(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print a line of progress. */
void report_line(const struct run *run);

/* Print the tables and findings; true if all promises held. */
bool report(const struct run *run);

/* stored.c: count as mishaps the keys in Redis without a time to live or with one that is too long. Return the number
 * of keys. */
int64_t stored_check(struct run *run);

#endif
