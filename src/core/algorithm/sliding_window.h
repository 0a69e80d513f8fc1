/* sliding_window.h - a sliding window's state: its size, and what the other algorithms need no code for. */
#ifndef CORE_ALGORITHM_SLIDING_WINDOW_H
#define CORE_ALGORITHM_SLIDING_WINDOW_H

#include "core/ground/arith.h"

#include <weir/backend.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The newest block's id, then a 32-bit count for it and for each of the `blocks` before it. */
static inline size_t sliding_window_words(int32_t blocks)
{
    return 1 + ((size_t)blocks + 2) / 2;
}

/* The summary of a state: two words that decide most requests in place of the whole. A thread may change the summary
 * alone. The state is then old in the newest block's id and count, and in the other counts if their sum is 0, which are
 * then 0. */
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

/* Take `cost` permits, at least 1, as sliding_window_decide() does, if the summary suffices: the newest block is the
 * current one or counts no more, and a denial waits for the newest block alone. False: it does not suffice, and nothing
 * has changed. Otherwise *out is filled; if it says allowed, the new summary is in `words`. */
static inline bool sliding_summary_take(const struct weir_plan *plan, int64_t words[SLIDING_SUMMARY_WORDS],
                                        int64_t now_us, int64_t cost, struct weir_decision *out)
{
    struct sliding_summary summary;
    memcpy(&summary, words, sizeof summary);
    int64_t start_us = summary.id * plan->period_us;
    const int64_t kept_us = (plan->blocks + 1) * plan->period_us;
    if (now_us < start_us) { /* held for a clock that stepped back; nothing in use has no anchor */
        if (start_us - now_us > WEIR_CLOCK_SLACK_US || (summary.newest | summary.older) == 0)
            return false;
    } else if (now_us - start_us >= kept_us) {
        summary = (struct sliding_summary){ .id = now_us / plan->period_us };
        start_us = summary.id * plan->period_us;
    } else if (now_us - start_us >= plan->period_us) {
        return false;
    }
    const int64_t used = (int64_t)summary.newest + summary.older;
    const bool allowed = used + cost <= plan->size;
    if (!allowed && (cost > plan->size || used + cost - plan->size <= summary.older))
        return false;
    if (allowed)
        summary.newest += (uint32_t)cost;
    const int64_t left_us = start_us + kept_us - now_us;
    memcpy(words, &summary, sizeof summary);
    *out = (struct weir_decision){
        .allowed = allowed,
        .limit = plan->size,
        .remaining = allowed ? plan->size - used - cost : max_of(0, plan->size - used),
        .retry_after_us = allowed ? 0 : left_us,
        .reset_after_us = left_us,
    };
    return true;
}

/* Do state_convert() and state_fill() (core/algorithm/algorithm.h). */
bool sliding_window_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to,
                            int64_t now_us, int64_t *state);
void sliding_window_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits);

/* Do state_return(). */
void sliding_window_return(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t since_us, int64_t cost,
                           struct weir_decision *out);

#endif
