/* hold.h - runs rows against limits at the rows' own times and counts the outcome.
 *
 * The limiter's clock shows the time of the current row. The limiter has room for every key, so that only the limits
 * ever deny. The limiters' figures count what shadow limits would have denied, and the permits of each limit.
 * Several limits decide a row together, all or nothing; if they deny, a peek at each, at the same time, tells which of
 * them denied. A denial changes nothing, so the peeks see the same state as the decision.
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
#include "cli/replay/flight.h"
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
    size_t key_room;                           /* of the arrays by key */
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

struct hold {
    /* Set by the caller: */
    const struct rows *rows;         /* for their keys */
    const struct policies *policies; /* 1 to WEIR_MAX_ALL */
    const struct store *store;
    struct hold_watcher watcher;
    struct progress *progress;
    size_t total; /* rows that will come; 0: not known, and nothing shows the progress */

    struct tally tally;
    size_t most_keys;           /* that the limiters have room for */
    size_t decided;             /* rows */
    int64_t now_us;             /* the time on all limiters' clocks */
    struct instance *instances; /* one, except in hybrid mode */
    size_t instance_count;
    struct flights flights; /* if rows have durations */
    struct compare compare; /* in hybrid mode */
    uint64_t peek_calls;    /* in hybrid mode: store calls that no instance of a service would have made */
};

/* Open the limiters with room for this many keys. Return EXIT_OK, or EXIT_FAILED after a complaint. Call hold_end() in
 * either case. */
int hold_start(struct hold *hold, size_t most_keys);

/* Decide rows. Return EXIT_OK, what the watcher returned, or EXIT_FAILED after a complaint. At a signal that
 * store_hold_signals() holds back, the rest of the rows is left out. */
int hold_take(struct hold *hold, const struct row *rows, size_t count);

/* After the last row, or after a `result` other than EXIT_OK: complete the tally, remove the keys from Redis, and close
 * the limiters. Return the result, or EXIT_FAILED after a complaint. tally_free() frees the tally. */
int hold_end(struct hold *hold, int result);

void tally_free(struct tally *tally);

#endif
