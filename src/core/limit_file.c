/* limit_file.c - defines all that a policy file says, or nothing of it. */
#include "core/limits.h"

#include <stdio.h>
#include <stdlib.h>

struct file_policy {
    int line;
    size_t name; /* where it begins in the load's names */
    struct weir_policy policy;
};

struct file_load {
    const char *path;
    struct message message;
    struct file_policy *policies;
    size_t count, room;
    char *names; /* of all, one after the other, each with its NUL */
    size_t names_len, names_room;
    int error; /* of the first bad line */
};

/* ---- Read ---- */

/* The same array with room for `more` elements beyond `count`, or NULL. */
static void *make_room(void *array, size_t size, size_t count, size_t more, size_t *room)
{
    if (array && *room - count >= more)
        return array;
    const size_t wanted = 2 * *room > count + more ? 2 * *room : count + more + 15;
    void *larger = realloc(array, wanted * size);
    if (larger)
        *room = wanted;
    return larger;
}

static bool add_line(struct file_load *load, const struct weir_policy_line *line)
{
    const char *pattern = line->pattern ? line->pattern : "", *slash = line->pattern ? "/" : "";
    const size_t len = strlen(line->name) + strlen(slash) + strlen(pattern) + 1;
    char *names = make_room(load->names, 1, load->names_len, len, &load->names_room);
    if (!names)
        return false;
    load->names = names;
    struct file_policy *policies = make_room(load->policies, sizeof *policies, load->count, 1, &load->room);
    if (!policies)
        return false;
    load->policies = policies;
    policies[load->count++] = (struct file_policy){ .line = line->number,
                                                    .name = load->names_len,
                                                    .policy = *line->policy };
    snprintf(names + load->names_len, len, "%s%s%s", line->name, slash, pattern);
    load->names_len += len;
    return true;
}

static int collect(void *user, const struct weir_policy_line *line)
{
    struct file_load *load = user;
    if (line->error)
        return load->error = message_refuse(load->message, "%s:%d: %s", load->path, line->number, line->error);
    if (!add_line(load, line)) {
        message_write(load->message, "%s: out of memory", load->path);
        return load->error = WEIR_ENOMEM;
    }
    return WEIR_OK;
}

/* ---- Put into force ---- */

static int prepare(struct weir *limiter, const struct file_load *load, size_t i, struct weir_limit **out,
                   struct message message) REQUIRES(limiter->mutex)
{
    struct limit_name name;
    int error = limit_name_read(load->names + load->policies[i].name, &name, message);
    if (!error)
        error = limits_check(limiter, &load->policies[i].policy, message);
    if (!error)
        error = limits_get(limiter, &name, out, message);
    if (!error)
        (*out)->is_listed = true;
    return error;
}

/* What the file itself defines may stand after its overrides. */
static int check_override(const struct weir_limit *target, struct message message) REQUIRES(target->limiter->mutex)
{
    const struct weir_limit *limit = target->of;
    if (limit->is_defined || limit->is_listed)
        return WEIR_OK;
    return message_refuse(message, "there is no limit \"%s\" to override", limit->name);
}

static int define_all(struct weir *limiter, const struct file_load *load, enum layer layer, struct weir_limit **targets)
    REQUIRES(limiter->mutex)
{
    const size_t limit_count = HASH_COUNT(limiter->limits);
    char text[LOG_LINE_SIZE] = "";
    const struct message sentence = { text, sizeof text };
    int error = WEIR_OK;
    size_t prepared = 0, bad = 0;
    for (; !error && prepared < load->count; prepared += !error) {
        bad = prepared;
        error = prepare(limiter, load, prepared, &targets[prepared], sentence);
    }
    for (size_t i = 0; !error && layer == LAYER_CODE && i < load->count; i++) {
        bad = i;
        error = check_override(targets[i], sentence);
    }
    for (size_t i = 0; i < prepared; i++)
        targets[i]->is_listed = false;
    if (error) {
        message_write(load->message, "%s:%d: %s", load->path, load->policies[bad].line, text);
        limits_undo(limiter, limit_count);
        return error;
    }
    for (size_t i = 0; i < load->count; i++)
        target_set(targets[i], layer, &load->policies[i].policy);
    for (size_t i = 0; i < load->count; i++)
        target_commit(targets[i]);
    return WEIR_OK;
}

int limits_load(struct weir *limiter, const char *path, enum layer layer, struct message message)
{
    struct file_load load = { .path = path, .message = message };
    struct weir_limit **targets = NULL;
    int error = weir_policy_file_read(path, collect, &load, message.text, message.size);
    if (load.error)
        error = load.error;
    if (!error) {
        targets = malloc((load.count + 1) * sizeof(struct weir_limit *));
        if (!targets) {
            message_write(message, "%s: out of memory", path);
            error = WEIR_ENOMEM;
        }
    }
    if (!error) {
        lock_take(&limiter->mutex);
        error = define_all(limiter, &load, layer, targets);
        lock_give(&limiter->mutex);
    }
    free(targets);
    free(load.names);
    free(load.policies);
    return error;
}

int weir_limits_load(weir *limiter, const char *path, char *message, size_t message_size)
{
    const struct message sentence = { message, message_size };
    if (!limiter || !path)
        return message_refuse(sentence, "%s must not be NULL", limiter ? "path" : "limiter");
    return limits_load(limiter, path, LAYER_CODE, sentence);
}
