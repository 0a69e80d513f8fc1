/* targets.c - keeps the policies of limits and overrides, in layers, and writes the plans of those in force.
 *
 * A limit and its overrides have separate plan cells but share one count of versions. A backend that stores states by
 * version assumes that the newest plan under which it has met a key is the plan in force. So two rules hold:
 *
 *     1. Of the plans in force, the more specific has the greater version: the limit's is below any override's, a
 *        shorter prefix's below a longer one's, and a single key's is the greatest. The order of overrides that have no
 *        key in common does not matter.
 *     2. A plan that is no longer in force has a lower version than every plan in force.
 *
 * Each change of the set writes all its cells again, the less specific first, each with the next version. Overrides
 * that end go out of force before that; new ones come into force after it.
 *
 *     - A key that comes under an override leaves something less specific, or something that has ended: the version of
 *       its new plan is greater, by rules 1 and 2.
 *     - A key whose override has ended gets something less specific, with a greater version, by rule 2.
 *     - A thread that looked the key up before the change may still decide by the plan that the key has left. It reads
 *       the version from the cell after the look-up, so the version may be new. By rule 1, the override's version is
 *       greater once all are written. If that thread moves the key back, the next request for it moves it forward
 *       again. If the override has ended, its cell is no longer written, and rule 2 holds.
 *
 * A single key's override that is new or has another policy only needs the next version for itself, and a prefix's for
 * itself and then for those that begin with it.
 */
#include "core/limiter/candidate.h"
#include "core/limiter/limits.h"

#include <stdlib.h>

/* ---- Plans ---- */

struct plans {
    struct weir_plan plan, local_plan;
};

/* Make the plans of a policy at the share in force. The policy has passed plan_check(), so the whole limit has exact
 * arithmetic. Return what became of this instance's part. */
static enum plan_part plans_make(const struct weir *limiter, const struct weir_policy *policy, struct plans *out)
    REQUIRES(limiter->mutex)
{
    const bool shared = limiter->backend->ops->shared;
    const enum plan_part part = plan_at_share(policy, shared ? &share_whole : &limiter->share, &out->plan);
    const enum plan_part fallback_part = plan_for_fallback(policy, &limiter->share, &out->local_plan);
    const int64_t reserve = lease_reserve(&limiter->leases, &out->plan);
    if (reserve > 0)
        plan_hold_back(&out->plan, reserve);
    return shared ? fallback_part : part;
}

int limits_check(const struct weir *limiter, const struct weir_policy *policy, struct message message)
{
    struct weir_plan plan;
    if (policy->algorithm == WEIR_CONCURRENCY && !limiter->backend->ops->slots)
        return message_refuse(message, "backend %s does not keep slots: it cannot limit requests in flight",
                              limiter->backend->ops->name);
    if (limiter->share_varies)
        return WEIR_OK;
    const int error = plan_make(policy, &limiter->share, &plan, message);
    if (error || !policy_has_candidate(policy))
        return error;
    const struct weir_policy half = policy_candidate(policy);
    return plan_make(&half, &limiter->share, &plan, message);
}

bool limits_is_in_force(const struct weir_limit *target)
{
    return target->override ? atomic_load_explicit(&target->override->in_force, memory_order_relaxed)
                            : target->is_defined;
}

struct weir_limit *limits_next(const struct weir *limiter, const struct weir_limit *target)
{
    struct weir_limit *next = target ? target->next_target : limiter->first_target;
    while (next && !(limits_is_in_force(next) && next->of->is_defined))
        next = next->next_target;
    return next;
}

struct weir_limit *limits_next_changed(const struct weir *limiter, const struct weir_limit *target)
{
    struct weir_limit *next = target ? target->next_target : limiter->first_target;
    while (next && !next->is_untold)
        next = next->next_target;
    return next;
}

/* Note which way the limit's requests go. Relaxed: each way decides right by any plan. */
static void note_kind(struct weir_limit *target, const struct weir_plan *plan)
{
    const struct own_takes *takes = target->limiter->takes;
    if (policy_is_fixed(&target->policy) || policy_has_candidate(&target->policy) ||
        plan->algorithm == WEIR_CONCURRENCY)
        takes = NULL;
    else if (plan->algorithm == WEIR_SLIDING_WINDOW)
        takes = takes ? takes->windows : NULL;
    else if (plan->algorithm != WEIR_TOKEN_BUCKET || plan->refill != WEIR_GREEDY)
        takes = NULL;
    atomic_store_explicit(&target->takes, takes, memory_order_relaxed);
}

/* True if the fallback may know keys under another plan. Keys of an override that comes into force were its limit's. */
static bool is_other_plan(struct weir_limit *target, const struct weir_plan *plan)
{
    struct weir_plan old;
    if (!limits_is_in_force(target))
        return target->override;
    plan_cell_read(&target->local_plan, &old);
    return old.fingerprint != plan->fingerprint;
}

/* Give a plan that stays as it is a later version. */
static inline void renumber_one(const struct weir *limiter, struct weir_limit *target, uint64_t version)
    REQUIRES(limiter->mutex)
{
    plan_cell_renumber(&target->plan, version);
    if (limiter->fallback)
        plan_cell_renumber(&target->local_plan, version);
}

/* Give plans that stay as they are a later version. A candidate has its first half's: the rules above hold for it. */
static inline void renumber_plans(const struct weir *limiter, struct weir_limit *target, uint64_t version)
    REQUIRES(limiter->mutex)
{
    struct weir_limit *candidate = candidate_of(target);
    renumber_one(limiter, target, version);
    if (candidate)
        renumber_one(limiter, candidate, version);
}

/* Write the plans of the policy's second half. True if they differ from the ones before. */
static bool write_candidate(const struct weir *limiter, struct weir_limit *target, uint64_t version)
    REQUIRES(limiter->mutex)
{
    struct weir_limit *candidate = atomic_load_explicit(&target->candidate, memory_order_relaxed);
    struct plans plans;
    if (!policy_has_candidate(&target->policy))
        return false;
    candidate->policy = policy_candidate(&target->policy);
    candidate->part = plans_make(limiter, &candidate->policy, &plans);
    const bool changes = is_other_plan(candidate, &plans.local_plan);
    plan_cell_write(&candidate->plan, &plans.plan, version);
    plan_cell_write(&candidate->local_plan, &plans.local_plan, version);
    atomic_store_explicit(&candidate->enforced, (int32_t)target->policy.candidate.percent, memory_order_relaxed);
    candidate->is_defined = true;
    return changes;
}

/* Give the plans the next version; make them anew if the policy has changed. Return as target_commit(). */
static bool write_plans(const struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex)
{
    struct plans plans;
    const uint64_t version = ++target->of->version;
    if (!target->is_changed) {
        renumber_plans(limiter, target, version);
        return target->override && !limits_is_in_force(target);
    }
    target->is_untold = true;
    target->part = plans_make(limiter, &target->policy, &plans);
    bool changes = is_other_plan(target, &plans.local_plan);
    changes = write_candidate(limiter, target, version) || changes;
    const int32_t fixed = policy_is_fixed(&target->policy) ? (int32_t)target->policy.algorithm : 0;
    if (fixed != 0) /* before its plan, which stands in; and after another one: none decides by a stand-in for long */
        atomic_store_explicit(&target->fixed, fixed, memory_order_release);
    atomic_store_explicit(&target->shadow,
                          policy_shadow(&target->policy) |
                              (policy_has_candidate(&target->policy) ? LIMIT_HAS_CANDIDATE : 0),
                          memory_order_release);
    atomic_store_explicit(&target->in_flight, target->policy.algorithm == WEIR_CONCURRENCY, memory_order_relaxed);
    note_kind(target, &plans.plan);
    plan_cell_write(&target->plan, &plans.plan, version);
    plan_cell_write(&target->local_plan, &plans.local_plan, version);
    if (fixed == 0)
        atomic_store_explicit(&target->fixed, 0, memory_order_release);
    target->is_changed = false;
    return changes;
}

/* ---- Layers ---- */

_Static_assert(sizeof(struct weir_candidate) == 4 * sizeof(int32_t) + 6 * sizeof(int64_t) &&
                   sizeof(struct weir_policy) ==
                       6 * sizeof(int32_t) + 5 * sizeof(int64_t) + sizeof(struct weir_candidate),
               "policies compare as bytes");

/* Return the last layer below `end` that has a policy, other than `except`; -1 if there is none. */
static int top_layer(const struct layers *layers, int end, int except)
{
    while (--end >= 0)
        if (layers->there[end] && end != except)
            break;
    return end;
}

const struct weir_policy *target_without(const struct weir_limit *target, enum layer layer)
{
    const int top = top_layer(&target->layers, LAYERS, (int)layer);
    return top < 0 ? NULL : &target->layers.policies[top];
}

/* If no layer has a policy any more, a limit keeps the last one, and an override ends. */
void target_set(struct weir_limit *target, enum layer layer, const struct weir_policy *policy)
{
    struct layers *layers = &target->layers;
    struct weir_limit *limit = target->of;
    if (!policy && !layers->there[layer])
        return;
    layers->there[layer] = policy != NULL;
    if (policy)
        layers->policies[layer] = *policy;
    const int top = top_layer(layers, LAYERS, -1);
    if (top < 0) {
        target->is_changed = target->is_changed && !target->override;
        if (target->override)
            limit->is_dirty = limit->has_ended = true;
        return;
    }
    const struct weir_policy *best = &layers->policies[top];
    if (limits_is_in_force(target) && memcmp(best, &target->policy, sizeof *best) == 0)
        return;
    target->policy = *best;
    target->is_changed = true;
    limit->is_dirty = limit->is_dirty || !target->override;
}

static void set_in_force(struct override *override, bool in_force)
{
    atomic_store_explicit(&override->in_force, in_force, memory_order_release);
}

static bool is_wanted(const struct override *override)
{
    return top_layer(&override->limit->layers, LAYERS, -1) >= 0;
}

/* One pass over the overrides, which for most of them writes one word: with thousands of them, each cache line that is
 * touched takes time. */
static bool write_all(const struct weir *limiter, struct weir_limit *limit) REQUIRES(limiter->mutex)
{
    bool changes = false;
    struct overrides *overrides = limit_overrides(limit);
    const size_t count = overrides ? overrides->count : 0;
    struct override *begins = NULL; /* a list of those that come into force once all plans are written */
    if (overrides)
        overrides_sort(overrides);
    for (size_t i = 0; limit->has_ended && i < count; i++) {
        if (is_wanted(overrides->all[i]))
            continue;
        if (limits_is_in_force(overrides->all[i]->limit))
            changes = overrides->all[i]->limit->is_untold = true;
        set_in_force(overrides->all[i], false);
    }
    if (limit->is_defined || limit->is_changed) {
        changes = write_plans(limiter, limit) || changes;
        limit->is_defined = true;
    }
    for (size_t i = 0; i < count; i++) {
        struct override *override = overrides->all[i];
        const bool is_in_force = atomic_load_explicit(&override->in_force, memory_order_relaxed);
        if (is_in_force && !override->limit->is_changed) {
            renumber_plans(limiter, override->limit, ++limit->version);
            continue;
        }
        if (!is_in_force && !is_wanted(override))
            continue;
        changes = write_plans(limiter, override->limit) || changes;
        if (!is_in_force) {
            override->next_begins = begins;
            begins = override;
        }
    }
    for (; begins; begins = begins->next_begins)
        set_in_force(begins, true);
    limit->is_dirty = limit->has_ended = false;
    return changes;
}

/* Give the plans of the overrides in force that begin with this prefix later versions than its own. */
static void renumber_below(const struct weir *limiter, const struct weir_limit *prefix) REQUIRES(limiter->mutex)
{
    const struct overrides *overrides = limit_overrides(prefix->of);
    size_t first;
    const size_t end = overrides_below(overrides, prefix->override, &first);
    for (size_t i = first; i < end; i++)
        if (limits_is_in_force(overrides->all[i]->limit))
            renumber_plans(limiter, overrides->all[i]->limit, ++prefix->of->version);
}

bool target_commit(struct weir *limiter, struct weir_limit *target)
{
    if (target->of->is_dirty)
        return write_all(limiter, target->of);
    if (!target->is_changed)
        return false;
    const bool changes = write_plans(limiter, target);
    overrides_sort(limit_overrides(target->of)); /* each new one now, so that no later call sorts many */
    if (target->override->is_prefix)
        renumber_below(limiter, target);
    set_in_force(target->override, true);
    return changes;
}

/* ---- Shares ---- */

/* Write a plan at the new share; true if it differs from the old one. */
static bool write_one_at_share(const struct weir *limiter, struct weir_limit *target, uint64_t version)
    REQUIRES(limiter->mutex)
{
    struct plans plans;
    struct weir_plan old;
    plan_cell_read(&target->local_plan, &old);
    target->part = plans_make(limiter, &target->policy, &plans);
    if (!limiter->backend->ops->shared)
        plan_cell_write(&target->plan, &plans.plan, version);
    plan_cell_write(&target->local_plan, &plans.local_plan, version);
    return old.fingerprint != plans.local_plan.fingerprint;
}

/* Write a target's plan and its candidate's; true if one differs from the old one. */
static bool write_at_share(const struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex)
{
    const uint64_t version = ++target->of->version;
    struct weir_limit *candidate = candidate_of(target);
    const bool changes = write_one_at_share(limiter, target, version);
    return (candidate && write_one_at_share(limiter, candidate, version)) || changes;
}

/* Write plans at the new share. An override that is out of force gets its plans when it comes into force again. */
static bool write_all_at_share(struct weir *limiter, struct weir_limit **unfit) REQUIRES(limiter->mutex)
{
    bool changes = false;
    struct weir_limit *limit, *next;
    *unfit = NULL;
    HASH_ITER(hh, limiter->limits, limit, next) {
        struct overrides *overrides = limit_overrides(limit);
        const size_t count = overrides ? overrides->count : 0;
        if (overrides)
            overrides_sort(overrides);
        for (size_t i = 0; i <= count; i++) {
            struct weir_limit *target = i == 0 ? limit : overrides->all[i - 1]->limit;
            if (!limits_is_in_force(target))
                continue;
            changes = write_at_share(limiter, target) || changes;
            if (target->part == PLAN_PART_UNFIT)
                *unfit = target;
        }
    }
    return changes;
}

int limits_put_share(struct weir *limiter, const struct share *share, struct weir_limit **unfit, bool *changes)
{
    struct share copy;
    void *memory;
    int error = share_copy(share, &copy, &memory);
    if (error)
        return error;

    lock_take(&limiter->mutex);
    void *old_memory = limiter->share_memory;
    limiter->share = copy;
    limiter->share_memory = memory;
    *changes = write_all_at_share(limiter, unfit);
    lock_give(&limiter->mutex);

    if (limiter->backend->ops->instances)
        limiter->backend->ops->instances(limiter->backend, share_instances(share));
    free(old_memory);
    return WEIR_OK;
}

void limits_tell_unfit(const struct weir *limiter, const struct weir_limit *unfit)
{
    if (unfit)
        log_line(&limiter->log, WEIR_LOG_ERROR,
                 "%slimit %s has no exact arithmetic at this instance's share: it is denied here",
                 unfit->override ? "an override of " : "", unfit->name);
}

void limits_count_parts(const struct weir *limiter, uint64_t *lifts, uint64_t *zeros)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        const struct overrides *overrides = limit_overrides(limit);
        const size_t count = overrides && limit->is_defined ? overrides->count : 0;
        for (size_t i = 0; i <= count; i++) {
            const struct weir_limit *target = i == 0 ? limit : overrides->all[i - 1]->limit;
            const bool counts = limits_is_in_force(target);
            *lifts += counts && target->part == PLAN_PART_LIFTED;
            *zeros += counts && (target->part == PLAN_PART_ZERO || target->part == PLAN_PART_UNFIT);
        }
    }
}
