/* decisions.h - a line per row on stdout: allowed,remaining,retry_after_us,reset_after_us,delay_us.
 *
 * The lines keep the order of the input. If rows are decided in that order, their lines are written immediately.
 * Otherwise the decisions are kept, 32 bytes each, until the last one is made.
 */
#ifndef WEIR_CLI_DECISIONS_H
#define WEIR_CLI_DECISIONS_H

#include <weir/weir.h>

struct decision_line {
    int64_t allowed_and_remaining; /* 2 * remaining + allowed */
    int64_t retry_after_us, reset_after_us, delay_us;
};

struct decisions {
    struct decision_line *waiting; /* by position in the input; NULL: lines are written immediately */
    size_t count;
};

/* `must_wait`: rows will not be decided in the input's order. False: out of memory. */
bool decisions_start(struct decisions *decisions, bool must_wait, size_t count);
void decisions_add(struct decisions *decisions, size_t position, const struct weir_decision *decision);
void decisions_finish(struct decisions *decisions);

#endif
