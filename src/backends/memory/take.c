/* take.c - decides the commonest requests: a token bucket with greedy refill, and a key that has an entry.
 *
 * A take, a reservation and the return of what a reservation did not use go the steps of look.h in the same order, for
 * this case alone: from arguments in registers instead of a request in memory, and with nothing to choose. Whatever else
 * they meet they leave to memory_decide(), which begins again.
 */
#include "core/limiter/take.h"
#include "backends/memory/look.h"

/* Take as memory_decide() does, unless there was an error. `is_contended`: another thread is changing the entry. */
__attribute__((noinline)) static int take_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                    int64_t cost, int64_t now_us, struct weir_backend_hint *hint,
                                                    struct weir_reservation *reservation, int error, bool is_contended,
                                                    struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.hint = hint;
    request.reservation = reservation;
    if (is_contended)
        wait_pause(LOOK_PAUSE);
    if (!error)
        error = memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, out);
    return take_told(&request, error, out);
}

static inline void take_leave(struct memory *memory, _Atomic uint64_t *turn, uint64_t hash, int64_t now_us)
{
    if (__builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0))
        decide_sweep(memory, hash, now_us);
}

/* Admissions and denials have a way each from where the change is published, in which the compiler knows `allowed`.
 * `hint` or `reservation` is a constant NULL, or both are. */
__attribute__((always_inline)) static inline int take(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                      int64_t cost, int64_t now_us, struct weir_backend_hint *hint,
                                                      struct weir_reservation *reservation, struct weir_decision *out)
{
    limit = take_limit(limit, key, hash);
    const int error = take_time(limit, &now_us);
    struct memory *memory = (struct memory *)limit->limiter->backend;
    if (__builtin_expect(error, 0))
        return take_otherwise(limit, key, hash, cost, now_us, hint, reservation, error, false, out);
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(!turn, 0))
        return take_otherwise(limit, key, hash, cost, now_us, hint, reservation, WEIR_OK, false, out);

    struct look look;
    struct level level;
    bool allowed;
    enum look_end end = LOOK_GIVEN_UP;
    if (__builtin_expect(look_for_take(&memory->table, limit, key, hash, hint, &look), 1))
        end = look_ask(&look, now_us, cost, WEIR_TAKE, &level, &allowed);
    if (__builtin_expect(end != LOOK_DONE, 0)) {
        take_leave(memory, turn, hash, now_us);
        return take_otherwise(limit, key, hash, cost, now_us, hint, reservation, WEIR_OK, end == LOOK_AGAIN, out);
    }
    const struct weir_plan *plan = &look.rule->plan;
    if (allowed) {
        level_tell_by(plan, true, look.rule->inverse, &level, now_us, cost, true, out);
        if (reservation)
            reservation->at_us = state_noted_us(plan, (int64_t[GREEDY_WORDS]){ level.used, level.tick }, now_us);
        take_leave(memory, turn, hash, now_us);
        return take_counted(limit, key, hash, cost, now_us, WEIR_BY_MEMORY * 2 + 1, out);
    }
    level_tell_by(plan, true, look.rule->inverse, &level, now_us, cost, false, out);
    take_leave(memory, turn, hash, now_us);
    return take_counted(limit, key, hash, cost, now_us, WEIR_BY_MEMORY * 2, out);
}

int memory_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return take(limit, key, key_hash(limit, key), cost, now_us, NULL, NULL, out);
}

int memory_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    return take(handle->limit, handle->key, handle->hash, cost, now_us, &handle->hint, NULL, out);
}

int memory_reserve(struct weir_limit *limit, struct weir_key key, int64_t cost, struct weir_reservation *reservation,
                   struct weir_decision *out)
{
    return take(limit, key, key_hash(limit, key), cost, 0, NULL, reservation, out);
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

int memory_give_back(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t since_us,
                     int64_t now_us)
{
    struct memory *memory = (struct memory *)limit->limiter->backend;
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(!turn, 0))
        return give_back_otherwise(limit, key, hash, cost, since_us, now_us);
    struct look look;
    enum look_end end = LOOK_GIVEN_UP;
    if (__builtin_expect(look_for_take(&memory->table, limit, key, hash, NULL, &look), 1))
        end = look_greedy_back(&look, now_us, since_us, cost);
    take_leave(memory, turn, hash, now_us);
    if (__builtin_expect(end == LOOK_DONE, 1))
        return WEIR_OK;
    return give_back_otherwise(limit, key, hash, cost, since_us, now_us);
}
