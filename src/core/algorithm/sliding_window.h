/* sliding_window.h - a sliding window's state: its size, and what the other algorithms need no code for. */
#ifndef CORE_ALGORITHM_SLIDING_WINDOW_H
#define CORE_ALGORITHM_SLIDING_WINDOW_H

#include "core/ground/arith.h"

#include <weir/backend.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* True if the counts have 64 bits, because the limit does not fit into 32. */
static inline bool sliding_is_wide(const struct weir_plan *plan)
{
    return plan->size > UINT32_MAX;
}

/* The newest block's id, then a count for it and for each of the `blocks` before it: a word, or half of one. */
static inline size_t sliding_window_words(const struct weir_plan *plan)
{
    const size_t counts = (size_t)plan->blocks + 1;
    return 1 + (sliding_is_wide(plan) ? counts : (counts + 1) / 2);
}

typedef uint32_t __attribute__((may_alias)) sliding_half;

/* Return count `i` of a state, or set it. */
static inline int64_t sliding_count(const struct weir_plan *plan, const int64_t *state, int64_t i)
{
    return sliding_is_wide(plan) ? state[1 + i] : (int64_t)((const sliding_half *)(state + 1))[i];
}

static inline void sliding_count_set(const struct weir_plan *plan, int64_t *state, int64_t i, int64_t permits)
{
    if (sliding_is_wide(plan))
        state[1 + i] = permits;
    else
        ((sliding_half *)(state + 1))[i] = (uint32_t)permits;
}

/* The summary of a state whose counts have 32 bits: two words that decide most requests in place of the whole. A thread
 * may change the summary alone. The state is then old in the newest block's id and count, and in the other counts if
 * their sum is 0, which are then 0. */
#define SLIDING_SUMMARY_WORDS 2

struct sliding_summary {
    int64_t id;      /* of the newest block that was charged */
    uint32_t newest; /* its count */
    uint32_t older;  /* the sum of the other counts */
};
_Static_assert(sizeof(struct sliding_summary) == SLIDING_SUMMARY_WORDS * sizeof(int64_t), "no padding");

/* Write the summary of a state. */
void sliding_summary_close(const struct weir_plan *plan, const int64_t *state, int64_t summary[SLIDING_SUMMARY_WORDS]);

/* Bring the first SLIDING_SUMMARY_WORDS of a state up to date. False: the caller must clear the words behind them. */
bool sliding_summary_open(const int64_t summary[SLIDING_SUMMARY_WORDS], int64_t *state);

/* Return how far the clock may step back before the state moves to the new time: twice as long as a block counts. While
 * permits count, the number of their block must not come to mean another time, because returns find them by it. They
 * count for up to one such time after the step, and their blocks may be older than the anchor by as much. */
static inline int64_t sliding_slack_us(const struct weir_plan *plan)
{
    const int64_t most_us = 2 * (plan->blocks + 1) * plan->period_us;
    return most_us > WEIR_CLOCK_SLACK_US ? most_us : WEIR_CLOCK_SLACK_US;
}

/* Do what a request asks, as state_decide_request() does, if the summary suffices. It does for takes, peeks and returns
 * while the newest block is the current one, and for a take when nothing counts any more. But a denial must wait for
 * the newest block alone, and a return must take from that and leave something there. False: nothing has changed.
 * Otherwise *out is filled, and if it says allowed, the new summary is in `words`. */
static inline bool sliding_summary_decide(const struct weir_plan *plan, int64_t words[SLIDING_SUMMARY_WORDS],
                                          const struct weir_backend_request *request, struct weir_decision *out)
{
    const int64_t now_us = request->now_us, kept_us = (plan->blocks + 1) * plan->period_us;
    const bool takes = request->verb == WEIR_TAKE && request->ahead == 0 && request->cost > 0;
    const bool returns = request->verb == WEIR_REFUND && request->ahead > 0;
    struct sliding_summary summary;
    memcpy(&summary, words, sizeof summary);
    int64_t start_us = summary.id * plan->period_us;
    if (!takes && !returns && request->verb != WEIR_PEEK)
        return false;
    if (now_us < start_us) { /* held for a clock that stepped back; nothing in use has no anchor */
        if (start_us - now_us > sliding_slack_us(plan) || (summary.newest | summary.older) == 0)
            return false;
    } else if (takes && now_us - start_us >= kept_us) {
        summary = (struct sliding_summary){ .id = now_us / plan->period_us };
        start_us = summary.id * plan->period_us;
    } else if (now_us - start_us >= plan->period_us) {
        return false;
    }

    bool allowed = true;
    if (returns) {
        const int64_t since_us = request->ahead - start_us, cost = min_of(request->cost, plan->size);
        if (since_us < 0 || since_us >= plan->period_us || cost >= summary.newest)
            return false;
        summary.newest -= (uint32_t)cost;
    } else {
        const int64_t beyond = (int64_t)summary.newest + summary.older + request->cost - plan->size;
        allowed = beyond <= 0;
        if (!allowed && (request->cost > plan->size || beyond <= summary.older))
            return false;
        if (allowed && takes)
            summary.newest += (uint32_t)request->cost;
    }
    if (summary.newest == 0) /* the last of the older blocks that is in use says when the key is idle */
        return false;
    const int64_t left_us = start_us + kept_us - now_us;
    memcpy(words, &summary, sizeof summary);
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = plan->size,
        .remaining = max_of(0, plan->size - summary.newest - summary.older),
        .retry_after_us = allowed ? 0 : left_us,
        .reset_after_us = left_us,
    };
    return true;
}

/* Do state_convert() and state_fill() (core/algorithm/algorithm.h). */
void sliding_window_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to,
                            int64_t now_us, int64_t *state);
void sliding_window_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits);

/* Return when the oldest block that counts begins. */
int64_t sliding_window_edge_us(const struct weir_plan *plan, const int64_t *state, int64_t now_us);

/* Do state_return(). */
void sliding_window_return(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t since_us, int64_t cost,
                           struct weir_decision *out);

#endif
