/* plan.h - makes a policy and a share into a plan: whole numbers, every product below 2^53. */
#ifndef CORE_POLICY_PLAN_H
#define CORE_POLICY_PLAN_H

#include "core/ground/log.h"
#include "core/policy/policy.h"
#include "core/policy/share.h"

#include <weir/backend.h>

/* What became of this instance's part of the burst, capacity or window limit. */
enum plan_part {
    PLAN_PART,
    PLAN_PART_LIFTED, /* 0, lifted to 1 */
    PLAN_PART_ZERO,   /* 0: all is denied */
    PLAN_PART_UNFIT   /* likewise, for want of exact arithmetic */
};

/* Whether a policy can be enforced: WEIR_OK, or WEIR_EINVAL with a sentence and in *fault the field that it is about.
 */
int plan_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault);

/* `policy` has passed the range checks of policy_check(). A share that is nothing makes a plan of size 0. WEIR_OK, or
 * WEIR_EINVAL with a sentence if no arithmetic below 2^53 is exact or it takes longer than WEIR_MAX_FILL_US to fill. */
int plan_make(const struct weir_policy *policy, const struct share *share, struct weir_plan *out,
              struct message message);

/* The most a fresh key admits. A part of 0 is lifted to 1 where a rate bounds the sum over all instances. */
int64_t plan_size(const struct weir_policy *policy, const struct share *share);

/* What is enforced of `policy`, which has passed plan_check(), while `share` is in force: the plan of plan_make(), or
 * if there is no arithmetic for that of 1/ceil(W/w), which is no more, or else that of nothing. Returns what became of
 * the part. */
enum plan_part plan_at_share(const struct weir_policy *policy, const struct share *share, struct weir_plan *out);

/* Leave `permits`, fewer than its size, out of a greedy token bucket's plan. */
void plan_hold_back(struct weir_plan *plan, int64_t permits);

/* Of a plan of plan_make(). */
enum plan_part plan_part(const struct weir_policy *policy, const struct share *share);

/* The field that says how much a key may hold: what a refusal of plan_make() is about. */
enum policy_field_id plan_size_field(const struct weir_policy *policy);

#endif
