/* take.h - the commonest request: permits of one key, from a limit whose plan suits a backend's short way.
 *
 * weir_try() and weir_handle_try() jump into such a backend with their own arguments. The backend does all of the call
 * by the functions here: a call from the core into the backend and back would save, move and restore the arguments once
 * more, which took a fifth of the instructions.
 */
#ifndef CORE_LIMITER_TAKE_H
#define CORE_LIMITER_TAKE_H

#include "core/limiter/candidate.h"
#include "core/limiter/figures.h"
#include "core/limiter/fixed.h"
#include "core/limiter/request.h"
#include "core/limiter/shadow.h"

#include <stdalign.h>

/* A key that was resolved in advance, api/handle.c. */
struct weir_handle {
    alignas(64) weir_limit *limit; /* (c) */
    struct weir_key key;           /* (c) */
    uint64_t hash;                 /* (c) */
    struct weir_backend_hint hint; /* the backend's */
    unsigned char bytes[];         /* (c) */
};

/* Count the answer to WEIR_TAKE, `error` or *out, in a limiter with is_plain set. A shadow's denial becomes an
 * admission. Returns `error`. */
int take_told(const struct weir_backend_request *request, int error, struct weir_decision *out);

/* Do that for a backend's short way, which has no request. `taken` is own_taken() or an error. */
int take_told_rarely(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                     int taken, struct weir_decision *out);

/* Take from a limit that has a candidate, without the backend's short ways. Returns weir_try()'s value. */
int take_halves(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                struct weir_reservation *reservation, struct weir_decision *out);

/* Decide and count a take from a limit of limit_for_key() if it is fixed. *error is weir_try()'s value then. */
static inline bool take_fixed(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
                              int64_t now_us, struct weir_decision *out, int *error)
{
    if (!fixed_decide(limit, out))
        return false;
    *error = take_told_rarely(limit, key, hash, cost, now_us, own_taken(out), out);
    return true;
}

/* True if the limit has or had overrides, or is a shadow for some keys. */
static inline bool limit_is_special(const struct weir_limit *limit)
{
    const uintptr_t overrides = (uintptr_t)atomic_load_explicit(&limit->overrides, memory_order_relaxed);
    const uintptr_t shadow = (uint32_t)atomic_load_explicit(&limit->shadow, memory_order_relaxed);
    return (overrides | shadow) != 0;
}

/* Return the backend's short ways if they may be the shortest for the limit, or NULL. */
static inline const struct own_takes *limit_takes(const struct weir_limit *limit)
{
    return atomic_load_explicit(&limit->takes, memory_order_relaxed);
}

/* Check the arguments of weir_handle_try() besides the handle. */
static inline int take_check(const struct weir *limiter, int64_t cost, int64_t now_us, const struct weir_decision *out)
{
    int error = check_cost(limiter, cost);
    if (!error)
        error = check_time(limiter, now_us);
    if (error)
        return error;
    return out ? WEIR_OK : refuse_null(limiter, "out");
}

/* Check those of weir_try_at(). */
static inline int take_check_key(const struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                                 const struct weir_decision *out)
{
    const int error = check_arguments(limit, key, cost);
    return error ? error : take_check(limit->limiter, cost, now_us, out);
}

/* Write the time to decide by, where the caller gave none: 0. Call it once the hash is known, see api/verbs.h. */
static inline int take_time(const struct weir_limit *limit, int64_t *now_us)
{
    return *now_us == 0 ? read_clock(limit->limiter, now_us) : WEIR_OK;
}

static inline bool take_is_time(int64_t now_us)
{
    return (uint64_t)now_us - 1 < WEIR_MAX_TIME_US;
}

/* True if the time is given and valid, or can be computed without a call; *now_us is then the time. */
static inline bool take_is_ready(const struct weir_limit *limit, int64_t *now_us)
{
    return take_is_time(*now_us) ||
           (*now_us == 0 && clock_counts_us(&limit->limiter->clock, now_us) && take_is_time(*now_us));
}

/* True if an answer takes more than a count: there is a shadow, or a denial for top_keys.h. */
static inline bool take_is_rare(const struct weir_limit *limit, bool allowed)
{
    return limit_has_shadow(limit) || (!allowed && limit->limiter->top_keys);
}

/* Count the answer to WEIR_TAKE by a limit of limit_for_key(): own_taken(), or an error. Returns weir_try()'s value. */
__attribute__((always_inline)) static inline int take_counted(struct weir_limit *limit, struct weir_key key,
                                                              uint64_t hash, int64_t cost, int64_t now_us, int taken,
                                                              struct weir_decision *out)
{
    if (__builtin_expect(taken < 0 || take_is_rare(limit, (taken & 1) != 0), 0))
        return take_told_rarely(limit, key, hash, cost, now_us, taken, out);
    figures_count_taken(limit, cost, taken, out);
    return WEIR_OK;
}

#endif
