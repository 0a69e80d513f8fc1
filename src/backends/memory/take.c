/* take.c - decides the commonest request: permits of a key that has an entry, by a token bucket with greedy refill.
 *
 * It takes the steps of look.h in the same order, for this case alone: from arguments in registers instead of a request
 * in memory, and with nothing to choose. Whatever else it meets it leaves to memory_decide(), which begins again.
 */
#include "backends/memory/look.h"
#include "core/limiter/request.h"

/* Decide as memory_decide() does. `is_contended`: another thread is changing the entry. */
__attribute__((noinline)) static int take_rarely(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                 int64_t cost, int64_t now_us, struct weir_backend_hint *hint,
                                                 bool is_contended, struct weir_decision *out)
{
    struct weir_backend_request request;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    request.hint = hint;
    if (is_contended)
        look_pause(LOOK_PAUSE);
    const int error = memory_decide(limit->limiter->backend, &request, 1, false, INT64_MAX, out);
    return error ? error : own_taken(out);
}

int memory_take(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                struct weir_backend_hint *hint, struct weir_decision *out)
{
    struct memory *memory = (struct memory *)limit->limiter->backend;
    const struct table *table = &memory->table;
    enum look_end end = LOOK_GIVEN_UP;
    _Atomic uint64_t *turn = readers_enter(&memory->table.readers);
    if (__builtin_expect(turn != NULL, 1)) {
        struct look look;
        if (__builtin_expect(look_for_take(table, limit, key, hash, hint, &look), 1))
            end = look_greedy(&look, now_us, cost, WEIR_TAKE, out);
        const int taken = end == LOOK_DONE ? own_taken(out) : 0;
        if (__builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0))
            decide_sweep(memory, hash, now_us);
        if (__builtin_expect(end == LOOK_DONE, 1))
            return taken;
    }
    return take_rarely(limit, key, hash, cost, now_us, hint, end == LOOK_AGAIN, out);
}
