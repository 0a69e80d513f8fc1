/* sliding_window.h - a sliding window's state: its size, and what the other algorithms need no code for. */
#ifndef CORE_ALGORITHM_SLIDING_WINDOW_H
#define CORE_ALGORITHM_SLIDING_WINDOW_H

#include <weir/backend.h>

#include <stddef.h>
#include <stdint.h>

/* The newest block's id, then a 32-bit count for it and for each of the `blocks` before it. */
static inline size_t sliding_window_words(int32_t blocks)
{
    return 1 + ((size_t)blocks + 2) / 2;
}

/* Do state_convert() and state_fill() (core/algorithm/algorithm.h). */
bool sliding_window_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to,
                            int64_t now_us, int64_t *state);
void sliding_window_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits);

/* Do state_return(). */
void sliding_window_return(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t since_us, int64_t cost,
                           struct weir_decision *out);

#endif
