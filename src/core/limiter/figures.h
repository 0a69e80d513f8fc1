/* figures.h - counts a limit's answers. A limit and each of its overrides count apart.
 *
 * Each thread that has a stripe (core/ground/stats.h) counts in a separate block, made at its first answer by that
 * limit. So no two threads share a cache line, and a count is a plain load and store. Threads without a stripe, and
 * those that find no memory for a block, share one block and add atomically. No count is lost.
 *
 * Answers to single requests and to members of weir_try_all() are apart, because the limiter's own figures count such a
 * call once (api/life.c). Counters only grow, and sums of them, read one after the other, do too.
 */
#ifndef CORE_LIMITER_FIGURES_H
#define CORE_LIMITER_FIGURES_H

#include "core/limiter/limiter.h"

#include <weir/backend.h>

_Static_assert(offsetof(struct figures, singles[WEIR_BY_FULL]) < 64, "one cache line");

#define FIGURES_NEAR 10

/* Count what the thread cannot count in its block. */
void figures_count_rarely(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision);

static inline void figures_add(_Atomic uint64_t *count, uint64_t amount)
{
    stats_add_own(count, amount, memory_order_relaxed);
}

/* Return the block of the calling thread, whose stats_own_stripe is `own_stripe`; NULL: it has none. One that has a
 * block has a stripe that it does not share. Acquire: the thread that had this stripe before may have made the
 * block. */
static inline struct figures *figures_of(const struct weir_limit *limit, unsigned own_stripe)
{
    return atomic_load_explicit(&limit->figures[own_stripe], memory_order_acquire);
}

/* Count in the thread's block the answer to a single request, as figures_count_taken() does. */
static inline void figures_count_own(struct figures *own, int64_t cost, int taken, const struct weir_decision *decision)
{
    figures_add(&own->singles[0][0] + taken, 1);
    if ((taken & 1) != 0) {
        figures_add(&own->permits, (uint64_t)cost);
        if (__builtin_expect(decision->remaining * FIGURES_NEAR < decision->limit, 0))
            figures_add(&own->near, 1);
    }
}

/* Count the answer to a single request, not by a shadow limit that would have denied it. `taken` is own_taken(). */
static inline void figures_count_taken(struct weir_limit *limit, int64_t cost, int taken,
                                       const struct weir_decision *decision)
{
    struct figures *own = figures_of(limit, stats_own_stripe);
    if (__builtin_expect(own != NULL, 1))
        figures_count_own(own, cost, taken, decision);
    else
        figures_count_rarely(limit, cost, decision);
}

static inline void figures_count_bound(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision)
{
    figures_count_taken(limit, cost, own_taken(decision), decision);
}

/* Count the answer to a single request. */
static inline void figures_count(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision)
{
    if (__builtin_expect(decision->would_deny, 0))
        figures_count_rarely(limit, cost, decision);
    else
        figures_count_bound(limit, cost, decision);
}

/* Count permits that were charged without a question. */
void figures_count_charge(struct weir_limit *limit, int64_t permits);

/* Count a member of a group: it was admitted with the group, or it denied the group. */
void figures_count_member(struct weir_limit *limit, int64_t cost, const struct weir_decision *decision);

/* Add up what a limit or an override has counted. out->size stays as it is. */
void figures_sum(const struct weir_limit *limit, struct weir_limit_stats *out);

/* Add the answers to single requests, of all limits and overrides. */
void figures_count_singles(const struct weir *limiter, uint64_t *allowed, uint64_t *denied) REQUIRES(limiter->mutex);

/* Add what a limit has counted to limiter->retired, and begin anew. No thread counts. */
void figures_retire(struct weir *limiter, struct weir_limit *limit) REQUIRES(limiter->mutex);

/* Free a limit's blocks. No thread counts any more. */
void figures_free(struct weir_limit *limit);

#endif
