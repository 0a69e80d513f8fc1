/* former.h - what becomes of a key's use when its limit gets another plan: pure functions, specified in former.c. */
#ifndef CORE_ALGORITHM_FORMER_H
#define CORE_ALGORITHM_FORMER_H

#include "core/algorithm/algorithm.h"

/* A state and the plan that it was written under; `plan` NULL: there is none. */
struct written {
    const struct weir_plan *plan;
    const int64_t *state;
};

/* What a key under another plan takes with it. */
struct carried {
    int64_t used;          /* permits to be charged to a fresh state, which clips them; 0: the key is as good as new */
    int64_t at_us;         /* when that state begins: now, or later while a clock that stepped back is held */
    bool resumes;          /* no fresh one: the former state was written under this very plan and goes on as the
                            * key's */
    struct written former; /* one of the two, to be kept as it is; or none */
};

/* A key with `state`, and perhaps `former`, comes under the plan `to`. Nothing is written. */
struct carried carry_over(const struct weir_plan *to, const struct written *state, const struct written *former,
                          int64_t now_us);

/* A take has charged `permits`, 1 or more, to the state: charge them to the former state, too, or forget that one:
 * nothing is used in it then, which state_fresh_at_us() tells. */
void former_take(const struct weir_plan *plan, int64_t *former, int64_t now_us, int64_t permits);

#endif
