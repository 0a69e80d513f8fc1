/* take.c - decides the commonest requests: a token bucket with greedy refill, and a key that has an entry.
 *
 * A take, a reservation and the return of what a reservation did not use go the steps of look.h in the same order, for
 * this case alone: from arguments in registers instead of a request in memory, and with nothing to choose. Whatever else
 * they meet they leave to memory_decide(), which begins again.
 */
#include "backends/memory/look.h"
#include "core/limiter/request.h"

/* What differs between the three: constants in each of them. */
struct take {
    enum weir_verb verb;
    int64_t since_us;                     /* of a return */
    struct weir_reservation *reservation; /* of a reservation */
};

/* Decide as memory_decide() does. `is_contended`: another thread is changing the entry. */
__attribute__((noinline)) static int take_rarely(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                 int64_t cost, int64_t now_us, struct weir_backend_hint *hint,
                                                 bool is_contended, struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.hint = hint;
    if (is_contended)
        wait_pause(LOOK_PAUSE);
    const int error = memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, out);
    return error ? error : own_taken(out);
}

/* Do the same for a reservation or a return. The struct on the stack would cost each take. */
__attribute__((noinline)) static int reserve_rarely(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                    int64_t cost, int64_t now_us, const struct take take,
                                                    struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, take.verb);
    request.ahead = take.since_us;
    request.reservation = take.reservation;
    const int error = memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, out);
    return error ? error : own_taken(out);
}

__attribute__((always_inline)) static inline int take_shortly(struct weir_limit *limit, struct weir_key key,
                                                              uint64_t hash, int64_t cost, int64_t now_us,
                                                              struct weir_backend_hint *hint, const struct take take,
                                                              struct weir_decision *out)
{
    struct memory *memory = (struct memory *)limit->limiter->backend;
    const struct table *table = &memory->table;
    enum look_end end = LOOK_GIVEN_UP;
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(turn != NULL, 1)) {
        struct look look;
        if (__builtin_expect(look_for_take(table, limit, key, hash, hint, &look), 1))
            end = take.verb == WEIR_REFUND ? look_greedy_back(&look, now_us, take.since_us, cost)
                                           : look_greedy(&look, now_us, cost, WEIR_TAKE, take.reservation, out);
        const int taken = end == LOOK_DONE && take.verb == WEIR_TAKE ? own_taken(out) : 0;
        if (__builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0))
            decide_sweep(memory, hash, now_us);
        if (__builtin_expect(end == LOOK_DONE, 1))
            return taken;
    }
    if (take.verb == WEIR_REFUND || take.reservation)
        return reserve_rarely(limit, key, hash, cost, now_us, take, out);
    return take_rarely(limit, key, hash, cost, now_us, hint, end == LOOK_AGAIN, out);
}

int memory_take(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                struct weir_backend_hint *hint, struct weir_decision *out)
{
    return take_shortly(limit, key, hash, cost, now_us, hint, (struct take){ .verb = WEIR_TAKE }, out);
}

int memory_reserve(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                   struct weir_reservation *reservation, struct weir_decision *out)
{
    const struct take take = { .verb = WEIR_TAKE, .reservation = reservation };
    return take_shortly(limit, key, hash, cost, now_us, NULL, take, out);
}

int memory_give_back(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t since_us,
                     int64_t now_us)
{
    struct weir_decision unused;
    const struct take take = { .verb = WEIR_REFUND, .since_us = since_us };
    const int taken = take_shortly(limit, key, hash, cost, now_us, NULL, take, &unused);
    return taken < 0 ? taken : WEIR_OK;
}
