/* verbs.h - what all verbs share: arguments are checked, a request is filled, the backend is asked, the answer counted.
 */
#ifndef CORE_LIMITER_VERBS_H
#define CORE_LIMITER_VERBS_H

#include "core/outage/failure.h"
#include "core/limiter/inside.h"
#include "core/limiter/limiter.h"

#include <assert.h>

/* Say in the log what was refused. */
void tell_range(const struct weir *limiter, const char *what, int64_t value, int64_t min, int64_t max);
void tell_null(const struct weir *limiter, const char *what);

/* The same, and return WEIR_EINVAL, in sight of the compiler: nothing goes on after it, and so a decision need not keep
 * what it knows over the call. */
static inline int refuse_range(const struct weir *limiter, const char *what, int64_t value, int64_t min, int64_t max)
{
    tell_range(limiter, what, value, min, max);
    return WEIR_EINVAL;
}

static inline int refuse_null(const struct weir *limiter, const char *what)
{
    tell_null(limiter, what);
    return WEIR_EINVAL;
}

static inline int check_cost(const struct weir *limiter, int64_t cost)
{
    if (cost < 1 || cost > WEIR_MAX_PERMITS)
        return refuse_range(limiter, "cost", cost, 1, WEIR_MAX_PERMITS);
    return WEIR_OK;
}

static inline int check_arguments(const struct weir_limit *limit, struct weir_key key, int64_t cost)
{
    if (!limit)
        return WEIR_EINVAL;
    if (check_cost(limit->limiter, cost) != WEIR_OK)
        return WEIR_EINVAL;
    if (key.len < 1 || key.len > WEIR_MAX_KEY_LEN)
        return refuse_range(limit->limiter, "key.len", key.len > INT64_MAX ? INT64_MAX : (int64_t)key.len, 1,
                            WEIR_MAX_KEY_LEN);
    if (!key.data)
        return refuse_null(limit->limiter, "key.data");
    return WEIR_OK;
}

/* A caller's time, or 0. */
static inline int check_time(const struct weir *limiter, int64_t now_us)
{
    if (now_us < 0 || now_us > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "now_us", now_us, 0, WEIR_MAX_TIME_US);
    return WEIR_OK;
}

static inline int read_clock(const struct weir *limiter, int64_t *out)
{
    *out = clock_now_us(&limiter->clock);
    if (*out < 0 || *out > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "the clock", *out, 0, WEIR_MAX_TIME_US);
    return WEIR_OK;
}

/* The time to decide by. */
static inline int request_time(const struct weir *limiter, int64_t *out)
{
    *out = WEIR_OWN_CLOCK;
    return limiter->own_clock ? WEIR_OK : read_clock(limiter, out);
}

/* The hash of a key of `limit`, or of one of its overrides. */
static inline uint64_t key_hash(const struct weir_limit *limit, struct weir_key key)
{
    return siphash13(&limit->secret, key.data, key.len);
}

/* `limit` may be an override already: then it is that. Written in place, field by field: a struct that is made and then
 * copied is copied by wider words than it was written by, and those wait for what is written. Overrides come last: most
 * have none, and nothing has to be kept over the call. */
static inline void fill_request(struct weir_backend_request *out, struct weir_limit *limit, struct weir_key key,
                                uint64_t hash, int64_t cost, int64_t now_us, enum weir_verb verb)
{
    out->key = key;
    out->hash = hash;
    out->cost = cost;
    out->now_us = now_us;
    out->cold_since_us = -1;
    out->ahead = 0;
    out->spread = 0;
    out->verb = verb;
    out->hint = NULL;
    const struct overrides *overrides = atomic_load_explicit(&limit->overrides, memory_order_acquire);
    if (__builtin_expect(overrides != NULL, 0))
        limit = overrides_find(overrides, limit, key, hash);
    out->limit = limit;
    out->limit_id = limit->id;
    out->plan_version = plan_cell_version(&limit->plan);
}

static inline struct weir_backend_request backend_request(struct weir_limit *limit, struct weir_key key, int64_t cost,
                                                          int64_t now_us, enum weir_verb verb)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, key_hash(limit, key), cost, now_us, verb);
    return request;
}

/* Only a backend that can block has an eye on the time. */
static inline int64_t deadline_us(const struct weir *limiter)
{
    return limiter->can_block ? clock_monotonic_us() + limiter->timeout_us : INT64_MAX;
}

/* The same for a call that decides once: a span where the backend takes one, for a reading of the clock costs as much
 * as a decision by a lease. */
static inline int64_t span_or_deadline_us(const struct weir *limiter)
{
    return limiter->spans ? -limiter->timeout_us : deadline_us(limiter);
}

/* Decide one request; it is rewritten if the fallback did. The clock is read last: its reading waits for all that comes
 * before it, but what comes before it here (the hash) need not wait for the decision before this one, and the backend's
 * first steps do not wait for it. */
static inline int decide_request(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out)
{
    int error = request_time(limiter, &request->now_us);
    return error ? error : failure_decide(limiter, request, 1, false, span_or_deadline_us(limiter), out);
}

/* The same at a caller's time, if that is not 0. */
static inline int decide_request_at(struct weir *limiter, struct weir_backend_request *request, int64_t now_us,
                                    struct weir_decision *out)
{
    if (now_us == 0)
        return decide_request(limiter, request, out);
    request->now_us = now_us;
    return failure_decide(limiter, request, 1, false, span_or_deadline_us(limiter), out);
}

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

/* Ask for a key whose hash is known, at a caller's time if that is not 0. Arguments have been checked. */
int ask_guarded(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                enum weir_verb verb, struct weir_decision *out);

/* Of a limiter that is plain. */
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
