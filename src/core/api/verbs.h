/* verbs.h - what all verbs share: deciding one request, and counting the answer. */
#ifndef CORE_API_VERBS_H
#define CORE_API_VERBS_H

#include "core/limiter/inside.h"
#include "core/limiter/request.h"
#include "core/outage/failure.h"

#include <assert.h>

/* Decide one request; it is rewritten if the fallback decides it. The clock is read last. Reading it waits for all
 * earlier instructions, so work before it here (the hash) overlaps with the previous decision, and the first steps of
 * the backend do not wait for the reading. */
static inline int decide_request(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    int error = request_time(limiter, &request->now_us);
    return error ? error : failure_decide(limiter, request, 1, false, span_or_deadline_us(limiter), out);
}

/* Decide it at a caller's time if that is not 0. */
static inline int decide_request_at(struct weir *limiter, struct weir_backend_request *request, int64_t now_us,
                                    struct weir_decision *out)
{
    if (now_us == 0)
        return decide_request(limiter, request, out);
    request->now_us = now_us;
    return failure_decide(limiter, request, 1, false, span_or_deadline_us(limiter), out);
}

/* Sleep until `until_us` on CLOCK_MONOTONIC. WEIR_ECLOSED if the limiter is being closed. */
int acquire_sleep_until(struct weir *limiter, int64_t until_us);

static inline void count_plain(struct weir *limiter, int error, const struct weir_decision *decision)
{
    stats_add(&limiter->stats, error ? STATS_ERRORS : decision->allowed ? STATS_ALLOWED : STATS_DENIED, 1);
}

static inline void count_answer(struct weir *limiter, int error, const struct weir_decision *decision)
{
    count_plain(limiter, error, decision);
    if (!error && failure_decided(decision))
        stats_add(&limiter->stats, STATS_FALLBACKS, 1);
}

/* Decide about a key whose hash is known, at a caller's time if that is not 0. Arguments have been checked. */
int ask_guarded(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                enum weir_verb verb, struct weir_decision *out);

/* Do the same for a limiter with is_plain set. */
static inline int ask_plain(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                            enum weir_verb verb, struct weir_backend_hint *hint, struct weir_decision *out)
{
    struct weir *limiter = limit->limiter;
    struct weir_backend_request request;
    int error = WEIR_OK;
    fill_request(&request, limit, key, hash, cost, now_us, verb);
    request.hint = hint;
    if (now_us == 0)
        error = read_clock(limiter, &request.now_us);
    if (!error)
        error = limiter->backend->ops->decide(limiter->backend, &request, 1, false, INT64_MAX, out);
    assert(error <= 0);
    if (verb == WEIR_TAKE)
        count_plain(limiter, error, out);
    return error;
}

#endif
