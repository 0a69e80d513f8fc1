/* limit_file.c - defines everything that a policy file says, or nothing. */
#include "core/api/limit_file.h"

#include "core/limiter/events.h"
#include "core/limiter/limits.h"
#include "core/outage/outage_span.h"
#include "core/policy/policy_list.h"

#include <stdlib.h>

static int prepare_limit(struct weir *limiter, const struct policy_entry *entry, struct weir_limit **out,
                         struct message message) REQUIRES(limiter->mutex)
{
    struct limit_name name;
    int error = limit_name_make(entry->name, entry->pattern, &name, message);
    if (!error)
        error = limits_check(limiter, &entry->policy, message);
    if (!error)
        error = limits_get(limiter, &name, out, message);
    if (!error)
        error = limits_prepare(limiter, *out, &entry->policy, message);
    if (!error)
        (*out)->is_listed = true;
    return error;
}

/* A limit that the file itself defines may come after its overrides. */
static int check_override(const struct weir_limit *target, struct message message)
{
    const struct weir_limit *limit = target->of;
    if (limit->is_defined || limit->is_listed)
        return WEIR_OK;
    return message_refuse(message, "there is no limit \"%s\" to override", limit->name);
}

static int define_all(struct weir *limiter, const struct policy_list *list, enum layer layer,
                      struct weir_limit **targets, bool *changes, struct message message) REQUIRES(limiter->mutex)
{
    const size_t limit_count = limiter->limit_count;
    char text[LOG_LINE_SIZE] = "";
    const struct message sentence = { text, sizeof text };
    int error = WEIR_OK;
    size_t prepared = 0, bad = 0;
    for (; !error && prepared < list->count; prepared += !error) {
        bad = prepared;
        error = prepare_limit(limiter, &list->entries[prepared], &targets[prepared], sentence);
    }
    for (size_t i = 0; !error && layer == LAYER_CODE && i < list->count; i++) {
        bad = i;
        error = check_override(targets[i], sentence);
    }
    for (size_t i = 0; i < prepared; i++)
        targets[i]->is_listed = false;
    if (error) {
        message_write(message, "%s: %s", list->entries[bad].where, text);
        limits_undo(limiter, limit_count);
        return error;
    }
    for (size_t i = 0; i < list->count; i++)
        target_set(targets[i], layer, &list->entries[i].policy);
    for (size_t i = 0; i < list->count; i++)
        *changes = target_commit(limiter, targets[i]) || *changes;
    return WEIR_OK;
}

int limits_load(struct weir *limiter, const char *path, enum layer layer, struct message message)
{
    struct policy_list list;
    int error = policy_list_read(path, &list, message);
    if (error)
        return error;
    struct weir_limit **targets = malloc((list.count + 1) * sizeof(struct weir_limit *));
    bool changes = false;
    if (targets) {
        lock_take(&limiter->mutex);
        error = define_all(limiter, &list, layer, targets, &changes, message);
        lock_give(&limiter->mutex);
    } else {
        message_write(message, "%s: out of memory", path);
        error = WEIR_ENOMEM;
    }
    if (changes)
        outage_split(limiter);
    free(targets);
    policy_list_free(&list);
    return error;
}

int weir_limits_load(weir *limiter, const char *path, char *message, size_t message_size)
{
    const struct message sentence = { message, message_size };
    if (!limiter || !path)
        return message_refuse(sentence, "%s must not be NULL", limiter ? "path" : "limiter");
    int error = limits_load(limiter, path, LAYER_CODE, sentence);
    if (!error) {
        events_tell_policies(limiter);
        limiter->freed(limiter);
    }
    return error;
}
