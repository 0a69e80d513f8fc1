/* run.h - a run of the soak, and what it says at its end. */
#ifndef SOAK_RUN_H
#define SOAK_RUN_H

#include "faults.h"
#include "flat.h"

enum { FLAT_REDIS = PROCESSES, FLAT_JUDGE, FLATS, MISHAPS_MOST = 16 };

struct run {
    int64_t wanted_us, every_us, lasts_us; /* how long; a fault so often; each so long */
    int64_t start_us, end_us;
    uint64_t seed;
    const char *only; /* this fault alone; NULL: all */
    bool with_cluster, tells;
    unsigned planted;
    int64_t pace_us; /* pace_us, planted and tells as in struct ledger */
    struct place place;
    struct faults faults;
    struct flat flats[FLATS];
    int mishaps; /* what went wrong that is none of the figures */
    char mishap[MISHAPS_MOST][240];
};

bool is_run(const struct run *run, int mode);
void run_mishap(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line on how it goes. */
void report_line(const struct run *run);

/* The tables, and what was found: whether all was as promised. */
bool report(const struct run *run);

/* stored.c: of the keys in Redis, those that have no time to live or one that is too long, as a mishap; how many keys
 * there are. */
int64_t stored_check(struct run *run);

#endif
