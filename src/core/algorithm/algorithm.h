/* algorithm.h - what a decision is: pure functions of a plan, a state, a time and a cost. No lock, no I/O, no clock.
 *
 * A state is state_words(plan) integers, which belong to the caller. It holds what a key has used and one anchor time.
 * A state in which nothing is used means the same as a missing key. All verbs of an algorithm go through its one decide
 * function.
 *
 * The clock rule is the same for all. If `now` precedes the anchor by at most WEIR_CLOCK_SLACK_US, or a sliding window's
 * by twice the time for which its blocks count, it counts as the anchor. If it precedes it by more, the anchor moves to
 * where `now` puts it, and all used permits stay used. That rebase is written even if the request is denied; otherwise
 * the key would freeze. Waits are always measured from the real `now`.
 */
#ifndef CORE_ALGORITHM_ALGORITHM_H
#define CORE_ALGORITHM_ALGORITHM_H

#include "core/algorithm/origin.h"
#include "core/algorithm/token_bucket.h"

#include <weir/backend.h>

/* The largest state: a sliding window's anchor and the counts, 32 bits each, of WEIR_MAX_BLOCKS + 1 blocks. */
#define STATE_MAX_WORDS (1 + (WEIR_MAX_BLOCKS + 2) / 2)
_Static_assert(1 + WEIR_MAX_WIDE_BLOCKS + 1 <= STATE_MAX_WORDS, "counts of 64 bits take no more");

/* Return how many int64_t a state under this plan takes. */
size_t state_words(const struct weir_plan *plan);

/* Return the index of a state's anchor. As long as that does not move back, a take moves state_fresh_at_us() on. */
static inline size_t state_time_at(const struct weir_plan *plan)
{
    return plan->algorithm == WEIR_SLIDING_WINDOW ? 0 : 1;
}

/* Return when the permits that a take has just charged to a state count as charged, at least 1: at `now_us`, or at the
 * anchor while a clock that stepped back is held. */
static inline int64_t state_noted_us(const struct weir_plan *plan, const int64_t *state, int64_t now_us)
{
    const int64_t anchor_us = plan->algorithm == WEIR_SLIDING_WINDOW ? state[0] * plan->period_us
                              : plan->p > 0                          ? state[1] * plan->tick_us
                                                                     : state[1];
    return max_of(1, max_of(now_us, anchor_us));
}

/* Make `state` a fresh one, at `now_us`, with min(used, plan->size) permits charged. */
void state_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used);

/* Return the permits in use at *now_us, rounded up. While a clock that stepped back is held, *now_us moves up to the
 * anchor: a state made from this one must not begin earlier. */
int64_t state_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us);

/* Return when the key will be idle if no request touches it; 0 if nothing is used. */
int64_t state_fresh_at_us(const struct weir_plan *plan, const int64_t *state);

/* Return how long it takes until nothing of a full state is in use, or of one with more than that, `used` permits. */
int64_t state_drain_us(const struct weir_plan *plan, int64_t used);

/* Write as `state` what `old`, in which something is used, is under the plan `to`: the anchor stays, levels keep their
 * fractions of a permit, and what `to` cannot hold is clipped. False: that is not exact, because the algorithms, the
 * periods or blocks, the widths of counts, or the ticks differ; then *state means nothing. */
bool state_convert(const struct weir_plan *from, const int64_t *old, const struct weir_plan *to, int64_t now_us,
                   int64_t *state);

/* True if that is exact. */
bool state_is_convertible(const struct weir_plan *from, const struct weir_plan *to);

/* Charge permits that may not fit: the state is then full, or as far overdrawn as before. Of a sliding window's, the
 * youngest count. */
void state_fill(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t permits);

/* Each algorithm defines these, in <algorithm>.c. */
#define ALGORITHM_STATE(name)                                                                       \
    void name##_charge(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t used); \
    int64_t name##_used(const struct weir_plan *plan, const int64_t *state, int64_t *now_us);       \
    int64_t name##_fresh_at_us(const struct weir_plan *plan, const int64_t *state)

/* And this, except the token bucket's, which is inline (token_bucket.h). */
#define ALGORITHM_DECIDE(name)                                                                     \
    bool name##_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost, \
                       enum weir_verb verb, struct weir_decision *out)

ALGORITHM_STATE(token_bucket);
ALGORITHM_STATE(interval_bucket);
ALGORITHM_STATE(fixed_window);
ALGORITHM_STATE(sliding_window);
ALGORITHM_STATE(leaky_bucket);
ALGORITHM_DECIDE(interval_bucket);
ALGORITHM_DECIDE(fixed_window);
ALGORITHM_DECIDE(sliding_window);
ALGORITHM_DECIDE(leaky_bucket);

/* Take, peek, refund or charge. Fill *out, except `source`, which stays 0. Return true if *state was changed. */
static inline bool state_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                                enum weir_verb verb, struct weir_decision *out)
{
    switch (plan->algorithm) {
    case WEIR_FIXED_WINDOW: return fixed_window_decide(plan, state, now_us, cost, verb, out);
    case WEIR_SLIDING_WINDOW: return sliding_window_decide(plan, state, now_us, cost, verb, out);
    case WEIR_LEAKY_BUCKET: return leaky_bucket_decide(plan, state, now_us, cost, verb, out);
    default:
        return plan->refill == WEIR_INTERVAL ? interval_bucket_decide(plan, state, now_us, cost, verb, out)
                                             : token_bucket_decide(plan, state, now_us, cost, verb, out);
    }
}

/* Return the time of the last edge up to `now_us`: permits of a window or an interval that were charged before it have
 * come back, and those charged from it on have not. */
int64_t state_edge_us(const struct weir_plan *plan, const int64_t *state, int64_t now_us);

/* Forget all if nothing is in use in the state: what it was made with has left it. */
void origin_look(struct origin *origin, const struct weir_plan *plan, const int64_t *state, int64_t now_us);

/* Do what a request asks of a state: any verb but a reset. The return value and *out are as above; WEIR_TAKE with
 * `ahead` is state_take_ahead(), WEIR_REFUND with `ahead` state_return(), WEIR_RENEW state_renew(). An allowed take or
 * renewal with a reservation notes its time there. `origin`: where the state's permits come from, or NULL; it changes
 * with the state. */
bool state_decide_request(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us,
                          enum weir_verb verb, const struct weir_backend_request *request, struct weir_decision *out);

/* True if a decision that changed the state has left a fresh one, which need not be stored. A return counts as of the
 * last change, so it leaves a level that has drained since as it is, whatever the time: a clock that steps back after it
 * then finds the same in every backend. */
static inline bool state_is_fresh(const struct weir_plan *plan, const int64_t *state,
                                  const struct weir_backend_request *request, const struct weir_decision *decision)
{
    const bool returned = request->verb == WEIR_REFUND && request->ahead > 0 && plan->p > 0;
    return decision->reset_after_us == 0 && !(returned && state[0] > 0);
}

/* Refund those of `cost` permits, charged at `since_us` and never used, that have not come back by themselves. They are
 * at most the size: a limit that was smaller from then on has never had more of them. With continuous refill they come
 * back at the time of the state's last change, less what had refilled by then. So the state never holds less than what
 * was really used, and may keep units that have drained. */
bool state_return(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us, int64_t since_us,
                  int64_t cost, struct weir_decision *out);

/* Do state_return(), and take the same permits again at `now_us`. Permits that came back need no room. So the take is
 * denied only if `cost` exceeds the size, or if more permits would be in use than the size and than before. */
bool state_renew(const struct weir_plan *plan, int64_t *state, struct origin *origin, int64_t now_us, int64_t since_us,
                 int64_t cost, struct weir_decision *out);

/* Take `cost` permits, which may be 0 and then always succeeds; and after that up to `ahead` more, as many as fit into
 * what remains divided by `spread`. *out and the return value are as above, after both; out->ahead is the second
 * number, out->delay_us that of the first permit charged. If it is allowed, out->age_us is now_us. */
bool state_take_ahead(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost, int64_t ahead,
                      uint32_t spread, struct weir_decision *out);

#endif
