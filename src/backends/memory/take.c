/* take.c - decides the commonest requests: a token bucket with greedy refill, and a key that has an entry.
 *
 * A take, a reservation, and the return of permits that a reservation did not use: each goes the steps of look.h in the
 * same order. The arguments are in registers instead of a request in memory, and there is nothing to choose. All other
 * cases are left to memory_decide(), which begins again.
 */
#include "core/limiter/take.h"

#include "backends/memory/look.h"

/* What take() leaves to take_rest(), or 0. */
#define TAKE_SWEEPS 1u    /* a sweep; nothing was counted */
#define TAKE_COUNTS 2u    /* counting an answer that is not the commonest one */
#define TAKE_DECIDES 4u   /* everything: memory_decide() begins again */
#define TAKE_CONTENDED 8u /* and another thread is changing the entry */
#define TAKE_FAILS 16u    /* counting an error of the clock */

/* Do the rest of a take by `limit`, which may be an override. Returns weir_try()'s value. */
__attribute__((noinline)) static int take_rest(unsigned rest, struct weir_limit *limit, struct weir_key key,
                                               uint64_t hash, int64_t cost, int64_t now_us,
                                               struct weir_backend_hint *hint, struct weir_reservation *reservation,
                                               struct weir_decision *out)
{
    struct weir_backend *backend = limit->limiter->backend;
    struct weir_backend_request request;
    int error = (rest & TAKE_FAILS) != 0 ? WEIR_EINVAL : WEIR_OK;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.hint = hint;
    request.reservation = reservation;
    if ((rest & TAKE_SWEEPS) != 0)
        decide_sweep((struct memory *)backend, hash, now_us);
    if ((rest & TAKE_CONTENDED) != 0)
        wait_pause(LOOK_PAUSE);
    if ((rest & TAKE_DECIDES) != 0)
        error = memory_decide(backend, &request, 1, false, INT64_MAX, out);
    return take_told(&request, error, out);
}

/* Do that for a key whose hash is not there any more, because it would have to be kept in each take. */
__attribute__((noinline)) static int take_rest_of_key(unsigned rest, struct weir_limit *limit, struct weir_key key,
                                                      int64_t cost, int64_t now_us,
                                                      struct weir_reservation *reservation, struct weir_decision *out)
{
    return take_rest(rest, limit, key, key_hash(limit->of, key), cost, now_us, NULL, reservation, out);
}

/* The same for the parts of a key that are in its handle. */
__attribute__((noinline)) static int take_rest_of_handle(unsigned rest, struct weir_limit *limit, weir_handle *handle,
                                                         int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return take_rest(rest, limit, handle->key, handle->hash, cost, now_us, &handle->hint, NULL, out);
}

static inline bool take_leave(_Atomic uint64_t *turn)
{
    return __builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0);
}

/* Leave the readers and count a decision; `allowed` is a constant. Returns what is left to do. To hash a key again for
 * each denial that top_keys.h counts would take longer than to keep the hash; a handle has it. */
__attribute__((always_inline)) static inline unsigned
take_count(_Atomic uint64_t *turn, struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost,
           int64_t now_us, bool allowed, const struct weir_backend_hint *hint, struct weir_decision *out)
{
    const int taken = WEIR_BY_MEMORY * 2 + allowed;
    if (take_leave(turn))
        return TAKE_SWEEPS;
    const bool is_rare = __builtin_expect(take_is_rare(limit, allowed), 0);
    if (is_rare && hint)
        return TAKE_COUNTS;
    if (is_rare)
        take_told_rarely(limit, key, hash, cost, now_us, taken, out);
    else
        figures_count_taken(limit, cost, taken, out);
    return 0;
}

/* Take as weir_try() does, by `limit` or the override in its place, and find the time. Returns what is left to do.
 * Admissions and denials have a way each from where the change is published, so that `allowed` is a constant in each.
 * `hint` or `reservation` is a constant NULL, or both are. */
__attribute__((always_inline)) static inline unsigned
take(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t *now_us,
     struct weir_backend_hint *hint, struct weir_reservation *reservation, struct weir_decision *out)
{
    struct memory *memory = (struct memory *)limit->limiter->backend;
    if (__builtin_expect(take_time(limit, now_us) != WEIR_OK, 0))
        return TAKE_FAILS;
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(!turn, 0))
        return TAKE_DECIDES;

    struct look look;
    struct level level;
    bool allowed;
    enum look_end end = LOOK_GIVEN_UP;
    if (__builtin_expect(look_for_take(&memory->table, limit, key, hash, hint, &look), 1))
        end = look_ask(&look, *now_us, cost, WEIR_TAKE, &level, &allowed);
    if (__builtin_expect(end != LOOK_DONE, 0))
        return TAKE_DECIDES | (end == LOOK_AGAIN ? TAKE_CONTENDED : 0) | (take_leave(turn) ? TAKE_SWEEPS : 0);
    const struct weir_plan *plan = &look.rule->plan;
    if (allowed) {
        level_tell_by(plan, true, look.rule->inverse, &level, *now_us, cost, true, out);
        if (reservation)
            reservation->at_us = state_noted_us(plan, (int64_t[GREEDY_WORDS]){ level.used, level.tick }, *now_us);
        return take_count(turn, limit, key, hash, cost, *now_us, true, hint, out);
    }
    level_tell_by(plan, true, look.rule->inverse, &level, *now_us, cost, false, out);
    return take_count(turn, limit, key, hash, cost, *now_us, false, hint, out);
}

int memory_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    const uint64_t hash = key_hash(limit, key);
    limit = limit_for_key(limit, key, hash);
    const unsigned rest = take(limit, key, hash, cost, &now_us, NULL, NULL, out);
    return __builtin_expect(rest, 0) != 0 ? take_rest_of_key(rest, limit, key, cost, now_us, NULL, out) : WEIR_OK;
}

int memory_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    struct weir_limit *limit = limit_for_key(handle->limit, handle->key, handle->hash);
    struct weir_backend_hint *hint = &handle->hint;
    if (!hint) /* lets the compiler drop the way without one */
        __builtin_unreachable();
    const unsigned rest = take(limit, handle->key, handle->hash, cost, &now_us, hint, NULL, out);
    return __builtin_expect(rest, 0) != 0 ? take_rest_of_handle(rest, limit, handle, cost, now_us, out) : WEIR_OK;
}

int memory_reserve(struct weir_limit *limit, struct weir_key key, int64_t cost, struct weir_reservation *reservation,
                   struct weir_decision *out)
{
    const uint64_t hash = key_hash(limit, key);
    int64_t now_us = 0;
    limit = limit_for_key(limit, key, hash);
    const unsigned rest = take(limit, key, hash, cost, &now_us, NULL, reservation, out);
    return __builtin_expect(rest, 0) != 0 ? take_rest_of_key(rest, limit, key, cost, now_us, reservation, out)
                                          : WEIR_OK;
}

/* Give back as memory_decide() does. */
__attribute__((noinline)) static int give_back_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                         int64_t cost, int64_t since_us, int64_t now_us)
{
    struct weir_decision unused;
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_REFUND);
    request.ahead = since_us;
    return memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, &unused);
}

int memory_give_back(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t since_us)
{
    const uint64_t hash = key_hash(limit, key);
    limit = limit_for_key(limit, key, hash);
    int64_t now_us = 0;
    const int error = take_time(limit, &now_us);
    if (__builtin_expect(error, 0))
        return error;
    struct memory *memory = (struct memory *)limit->limiter->backend;
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(!turn, 0))
        return give_back_otherwise(limit, key, hash, cost, since_us, now_us);
    struct look look;
    enum look_end end = LOOK_GIVEN_UP;
    if (__builtin_expect(look_for_take(&memory->table, limit, key, hash, NULL, &look), 1))
        end = look_greedy_back(&memory->table, &look, now_us, since_us, cost);
    if (take_leave(turn))
        decide_sweep(memory, hash, now_us);
    if (__builtin_expect(end == LOOK_DONE, 1))
        return WEIR_OK;
    return give_back_otherwise(limit, key, hash, cost, since_us, now_us);
}
