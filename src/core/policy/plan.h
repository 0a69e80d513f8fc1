/* plan.h - makes a policy and a share into a plan: whole numbers, every product below 2^53. */
#ifndef CORE_POLICY_PLAN_H
#define CORE_POLICY_PLAN_H

#include "core/ground/log.h"
#include "core/policy/policy.h"
#include "core/policy/share.h"

#include <weir/backend.h>

/* How this instance's part of the burst, capacity or window limit was rounded. */
enum plan_part {
    PLAN_PART,
    PLAN_PART_LIFTED, /* 0, lifted to 1 */
    PLAN_PART_ZERO,   /* 0: all is denied */
    PLAN_PART_UNFIT   /* 0, because there is no exact arithmetic: all is denied */
};

/* Check whether a policy can be enforced: WEIR_OK, or WEIR_EINVAL with a sentence and the field at fault in *fault. */
int plan_check(const struct weir_policy *policy, struct message message, enum policy_field_id *fault);

/* Make a plan of a policy that has passed policy_check(). A share of 0 makes a plan of size 0. WEIR_OK; or WEIR_EINVAL
 * with a sentence, if no arithmetic below 2^53 is exact, if a key would take longer than WEIR_MAX_FILL_US to fill, or if
 * a large limit has too many blocks.
 */
int plan_make(const struct weir_policy *policy, const struct share *share, struct weir_plan *out,
              struct message message);

/* Return the most that a fresh key admits. A part of 0 is lifted to 1 if a rate bounds the sum over all instances. */
int64_t plan_size(const struct weir_policy *policy, const struct share *share);

/* Make the plan to enforce for a policy that has passed plan_check(), at a share. That is the plan of plan_make(). If
 * the share has no exact arithmetic, it is the plan of 1/ceil(W/w), which is not larger. If that has none either, it is
 * a plan of size 0. Return what became of this instance's part. */
enum plan_part plan_at_share(const struct weir_policy *policy, const struct share *share, struct weir_plan *out);

/* Make the plan by which a fallback decides for that policy at a share: a leaky bucket for a leaky bucket, and a greedy
 * token bucket of the same size and rate for everything else. If that has no exact arithmetic, the rate is lower by at
 * most 24 * size / 2^53: one in 100,000 for a size of 2^31, one in 40 for one of 2^43. Otherwise as plan_at_share(). */
enum plan_part plan_for_fallback(const struct weir_policy *policy, const struct share *share, struct weir_plan *out);

/* Subtract `permits` from the size of a greedy token bucket's plan; they are fewer than its size. */
void plan_hold_back(struct weir_plan *plan, int64_t permits);

/* Return what became of the part, for a plan of plan_make(). */
enum plan_part plan_part(const struct weir_policy *policy, const struct share *share);

/* Return a policy whose plan has this plan's algorithm, rate and size; limit 0: there is none that weir accepts. */
struct weir_policy plan_policy(const struct weir_plan *plan);

/* Return the field that says how much a key may hold; refusals of plan_make() are about it, or about a window's blocks. */
enum policy_field_id plan_size_field(const struct weir_policy *policy);

#endif
