/* denials.h - remembers which keys are denied: the cost of the last take that Redis denied, and until when.
 *
 * A denial changes nothing, so a take that will be denied needs no script: the time and the key's value tell as much,
 * at half the price for the server (docs/design/scripts.md). This table only guesses which takes those are. A wrong
 * guess changes no decision and costs one round trip.
 *
 * If a key's value is not a plain state under the plan, only the script can decide. The key is then left to its script
 * for REDIS_UNCLEAR_US.
 *
 * Keys share slots by their hash, which is secret, and a slot holds the key that was denied last. Its fields are atomic
 * one by one. Two threads that write the same slot can leave a mixture, which is a wrong guess at worst.
 */
#ifndef BACKENDS_REDIS_FLIGHT_DENIALS_H
#define BACKENDS_REDIS_FLIGHT_DENIALS_H

#include "core/ground/arith.h"

#include <stdatomic.h>
#include <weir/backend.h>

#define REDIS_DENIALS 16384 /* keys, 384 KiB; memory that is still zero takes no room */

#define REDIS_UNCLEAR_US WEIR_SECOND
#define REDIS_UNCLEAR INT64_MAX /* above every cost */

struct redis_denial {
    _Atomic uint64_t hash;    /* of the key */
    _Atomic int64_t cost;     /* this cost and larger ones are denied; REDIS_UNCLEAR: the value does not tell */
    _Atomic int64_t until_us; /* by clock_monotonic_us(); 0: not at all */
};

/* All fields are atomic and relaxed. Begins as zeros. */
struct redis_denials {
    atomic_bool off; /* the server does not answer reads: guess no more */
    struct redis_denial slots[REDIS_DENIALS];
};

static inline struct redis_denial *redis_denials_slot(struct redis_denials *denials, uint64_t hash)
{
    return &denials->slots[hash % REDIS_DENIALS];
}

/* Return true if a take that leaves at `now_us` will probably be denied. */
static inline bool redis_denials_foresee(struct redis_denials *denials, const struct weir_backend_request *request,
                                         int64_t now_us)
{
    struct redis_denial *slot = redis_denials_slot(denials, request->hash);
    return atomic_load_explicit(&slot->hash, memory_order_relaxed) == request->hash &&
           atomic_load_explicit(&slot->cost, memory_order_relaxed) <= request->cost &&
           atomic_load_explicit(&slot->until_us, memory_order_relaxed) > now_us &&
           !atomic_load_explicit(&denials->off, memory_order_relaxed);
}

/* The key is not denied any more, as far as is known. */
static inline void redis_denials_forget(struct redis_denials *denials, uint64_t hash)
{
    struct redis_denial *slot = redis_denials_slot(denials, hash);
    if (atomic_load_explicit(&slot->hash, memory_order_relaxed) == hash)
        atomic_store_explicit(&slot->until_us, 0, memory_order_relaxed);
}

static inline void redis_denials_put(struct redis_denials *denials, uint64_t hash, int64_t cost, int64_t until_us)
{
    struct redis_denial *slot = redis_denials_slot(denials, hash);
    atomic_store_explicit(&slot->hash, hash, memory_order_relaxed);
    atomic_store_explicit(&slot->cost, cost, memory_order_relaxed);
    atomic_store_explicit(&slot->until_us, until_us, memory_order_relaxed);
}

/* Note the decision of a take that left at `left_us`. A slot keeps a smaller cost as long as that is denied. */
static inline void redis_denials_note(struct redis_denials *denials, const struct weir_backend_request *request,
                                      const struct weir_decision *decision, int64_t left_us)
{
    struct redis_denial *slot = redis_denials_slot(denials, request->hash);
    const int64_t cost = atomic_load_explicit(&slot->cost, memory_order_relaxed);
    const bool holds = atomic_load_explicit(&slot->hash, memory_order_relaxed) == request->hash &&
                       atomic_load_explicit(&slot->until_us, memory_order_relaxed) > left_us;
    if (decision->allowed)
        redis_denials_forget(denials, request->hash);
    else if (!holds || (cost != REDIS_UNCLEAR && cost >= request->cost))
        redis_denials_put(denials, request->hash, request->cost,
                          decision->retry_after_us == WEIR_NEVER ? INT64_MAX : left_us + decision->retry_after_us);
}

/* The value read at `now_us` did not tell. */
static inline void redis_denials_doubt(struct redis_denials *denials, uint64_t hash, int64_t now_us)
{
    redis_denials_put(denials, hash, REDIS_UNCLEAR, now_us + REDIS_UNCLEAR_US);
}

/* The server does not let this client read. */
static inline void redis_denials_stop(struct redis_denials *denials)
{
    atomic_store_explicit(&denials->off, true, memory_order_relaxed);
}

#endif
