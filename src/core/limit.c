/* limit.c - defines limits, one at a time or a whole file at once, and finds them by name. */
#include "core/limiter.h"

#include <stdlib.h>

/* ---- Making one ready, without a change that anybody sees ---- */

static struct weir_limit *limit_make(struct weir *limiter, const char *name)
{
    size_t len = strlen(name);
    size_t size = (sizeof(struct weir_limit) + len + 1 + 63) & ~(size_t)63;
    struct weir_limit *limit = aligned_alloc(64, size);
    if (!limit)
        return NULL;
    memset(limit, 0, size);
    limit->limiter = limiter;
    memcpy(limit->name, name, len + 1);
    const struct hash_secret swapped = { limiter->secret.k1, limiter->secret.k0 };
    limit->secret.k0 = siphash13(&limiter->secret, name, len);
    limit->secret.k1 = siphash13(&swapped, name, len);
    return limit;
}

/* A definition that has been checked but is not in force. */
struct definition {
    struct weir_limit *limit;
    struct weir_policy policy;
    struct weir_plan plan, share_plan; /* the latter only for a backend of whole limits */
    enum plan_part part;
    bool is_new;
};

/* A share that is fixed must suit the limits; one that is followed is different at any moment, and they take what comes. */
static int plan_by_share(struct weir *limiter, const struct weir_policy *policy, struct weir_plan *plan,
                         enum plan_part *part, struct message message) REQUIRES(limiter->mutex)
{
    int error = limiter->follow ? WEIR_OK : plan_make(policy, &limiter->share, plan, message);
    if (!error)
        *part = plan_at_share(policy, &limiter->share, plan);
    return error;
}

static int definition_prepare(struct weir *limiter, const char *name, const struct weir_policy *policy,
                              struct definition *out, struct message message) REQUIRES(limiter->mutex)
{
    struct definition definition = { .policy = *policy };
    const bool shared = limiter->backend->ops->shared;
    int error = shared ? plan_make(policy, &share_whole, &definition.plan, message) : WEIR_OK;
    if (!error)
        error = plan_by_share(limiter, policy, shared ? &definition.share_plan : &definition.plan, &definition.part,
                              message);
    if (error)
        return error;
    const int64_t reserve = lease_reserve(&limiter->leases, &definition.plan);
    if (reserve > 0)
        plan_hold_back(&definition.plan, reserve);

    HASH_FIND_STR(limiter->limits, name, definition.limit);
    if (!definition.limit) {
        if (HASH_COUNT(limiter->limits) >= WEIR_MAX_LIMITS) {
            message_write(message, "%d limits are defined already", WEIR_MAX_LIMITS);
            return WEIR_EFULL;
        }
        definition.is_new = true;
        definition.limit = limit_make(limiter, name);
        if (definition.limit) {
            struct weir_limit *limit = definition.limit;
            limit->id = HASH_COUNT(limiter->limits);
            HASH_ADD_KEYPTR(hh, limiter->limits, limit->name, strlen(name), limit);
        }
        if (!definition.limit || !definition.limit->hh.tbl) {
            free(definition.limit);
            message_write(message, "out of memory");
            return WEIR_ENOMEM;
        }
    }
    *out = definition;
    return WEIR_OK;
}

/* Undo in the opposite order of preparing, so that ids stay dense. */
static void definition_drop(struct weir *limiter, struct definition *definition) REQUIRES(limiter->mutex)
{
    if (definition->is_new) {
        HASH_DEL(limiter->limits, definition->limit);
        free(definition->limit);
    }
}

/* Cannot fail. */
static void definition_commit(struct weir *limiter, const struct definition *definition) REQUIRES(limiter->mutex)
{
    definition->limit->policy = definition->policy;
    definition->limit->part = definition->part;
    plan_cell_write(&definition->limit->plan, &definition->plan);
    if (limiter->backend->ops->shared)
        plan_cell_write(&definition->limit->share_plan, &definition->share_plan);
}

void limits_free(struct weir *limiter)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        HASH_DEL(limiter->limits, limit);
        free(limit);
    }
}

/* ---- One limit ---- */

static int define(struct weir *limiter, const char *name, const struct weir_policy *policy, struct weir_limit **out,
                  struct message message)
{
    enum policy_field_id fault;
    int error = policy_name_check(name, message);
    if (!error)
        error = plan_check(policy, message, &fault);
    if (error)
        return error;

    struct definition definition;
    lock_take(&limiter->mutex);
    error = definition_prepare(limiter, name, policy, &definition, message);
    if (!error)
        definition_commit(limiter, &definition);
    lock_give(&limiter->mutex);
    if (!error && out)
        *out = definition.limit;
    return error;
}

int weir_limit_define(weir *limiter, const char *name, const struct weir_policy *policy, weir_limit **out)
{
    if (!limiter)
        return WEIR_EINVAL;
    char sentence[LOG_LINE_SIZE - WEIR_MAX_NAME_LEN - 16] = "";
    struct message message = { sentence, sizeof sentence };
    int error = name && policy ? define(limiter, name, policy, out, message)
                               : message_refuse(message, "%s must not be NULL", name ? "policy" : "name");
    if (error)
        log_line(&limiter->log, WEIR_LOG_ERROR, "limit %.*s: %s", WEIR_MAX_NAME_LEN, name ? name : "(none)", sentence);
    return error;
}

weir_limit *weir_limit_find(weir *limiter, const char *name)
{
    if (!limiter || !name)
        return NULL;
    struct weir_limit *limit;
    lock_take(&limiter->mutex);
    HASH_FIND_STR(limiter->limits, name, limit);
    lock_give(&limiter->mutex);
    return limit;
}

const char *weir_limit_name(const weir_limit *limit)
{
    return limit ? limit->name : NULL;
}

uint64_t weir_request_plan(const struct weir_backend_request *request, struct weir_plan *out)
{
    return plan_cell_read(limit_plan(request->limit, request->cold_since_us >= 0), out);
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
    *out = (struct weir_limit_info){
        .size = sizeof *out,
        .limit = plan.size,
        .lease_life_us = lease_is_on(&rules, &plan) ? rules.life_us : 0,
        .lease_max = lease_max(&rules, &plan),
        .over_max = lease_over_max(&rules, &plan),
    };
    return WEIR_OK;
}

/* ---- A whole file ---- */

struct file_policy {
    int line;
    char name[WEIR_MAX_NAME_LEN + 1];
    struct weir_policy policy;
};

struct file_load {
    const char *path;
    struct message message;
    struct file_policy *policies;
    size_t count, room;
    int error; /* of the first bad line */
};

static int collect(void *user, const struct weir_policy_line *line)
{
    struct file_load *load = user;
    if (line->error)
        return load->error = message_refuse(load->message, "%s:%d: %s", load->path, line->number, line->error);
    if (load->count == load->room) {
        size_t room = load->room ? 2 * load->room : 16;
        struct file_policy *policies = realloc(load->policies, room * sizeof *policies);
        if (!policies) {
            message_write(load->message, "%s: out of memory", load->path);
            return load->error = WEIR_ENOMEM;
        }
        load->policies = policies;
        load->room = room;
    }
    struct file_policy *policy = &load->policies[load->count++];
    policy->line = line->number;
    policy->policy = *line->policy;
    memcpy(policy->name, line->name, strlen(line->name) + 1);
    return WEIR_OK;
}

static int define_all(struct weir *limiter, const struct file_load *load, struct definition *definitions)
    REQUIRES(limiter->mutex)
{
    int error = WEIR_OK;
    size_t prepared = 0;
    char sentence[LOG_LINE_SIZE] = "";
    for (; !error && prepared < load->count; prepared += !error) {
        const struct file_policy *policy = &load->policies[prepared];
        error = definition_prepare(limiter, policy->name, &policy->policy, &definitions[prepared],
                                   (struct message){ sentence, sizeof sentence });
        if (error)
            message_write(load->message, "%s:%d: %s", load->path, policy->line, sentence);
    }
    if (error) {
        while (prepared > 0)
            definition_drop(limiter, &definitions[--prepared]);
        return error;
    }
    for (size_t i = 0; i < load->count; i++)
        definition_commit(limiter, &definitions[i]);
    return WEIR_OK;
}

int weir_limits_load(weir *limiter, const char *path, char *message, size_t message_size)
{
    struct file_load load = { .path = path, .message = { message, message_size } };
    if (!limiter || !path)
        return message_refuse(load.message, "%s must not be NULL", limiter ? "path" : "limiter");

    int error = weir_policy_file_read(path, collect, &load, message, message_size);
    if (load.error)
        error = load.error;
    struct definition *definitions = NULL;
    if (!error) {
        definitions = malloc((load.count + 1) * sizeof *definitions);
        if (!definitions) {
            message_write(load.message, "%s: out of memory", path);
            error = WEIR_ENOMEM;
        }
    }
    if (!error) {
        lock_take(&limiter->mutex);
        error = define_all(limiter, &load, definitions);
        lock_give(&limiter->mutex);
    }
    free(definitions);
    free(load.policies);
    return error;
}
