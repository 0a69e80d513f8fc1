/* layers.c - a source's policies, all of them, against those that it had before. */
#include "core/follow/layers.h"

#include "core/limiter/limits.h"
#include "core/outage/failure.h"

/* What is worth a line in the log, told when no lock is held any more. */
struct remark {
    size_t count;
    char name[WEIR_MAX_NAME_LEN + 1]; /* of the first limit */
};

struct application {
    enum layer layer;
    struct layers_result *out;
    struct remark kept;    /* limits that nobody defines any more */
    struct remark waiting; /* limits that are not there yet, for the sake of whose overrides they are known */
    bool lacks_memory;
    bool splits; /* the stand-in's plans have changed */
};

static void remark_on(struct remark *remark, const struct weir_limit *limit)
{
    if (remark->count++ == 0)
        memcpy(remark->name, limit->name, strlen(limit->name) + 1);
}

static void refuse(struct application *application, const char *where, const char *sentence)
{
    struct layers_result *out = application->out;
    out->refused++;
    message_write((struct message){ out->sentence, sizeof out->sentence }, "%s: %s", where, sentence);
}

/* ---- One entry ---- */

/* The policy is one that can be enforced, or a sentence says why not. */
static int check_policy(const struct weir *limiter, const struct policy_entry *entry, struct message message)
    REQUIRES(limiter->mutex)
{
    enum policy_field_id fault;
    if (entry->error)
        return message_refuse(message, "%s", entry->error);
    int error = plan_check(&entry->policy, message, &fault);
    return error ? error : limits_check(limiter, &entry->policy, message);
}

/* Where an entry is refused, what is there under its name stays: it is listed all the same. */
static int apply_entry(struct weir *limiter, struct application *application, const struct policy_entry *entry,
                       struct message message) REQUIRES(limiter->mutex)
{
    struct limit_name name;
    int error = limit_name_make(entry->name, entry->pattern, &name, message);
    if (error && entry->error) /* which tells more than that there is no such name */
        return message_refuse(message, "%s", entry->error);
    if (error)
        return error;
    struct weir_limit *target = limits_find(limiter, &name);
    if (target && target->is_listed)
        return message_refuse(message, "it stands twice");
    error = check_policy(limiter, entry, message);
    if (!target && !error)
        error = limits_get(limiter, &name, &target, message);
    if (target)
        target->is_listed = true;
    if (error)
        return error;
    const struct layers *layers = &target->layers;
    const enum layer layer = application->layer;
    if (layers->there[layer] && memcmp(&layers->policies[layer], &entry->policy, sizeof entry->policy) == 0)
        return WEIR_OK;
    target_set(target, layer, &entry->policy);
    application->out->changes++;
    return WEIR_OK;
}

/* ---- What is not listed any more ---- */

/* A policy below, which was made under another share, may have no arithmetic now: then what is in force stays there. */
static void drop_unlisted(const struct weir *limiter, struct application *application, struct weir_limit *target)
    REQUIRES(limiter->mutex)
{
    const enum layer layer = application->layer;
    char text[LOG_LINE_SIZE - WEIR_MAX_NAME_LEN - 32] = "";
    if (target->is_listed || !target->layers.there[layer]) {
        target->is_listed = false;
        return;
    }
    const struct weir_policy *below = target_without(target, layer);
    if (below && limits_check(limiter, below, (struct message){ text, sizeof text }) != WEIR_OK) {
        refuse(application, target->name, text);
        return;
    }
    target_set(target, layer, NULL);
    application->out->changes++;
    if (!below && !target->override)
        remark_on(&application->kept, target);
}

static void commit(struct weir *limiter, struct application *application, struct weir_limit *target)
    REQUIRES(limiter->mutex)
{
    application->splits = target_commit(limiter, target) || application->splits;
}

/* Each target in turn: first all that is not listed any more, then all that has changed. */
static void finish(struct weir *limiter, struct application *application) REQUIRES(limiter->mutex)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        const struct overrides *overrides = atomic_load_explicit(&limit->overrides, memory_order_relaxed);
        const size_t count = overrides ? overrides->count : 0;
        bool waits = false;
        drop_unlisted(limiter, application, limit);
        for (size_t i = 0; i < count; i++) {
            struct weir_limit *target = overrides->all[i]->limit;
            drop_unlisted(limiter, application, target);
            waits = waits || target->is_changed;
        }
        for (size_t i = 0; i < count; i++)
            commit(limiter, application, overrides->all[i]->limit);
        commit(limiter, application, limit);
        if (waits && !limit->is_defined)
            remark_on(&application->waiting, limit);
    }
}

int layers_apply(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n,
                 struct layers_result *out)
{
    char text[LOG_LINE_SIZE] = "";
    struct application application = {
        .layer = what == WEIR_FOLLOW_CONSUL_POLICIES ? LAYER_CONSUL : LAYER_FILE,
        .out = out,
    };
    *out = (struct layers_result){ .changes = 0 };
    lock_take(&limiter->mutex);
    for (size_t i = 0; i < n; i++) {
        int error = apply_entry(limiter, &application, &entries[i], (struct message){ text, sizeof text });
        if (error)
            refuse(&application, entries[i].where, text);
        application.lacks_memory = application.lacks_memory || error == WEIR_ENOMEM;
    }
    finish(limiter, &application);
    lock_give(&limiter->mutex);
    if (application.splits)
        failure_split(limiter);
    if (application.kept.count > 0)
        log_line(&limiter->log, WEIR_LOG_WARNING,
                 "limit %s: what defined it has gone, and its last policy stays in force (so it is with %zu limits)",
                 application.kept.name, application.kept.count);
    if (application.waiting.count > 0)
        log_line(&limiter->log, WEIR_LOG_INFO,
                 "limit %s has overrides, but is not defined yet (so it is with %zu limits)", application.waiting.name,
                 application.waiting.count);
    return application.lacks_memory ? WEIR_ENOMEM : WEIR_OK;
}
