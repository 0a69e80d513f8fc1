/* limit.c - defines limits and overrides, finds them, and describes them. */
#include "core/algorithm/lease_rules.h"
#include "core/ground/arith.h"
#include "core/limiter/candidate.h"
#include "core/limiter/events.h"
#include "core/limiter/figures.h"
#include "core/limiter/fixed.h"
#include "core/limiter/limits.h"
#include "core/limiter/request.h"
#include "core/outage/outage_span.h"

static int define_locked(struct weir *limiter, const struct limit_name *name, const struct weir_policy *policy,
                         struct weir_limit **out, bool *changes, struct message message) REQUIRES(limiter->mutex)
{
    struct weir_limit *limit, *target;
    HASH_FIND_STR(limiter->limits, name->limit, limit);
    if (name->is_override && (!limit || !limit->is_defined))
        return message_refuse(message, "there is no limit \"%s\" to override", name->limit);
    int error = WEIR_OK;
    if (policy)
        error = limits_check(limiter, policy, message);
    if (policy && !error)
        error = limits_get(limiter, name, &target, message);
    else
        target = limits_find(limiter, name);
    if (policy && !error)
        error = limits_prepare(limiter, target, policy, message);
    if (error)
        return error;
    if (target) { /* otherwise there is nothing to end */
        target_set(target, LAYER_CODE, policy);
        *changes = target_commit(limiter, target);
        limit = target->of;
    }
    *out = limit;
    return WEIR_OK;
}

static int define(struct weir *limiter, const char *text, const struct weir_policy *policy, struct weir_limit **out,
                  struct message message)
{
    enum policy_field_id fault;
    struct limit_name name;
    int error = limit_name_read(text, &name, message);
    if (!error && !policy && !name.is_override)
        error = message_refuse(message, "policy must not be NULL");
    if (!error && policy)
        error = plan_check(policy, message, &fault);
    if (error)
        return error;

    struct weir_limit *limit = NULL;
    bool changes = false;
    lock_take(&limiter->mutex);
    error = define_locked(limiter, &name, policy, &limit, &changes, message);
    lock_give(&limiter->mutex);
    if (changes)
        outage_split(limiter);
    events_tell_policies(limiter);
    limiter->freed(limiter);
    if (!error && out)
        *out = limit;
    return error;
}

/* Return how much of a name may go into the log; the name may have been refused for its bytes. Stop at any byte that
 * could end the line, and at the pattern of an override. */
static int printable_len(const char *name)
{
    int len = 0;
    while (len < WEIR_MAX_NAME_LEN && (unsigned char)name[len] > ' ' && name[len] != 0x7f && name[len] != '/')
        len++;
    return len;
}

int weir_limit_define(weir *limiter, const char *name, const struct weir_policy *policy, weir_limit **out)
{
    char sentence[LOG_LINE_SIZE - WEIR_MAX_NAME_LEN - 16] = "";
    struct message message = { sentence, sizeof sentence };
    int error = !limiter ? message_refuse(message, "w must not be NULL")
                : name   ? define(limiter, name, policy, out, message)
                         : message_refuse(message, "name must not be NULL");
    if (error) {
        const struct log log = limiter ? limiter->log : (struct log){ NULL, NULL };
        const char *shown = name ? name : "(none)";
        log_line(&log, WEIR_LOG_ERROR, "limit %.*s: %s", printable_len(shown), shown,
                 *sentence ? sentence : weir_strerror(error));
    }
    return error;
}

weir_limit *weir_limit_find(weir *limiter, const char *name)
{
    if (!limiter || !name)
        return NULL;
    struct weir_limit *limit;
    lock_take(&limiter->mutex);
    HASH_FIND_STR(limiter->limits, name, limit);
    if (limit && !limit->is_defined)
        limit = NULL;
    lock_give(&limiter->mutex);
    return limit;
}

const char *weir_limit_name(const weir_limit *limit)
{
    return limit ? limit->name : NULL;
}

int weir_limit_print_name(const weir_limit *limit, char *text, size_t size)
{
    if (!limit || (size > 0 && !text))
        return WEIR_EINVAL;
    char pattern[WEIR_MAX_PATTERN_LEN + 2] = "/";
    size_t pattern_len = 0;
    const struct override *override = limit->override;
    if (override)
        pattern_len = 1 + pattern_print(override->bytes, override->len, override->is_prefix, pattern + 1);
    const size_t name_len = strlen(limit->name), len = name_len + pattern_len;
    if (len < size) {
        memcpy(text, limit->name, name_len);
        memcpy(text + name_len, pattern, pattern_len);
    }
    if (size > 0)
        text[len < size ? len : 0] = '\0';
    return (int)len;
}

weir_limit *weir_limit_next(weir *limiter, const weir_limit *previous)
{
    if (!limiter || (previous && previous->limiter != limiter))
        return NULL;
    lock_take(&limiter->mutex);
    struct weir_limit *next = limits_next(limiter, previous);
    lock_give(&limiter->mutex);
    return next;
}

int weir_limit_stats_read(const weir_limit *limit, struct weir_limit_stats *out)
{
    if (!limit || !out || out->size != sizeof *out)
        return WEIR_EINVAL;
    figures_sum(limit, out);
    return WEIR_OK;
}

int weir_limit_policy(weir_limit *limit, struct weir_policy *out)
{
    if (!limit || !out)
        return WEIR_EINVAL;
    lock_take(&limit->limiter->mutex);
    *out = limit->policy;
    lock_give(&limit->limiter->mutex);
    return WEIR_OK;
}

int weir_limit_policy_for(weir_limit *limit, struct weir_key key, struct weir_policy *out)
{
    int error = out ? check_arguments(limit, key, 1) : WEIR_EINVAL;
    return error ? error : weir_limit_policy(limit_first_half(backend_request(limit, key, 1, 0, WEIR_PEEK).limit), out);
}

int weir_limit_info(weir_limit *limit, struct weir_limit_info *out)
{
    if (!limit || !out || out->size != sizeof *out)
        return WEIR_EINVAL;
    struct weir *limiter = limit->limiter;
    struct lease_rules rules = limiter->leases;
    lock_take(&limiter->mutex);
    rules.instances = share_instances(&limiter->share);
    lock_give(&limiter->mutex);
    struct weir_plan plan;
    plan_cell_read(&limit->plan, &plan);
    struct weir_decision fixed;
    if (fixed_decide(limit, &fixed)) {
        *out = (struct weir_limit_info){ .size = sizeof *out, .limit = fixed.limit };
        return WEIR_OK;
    }
    *out = (struct weir_limit_info){
        .size = sizeof *out,
        .limit = plan.size,
        .lease_life_us = lease_is_on(&rules, &plan) ? lease_life_us(&rules, &plan) : 0,
        .lease_max = lease_max(&rules, &plan),
        .over_max = lease_over_max(&rules, &plan),
    };
    struct weir_limit *candidate = candidate_of(limit);
    if (candidate) { /* it binds some keys, or may do so at any time */
        plan_cell_read(&candidate->plan, &plan);
        out->lease_max = max_of(out->lease_max, lease_max(&rules, &plan));
        out->over_max = max_of(out->over_max, lease_over_max(&rules, &plan));
    }
    return WEIR_OK;
}
