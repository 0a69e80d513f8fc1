/* former.h - the two states of a key whose requests come under two plans: pure functions, specified in former.c. */
#ifndef CORE_ALGORITHM_FORMER_H
#define CORE_ALGORITHM_FORMER_H

#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"

/* What a backend of one process or one machine stores behind a key's state: the state's origin, the former state, or
 * both, in this order. One plan describes it: that of the former state, of which only the fingerprint means something if
 * there is none, with this bit in the fingerprint if there is an origin. The former state's own origin is not stored. */
#define BEHIND_ORIGIN (EXACT_MAX + 1)
#define BEHIND_MAX_WORDS (ORIGIN_WORDS + STATE_MAX_WORDS)

static inline bool behind_has_origin(const struct weir_plan *behind)
{
    return (behind->fingerprint & BEHIND_ORIGIN) != 0;
}

static inline bool behind_has_former(const struct weir_plan *behind)
{
    return (behind->fingerprint & EXACT_MAX) != 0;
}

/* Return how many int64_t it takes; `behind` may be NULL. */
static inline size_t behind_words(const struct weir_plan *behind)
{
    if (!behind)
        return 0;
    return (behind_has_origin(behind) ? ORIGIN_WORDS : 0) + (behind_has_former(behind) ? state_words(behind) : 0);
}

/* Return where the former state begins in it. */
static inline size_t behind_former_at(const struct weir_plan *behind)
{
    return behind_has_origin(behind) ? ORIGIN_WORDS : 0;
}

/* A key's two states. */
struct key_states {
    struct written own, former; /* a former plan's fingerprint may have BEHIND_ORIGIN, which says nothing here */
    int64_t until_us;           /* the former one is kept */
    bool one_at_a_time;         /* plans only follow one another, see former.c */
};

/* The states that a key takes along when a request comes under another plan than its state. */
struct carried {
    struct written from; /* the state that carry_write() makes the new one of; none: nothing is used, the key is idle */
    int64_t used, at_us; /* the permits to charge if it has to begin anew, and when it then begins */
    struct written former; /* the state to be kept beside the new one, as it is; or none */
    int64_t until_us;      /* and until when */
    bool has_origin;
    struct origin origin; /* of the new state; carry_write() completes it */
};

/* Return a key's states from what lies behind its own one. `words` are what `behind` describes; NULL: there is none. */
struct key_states behind_states(const struct weir_plan *plan, const int64_t *state, const struct weir_plan *behind,
                                const int64_t *words);

/* Write the plan of what must be stored behind a carried state. False: nothing. */
bool behind_plan(const struct carried *carried, struct weir_plan *out);

/* True if nothing of that is of use any more. */
bool behind_is_over(const struct key_states *key, int64_t now_us);

/* True if the former state is still to be kept. */
bool former_counts(const struct key_states *key, int64_t now_us);

/* Decide a request by a key's own state, in `state`; `origin` gets its origin afterwards, if it has one. */
bool carry_decide(const struct key_states *key, int64_t *state, const struct weir_backend_request *request,
                  struct origin *origin, struct weir_decision *out);

/* Carry a key over to the plan `to`. Nothing is written. */
struct carried carry_over(const struct weir_plan *to, const struct key_states *key, int64_t now_us);

/* Write the new state of a key that is not idle. It may be written over carried->from. */
void carry_write(const struct weir_plan *to, struct carried *carried, int64_t now_us, int64_t *state);

/* Charge the permits that a request has charged to the state to the former one as well, if it is still kept, or give
 * them back. key->own is the state after the request, `former` the key's former state, to be written. Permits are
 * charged now or, while a clock that stepped back is held, at the state's time. */
void former_change(const struct key_states *key, int64_t *former, struct origin *origin,
                   const struct weir_backend_request *request, const struct weir_decision *decision);

#endif
