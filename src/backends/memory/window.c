/* window.c - decides the commonest requests for sliding windows whose key has an entry.
 *
 * The way is that of take.c, with the summary in the key's cell (cells.h) in place of a bucket's state. It decides
 * nearly all takes, reservations and returns. The first take in another block, and all else that needs the other
 * counts, is left to memory_decide(), which begins again.
 */
#include "backends/memory/take.h"

/* Do what the request asks by the summary of the key. The caller is inside readers_enter(). */
static inline enum look_end window_look(const struct table *table, struct weir_limit *limit, struct weir_key key,
                                        uint64_t hash, const struct look_groups *at,
                                        const struct weir_backend_hint *hint,
                                        const struct weir_backend_request *request, struct weir_decision *out)
{
    struct look look;
    const struct rule *rule = look_rule(table, limit);
    if (__builtin_expect(!rule || !look_for_summary(table, rule, key, hash, at, hint, &look), 0))
        return LOOK_GIVEN_UP;
    return look_by_summary(&look, request, out);
}

static inline unsigned window_take(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                   const struct look_groups *at, int64_t cost, int64_t now_us,
                                   struct weir_handle *handle, struct weir_reservation *reservation,
                                   struct weir_decision *out)
{
    const struct weir_backend_hint *hint = handle ? &handle->hint : NULL;
    assume(!handle || hint != NULL); /* lets the compiler drop the way without one */
    const struct weir_backend_request request = {
        .now_us = now_us, .cost = cost, .verb = WEIR_TAKE, .reservation = reservation
    };
    struct table *table = take_table(limit);
    const unsigned own_stripe = stats_own_stripe;
    struct figures *figures = figures_of(limit, own_stripe);
    if (!figures) /* the thread's first answer by this limit; or it cannot read */
        return TAKE_DECIDES;
    _Atomic uint64_t *turn = readers_turn(&table->readers, own_stripe);
    if (!readers_begin(&table->readers, turn))
        return TAKE_DECIDES;

    const enum look_end end = window_look(table, limit, key, hash, at, hint, &request, out);
    const bool sweeps = take_leave(turn);
    if (__builtin_expect(end != LOOK_DONE, 0))
        return TAKE_DECIDES | (end == LOOK_AGAIN ? TAKE_CONTENDED : 0) | (sweeps ? TAKE_SWEEPS : 0);
    if (sweeps)
        return TAKE_SWEEPS;
    if (__builtin_expect(take_is_rare(limit, out->allowed), 0))
        return TAKE_COUNTS;
    figures_count_own(figures, cost, own_taken(out), out);
    return 0;
}

/* Give back permits that were charged at `since_us`. There is no decision. */
__attribute__((always_inline)) static inline enum look_end window_back(const struct table *table,
                                                                       struct weir_limit *limit, struct weir_key key,
                                                                       uint64_t hash, const struct look_groups *at,
                                                                       int64_t cost, int64_t since_us, int64_t now_us)
{
    struct weir_decision unused;
    const struct weir_backend_request request = {
        .now_us = now_us, .cost = cost, .ahead = since_us, .verb = WEIR_REFUND
    };
    return window_look(table, limit, key, hash, at, NULL, &request, &unused);
}

int memory_try_window(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us,
                      struct weir_decision *out)
{
    const int error = take_check_key(limit, key, cost, now_us, out);
    return error ? error : take_by(window_take, limit, key, key_hash(limit, key), cost, now_us, NULL, NULL, out);
}

int memory_try_window_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const int error = take_check(handle->limit->limiter, cost, now_us, out);
    return error ? error
                 : take_by(window_take, handle->limit, handle->key, handle->hash, cost, now_us, handle, NULL, out);
}

int memory_reserve_window(struct weir_limit *limit, struct weir_key key, int64_t cost,
                          struct weir_reservation *reservation, struct weir_decision *out)
{
    assume(reservation != NULL);
    return take_by(window_take, limit, key, key_hash(limit, key), cost, 0, NULL, reservation, out);
}

int memory_give_back_window(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us)
{
    return take_back_by(window_back, limit, key, cost, since_us);
}
