/* compare.h - what instances in hybrid mode decided, compared with what one exact limit would have decided.
 *
 * Two limiters in this process see the same times. The exact one decides every row. The auditor gets only the rows that
 * the instances admitted: each permit that it denies exceeded the limit, whichever rows caused that. A meter measures
 * the largest excess of a limit whose permits return gradually. It fills with what is admitted and drains at the
 * limit's rate. Its highest level, less what a fresh key admits, is the largest excess in any stretch of time.
 */
#ifndef WEIR_CLI_COMPARE_H
#define WEIR_CLI_COMPARE_H

#include "cli/replay/input/rows.h"
#include "cli/replay/instance.h"

struct compared_limit {
    int64_t lease_life_us, lease_max, over_max; /* as weir_limit_info() returns them */
    bool is_metered;
    double most_over; /* in permits, by the meter */
};

struct comparison {
    uint64_t exact_admitted;
    uint64_t here_alone, exact_alone; /* requests that only one side admitted */
    uint64_t permits_beyond;          /* permits admitted here that the auditor denied */
    uint64_t by_redis, by_lease, by_denial;
    uint64_t store_calls, leased, lease_lost;
    struct compared_limit limits[WEIR_MAX_ALL]; /* in the order of the policies */
};

struct meter {
    int64_t at_us;
    double level; /* permits */
};

struct compare {
    const struct rows *rows;
    const struct policies *policies;
    struct instance exact, auditor;
    struct meter *meters[WEIR_MAX_ALL]; /* by key number; NULL: not metered */
    struct comparison *out;
};

/* Open both limiters. `clock` and `user` are those of weir_options. Return EXIT_OK, or EXIT_FAILED after a complaint.
 * Call compare_end() in either case. */
int compare_start(struct compare *compare, const struct rows *rows, const struct policies *policies,
                  int64_t (*clock)(void *user), void *user, struct comparison *out);
void compare_end(struct compare *compare);

/* Compare the decision of an instance on a row; the clock shows the row's time. Return EXIT_OK, or EXIT_FAILED after a
 * complaint. */
int compare_add(struct compare *compare, const struct row *row, const struct weir_decision *decision);

/* Add an instance's counters and its limits' leases, after the last row. */
int compare_add_instance(struct compare *compare, const struct instance *instance);

#endif
