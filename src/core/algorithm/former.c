/* former.c - the two states of a key whose limit has several plans, one after the other or at the same time.
 *
 * A limit gets another plan when its policy or its share changes. During a rollout, instances on one Redis disagree on
 * the plan. So a key has up to two states, under the two plans that were requested last: its state, under the later
 * one, and its former state. Both are charged, so each plan decides its requests as if it had decided all requests. A
 * request below both limits is never denied, and a change back and forth admits nothing twice.
 *
 *     A request under the plan of the former state: the two states change places.
 *
 *     A request under a third plan: the state with more permits in use is carried over to that plan; if both have as
 *     many, the later one. state_convert() does that exactly. Where it cannot, a fresh state is charged with the
 *     permits in use, rounded up, and is full at most. The charge is at the later of the two times at which the states
 *     were read. The state then becomes the former one, unless nothing is used in it.
 *
 *     A decision takes every field from the state alone. The former state denies nothing. It changes as follows:
 *
 *         take          charged to both. If the former state cannot hold it, that is full from then on (state_fill())
 *         charge        charged to both. The former state is full at most, or stays as far overdrawn as it was
 *         refund        given back to both
 *         denial, peek  change neither, except for a rebase of the state. A take under another plan is written even if
 *                       it is denied
 *         reset         forgets both
 *
 *     The former state is forgotten when no request has come under its plan for as long as a full state takes to drain,
 *     or its own use if that takes longer.
 *
 *     The key is idle when nothing is used in the state and the former one is forgotten.
 *
 * In local mode a limit has one plan at a time, and memory is scarce (one_at_a_time). A former state is kept only if
 * the new state could not hold all, and only until nothing is used in it. Let u be the greater of used(state) and
 * used(former):
 *
 *     - If u = used(former), and the former state is under the very plan of the request, it becomes the key's state.
 *     - If u exceeds the size of the new plan, the state that has u becomes the former one. If both have u, the former
 *       one stays.
 *     - Otherwise the key has no former state any more.
 *
 * Some plans differ only in their numbers, not in algorithm or period, as the plans of one policy at several shares do.
 * A limit may switch between such plans any number of times: it never admits more than the plan with the largest
 * numbers alone would. The state of that plan sees every permit, has room for it, and is the one charged when the key
 * comes back. Between other plans the smaller one may admit while the former state is full. Its own rate bounds the
 * excess, and no change adds a burst. A key whose plan does not change has no former state.
 */
#include "core/algorithm/former.h"

#include "core/ground/arith.h"

#include <string.h>

static bool plan_is(const struct weir_plan *plan, const struct weir_plan *other)
{
    return (plan->fingerprint & EXACT_MAX) == (other->fingerprint & EXACT_MAX);
}

static int64_t former_used(const struct key_states *key, int64_t *at_us)
{
    return key->former.plan ? state_used(key->former.plan, key->former.state, at_us) : 0;
}

bool former_counts(const struct key_states *key, int64_t now_us)
{
    int64_t at_us = now_us;
    return key->former.plan && now_us < key->until_us && (!key->one_at_a_time || former_used(key, &at_us) > 0);
}

struct carried carry_over(const struct weir_plan *to, const struct key_states *key, int64_t now_us)
{
    struct carried carried = { .at_us = now_us };
    int64_t at_us = now_us;
    const bool has_former = former_counts(key, now_us);
    const int64_t used = state_used(key->own.plan, key->own.state, &carried.at_us);
    const int64_t used_former = has_former ? former_used(key, &at_us) : 0;
    const bool returns = has_former && plan_is(key->former.plan, to) && (!key->one_at_a_time || used_former >= used);
    const bool stays = !returns && used_former > 0 && (key->one_at_a_time ? used_former >= used : used == 0);
    carried.used = max_of(used, used_former);
    carried.at_us = max_of(carried.at_us, at_us);
    if (carried.used == 0 && !returns)
        return carried;
    carried.from = returns || stays || used_former > used ? key->former : key->own;
    carried.has_origin = returns ? carried.from.origin != NULL : origin_is_needed(&carried.from, to, carried.used);
    if (returns && carried.has_origin)
        memcpy(&carried.origin, carried.from.origin, sizeof carried.origin);
    else if (carried.has_origin)
        carried.origin = origin_begin(&carried.from, to, now_us, carried.at_us);
    if (key->one_at_a_time && (returns || carried.used <= to->size))
        return carried;
    carried.former = stays ? key->former : key->own;
    if (key->one_at_a_time)
        carried.former.origin = NULL;
    carried.until_us = stays ? key->until_us : min_of(now_us + state_drain_us(key->own.plan, used), EXACT_MAX);
    return carried;
}

void carry_write(const struct weir_plan *to, struct carried *carried, int64_t now_us, int64_t *state)
{
    const struct written *from = &carried->from;
    if (plan_is(from->plan, to)) {
        memmove(state, from->state, state_words(to) * sizeof *state);
        return;
    }
    if (!state_convert(from->plan, from->state, to, now_us, state))
        state_charge(to, state, carried->at_us, carried->used);
    if (carried->has_origin)
        origin_complete(&carried->origin, from->plan, to, state, carried->used);
}

bool carry_decide(const struct key_states *key, int64_t *state, const struct weir_backend_request *request,
                  struct origin *origin, struct weir_decision *out)
{
    if (key->own.origin)
        memcpy(origin, key->own.origin, sizeof *origin);
    return state_decide_request(key->own.plan, state, key->own.origin ? origin : NULL, request->now_us, request->verb,
                                request, out);
}

/* ---- What is stored ---- */

struct key_states behind_states(const struct weir_plan *plan, const int64_t *state, const struct weir_plan *behind,
                                const int64_t *words)
{
    struct key_states key = { .own = { plan, state, NULL }, .until_us = INT64_MAX, .one_at_a_time = true };
    if (behind && behind_has_origin(behind))
        key.own.origin = words;
    if (behind && behind_has_former(behind))
        key.former = (struct written){ behind, words + behind_former_at(behind), NULL };
    return key;
}

bool behind_plan(const struct carried *carried, struct weir_plan *out)
{
    *out = carried->former.plan ? *carried->former.plan : (struct weir_plan){ 0 };
    out->fingerprint = (out->fingerprint & EXACT_MAX) | (carried->has_origin ? BEHIND_ORIGIN : 0);
    return out->fingerprint != 0;
}

bool behind_is_over(const struct key_states *key, int64_t now_us)
{
    struct origin origin;
    if (key->own.origin)
        memcpy(&origin, key->own.origin, sizeof origin);
    return (!key->own.origin || origin_is_over(&origin, key->own.plan, key->own.state, now_us)) &&
           (!key->former.plan || state_fresh_at_us(key->former.plan, key->former.state) == 0);
}

/* ---- Changes ---- */

/* Charge permits to a former state that counts, at `at_us`. */
static void former_add(const struct weir_plan *plan, int64_t *former, int64_t at_us, int64_t permits)
{
    if (permits > 0)
        state_fill(plan, former, at_us, permits);
}

/* Give permits back to it: by state_return() if since_us is not 0. */
static void former_give_back(const struct weir_plan *plan, int64_t *former, struct origin *origin, int64_t now_us,
                             int64_t permits, int64_t since_us)
{
    struct weir_decision decision;
    if (since_us > 0)
        state_return(plan, former, origin, now_us, since_us, permits, &decision);
    else
        state_decide(plan, former, now_us, permits, WEIR_REFUND, &decision);
    if (decision.reset_after_us == 0)
        state_charge(plan, former, now_us, 0); /* blocks that are too old go as well */
}

void former_change(const struct key_states *key, int64_t *former, struct origin *origin,
                   const struct weir_backend_request *request, const struct weir_decision *decision)
{
    const struct weir_plan *plan = key->former.plan;
    const int64_t now_us = request->now_us, cost = request->cost;
    int64_t at_us = now_us;
    if (!plan)
        return;
    if (!former_counts(key, now_us)) {
        state_charge(plan, former, now_us, 0);
        return;
    }
    state_used(key->own.plan, key->own.state, &at_us);
    if (request->verb == WEIR_REFUND || (request->verb == WEIR_RENEW && decision->allowed))
        former_give_back(plan, former, origin, now_us, cost, request->ahead);
    if (request->verb == WEIR_CHARGE)
        former_add(plan, former, at_us, cost - decision->ahead);
    else if (request->verb != WEIR_REFUND && decision->allowed)
        former_add(plan, former, at_us, cost + decision->ahead);
}
