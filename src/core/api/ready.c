/* ready.c - waits until a limiter's sources and Redis can be used, and says why not.
 *
 * Redis can be used if it charges and forgets keys. So weir_ping() does both, with two keys of a limit that no program
 * can name. A connection alone would not show that the user lacks a right or that the server is full.
 */
#include "core/api/verbs.h"
#include "core/follow/follow.h"
#include "core/ground/arith.h"
#include "core/ground/cancel.h"
#include "core/limiter/limits.h"
#include "core/limiter/own_ops.h"

#include <stdlib.h>

#define PING_NAME "(ping)" /* a limit's name has no brackets */
#define PING_PAUSE_US 20000

/* Return the limit, made by the first call, or NULL without memory. It lives as long as the limiter: an answer that
 * comes too late still looks at it. */
static struct weir_limit *ping_limit(struct weir *limiter)
{
    static const struct weir_policy policy = { .algorithm = WEIR_FIXED_WINDOW,
                                               .limit = WEIR_MAX_PERMITS,
                                               .period_us = WEIR_SECOND };
    struct weir_limit *limit = atomic_load(&limiter->ping), *none = NULL;
    if (limit)
        return limit;
    limit = limits_make_private(limiter, PING_NAME, &policy);
    if (!limit || atomic_compare_exchange_strong(&limiter->ping, &none, limit))
        return limit;
    free(limit); /* another thread was faster */
    return none;
}

/* Take two keys, then reset them. The store sees other commands for two keys than for one. */
static int ping_once(struct weir *limiter, struct message why)
{
    static const char *const keys[] = { "a", "b" };
    struct weir_limit *limit = ping_limit(limiter);
    struct weir_backend_request requests[2];
    struct weir_decision decisions[2];
    int64_t now_us;
    int error = limit ? request_time(limiter, &now_us) : WEIR_ENOMEM;
    for (int verb = WEIR_TAKE; !error; verb = WEIR_RESET) {
        for (size_t i = 0; i < 2; i++)
            requests[i] = backend_request(limit, weir_key_text(keys[i]), 1, now_us, (enum weir_verb)verb);
        decisions[0].source = decisions[1].source = WEIR_BY_NOBODY;
        error = own_ops(limiter->backend)->probe(limiter->backend, requests, 2, deadline_us(limiter), decisions, why);
        if (verb == WEIR_RESET)
            break;
    }
    return error;
}

/* Ping until it succeeds or the time has come. */
static int ping_until(struct weir *limiter, int64_t until_us, struct message why)
{
    const struct own_ops *own = own_ops(limiter->backend);
    if (!own || !own->probe)
        return WEIR_OK;
    for (;;) {
        const int error = ping_once(limiter, why);
        const int64_t now_us = clock_monotonic_us();
        if ((error != WEIR_EIO && error != WEIR_ETIME) || now_us >= until_us)
            return error;
        if (acquire_sleep_until(limiter, min_of(until_us, now_us + PING_PAUSE_US)) != WEIR_OK)
            return WEIR_ECLOSED;
    }
}

/* Wait until Redis can be used, and before that for the sources if `follows`. */
static int ready_wait(struct weir *limiter, int64_t max_wait_us, bool follows, struct message why)
{
    if (!limiter)
        return WEIR_EINVAL;
    if (max_wait_us < 0 || max_wait_us > WEIR_HOUR)
        return refuse_range(limiter, "max_wait_us", max_wait_us, 0, WEIR_HOUR);
    CANCEL_DISABLED;
    int error = inside_add(limiter, 1);
    if (error)
        return error;
    const int64_t until_us = clock_monotonic_us() + max_wait_us;
    if (follows && limiter->follow)
        error = follow_await_ready(limiter, until_us);
    if (!error)
        error = ping_until(limiter, until_us, why);
    inside_remove(limiter, 1);
    return error;
}

int weir_ping(weir *limiter, int64_t max_wait_us, char *message, size_t message_size)
{
    return ready_wait(limiter, max_wait_us, false, (struct message){ message, message_size });
}

int weir_await_ready(weir *limiter, int64_t max_wait_us)
{
    const int error = ready_wait(limiter, max_wait_us, true, (struct message){ NULL, 0 });
    return error == WEIR_EIO ? WEIR_ETIME : error;
}
