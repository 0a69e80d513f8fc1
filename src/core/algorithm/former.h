/* former.h - carries a key's use over to another plan: pure functions, specified in former.c. */
#ifndef CORE_ALGORITHM_FORMER_H
#define CORE_ALGORITHM_FORMER_H

#include "core/algorithm/algorithm.h"

/* A state and the plan under which it was written; a NULL `plan` means none. */
struct written {
    const struct weir_plan *plan;
    const int64_t *state;
};

/* Return how many int64_t a state under `plan` and a former one take together. */
static inline size_t written_words(const struct weir_plan *plan, const struct written *former)
{
    return state_words(plan) + (former->plan ? state_words(former->plan) : 0);
}

/* What a key takes along to another plan. */
struct carried {
    int64_t used;  /* permits to charge to a fresh state, which clips them; 0: the key is idle */
    int64_t at_us; /* when that state begins: now, or later while a clock that stepped back is held */
    bool resumes; /* there is no fresh state: the former state was written under this very plan and becomes the key's */
    struct written former; /* one of the two states, kept as it is; or none */
};

/* Carry a key with `state`, and perhaps `former`, over to the plan `to`. Nothing is written. */
struct carried carry_over(const struct weir_plan *to, const struct written *state, const struct written *former,
                          int64_t now_us);

/* Charge `permits`, 1 or more, to the former state too, after a take has charged them to the state. If nothing was in
 * use in the former state, forget it instead; state_fresh_at_us() then returns 0 for it. */
void former_take(const struct weir_plan *plan, int64_t *former, int64_t now_us, int64_t permits);

#endif
