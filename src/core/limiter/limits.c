/* limits.c - the table of a limiter's limits, and of the overrides of each. */
#include "core/limiter/limits.h"

#include "core/limiter/figures.h"

#include <stdlib.h>

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

static void limit_free(struct weir_limit *limit)
{
    overrides_free(limit_overrides(limit));
    figures_free(limit);
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
    return siphash13(&limit->secret, pattern->bytes, pattern->len);
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
        target_list(limiter, limit);
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
    if (HASH_COUNT(limiter->limits) > count)
        target_unlist(limiter, count);
    while (HASH_COUNT(limiter->limits) > count) {
        UT_hash_table *table = limiter->limits->hh.tbl;
        struct weir_limit *last = (struct weir_limit *)(void *)((char *)table->tail - table->hho);
        const struct overrides *overrides = limit_overrides(last);
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
