/* layers.c - compares all policies of a source with those that it had before. */
#include "core/follow/layers.h"

#include "core/limiter/events.h"
#include "core/limiter/limits.h"
#include "core/outage/outage_span.h"

/* A line for the log, written when no lock is held any more. */
struct remark {
    size_t count;
    char name[WEIR_MAX_NAME_LEN + 1]; /* of the first limit */
};

struct application {
    enum layer layer;
    struct layers_result *out;
    struct remark kept;    /* limits that no layer defines any more */
    struct remark waiting; /* limits that do not exist yet, known only because of their overrides */
    bool lacks_memory;
    bool splits; /* the fallback's plans have changed */
};

static void remark_on(struct remark *remark, const struct weir_limit *limit)
{
    if (remark->count++ == 0)
        memcpy(remark->name, limit->name, strlen(limit->name) + 1);
}

static void layers_refuse(struct application *application, const char *where, const char *sentence)
{
    struct layers_result *out = application->out;
    out->refused++;
    message_write((struct message){ out->sentence, sizeof out->sentence }, "%s: %s", where, sentence);
}

/* ---- One entry ---- */

/* Check that the policy can be enforced. */
static int check_policy(const struct weir *limiter, const struct policy_entry *entry, struct message message)
    REQUIRES(limiter->mutex)
{
    enum policy_field_id fault;
    if (entry->error)
        return message_refuse(message, "%s", entry->error);
    int error = plan_check(&entry->policy, message, &fault);
    return error ? error : limits_check(limiter, &entry->policy, message);
}

/* Apply an entry. A refused one counts as listed, so that its name keeps the policy it had. */
static int apply_entry(struct weir *limiter, struct application *application, const struct policy_entry *entry,
                       struct message message) REQUIRES(limiter->mutex)
{
    struct limit_name name;
    int error = limit_name_make(entry->name, entry->pattern, &name, message);
    if (error && entry->error) /* it says more than that the name is bad */
        return message_refuse(message, "%s", entry->error);
    if (error)
        return error;
    struct weir_limit *target = limits_find(limiter, &name);
    if (target && target->is_listed)
        return message_refuse(message, "it stands twice");
    error = check_policy(limiter, entry, message);
    if (!target && !error)
        error = limits_get(limiter, &name, &target, message);
    if (!error)
        error = limits_prepare(limiter, target, &entry->policy, message);
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

/* Empty the layer of a target that is no longer listed. The policy below was made under another share and may have no
 * exact arithmetic now; then the policy in force stays. */
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
        layers_refuse(application, target->name, text);
        return;
    }
    target_set(target, layer, NULL);
    application->out->changes++;
    if (!below && !target->override)
        remark_on(&application->kept, target);
}

static void target_commit_one(struct weir *limiter, struct application *application, struct weir_limit *target)
    REQUIRES(limiter->mutex)
{
    application->splits = target_commit(limiter, target) || application->splits;
}

/* Go through all targets: first drop those that are no longer listed, then commit what has changed. */
static void layers_commit(struct weir *limiter, struct application *application) REQUIRES(limiter->mutex)
{
    struct weir_limit *limit, *next;
    HASH_ITER(hh, limiter->limits, limit, next) {
        struct overrides *overrides = atomic_load_explicit(&limit->overrides, memory_order_relaxed);
        const size_t count = overrides ? overrides->count : 0;
        bool waits = false;
        if (overrides)
            overrides_sort(overrides); /* so that no commit moves one that this loop has not reached */
        drop_unlisted(limiter, application, limit);
        for (size_t i = 0; i < count; i++) {
            struct weir_limit *target = overrides->all[i]->limit;
            drop_unlisted(limiter, application, target);
            waits = waits || target->is_changed;
        }
        for (size_t i = 0; i < count; i++)
            target_commit_one(limiter, application, overrides->all[i]->limit);
        target_commit_one(limiter, application, limit);
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
            layers_refuse(&application, entries[i].where, text);
        application.lacks_memory = application.lacks_memory || error == WEIR_ENOMEM;
    }
    layers_commit(limiter, &application);
    lock_give(&limiter->mutex);
    if (application.splits)
        outage_split(limiter);
    events_tell_policies(limiter);
    limiter->freed(limiter);
    if (application.kept.count > 0)
        log_line(&limiter->log, WEIR_LOG_WARNING,
                 "limit %s: no source defines it any more; its last policy stays in force (%zu such limits)",
                 application.kept.name, application.kept.count);
    if (application.waiting.count > 0)
        log_line(&limiter->log, WEIR_LOG_INFO, "limit %s has overrides, but is not defined yet (%zu such limits)",
                 application.waiting.name, application.waiting.count);
    return application.lacks_memory ? WEIR_ENOMEM : WEIR_OK;
}
