/* hold.h - holds rows against limits, by the rows' own times, and counts what comes of it.
 *
 * A limiter is opened with a clock of its own, which shows the time of the row at hand, and with room for every key, so
 * that nothing but the limits ever denies. Several limits are held against a row at once, all or nothing; if they deny,
 * a peek at each, at the same time, tells which of them did. A denial changes nothing, so the peeks see what the
 * decision saw.
 *
 * With counts in Redis the scripts are given the rows' times. The keys are the run's own, by the store's prefix, and
 * are removed at the end, also if that is an error or a signal (see store_hold_signals()).
 *
 * In hybrid mode there are several limiters, each an instance of a service, and each row is dealt to one of them. What
 * they decide is held against one exact limit (compare.h).
 */
#ifndef WEIR_CLI_HOLD_H
#define WEIR_CLI_HOLD_H

#include <weir/weir.h>

#include "cli/policies.h"
#include "cli/replay/compare.h"
#include "cli/replay/input/rows.h"
#include "cli/replay/progress.h"
#include "cli/store.h"

struct policy_tally {
    uint64_t denied;       /* requests that this limit denied, whatever the others said */
    uint64_t denied_alone; /* and no other limit */
    uint32_t *denied_by_key;
};

struct tally {
    uint64_t admitted, denied;
    uint64_t permits_asked, permits_admitted;
    uint32_t *requests_by_key, *denied_by_key; /* by key number */
    struct policy_tally *policies;             /* in the order of the policies */
    size_t policy_count;
    int64_t first_us, last_us; /* the least and the greatest time; 0 without rows */
    int64_t least_remaining;   /* after an admission, and of how many permits, and whose; -1: nothing was admitted */
    int64_t least_limit;
    uint32_t least_key;
    struct comparison comparison; /* in hybrid mode */
};

struct hold_watcher {
    /* Called for each row in turn; other than EXIT_OK ends the work and is returned. NULL: nobody watches. */
    int (*decided)(void *user, const struct row *row, const struct weir_decision *decision);
    void *user;
};

/* EXIT_OK with the tally, for tally_free(), or EXIT_FAILED after a complaint. There are 1 to WEIR_MAX_ALL policies. */
int hold_rows(const struct rows *rows, const struct policies *policies, const struct store *store,
              struct hold_watcher watcher, struct progress *progress, struct tally *out);

void tally_free(struct tally *tally);

#endif
