/* former.h - the two states of a key whose requests come under two plans: pure functions, specified in former.c. */
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

/* A key's two states. */
struct key_states {
    struct written own, former;
    int64_t until_us;   /* the former one is kept */
    bool one_at_a_time; /* plans only follow one another, see former.c */
};

/* The states that a key takes along when a request comes under another plan than its state. */
struct carried {
    struct written from; /* the state that carry_write() makes the new one of; none: nothing is used, the key is idle */
    int64_t used, at_us; /* the permits to charge if it has to begin anew, and when it then begins */
    struct written former; /* the state to be kept beside the new one, as it is; or none */
    int64_t until_us;      /* and until when */
};

/* True if the former state is still to be kept. */
bool former_counts(const struct key_states *key, int64_t now_us);

/* Carry a key over to the plan `to`. Nothing is written. */
struct carried carry_over(const struct weir_plan *to, const struct key_states *key, int64_t now_us);

/* Write the new state of a key that is not idle. It may be written over carried->from. */
void carry_write(const struct weir_plan *to, const struct carried *carried, int64_t now_us, int64_t *state);

/* Charge the permits that a request has charged to the state to the former one as well, if it is still kept, or give
 * them back. key->own is the state after the request, `former` the key's former state, to be written. Permits are
 * charged now or, while a clock that stepped back is held, at the state's time. */
void former_change(const struct key_states *key, int64_t *former, const struct weir_backend_request *request,
                   const struct weir_decision *decision);

#endif
