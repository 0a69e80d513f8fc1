/* take.h - what the short ways share: that of token buckets (take.c) and that of sliding windows (window.c). */
#ifndef BACKENDS_MEMORY_TAKE_H
#define BACKENDS_MEMORY_TAKE_H

#include "core/limiter/take.h"

#include "backends/memory/look_take.h"

/* What a short way leaves to others, or 0. */
#define TAKE_SWEEPS 1u    /* a sweep; nothing was counted */
#define TAKE_COUNTS 2u    /* counting an answer that is not the commonest one */
#define TAKE_DECIDES 4u   /* everything: memory_decide() begins again */
#define TAKE_CONTENDED 8u /* and another thread is changing the entry */
#define TAKE_CALLS 16u    /* everything, because it would have to call a function */

/* Do the rest of a take by `limit`, which may be an override. Returns weir_try()'s value. */
int take_rest(unsigned rest, struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
              struct weir_backend_hint *hint, struct weir_reservation *reservation, struct weir_decision *out);

/* Do all of weir_try_at() but checking the arguments, given the key's hash. */
int take_anew(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
              struct weir_decision *out);

/* Give back permits, charged at `since_us`, as memory_decide() does. */
int take_back_rest(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t since_us,
                   int64_t now_us);

/* Tell a decision; `allowed` is a constant. */
__attribute__((always_inline)) static inline void take_tell(const struct rule *rule, const struct level *level,
                                                            int64_t cost, int64_t now_us, bool allowed,
                                                            struct weir_decision *out)
{
    const struct weir_plan *plan = rule_plain_plan(rule);
    assume(level->used > 0 && cost <= plan->size);
    assume(!allowed || level->used <= rule->known.top);
    level_tell_by(plan, level_given(&rule->known), level, now_us, cost, allowed, out);
}

static inline struct table *take_table(const struct weir_limit *limit)
{
    return &((struct memory *)limit->limiter->backend)->table;
}

static inline bool take_leave(_Atomic uint64_t *turn)
{
    return __builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0);
}

/* A short way to take permits of a key from `limit`, which may be an override. Returns what is left to do. */
typedef unsigned take_way(struct weir_limit *limit, struct weir_key key, uint64_t hash, const struct look_groups *at,
                          int64_t cost, int64_t now_us, struct weir_handle *handle,
                          struct weir_reservation *reservation, struct weir_decision *out);

/* A short way to give permits back, for a caller that is a reader. If it does not end with LOOK_DONE, nothing was
 * done. */
typedef enum look_end take_back_way(const struct table *table, struct weir_limit *limit, struct weir_key key,
                                    uint64_t hash, const struct look_groups *at, int64_t cost, int64_t since_us,
                                    int64_t now_us);

/* Take permits of any key, which may have an override. The arguments have been checked. `way` is a constant, so that
 * the compiler inlines it. */
__attribute__((always_inline)) static inline int
take_by(take_way *way, struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
        struct weir_handle *handle, struct weir_reservation *reservation, struct weir_decision *out)
{
    struct weir_backend_hint *hint = handle ? &handle->hint : NULL;
    assume(!handle || hint != NULL); /* lets the compiler drop the way without one */
    struct weir_limit *asked = limit;
    limit = limit_for_key(limit, key, hash);
    int error;
    if (limit_has_halves(limit))
        return take_halves(asked, key, hash, cost, now_us, reservation, out);
    if (take_fixed(limit, key, hash, cost, now_us, out, &error))
        return error;
    const struct look_groups at = hint ? (struct look_groups){ .first = NULL } : look_fetch(take_table(limit), hash);
    error = take_time(limit, &now_us);
    if (__builtin_expect(error, 0)) {
        stats_add(&limit->limiter->stats, STATS_ERRORS, 1);
        return error;
    }
    const unsigned rest = way(limit, key, hash, &at, cost, now_us, handle, reservation, out);
    return __builtin_expect(rest, 0) ? take_rest(rest, limit, key, hash, cost, now_us, hint, reservation, out)
                                     : WEIR_OK;
}

/* Give back permits of any key that were charged at `since_us`; `way` is a constant. */
__attribute__((always_inline)) static inline int take_back_by(take_back_way *way, struct weir_limit *limit,
                                                              struct weir_key key, int64_t cost, int64_t since_us)
{
    const uint64_t hash = key_hash(limit, key);
    limit = limit_first_half(limit_for_key(limit, key, hash));
    if (__builtin_expect(limit_is_fixed(limit), 0))
        return WEIR_OK;
    struct table *table = take_table(limit);
    const struct look_groups at = look_fetch(table, hash);
    int64_t now_us = 0;
    const int error = take_time(limit, &now_us);
    if (__builtin_expect(error, 0))
        return error;
    _Atomic uint64_t *turn = readers_enter(&table->readers);
    if (__builtin_expect(!turn, 0))
        return take_back_rest(limit, key, hash, cost, since_us, now_us);
    const enum look_end end = way(table, limit, key, hash, &at, cost, since_us, now_us);
    if (take_leave(turn))
        decide_sweep((struct memory *)limit->limiter->backend, hash, now_us);
    return __builtin_expect(end == LOOK_DONE, 1) ? WEIR_OK : take_back_rest(limit, key, hash, cost, since_us, now_us);
}

#endif
