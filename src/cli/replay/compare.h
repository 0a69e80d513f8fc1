/* compare.h - what instances in hybrid mode decided, held against what one exact limit would have.
 *
 * Two limiters in this process see the same times. The exact one is asked for every row. The auditor is asked for the
 * rows alone that the instances admitted: what it denies went beyond the limit, whichever rows they were. For a limit
 * whose permits come back bit by bit a meter says how far beyond it went at worst: it fills with what is admitted,
 * drains at the limit's rate, and its highest level, less what a fresh key admits, is the most that was over in any
 * stretch of time.
 */
#ifndef WEIR_CLI_COMPARE_H
#define WEIR_CLI_COMPARE_H

#include "cli/replay/input/rows.h"
#include "cli/replay/instance.h"

struct compared_limit {
    int64_t lease_life_us, lease_max, over_max; /* as weir_limit_info() has them */
    bool is_metered;
    double most_over; /* permits, by the meter */
};

struct comparison {
    uint64_t exact_admitted;
    uint64_t here_alone, exact_alone; /* requests admitted by the one side and not by the other */
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

/* `clock` and `user` as in weir_options. EXIT_OK, or EXIT_FAILED after a complaint; compare_end() either way. */
int compare_start(struct compare *compare, const struct rows *rows, const struct policies *policies,
                  int64_t (*clock)(void *user), void *user, struct comparison *out);
void compare_end(struct compare *compare);

/* An instance has decided this row; the clock shows its time. EXIT_OK, or EXIT_FAILED after a complaint. */
int compare_add(struct compare *compare, const struct row *row, const struct weir_decision *decision);

/* After the last row: add what an instance counted, and what its limits amount to. */
int compare_add_instance(struct compare *compare, const struct instance *instance);

#endif
