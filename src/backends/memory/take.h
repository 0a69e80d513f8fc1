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

/* Give back permits, charged at `since_us`, as memory_decide() does. */
int take_back_rest(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t since_us,
                   int64_t now_us);

static inline struct table *take_table(const struct weir_limit *limit)
{
    return &((struct memory *)limit->limiter->backend)->table;
}

static inline bool take_leave(_Atomic uint64_t *turn)
{
    return __builtin_expect(decide_sweeps_now(readers_leave(turn), 1), 0);
}

#endif
