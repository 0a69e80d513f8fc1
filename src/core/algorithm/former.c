/* former.c - what becomes of a key's use when its limit gets another plan: a new policy, or another share.
 *
 * The permits in use, rounded up, are charged to a fresh state of the new plan, clipped to its size: a limit that is
 * lowered admits again as soon as the new plan by itself would. But what was clipped must not be lost, or a limit that
 * goes from 100 to 50 and back would forget 50 of them each time. So the state that the key comes from is then kept
 * beside the new one, under the plan that it was written under: the key's former state.
 *
 *     carry over: u = the greater of used(state) and used(former), each as of now
 *         u = used(former), and that one is under the very plan: it goes on as the key's state, as it is, and
 *                   nothing begins anew. Else
 *         the new state is charged min(u, size), at the later of the times at which the two were seen
 *         u > size: the former state from then on is the one with the greater use, the former one if both are equal;
 *                   it is kept as it is. Its size is above that of the new plan
 *         u = 0:    the key is as good as new
 *         else:     there is no former state any more
 *     decide: by the state alone, every field; the former one denies nothing
 *         take:     what is charged to the state is charged to the former one as well: as a take under its own plan
 *                   if it fits; otherwise it is full from now on. If nothing was used in it, it is forgotten instead
 *         refund:   leaves the former one alone: it forgets late, never early
 *         a denial, a peek: change neither, but for a rebase of the state
 *         reset:    forgets both
 *     as good as new: when both are
 *
 * So between plans that differ in their numbers alone, not in algorithm or period, as a policy's shares do, a limit may
 * go back and forth as often as one likes and never admits more than the one with the largest numbers alone would:
 * that one's own state sees every permit, has room for it, and is what is charged when the key comes back. Between
 * others the smaller plan may admit while the former state is full: so much more passes, and no burst a change. A
 * change to a plan that is not the former one's rounds up what is used and begins windows anew: a limit that goes on
 * and on to others admits less. A key whose plan stays as it is has no former state.
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
