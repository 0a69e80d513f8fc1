/* rest.c - shares permits between processes that wait for them: see rest.h. */
#include "core/api/rest.h"

#include "core/api/errands.h"
#include "core/ground/arith.h"
#include "core/limiter/limits.h"
#include "core/limiter/own_ops.h"
#include "core/limiter/request.h"

#include <stdlib.h>

#define REST_US 100000
#define NOTE_US 500000       /* how long a note stands */
#define NOTES_NAME "(waits)" /* a limit's name has no brackets */

static struct rest *rest_slot(struct weir *limiter, const struct line_waiter *at) REQUIRES(limiter->errands->mutex)
{
    struct rest *rest = &limiter->errands->rests.slots[at->hash % REST_SLOTS];
    if (rest->hash != at->hash)
        *rest = (struct rest){ .hash = at->hash };
    return rest;
}

void rests_free(struct rests *rests)
{
    free(rests->notes);
}

/* ---- Notes ---- */

/* Return the limit whose permits are the notes, or NULL without memory. */
static struct weir_limit *notes_limit(struct weir *limiter) REQUIRES(limiter->errands->mutex)
{
    static const struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW,
                                               .limit = WEIR_MAX_PERMITS,
                                               .period_us = NOTE_US };
    struct rests *rests = &limiter->errands->rests;
    if (!rests->notes)
        rests->notes = limits_make_private(limiter, NOTES_NAME, &policy);
    return rests->notes;
}

/* Charge a note of the key, or look at its notes. Return how many there are, or -1. *until_us: when they end. */
static int64_t notes_ask(struct weir *limiter, const struct line_waiter *at, enum weir_verb verb, int64_t *until_us)
{
    char why[128];
    const char *name = at->limit->name;
    const size_t name_len = strlen(name) + 1, len = name_len + at->key.len;
    struct weir_decision decision = { .source = WEIR_BY_NOBODY };
    int64_t now_us;
    lock_take(&limiter->errands->mutex);
    struct weir_limit *notes = notes_limit(limiter);
    lock_give(&limiter->errands->mutex);
    char *key = notes && len <= WEIR_MAX_KEY_LEN ? malloc(len) : NULL;
    if (!key || request_time(limiter, &now_us) != WEIR_OK) {
        free(key);
        return -1;
    }
    memcpy(key, name, name_len); /* its NUL, which no name contains, ends it */
    memcpy(key + name_len, at->key.data, at->key.len);
    struct weir_backend *backend = limiter->backend;
    const struct own_ops *own = own_ops(backend);
    const struct weir_backend_request request = backend_request(notes, weir_key(key, len), 1, now_us, verb);
    const int error = own && own->probe
                          ? own->probe(backend, &request, 1, deadline_us(limiter), &decision,
                                       (struct message){ why, sizeof why })
                          : backend->ops->decide(backend, &request, 1, false, deadline_us(limiter), &decision);
    free(key);
    if (error)
        return -1;
    *until_us = clock_monotonic_us() + decision.reset_after_us;
    return decision.limit - decision.remaining;
}

/* True if another process has noted that it waits for the key. */
static bool others_wait(struct weir *limiter, const struct line_waiter *at)
{
    int64_t until_us;
    const int64_t notes = notes_ask(limiter, at, WEIR_PEEK, &until_us);
    lock_take(&limiter->errands->mutex);
    const int64_t own_until_us = rest_slot(limiter, at)->noted_until_us;
    lock_give(&limiter->errands->mutex);
    const bool has_own = own_until_us - until_us < NOTE_US / 4 && until_us - own_until_us < NOTE_US / 4;
    return notes > has_own;
}

void rest_note_waiting(struct weir *limiter, const struct line_waiter *at)
{
    const int64_t now_us = clock_monotonic_us();
    lock_take(&limiter->errands->mutex);
    struct rest *rest = rest_slot(limiter, at);
    const bool is_due = now_us >= rest->noted_until_us && now_us - rest->noted_us >= NOTE_US / 2;
    if (is_due)
        rest->noted_us = now_us;
    lock_give(&limiter->errands->mutex);
    int64_t until_us;
    if (!is_due || notes_ask(limiter, at, WEIR_CHARGE, &until_us) < 0)
        return;
    lock_take(&limiter->errands->mutex);
    rest_slot(limiter, at)->noted_until_us = until_us;
    lock_give(&limiter->errands->mutex);
}

/* ---- Rests ---- */

int64_t rest_until_us(struct weir *limiter, const struct line_waiter *at)
{
    const int64_t now_us = clock_monotonic_us();
    lock_take(&limiter->errands->mutex);
    struct rest *rest = rest_slot(limiter, at);
    int64_t until_us = rest->until_us > now_us ? rest->until_us : 0;
    const bool looks = until_us == 0 && rest->since_us > 0 && now_us - rest->since_us >= REST_US;
    if (looks)
        rest->since_us = now_us;
    lock_give(&limiter->errands->mutex);
    if (looks && others_wait(limiter, at)) {
        lock_take(&limiter->errands->mutex);
        rest = rest_slot(limiter, at);
        rest->since_us = 0;
        rest->until_us = until_us = clock_monotonic_us() + REST_US;
        lock_give(&limiter->errands->mutex);
    }
    return until_us;
}

void rest_served(struct weir *limiter, const struct line_waiter *at)
{
    lock_take(&limiter->errands->mutex);
    struct rest *rest = rest_slot(limiter, at);
    if (rest->since_us == 0)
        rest->since_us = clock_monotonic_us();
    lock_give(&limiter->errands->mutex);
}
