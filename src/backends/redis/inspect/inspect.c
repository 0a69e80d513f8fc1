/* inspect.c - the inspector of Redis, which looks at the keys there and clears them. */
#include "backends/redis/inspect/inspector.h"
#include "core/policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

static int inspect_key(struct weir_inspector *inspector, const char *limit, struct weir_key key,
                       struct weir_inspected *out)
{
    const struct message why = inspect_why(inspector);
    if (!limit || policy_state_name_check(limit, why) != WEIR_OK)
        return limit ? WEIR_EINVAL : message_refuse(why, "limit must not be NULL");
    if (!key.data || key.len < 1 || key.len > WEIR_MAX_KEY_LEN)
        return message_refuse(why, "key must have 1 to %d bytes", WEIR_MAX_KEY_LEN);
    if (out->size != sizeof *out)
        return message_refuse(why, "size is not that of struct weir_inspected");
    *out = (struct weir_inspected){ .size = sizeof *out, .key = key };
    snprintf(out->limit, sizeof out->limit, "%s", limit);
    return inspect_read(inspector, limit, key, out);
}

static int inspect_reset(struct weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed)
{
    struct weir_inspected found = { .size = sizeof found };
    int error = inspect_key(inspector, limit, key, &found);
    *existed = false;
    if (error || found.found == WEIR_FOUND_NOTHING)
        return error;
    if (found.found == WEIR_FOUND_FOREIGN) {
        message_write(inspect_why(inspector), "the value of this key is not weir's; it was left alone");
        return WEIR_ESTATE;
    }
    return inspect_delete(inspector, limit, key, existed);
}

/* Log the sentence of an error. A connection with answers still to come is of no more use. */
static int inspect_conclude(struct weir_inspector *inspector, int error)
{
    if (error) {
        redis_link_close(&inspector->talk.link, "the question has failed");
        if (inspector->why[0])
            log_line(&inspector->log, WEIR_LOG_ERROR, "%s", inspector->why);
    }
    return error;
}

static int inspect_open(const struct weir_options *options, struct weir_inspector *inspector)
{
    const struct message why = inspect_why(inspector);
    snprintf(inspector->prefix, sizeof inspector->prefix, "%s", options->redis_prefix);
    int error = redis_target_read(options, &inspector->target, why);
    if (!error)
        error = redis_target_secure(options, &inspector->target, why);
    if (!error && inspector->target.is_cluster) {
        inspector->map = malloc(sizeof *inspector->map);
        error = inspector->map ? WEIR_OK : WEIR_ENOMEM;
    }
    if (!error && inspector->map)
        redis_map_begin(inspector->map);
    if (error)
        return error;
    return inspector->map ? inspect_read_map(inspector) : inspect_open_slot(inspector, 0);
}

static void inspect_close(weir_inspector *inspector)
{
    redis_talk_free(&inspector->talk);
    redis_target_free(&inspector->target);
    redis_bytes_free(&inspector->names);
    free(inspector->map);
    free(inspector);
}

static int inspect_key_begun(weir_inspector *inspector, const char *limit, struct weir_key key,
                             struct weir_inspected *out)
{
    inspector->why[0] = '\0';
    return inspect_conclude(inspector, inspect_key(inspector, limit, key, out));
}

static int inspect_walk_begun(weir_inspector *inspector, const char *limit, const char *pattern, int64_t most,
                              bool *is_all, int (*visit)(void *user, const struct weir_inspected *key), void *user)
{
    inspector->why[0] = '\0';
    return inspect_conclude(inspector, inspect_walk(inspector, limit, pattern, most, is_all, visit, user));
}

static int inspect_reset_begun(weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed)
{
    inspector->why[0] = '\0';
    return inspect_conclude(inspector, inspect_reset(inspector, limit, key, existed));
}

static const struct inspect_kind inspect_redis = {
    .close = inspect_close,
    .key = inspect_key_begun,
    .some = inspect_walk_begun,
    .reset = inspect_reset_begun,
};

int redis_inspect_open(const struct weir_options *options, weir_inspector **out)
{
    struct weir_inspector *inspector = calloc(1, sizeof *inspector);
    if (!inspector)
        return WEIR_ENOMEM;
    inspector->kind = &inspect_redis;
    inspector->log = (struct log){ options->log, options->user };
    int error = redis_talk_init(&inspector->talk, &inspector->target, options->timeout_us);
    if (error) {
        free(inspector);
        return error;
    }
    error = inspect_conclude(inspector, inspect_open(options, inspector));
    if (error)
        inspect_close(inspector);
    else
        *out = inspector;
    return error;
}
