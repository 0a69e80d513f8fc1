/* hold.h - runs rows against limits at the rows' own times and counts the outcome.
 *
 * The limiter's clock shows the time of the current row. The limiter has room for every key, so that only the limits
 * ever deny. What shadow limits would have denied, and what each limit gave out, is in the limiters' own figures. Several limits decide a row together,
 * all or nothing; if they deny, a peek at each, at the same time, tells which of them denied. A denial changes nothing,
 * so the peeks see the same state as the decision.
 *
 * If the rows' durations are known, a row gives back what it took of limits on requests in flight when it ends. An end
 * comes before a beginning at the same time.
 *
 * With counts in Redis, the scripts get the rows' times. The store's prefix makes the keys private to the run. They are
 * removed at the end, also after an error or a signal (see store_hold_signals()).
 *
 * In hybrid mode there are several limiters, each an instance of a service, and each row goes to one of them. Their
 * decisions are compared with those of one exact limit (compare.h).
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
    uint64_t denied_alone; /* requests that no other limit denied */
    uint64_t would_deny;   /* requests that it would have denied, were it not a shadow for their keys */
    uint64_t permits;      /* that were taken of it */
    uint64_t permits_asked;
    uint32_t *requests_by_key, *denied_by_key; /* by the number of the limit's key */
};

struct tally {
    uint64_t admitted, denied;
    uint64_t would_deny; /* of those admitted: some shadow limit would have denied them */
    uint64_t permits_asked, permits_admitted;
    uint32_t *requests_by_key, *denied_by_key; /* by the number of the key of kind 0 */
    size_t keys;                               /* of kind 0 */
    struct policy_tally *policies;             /* in the order of the policies */
    size_t policy_count;
    int64_t first_us, last_us; /* the earliest and the latest time; 0 without rows */
    /* The fewest permits left after an admission, the limit and the key; least_remaining is -1 if none was admitted. */
    int64_t least_remaining, least_limit;
    uint32_t least_key;
    struct comparison comparison; /* in hybrid mode */
};

struct hold_watcher {
    /* Called for each row in turn. A result other than EXIT_OK ends the run and is returned. NULL: none. */
    int (*decided)(void *user, const struct row *row, const struct weir_decision *decision);
    void *user;
};

/* Return EXIT_OK with the tally, which tally_free() frees, or EXIT_FAILED after a complaint. There are 1 to
 * WEIR_MAX_ALL policies. */
int hold_rows(const struct rows *rows, const struct policies *policies, const struct store *store,
              struct hold_watcher watcher, struct progress *progress, struct tally *out);

void tally_free(struct tally *tally);

#endif
