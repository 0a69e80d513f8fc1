/* limit_rename.c - makes another limit of one that is no longer used. */
#include "core/limiter/limits.h"
#include "core/limiter/top_keys.h"
#include "core/outage/outage.h"

/* True if a layer other than the program's has a policy of the limit. */
static bool is_followed(const struct weir_limit *limit)
{
    for (int layer = 0; layer < LAYERS; layer++)
        if (layer != LAYER_CODE && limit->layers.there[layer])
            return true;
    return false;
}

static int rename_check(const struct weir *limiter, const struct weir_limit *limit, const struct limit_name *name,
                        const struct weir_policy *policy, struct message message) REQUIRES(limiter->mutex)
{
    const struct settle *settle = &limiter->outage->settle;
    if (!limit->is_defined || limit->override || limit_overrides(limit) || is_followed(limit))
        return message_refuse(message, "only a limit without overrides and followed policies can be renamed");
    if (policy_has_candidate(policy) || atomic_load_explicit(&limit->candidate, memory_order_relaxed))
        return message_refuse(message, "a limit that has or had a candidate cannot be renamed, nor get one");
    if (limits_find(limiter, name))
        return message_refuse(message, "there is a limit of that name");
    if (settle->is_on && atomic_load(&settle->owes)) {
        message_write(message, "permits of an outage are owed");
        return WEIR_EFULL;
    }
    return limits_check(limiter, policy, message);
}

static int rename_locked(struct weir *limiter, struct weir_limit *limit, const struct limit_name *name,
                         const struct weir_policy *policy, struct message message) REQUIRES(limiter->mutex)
{
    int error = rename_check(limiter, limit, name, policy, message);
    if (!error)
        error = limits_rename(limiter, limit, name->limit, message);
    if (error)
        return error;
    target_set(limit, LAYER_CODE, policy);
    target_commit(limiter, limit);
    return WEIR_OK;
}

int weir_limit_rename(weir_limit *limit, const char *name, const struct weir_policy *policy)
{
    char sentence[LOG_LINE_SIZE - WEIR_MAX_NAME_LEN - 32] = "";
    const struct message message = { sentence, sizeof sentence };
    enum policy_field_id fault;
    struct limit_name read;
    if (!limit)
        return WEIR_EINVAL;
    struct weir *limiter = limit->limiter;
    int error = !name || !policy ? message_refuse(message, "name and policy must not be NULL")
                                 : limit_name_read(name, &read, message);
    if (!error && read.is_override)
        error = message_refuse(message, "the name must not be that of an override");
    if (!error)
        error = plan_check(policy, message, &fault);
    if (!error) {
        lock_take(&limiter->mutex);
        error = rename_locked(limiter, limit, &read, policy, message);
        lock_give(&limiter->mutex);
    }
    if (!error && limiter->top_keys)
        top_keys_forget(limiter->top_keys, limit);
    if (error)
        log_line(&limiter->log, WEIR_LOG_ERROR, "limit %s: it cannot be renamed: %s", limit->name, sentence);
    return error;
}
