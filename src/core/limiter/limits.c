/* limits.c - keeps the policies of limits and overrides, in layers, and writes the plans of those in force.
 *
 * A limit and its overrides have plan cells of their own, but one count of versions, for a backend that keeps states by
 * version takes the newest plan that a key was met under for the one in force. So these hold:
 *
 *     1. Of the plans in force the more specific has the greater version: the limit's is less than any override's, a
 *        shorter prefix's less than a longer one's, and a single key's is the greatest. Among those that no key has in
 *        common the order does not matter.
 *     2. What has come out of force has a lesser version than all that is in force.
 *
 * Whenever the set changes all its cells are written anew, the less specific first, each with the next version; what
 * ends goes out of force before that, what is new comes into force after it.
 *
 *     - A key that comes under an override leaves something less specific, or something that has ended: its new plan's
 *       version is greater, by 1 and 2.
 *     - A key whose override has ended goes to something less specific, whose version is greater, by 2.
 *     - A thread that looked before the change, and goes on after it, asks by the plan that the key has left. Its
 *       version is read from the cell after the look, so it may be new, but then by 1 the override's is greater once
 *       all is written: if the key was brought back meanwhile, the next who asks takes it along. If the override has
 *       ended its cell is not written any more, and 2 holds.
 *
 * A single key's override that is new or has another policy needs no more than the next version for itself.
 */
#include "core/limiter/limits.h"

#include "core/follow/follow.h"

#include <stdlib.h>

/* ---- Which there are ---- */

static struct weir_limit *limit_alloc(struct weir *limiter, const char *name)
{
    size_t len = strlen(name);
    size_t size = (sizeof(struct weir_limit) + len + 1 + 63) & ~(size_t)63;
    struct weir_limit *limit = aligned_alloc(64, size);
    if (!limit)
        return NULL;
    memset(limit, 0, size);
    limit->limiter = limiter;
    limit->of = limit;
    memcpy(limit->name, name, len + 1);
    return limit;
}

static struct weir_limit *limit_make(struct weir *limiter, const char *name)
{
    struct weir_limit *limit = limit_alloc(limiter, name);
    if (!limit)
        return NULL;
    const size_t len = strlen(name);
    const struct hash_secret swapped = { limiter->secret.k1, limiter->secret.k0 };
    limit->secret.k0 = siphash13(&limiter->secret, name, len);
    limit->secret.k1 = siphash13(&swapped, name, len);
    return limit;
}

static struct overrides *overrides_of(const struct weir_limit *limit)
{
    return atomic_load_explicit(&limit->overrides, memory_order_relaxed); /* the mutex orders */
}

static void limit_free(struct weir_limit *limit)
{
    overrides_free(overrides_of(limit));
    free(limit);
}

static struct weir_limit *find_limit(const struct weir *limiter, const char *name) REQUIRES(limiter->mutex)
{
    struct weir_limit *limit;
    HASH_FIND_STR(limiter->limits, name, limit);
    return limit;
}

static uint64_t pattern_hash(const struct weir_limit *limit, const struct pattern *pattern)
{
    return siphash13(&limit->secret, pattern->bytes, pattern->len);
}

static struct weir_limit *find_override(const struct weir_limit *limit, const struct pattern *pattern)
{
    const struct overrides *overrides = overrides_of(limit);
    const struct override *found = overrides ? overrides_get(overrides, pattern, pattern_hash(limit, pattern)) : NULL;
    return found ? found->limit : NULL;
}

struct weir_limit *limits_find(const struct weir *limiter, const struct limit_name *name)
{
    struct weir_limit *limit = find_limit(limiter, name->limit);
    return limit && name->is_override ? find_override(limit, &name->pattern) : limit;
}

static int refuse_memory(struct message message)
{
    message_write(message, "out of memory");
    return WEIR_ENOMEM;
}

static int get_limit(struct weir *limiter, const char *name, struct weir_limit **out, struct message message)
    REQUIRES(limiter->mutex)
{
    struct weir_limit *limit = find_limit(limiter, name);
    if (!limit) {
        if (HASH_COUNT(limiter->limits) >= WEIR_MAX_LIMITS) {
            message_write(message, "%d limits are defined already", WEIR_MAX_LIMITS);
            return WEIR_EFULL;
        }
        limit = limit_make(limiter, name);
        if (!limit)
            return refuse_memory(message);
        limit->id = HASH_COUNT(limiter->limits);
        HASH_ADD_KEYPTR(hh, limiter->limits, limit->name, strlen(name), limit);
        if (!limit->hh.tbl) {
            free(limit);
            return refuse_memory(message);
        }
    }
    *out = limit;
    return WEIR_OK;
}

static struct override *override_make(struct weir_limit *limit, const struct pattern *pattern)
{
    struct override *override = calloc(1, sizeof *override + pattern->len);
    struct weir_limit *instead = override ? limit_alloc(limit->limiter, limit->name) : NULL;
    if (!instead) {
        free(override);
        return NULL;
    }
    instead->secret = limit->secret;
    instead->id = limit->id;
    instead->of = limit;
    instead->override = override;
    override->limit = instead;
    override->hash = pattern_hash(limit, pattern);
    override->is_prefix = pattern->is_prefix;
    override->len = pattern->len;
    memcpy(override->bytes, pattern->bytes, pattern->len);
    return override;
}

/* Not in force, and never taken away again. */
static int add_override(struct weir *limiter, struct weir_limit *limit, const struct pattern *pattern,
                        struct weir_limit **out, struct message message) REQUIRES(limiter->mutex)
{
    struct overrides *overrides = overrides_of(limit);
    if (limiter->pattern_count >= WEIR_MAX_LIMITS) {
        message_write(message, "%d patterns have been overridden already", WEIR_MAX_LIMITS);
        return WEIR_EFULL;
    }
    if (!overrides) {
        overrides = overrides_make();
        if (!overrides)
            return refuse_memory(message);
        atomic_store_explicit(&limit->overrides, overrides, memory_order_release);
    }
    if (overrides_reserve(overrides) != WEIR_OK)
        return refuse_memory(message);
    struct override *added = override_make(limit, pattern);
    if (!added)
        return refuse_memory(message);
    overrides_add(overrides, added);
    limiter->pattern_count++;
    *out = added->limit;
    return WEIR_OK;
}

int limits_get(struct weir *limiter, const struct limit_name *name, struct weir_limit **out, struct message message)
{
    struct weir_limit *limit, *override;
    int error = get_limit(limiter, name->limit, &limit, message);
    if (error || !name->is_override) {
        if (!error)
            *out = limit;
        return error;
    }
    override = find_override(limit, &name->pattern);
    if (override) {
        *out = override;
        return WEIR_OK;
    }
    return add_override(limiter, limit, &name->pattern, out, message);
}

/* The latest first, so that ids stay dense. */
void limits_undo(struct weir *limiter, size_t count)
{
    while (HASH_COUNT(limiter->limits) > count) {
        UT_hash_table *table = limiter->limits->hh.tbl;
        struct weir_limit *last = (struct weir_limit *)(void *)((char *)table->tail - table->hho);
        const struct overrides *overrides = overrides_of(last);
        limiter->pattern_count -= overrides ? overrides->count : 0;
        HASH_DEL(limiter->limits, last);
        limit_free(last);
    }
}

void limits_free(struct weir *limiter)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        HASH_DEL(limiter->limits, limit);
        limit_free(limit);
    }
}

/* ---- Plans ---- */

struct plans {
    struct weir_plan plan, share_plan; /* the latter only for a backend of whole limits */
};

/* Returns what became of the part. The policy has passed plan_check(): the whole has its arithmetic. */
static enum plan_part plans_make(const struct weir *limiter, const struct weir_policy *policy, struct plans *out)
    REQUIRES(limiter->mutex)
{
    const bool shared = limiter->backend->ops->shared;
    const enum plan_part part = plan_at_share(policy, &limiter->share, shared ? &out->share_plan : &out->plan);
    if (shared)
        plan_at_share(policy, &share_whole, &out->plan);
    const int64_t reserve = lease_reserve(&limiter->leases, &out->plan);
    if (reserve > 0)
        plan_hold_back(&out->plan, reserve);
    return part;
}

int limits_check(const struct weir *limiter, const struct weir_policy *policy, struct message message)
{
    struct weir_plan plan;
    return follow_is_on(limiter, WEIR_FOLLOW_PEERS) ? WEIR_OK : plan_make(policy, &limiter->share, &plan, message);
}

static bool is_in_force(const struct weir_limit *target)
{
    return target->override ? atomic_load_explicit(&target->override->in_force, memory_order_relaxed)
                            : target->is_defined;
}

/* Whether the stand-in has met keys under another plan: those of an override that comes were its limit's. */
static bool is_other_plan(struct weir_limit *target, const struct weir_plan *plan)
{
    struct weir_plan old;
    if (!is_in_force(target))
        return target->override;
    plan_cell_read(limit_plan(target, true), &old);
    return old.fingerprint != plan->fingerprint;
}

/* Under the next version: made anew, or as they are. Returns what target_commit() does. */
static bool write_plans(const struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex)
{
    const bool shared = limiter->backend->ops->shared;
    struct plans plans;
    if (target->is_changed) {
        target->part = plans_make(limiter, &target->policy, &plans);
    } else {
        plan_cell_read(&target->plan, &plans.plan);
        if (shared)
            plan_cell_read(&target->share_plan, &plans.share_plan);
    }
    const bool changes = is_other_plan(target, shared ? &plans.share_plan : &plans.plan);
    const uint64_t version = ++target->of->version;
    plan_cell_write(&target->plan, &plans.plan, version);
    if (shared)
        plan_cell_write(&target->share_plan, &plans.share_plan, version);
    target->is_changed = false;
    return changes;
}

/* ---- Layers ---- */

_Static_assert(sizeof(struct weir_policy) == 4 * sizeof(int32_t) + 5 * sizeof(int64_t), "policies compare as bytes");

/* Of those below `end` the last that is there, or -1. */
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

/* A limit's last policy stays if no layer has one any more; an override ends. */
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
        limit->is_dirty = limit->is_dirty || target->override;
        return;
    }
    const struct weir_policy *best = &layers->policies[top];
    if (is_in_force(target) && memcmp(best, &target->policy, sizeof *best) == 0)
        return;
    target->policy = *best;
    target->is_changed = true;
    limit->is_dirty = limit->is_dirty || !target->override || target->override->is_prefix;
}

static void set_in_force(struct override *override, bool in_force)
{
    atomic_store_explicit(&override->in_force, in_force, memory_order_release);
}

static bool is_wanted(const struct override *override)
{
    return top_layer(&override->limit->layers, LAYERS, -1) >= 0;
}

static bool write_all(const struct weir *limiter, struct weir_limit *limit) REQUIRES(limiter->mutex)
{
    bool changes = false;
    const struct overrides *overrides = overrides_of(limit);
    const size_t count = overrides ? overrides->count : 0;
    for (size_t i = 0; i < count; i++) {
        if (is_wanted(overrides->all[i]))
            continue;
        changes = changes || is_in_force(overrides->all[i]->limit);
        set_in_force(overrides->all[i], false);
    }
    if (limit->is_defined || limit->is_changed) {
        changes = write_plans(limiter, limit) || changes;
        limit->is_defined = true;
    }
    for (size_t i = 0; i < count; i++)
        if (is_wanted(overrides->all[i]))
            changes = write_plans(limiter, overrides->all[i]->limit) || changes;
    for (size_t i = 0; i < count; i++)
        if (is_wanted(overrides->all[i]))
            set_in_force(overrides->all[i], true);
    limit->is_dirty = false;
    return changes;
}

bool target_commit(struct weir *limiter, struct weir_limit *target)
{
    if (target->of->is_dirty)
        return write_all(limiter, target->of);
    if (!target->is_changed)
        return false;
    const bool changes = write_plans(limiter, target);
    set_in_force(target->override, true);
    return changes;
}

/* ---- Shares ---- */

static bool write_at_share(const struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex)
{
    struct plan_cell *cell = limit_plan(target, true);
    struct weir_plan plan, old;
    plan_cell_read(cell, &old);
    target->part = plan_at_share(&target->policy, &limiter->share, &plan);
    plan_cell_write(cell, &plan, ++target->of->version);
    return old.fingerprint != plan.fingerprint;
}

/* Overrides that are out of force get plans when they come into force again. */
bool limits_at_share(struct weir *limiter, struct weir_limit **unfit)
{
    bool changes = false;
    struct weir_limit *limit, *next;
    *unfit = NULL;
    HASH_ITER(hh, limiter->limits, limit, next) {
        const struct overrides *overrides = overrides_of(limit);
        const size_t count = overrides ? overrides->count : 0;
        for (size_t i = 0; i <= count; i++) {
            struct weir_limit *target = i == 0 ? limit : overrides->all[i - 1]->limit;
            if (!is_in_force(target))
                continue;
            changes = write_at_share(limiter, target) || changes;
            if (target->part == PLAN_PART_UNFIT)
                *unfit = target;
        }
    }
    return changes;
}

void limits_count_parts(const struct weir *limiter, uint64_t *lifts, uint64_t *zeros)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        const struct overrides *overrides = overrides_of(limit);
        const size_t count = overrides && limit->is_defined ? overrides->count : 0;
        for (size_t i = 0; i <= count; i++) {
            const struct weir_limit *target = i == 0 ? limit : overrides->all[i - 1]->limit;
            const bool counts = is_in_force(target);
            *lifts += counts && target->part == PLAN_PART_LIFTED;
            *zeros += counts && (target->part == PLAN_PART_ZERO || target->part == PLAN_PART_UNFIT);
        }
    }
}
