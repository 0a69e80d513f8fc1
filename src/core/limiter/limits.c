/* limits.c - the table of a limiter's limits, and of the overrides of each. */
#include "core/limiter/limits.h"

#include "core/limiter/candidate.h"
#include "core/limiter/figures.h"
#include "core/limiter/request.h"

#include <stdio.h>
#include <stdlib.h>

static struct weir_limit *limit_alloc(struct weir *limiter, const char *name)
{
    struct weir_limit *limit = aligned_alloc(64, (sizeof *limit + 63) & ~(size_t)63);
    if (!limit)
        return NULL;
    memset(limit, 0, sizeof *limit);
    limit->limiter = limiter;
    limit->of = limit;
    memcpy(limit->name, name, strlen(name) + 1);
    return limit;
}

/* Give a limit its name, and the secret that belongs to it. */
static void limit_call(struct weir_limit *limit, const char *name)
{
    memcpy(limit->name, name, strlen(name) + 1);
    limit->secret = hash_secret_of(&limit->limiter->secret, name);
    key_hash_make(&limit->secret, &limit->hash, &limit->hash_rest);
}

static struct weir_limit *limit_make(struct weir *limiter, const char *name)
{
    struct weir_limit *limit = limit_alloc(limiter, name);
    if (limit)
        limit_call(limit, name);
    return limit;
}

static void limit_free(struct weir_limit *limit)
{
    overrides_free(limit_overrides(limit));
    figures_free(limit);
    candidate_free(limit);
    free(limit);
}

/* Append a limit or an override to the list of targets. */
static void target_list(struct weir *limiter, struct weir_limit *target) REQUIRES(limiter->mutex)
{
    if (limiter->last_target)
        limiter->last_target->next_target = target;
    else
        limiter->first_target = target;
    limiter->last_target = target;
}

/* Take the limits from `id` on off the list, with their overrides. */
static void target_unlist(struct weir *limiter, size_t id) REQUIRES(limiter->mutex)
{
    struct weir_limit *target = limiter->first_target;
    limiter->first_target = limiter->last_target = NULL;
    while (target) {
        struct weir_limit *next = target->next_target;
        target->next_target = NULL;
        if (target->of->id < id)
            target_list(limiter, target);
        target = next;
    }
}

static struct weir_limit *find_limit(const struct weir *limiter, const char *name) REQUIRES(limiter->mutex)
{
    struct weir_limit *limit;
    HASH_FIND_STR(limiter->limits, name, limit);
    return limit;
}

static uint64_t pattern_hash(const struct weir_limit *limit, const struct pattern *pattern)
{
    return key_hash(limit, weir_key(pattern->bytes, pattern->len));
}

static struct weir_limit *find_override(const struct weir_limit *limit, const struct pattern *pattern)
{
    const struct overrides *overrides = limit_overrides(limit);
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

/* Put a limit into the table under its name. False: out of memory. */
static bool limit_enter(struct weir *limiter, struct weir_limit *limit) REQUIRES(limiter->mutex)
{
    HASH_ADD_KEYPTR(hh, limiter->limits, limit->name, strlen(limit->name), limit);
    return limit->hh.tbl != NULL;
}

int limits_rename(struct weir *limiter, struct weir_limit *limit, const char *name, struct message message)
{
    HASH_DEL(limiter->limits, limit);
    figures_retire(limiter, limit);
    limit->is_defined = false;
    atomic_store_explicit(&limit->bound_version, 0, memory_order_relaxed);
    atomic_store_explicit(&limit->bound, NULL, memory_order_relaxed);
    limit_call(limit, name);
    return limit_enter(limiter, limit) ? WEIR_OK : refuse_memory(message);
}

static size_t candidate_count(const struct weir *limiter)
{
    return atomic_load_explicit(&limiter->candidate_count, memory_order_relaxed);
}

static int get_limit(struct weir *limiter, const char *name, struct weir_limit **out, struct message message)
    REQUIRES(limiter->mutex)
{
    struct weir_limit *limit = find_limit(limiter, name);
    if (!limit) {
        if (limiter->limit_count + candidate_count(limiter) >= WEIR_MAX_LIMITS) {
            message_write(message, "%d limits are defined already", WEIR_MAX_LIMITS);
            return WEIR_EFULL;
        }
        limit = limit_make(limiter, name);
        if (!limit)
            return refuse_memory(message);
        limit->id = (uint32_t)limiter->limit_count;
        if (!limit_enter(limiter, limit)) {
            free(limit);
            return refuse_memory(message);
        }
        limiter->limit_count++;
        target_list(limiter, limit);
    }
    *out = limit;
    return WEIR_OK;
}

/* Give a limit the id of its candidates. It is kept, even if the limit is not defined after all. */
static int take_candidate_id(struct weir *limiter, struct weir_limit *limit, struct message message)
    REQUIRES(limiter->mutex)
{
    const size_t count = candidate_count(limiter);
    if (limit->candidate_id != 0)
        return WEIR_OK;
    if (limiter->limit_count + count >= WEIR_MAX_LIMITS) {
        message_write(message, "%d limits and candidates are defined already", WEIR_MAX_LIMITS);
        return WEIR_EFULL;
    }
    limit->candidate_id = (uint32_t)(WEIR_MAX_LIMITS - 1 - count);
    atomic_store_explicit(&limiter->candidate_count, count + 1, memory_order_relaxed);
    return WEIR_OK;
}

struct weir_limit *limits_make_private(struct weir *limiter, const char *name, const struct weir_policy *policy)
{
    struct weir_limit *limit = calloc(1, sizeof *limit);
    struct weir_plan plan;
    if (!limit)
        return NULL;
    limit->limiter = limiter;
    limit->of = limit;
    memcpy(limit->name, name, strlen(name) + 1);
    plan_at_share(policy, &share_whole, &plan);
    plan_cell_write(&limit->plan, &plan, 1);
    return limit;
}

int limits_prepare(struct weir *limiter, struct weir_limit *target, const struct weir_policy *policy,
                   struct message message)
{
    char name[WEIR_MAX_NAME_LEN + 2];
    if (!policy_has_candidate(policy) || atomic_load_explicit(&target->candidate, memory_order_relaxed))
        return WEIR_OK;
    if (snprintf(name, sizeof name, "%s%c", target->name, CANDIDATE_MARK) > WEIR_MAX_NAME_LEN)
        return message_refuse(message, "the name of a limit with a candidate has at most %d bytes",
                              WEIR_MAX_NAME_LEN - 1);
    const int error = take_candidate_id(limiter, target->of, message);
    if (error)
        return error;
    struct weir_limit *candidate = limit_make(limiter, name);
    if (!candidate)
        return refuse_memory(message);
    candidate->id = target->of->candidate_id;
    candidate->of = target->of;
    candidate->first = target;
    atomic_store_explicit(&candidate->shadow, LIMIT_IS_CANDIDATE, memory_order_relaxed);
    atomic_store_explicit(&target->candidate, candidate, memory_order_release);
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
    instead->hash = limit->hash;
    instead->hash_rest = limit->hash_rest;
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

/* Add an override that is not in force yet. It stays until the limiter is closed. */
static int add_override(struct weir *limiter, struct weir_limit *limit, const struct pattern *pattern,
                        struct weir_limit **out, struct message message) REQUIRES(limiter->mutex)
{
    struct overrides *overrides = limit_overrides(limit);
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
    target_list(limiter, added->limit);
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

/* Remove the latest first, so that ids stay dense. */
void limits_undo(struct weir *limiter, size_t count)
{
    if (limiter->limit_count > count)
        target_unlist(limiter, count);
    for (; limiter->limit_count > count; limiter->limit_count--) {
        UT_hash_table *table = limiter->limits->hh.tbl;
        struct weir_limit *last = (struct weir_limit *)(void *)((char *)table->tail - table->hho);
        const struct overrides *overrides = limit_overrides(last);
        limiter->pattern_count -= overrides ? overrides->count : 0;
        HASH_DEL(limiter->limits, last);
        limit_free(last);
    }
}

/* The table may lack a limit, because memory ran out while it was renamed. So walk the list. */
void limits_free(struct weir *limiter)
{
    struct weir_limit *target = limiter->first_target, *limits = NULL, *next;
    HASH_CLEAR(hh, limiter->limits);
    for (; target; target = next) { /* an override's goes with its limit's: note the limits first */
        next = target->next_target;
        if (target->of != target)
            continue;
        target->next_target = limits;
        limits = target;
    }
    for (; limits; limits = next) {
        next = limits->next_target;
        limit_free(limits);
    }
    limiter->first_target = limiter->last_target = NULL;
}
