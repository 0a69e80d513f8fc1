/* former.c - the two states of a key whose limit has several plans, one after the other or at the same time.
 *
 * A limit gets another plan when its policy or its share changes, and in Redis instances disagree on it for as long as
 * a rollout takes. So a key has up to two states, under the two plans asked for last: its state, under the later one,
 * and its former state. Both are charged. So each plan decides its requests as if it had decided all of them: a request
 * below both limits is never denied, and going back and forth admits nothing twice.
 *
 *     the plan of the former state asks: the two change places.
 *     a third plan asks: the state with more permits in use is carried over to it; if both have the same, the later
 *         one. state_convert() does that exactly. If it can't, the permits in use, rounded up, are charged to a fresh
 *         state, at the later of the times at which the two were read. It holds at most the new plan's size. Then the
 *         state takes the former one's place, unless nothing is used in it.
 *     decide: every field by the state alone; the former state denies nothing
 *         take:     charged to both. If the former one can't hold it, it is full from then on (state_fill())
 *         refund:   given back to both
 *         a denial, a peek: change neither, except for a rebase of the state; but a take by another plan is written
 *                   even if it is denied
 *         reset:    forgets both
 *     charge:   charged to both. The former one is full at most, or stays as far overdrawn as it was
 *     the former state is forgotten when its plan has not been asked for as long as a full state, or its own use if
 *         that is more, takes to drain
 *     idle: when nothing is used in the state, and the former one is forgotten
 *
 * In local mode a limit has one plan at a time, and memory is scarce (one_at_a_time). There the former state is kept
 * only where the new one could not hold all, and until nothing is used in it:
 *
 *     u = the greater of used(state) and used(former)
 *         u = used(former), and the former state is under the very plan that asks: it becomes the key's state
 *         u > size of the new plan: the state that has u is the former one from now on (if both have, it stays)
 *         otherwise there is no former state any more
 *
 * Some plans differ only in their numbers, not in algorithm or period, as the plans of one policy at several shares do.
 * A limit may switch between them any number of times and never admits more than the plan with the largest numbers
 * alone would: the state of that plan sees every permit, has room for it, and is the one charged when the key comes
 * back. Between other plans the smaller one may admit while the former state is full. Its own rate bounds the excess,
 * and no change adds a burst. A key whose plan does not change has no former state.
 */
#include "core/algorithm/former.h"

#include "core/ground/arith.h"

#include <string.h>

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
    const bool returns = has_former && key->former.plan->fingerprint == to->fingerprint &&
                         (!key->one_at_a_time || used_former >= used);
    const bool stays = !returns && used_former > 0 && (key->one_at_a_time ? used_former >= used : used == 0);
    carried.used = max_of(used, used_former);
    carried.at_us = max_of(carried.at_us, at_us);
    if (carried.used == 0 && !returns)
        return carried;
    carried.from = returns || stays || used_former > used ? key->former : key->own;
    if (key->one_at_a_time && (returns || carried.used <= to->size))
        return carried;
    carried.former = stays ? key->former : key->own;
    carried.until_us = stays ? key->until_us : min_of(now_us + state_drain_us(key->own.plan, used), EXACT_MAX);
    return carried;
}

void carry_write(const struct weir_plan *to, const struct carried *carried, int64_t now_us, int64_t *state)
{
    const struct written *from = &carried->from;
    if (from->plan->fingerprint == to->fingerprint)
        memmove(state, from->state, state_words(to) * sizeof *state);
    else if (!state_convert(from->plan, from->state, to, now_us, state))
        state_charge(to, state, carried->at_us, carried->used);
}

/* Charge permits to a former state that counts, at `at_us`. */
static void former_add(const struct weir_plan *plan, int64_t *former, int64_t at_us, int64_t permits)
{
    if (permits > 0)
        state_fill(plan, former, at_us, permits);
}

/* Give permits back to it: by state_return() if since_us is not 0. */
static void former_give_back(const struct weir_plan *plan, int64_t *former, int64_t now_us, int64_t permits,
                             int64_t since_us)
{
    struct weir_decision decision;
    if (since_us > 0)
        state_return(plan, former, now_us, since_us, permits, &decision);
    else
        state_decide(plan, former, now_us, permits, WEIR_REFUND, &decision);
    if (decision.reset_after_us == 0)
        state_charge(plan, former, now_us, 0); /* blocks that are too old go as well */
}

void former_change(const struct key_states *key, int64_t *former, const struct weir_backend_request *request,
                   const struct weir_decision *decision)
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
        former_give_back(plan, former, now_us, cost, request->ahead);
    if (request->verb == WEIR_CHARGE)
        former_add(plan, former, at_us, cost - decision->ahead);
    else if (request->verb != WEIR_REFUND && decision->allowed)
        former_add(plan, former, at_us, cost + decision->ahead);
}
