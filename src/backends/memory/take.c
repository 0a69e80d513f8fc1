/* take.c - decides the commonest requests: a token bucket with greedy refill, and a key that has an entry.
 *
 * A take, a reservation, and the return of permits that a reservation did not use: each goes the steps of look_take.h.
 * The arguments are in registers instead of a request in memory, and there is nothing to choose. All other
 * cases are left to memory_decide(), which begins again.
 */
#include "backends/memory/take.h"

#include "backends/memory/denied.h"

_Thread_local struct denial denied_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

int take_rest(unsigned rest, struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
              struct weir_backend_hint *hint, struct weir_reservation *reservation, struct weir_decision *out)
{
    struct weir_backend *backend = limit->limiter->backend;
    struct weir_backend_request request;
    int error = WEIR_OK;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.hint = hint;
    request.reservation = reservation;
    if ((rest & TAKE_SWEEPS) != 0)
        decide_sweep((struct memory *)backend, hash, now_us);
    if ((rest & TAKE_CONTENDED) != 0)
        wait_pause(LOOK_PAUSE);
    if ((rest & TAKE_DECIDES) != 0 && !fixed_decide(request.limit, out))
        error = memory_decide(backend, &request, 1, false, INT64_MAX, out);
    return take_told(&request, error, out);
}

/* Count it in the thread's block. */
__attribute__((always_inline)) static inline void take_count(const struct rule *rule, const struct level *level,
                                                             struct figures *figures, int64_t cost, bool allowed)
{
    figures_add(&figures->singles[WEIR_BY_MEMORY][allowed], 1);
    if (!allowed)
        return;
    figures_add(&figures->permits, (uint64_t)cost);
    if (__builtin_expect(level->used > rule->near, 0))
        figures_add(&figures->near, 1);
}

/* Tell and count a decision, and leave the readers. Returns what is left to do. */
__attribute__((always_inline)) static inline unsigned take_end(_Atomic uint64_t *turn, const struct look *look,
                                                               const struct level *level, struct figures *figures,
                                                               struct weir_limit *limit, int64_t cost, int64_t now_us,
                                                               struct weir_handle *handle, bool again, bool allowed,
                                                               bool calls, struct weir_decision *out)
{
    const struct rule *rule = look->rule;
    __asm__("" : "+r"(rule)); /* load the plan again: the registers that would keep it have to be saved */
    take_tell(rule, level, cost, now_us, allowed, out);
    if (again)
        denied_renew(handle, take_table(limit), look, figures, cost, now_us, out);
    else if (handle && !allowed)
        denied_note(handle);
    if (take_leave(turn))
        return TAKE_SWEEPS;
    if (__builtin_expect(calls ? take_is_rare(limit, allowed) : !allowed && limit->limiter->top_keys, 0))
        return TAKE_COUNTS;
    take_count(rule, level, figures, cost, allowed);
    return 0;
}

/* Take as weir_try() does, by `limit` or the override in its place. Returns what is left to do. Admissions and denials
 * have a way each from where the change is published, so that `allowed` is a constant in each. `handle` or
 * `reservation` is a constant NULL, or both are; `calls` is a constant, too. If it is false, the limit has neither
 * overrides nor a shadow, and if the key has a constant length, no function is called, so that few registers must be
 * saved. `again` is a constant: true if the latest denial was by this handle, so that another one is remembered. */
__attribute__((always_inline)) static inline unsigned take(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                           const struct look_groups *at, int64_t cost, int64_t now_us,
                                                           struct weir_handle *handle, bool again,
                                                           struct weir_reservation *reservation, bool calls,
                                                           struct weir_decision *out)
{
    const struct weir_backend_hint *hint = handle ? &handle->hint : NULL;
    assume(!handle || hint != NULL); /* lets the compiler drop the way without one */
    struct table *table = take_table(limit);
    const unsigned own_stripe = stats_own_stripe;
    struct figures *figures = figures_of(limit, own_stripe);
    if (__builtin_expect(!figures, 0)) /* the thread's first answer by this limit; or it cannot read */
        return TAKE_DECIDES;
    _Atomic uint64_t *turn = readers_turn(&table->readers, own_stripe);
    if (!calls && __builtin_expect(!readers_begin_plainly(&table->readers, turn), 0))
        return TAKE_CALLS;
    if (calls && !readers_begin(&table->readers, turn))
        return TAKE_DECIDES;

    struct look look;
    struct level level;
    bool allowed;
    enum look_end end = LOOK_GIVEN_UP;
    const struct rule *rule = look_rule(table, limit);
    if (!calls && __builtin_expect(rule && limit_is_special(limit), 0)) {
        readers_leave(turn);
        return TAKE_CALLS;
    }
    if (__builtin_expect(rule && look_for_take(table, rule, key, hash, at, hint, &look), 1))
        end = look_take(&look, now_us, cost, &level, &allowed);
    if (__builtin_expect(end != LOOK_DONE, 0))
        return TAKE_DECIDES | (end == LOOK_AGAIN ? TAKE_CONTENDED : 0) | (take_leave(turn) ? TAKE_SWEEPS : 0);
    if (!allowed)
        return take_end(turn, &look, &level, figures, limit, cost, now_us, handle, again, false, calls, out);
    if (reservation)
        reservation->at_us = state_noted_us(&look.rule->plan, (int64_t[GREEDY_WORDS]){ level.used, level.tick },
                                            now_us);
    return take_end(turn, &look, &level, figures, limit, cost, now_us, handle, again, true, calls, out);
}

/* Take in the version that may call functions. */
__attribute__((always_inline)) static inline unsigned
take_calling(struct weir_limit *limit, struct weir_key key, uint64_t hash, const struct look_groups *at, int64_t cost,
             int64_t now_us, struct weir_handle *handle, struct weir_reservation *reservation,
             struct weir_decision *out)
{
    return take(limit, key, hash, at, cost, now_us, handle, false, reservation, true, out);
}

/* Take permits of any key, which may have an override. */
static inline int take_any(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                           struct weir_handle *handle, struct weir_reservation *reservation, struct weir_decision *out)
{
    return take_by(take_calling, limit, key, hash, cost, now_us, handle, reservation, out);
}

/* Do what memory_try() leaves: hash the key again, because the hash would have to be kept in each take. What has been
 * decided had valid arguments. */
__attribute__((noinline)) static int try_otherwise(unsigned rest, struct weir_limit *limit, struct weir_key key,
                                                   int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const int error = take_check_key(limit, key, cost, now_us, out);
    if (error)
        return error;
    const uint64_t hash = key_hash(limit, key);
    return rest == TAKE_CALLS ? take_any(limit, key, hash, cost, now_us, NULL, NULL, out)
                              : take_rest(rest, limit, key, hash, cost, now_us, NULL, NULL, out);
}

/* Only what the short way would not survive is checked first: NULL. It gives up at a cost that is out of range. */
int memory_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    unsigned rest = TAKE_CALLS;
    if (__builtin_expect(key.len == 16 && key.data && out, 1)) {
        const struct weir_key known = weir_key(key.data, 16); /* its length is a constant */
        uint64_t hash = key_hash(limit, known);
        __asm__ volatile("" : "+r"(hash)); /* now, rather than keeping in registers all that it is made of */
        const struct look_groups at = look_fetch(take_table(limit), hash);
        int64_t time_us = now_us;
        if (__builtin_expect(take_is_ready(limit, &time_us), 1)) {
            now_us = time_us;
            rest = take(limit, known, hash, &at, cost, now_us, NULL, false, NULL, false, out);
        }
    }
    return __builtin_expect(rest, 0) != 0 ? try_otherwise(rest, limit, key, cost, now_us, out) : WEIR_OK;
}

__attribute__((noinline)) static int try_handle_otherwise(unsigned rest, weir_handle *handle, int64_t cost,
                                                          int64_t now_us, struct weir_decision *out)
{
    const int error = take_check(handle->limit->limiter, cost, now_us, out);
    if (error)
        return error;
    return rest == TAKE_CALLS
               ? take_any(handle->limit, handle->key, handle->hash, cost, now_us, handle, NULL, out)
               : take_rest(rest, handle->limit, handle->key, handle->hash, cost, now_us, &handle->hint, NULL, out);
}

/* Decide by a handle, which is not NULL; `again` as in take(). */
__attribute__((always_inline)) static inline int try_handle(weir_handle *handle, int64_t cost, int64_t now_us,
                                                            bool again, struct weir_decision *out)
{
    struct weir_limit *limit = handle->limit;
    int64_t time_us = now_us;
    unsigned rest = TAKE_CALLS;
    assume(handle != NULL);
    if (__builtin_expect(handle->key.len == 16 && out && take_is_ready(limit, &time_us), 1)) {
        now_us = time_us;
        rest = take(limit, weir_key(handle->bytes, 16), handle->hash, NULL, cost, now_us, handle, again, NULL, false,
                    out);
    }
    return __builtin_expect(rest, 0) != 0 ? try_handle_otherwise(rest, handle, cost, now_us, out) : WEIR_OK;
}

__attribute__((noinline)) static int try_handle_again(weir_handle *handle, int64_t cost, int64_t now_us,
                                                      struct weir_decision *out)
{
    return try_handle(handle, cost, now_us, true, out);
}

__attribute__((noinline)) static int try_denied_handle(weir_handle *handle, int64_t cost, int64_t now_us,
                                                       struct weir_decision *out)
{
    return denied_again(handle, cost, now_us, out) ? WEIR_OK : try_handle_again(handle, cost, now_us, out);
}

int memory_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    if (__builtin_expect(denied_own.handle == handle, 0))
        return try_denied_handle(handle, cost, now_us, out);
    __asm__("" : "+r"(handle), "+r"(cost), "+r"(now_us), "+r"(out)); /* registers are saved from here on */
    return try_handle(handle, cost, now_us, false, out);
}

int take_anew(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
              struct weir_decision *out)
{
    return take_any(limit, key, hash, cost, now_us, NULL, NULL, out);
}

int memory_reserve(struct weir_limit *limit, struct weir_key key, int64_t cost, struct weir_reservation *reservation,
                   struct weir_decision *out)
{
    return take_any(limit, key, key_hash(limit, key), cost, 0, NULL, reservation, out);
}

void memory_fetch(struct weir_backend *backend, uint64_t hash)
{
    (void)look_fetch(&((struct memory *)backend)->table, hash);
}

int take_back_rest(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t since_us,
                   int64_t now_us)
{
    struct weir_decision unused;
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_REFUND);
    candidate_aim_first(&request);
    request.ahead = since_us;
    return memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, &unused);
}

__attribute__((always_inline)) static inline enum look_end take_back(const struct table *table,
                                                                     struct weir_limit *limit, struct weir_key key,
                                                                     uint64_t hash, const struct look_groups *at,
                                                                     int64_t cost, int64_t since_us, int64_t now_us)
{
    struct look look;
    const struct rule *rule = look_rule(table, limit);
    if (__builtin_expect(!rule || !look_for_take(table, rule, key, hash, at, NULL, &look), 0))
        return LOOK_GIVEN_UP;
    return look_greedy_back(table, &look, now_us, since_us, cost);
}

int memory_give_back(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us)
{
    return take_back_by(take_back, limit, key, cost, since_us);
}
