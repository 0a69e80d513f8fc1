/* request.h - checks arguments and fills requests to a backend.
 *
 * Every decision passes through these functions, so they are inline.
 */
#ifndef CORE_LIMITER_REQUEST_H
#define CORE_LIMITER_REQUEST_H

#include "core/limiter/limiter.h"
#include "core/limiter/overrides.h"

/* Log what was refused. */
__attribute__((cold)) void request_tell_range(const struct weir *limiter, const char *what, int64_t value, int64_t min,
                                              int64_t max);
__attribute__((cold)) void request_tell_null(const struct weir *limiter, const char *what);
__attribute__((cold)) void request_tell_foreign(const struct weir *limiter, const struct weir_limit *limit);

/* Log it and return WEIR_EINVAL. Inline, so that the compiler sees that the caller returns after it and keeps no
 * registers across the call. */
static inline int refuse_range(const struct weir *limiter, const char *what, int64_t value, int64_t min, int64_t max)
{
    request_tell_range(limiter, what, value, min, max);
    return WEIR_EINVAL;
}

static inline int refuse_null(const struct weir *limiter, const char *what)
{
    request_tell_null(limiter, what);
    return WEIR_EINVAL;
}

static inline int check_cost(const struct weir *limiter, int64_t cost)
{
    if (cost < 1 || cost > WEIR_MAX_PERMITS)
        return refuse_range(limiter, "cost", cost, 1, WEIR_MAX_PERMITS);
    return WEIR_OK;
}

/* Check a cost that has been used already. It is never refused for its size. */
static inline int check_charge(const struct weir *limiter, int64_t cost)
{
    return cost < 1 ? refuse_range(limiter, "cost", cost, 1, INT64_MAX) : WEIR_OK;
}

/* Return what such a cost counts as: no state can hold more. */
static inline int64_t charge_cost(int64_t cost)
{
    return min_of(cost, EXACT_MAX);
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

/* Check a caller's time; 0 stands for none. */
static inline int check_time(const struct weir *limiter, int64_t now_us)
{
    if (now_us < 0 || now_us > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "now_us", now_us, 0, WEIR_MAX_TIME_US);
    return WEIR_OK;
}

/* Read the limiter's clock. WEIR_EINVAL, with a line in the log, if a user's clock returns a time out of range. */
static inline int read_clock(const struct weir *limiter, int64_t *out)
{
    *out = clock_now_us(&limiter->clock);
    if (*out < 0 || *out > WEIR_MAX_TIME_US)
        return refuse_range(limiter, "the clock", *out, 0, WEIR_MAX_TIME_US);
    return WEIR_OK;
}

/* Find the time to decide by: WEIR_OWN_CLOCK, or a reading of the clock. */
static inline int request_time(const struct weir *limiter, int64_t *out)
{
    *out = WEIR_OWN_CLOCK;
    return limiter->own_clock ? WEIR_OK : read_clock(limiter, out);
}

/* True if the limit or override has a candidate, or is one (candidate.h). */
static inline bool limit_has_halves(const struct weir_limit *limit)
{
    return __builtin_expect(atomic_load_explicit(&limit->shadow, memory_order_relaxed) > LIMIT_PERCENT, 0);
}

/* Return the half of such a limit that binds the key. */
struct weir_limit *candidate_choose(struct weir_limit *limit, struct weir_key key);

/* Return the limit, the override or the candidate to decide by. */
static inline struct weir_limit *limit_for_key(struct weir_limit *limit, struct weir_key key, uint64_t hash)
{
    const struct overrides *overrides = atomic_load_explicit(&limit->overrides, memory_order_acquire);
    if (__builtin_expect(overrides != NULL, 0))
        limit = overrides_find(overrides, limit, key, hash);
    return limit_has_halves(limit) ? candidate_choose(limit, key) : limit;
}

/* Fill *out in place; `limit` may itself be an override. Building a struct and then copying it stalls on store
 * forwarding, because the copy uses wider loads than the stores. Overrides are looked up last: most limits have none,
 * and no register is live across the call. */
static inline void fill_request(struct weir_backend_request *out, struct weir_limit *limit, struct weir_key key,
                                uint64_t hash, int64_t cost, int64_t now_us, enum weir_verb verb)
{
    out->key = key;
    out->hash = hash;
    out->cost = cost;
    out->now_us = now_us;
    out->cold_since_us = -1;
    out->cold_left = 0;
    out->ahead = 0;
    out->spread = 0;
    out->verb = (uint8_t)verb;
    out->hint = NULL;
    out->reservation = NULL;
    limit = limit_for_key(limit, key, hash);
    if (limit_has_halves(limit) && limit->first) {
        if (verb == WEIR_RENEW) /* it concerns the first half */
            limit = limit->first;
        else
            out->hash = key_hash(limit, key);
    }
    out->limit = limit;
    out->limit_id = limit->id;
    out->slot = limit_in_flight(limit) ? slot_next(limit->limiter) : 0;
    out->plan_version = plan_cell_version(&limit->plan);
}

/* Let a request return `permits` of a reservation, or renew it. */
static inline void request_settles(struct weir_backend_request *request, const struct weir_reservation *reservation,
                                   int64_t permits)
{
    request->slot = reservation->id;
    request->ahead = reservation->at_us;
    if (reservation->id)
        request->ahead = request->verb == WEIR_REFUND ? max_of(0, reservation->permits - permits) : 0;
}

static inline struct weir_backend_request backend_request(struct weir_limit *limit, struct weir_key key, int64_t cost,
                                                          int64_t now_us, enum weir_verb verb)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, key_hash(limit, key), cost, now_us, verb);
    return request;
}

/* Return the deadline of a call. A backend that cannot block needs none, so the clock is not read. */
static inline int64_t deadline_us(const struct weir *limiter)
{
    return limiter->can_block ? clock_monotonic_us() + limiter->timeout_us : INT64_MAX;
}

/* Return the deadline of a call that decides once, as a span if the backend takes spans: reading the clock costs as
 * much as a decision by a lease. */
static inline int64_t span_or_deadline_us(const struct weir *limiter)
{
    return limiter->spans ? -limiter->timeout_us : deadline_us(limiter);
}

#endif
