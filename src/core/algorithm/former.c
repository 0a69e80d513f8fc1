/* former.c - carries a key's use over when its limit gets another plan: a new policy, or another share.
 *
 * The permits in use, rounded up, are charged to a fresh state of the new plan, clipped to its size. So a limit that is
 * lowered admits again as soon as the new plan alone would. But clipped permits must not be lost: a limit that goes
 * from 100 to 50 and back would forget 50 of them each time. So the key keeps the state that it comes from, with the
 * plan that wrote it, beside the new one: its former state.
 *
 *     carry over: u = the greater of used(state) and used(former), both now
 *         u = used(former), and the former state was written under this very plan: it becomes the key's state as it is,
 *                   and no window begins anew. Otherwise
 *         the new state is charged min(u, size), at the later of the times at which the two were read
 *         u > size: the former state from now on is the one with the greater use, or the former one if both are equal.
 *                   It is kept as it is. Its size is larger than the new plan's
 *         u = 0:    the key is idle
 *         otherwise there is no former state any more
 *     decide: every field by the state alone; the former state denies nothing
 *         take:     what is charged to the state is also charged to the former one, as a take under its own plan if
 *                   that fits; otherwise the former one is full from now on. If nothing was used in it, it is forgotten
 *         refund:   does not change the former state: it forgets late, never early
 *         a denial, a peek: change neither, except for a rebase of the state
 *         reset:    forgets both
 *     idle: when both are
 *
 * Some plans differ only in their numbers, not in algorithm or period, as the plans of one policy at several shares do.
 * A limit may switch between them any number of times and never admits more than the plan with the largest numbers
 * alone would: the state of that plan sees every permit, has room for it, and is the one charged when the key comes
 * back. Between other plans the smaller one may admit while the former state is full. Its own rate bounds the excess,
 * and no change adds a burst. A change to a plan other than the former one's rounds up the use and begins windows anew,
 * so a limit that keeps changing to new plans admits less. A key whose plan does not change has no former state.
 */
#include "core/algorithm/former.h"

#include "core/ground/arith.h"

struct carried carry_over(const struct weir_plan *to, const struct written *state, const struct written *former,
                          int64_t now_us)
{
    int64_t at_us = now_us, former_at_us = now_us;
    const int64_t used = state_used(state->plan, state->state, &at_us);
    const int64_t former_used = former->plan ? state_used(former->plan, former->state, &former_at_us) : 0;
    struct carried carried = { .used = max_of(used, former_used), .at_us = max_of(at_us, former_at_us) };
    carried.resumes = former->plan && former_used >= used && former->plan->fingerprint == to->fingerprint;
    if (carried.used > to->size)
        carried.former = former_used >= used ? *former : *state;
    assert(!carried.former.plan || carried.former.plan->size > to->size);
    return carried;
}

void former_take(const struct weir_plan *plan, int64_t *former, int64_t now_us, int64_t permits)
{
    struct weir_decision decision;
    int64_t at_us = now_us;
    assert(permits > 0);
    if (state_used(plan, former, &at_us) == 0) {
        state_charge(plan, former, now_us, 0);
        return;
    }
    state_decide(plan, former, now_us, permits, WEIR_TAKE, &decision);
    if (!decision.allowed)
        state_charge(plan, former, at_us, plan->size);
}
