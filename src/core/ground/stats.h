/* stats.h - counters that cost a decision about a nanosecond and lose no count.
 *
 * Each thread that counts has a stripe, the same one in every limiter. It adds with a plain load and store, without a
 * locked instruction. Threads beyond the last stripe share that one and add atomically. When a thread has died, its
 * stripe goes to the next new thread; the sums in it stay.
 */
#ifndef CORE_GROUND_STATS_H
#define CORE_GROUND_STATS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#define STATS_STRIPES 64
#define STATS_SHARED_STRIPE (STATS_STRIPES - 1)

enum stats_counter {
    STATS_GROUPS_ALLOWED, /* calls of weir_try_all(); other requests count in core/limiter/figures.h */
    STATS_GROUPS_DENIED,
    STATS_ERRORS,
    STATS_FALLBACKS,
    STATS_OUTAGES,
    STATS_SETTLED,
    STATS_UNSETTLED,
    STATS_RELEASES_LOST,
    STATS_COUNTERS
};

struct stats_stripe {
    alignas(64) _Atomic uint64_t counts[STATS_COUNTERS]; /* relaxed: sums only, they order nothing */
    _Atomic uint64_t inside;                             /* inside.h's count, here to share the cache line */
};

struct stats {
    struct stats_stripe stripes[STATS_STRIPES];
};

/* 1 + the number of this thread's stripe; 0 if it has none yet. */
extern _Thread_local unsigned stats_own_stripe __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Give this thread a stripe and return its number. */
unsigned stats_take_stripe(void);

/* In the child of a fork: free the stripes of the threads that did not come along. */
void stats_begin_in_child(void);

/* Return the number of this thread's stripe. No other thread writes it, unless it is the shared one. */
static inline unsigned stats_stripe(void)
{
    const unsigned stripe = stats_own_stripe - 1; /* beyond the last, if it has none */
    return __builtin_expect(stripe < STATS_STRIPES, 1) ? stripe : stats_take_stripe();
}

/* Add to a counter that no other thread writes; `order` is that of the store. A compiler makes three instructions of an
 * atomic load and store where x86-64 needs one, whose store has release order, as every store there. */
static inline void stats_add_own(_Atomic uint64_t *count, uint64_t amount, memory_order order)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)count) : "er"(amount) : "cc", "memory");
    (void)order;
#else
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + amount, order);
#endif
}

static inline void stats_add(struct stats *stats, enum stats_counter counter, uint64_t amount)
{
    const unsigned stripe = stats_stripe();
    _Atomic uint64_t *count = &stats->stripes[stripe].counts[counter];
    if (__builtin_expect(stripe == STATS_SHARED_STRIPE, 0)) {
        atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
    } else {
        stats_add_own(count, amount, memory_order_relaxed);
    }
}

uint64_t stats_sum(struct stats *stats, enum stats_counter counter);

#endif
