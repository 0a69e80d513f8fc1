/* stats.c - gives each thread a stripe to count in. */
#include "core/ground/stats.h"

#include <pthread.h>
#include <stdbool.h>

/* One bit for each stripe that a thread has. Acquire and release order hand the sums of a stripe from one thread to the
 * next. */
static _Atomic uint64_t stripes_taken = UINT64_C(1) << STATS_SHARED_STRIPE;

static pthread_once_t stats_once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;
static bool have_key; /* written once, before any thread has a stripe */

_Thread_local unsigned stats_own_stripe;

static void stripe_give_up(void *stripe)
{
    uint64_t bit = UINT64_C(1) << ((uintptr_t)stripe - 1);
    stats_own_stripe = STATS_SHARED_STRIPE + 1; /* another destructor of this thread may still count */
    atomic_fetch_and_explicit(&stripes_taken, ~bit, memory_order_acq_rel);
}

static void stats_make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, stripe_give_up) == 0;
}

unsigned stats_take_stripe(void)
{
    pthread_once(&stats_once, stats_make_key);
    uint64_t seen = atomic_load_explicit(&stripes_taken, memory_order_relaxed);
    while (have_key && ~seen != 0) {
        unsigned stripe = (unsigned)__builtin_ctzll(~seen);
        if (!atomic_compare_exchange_weak_explicit(&stripes_taken, &seen, seen | UINT64_C(1) << stripe,
                                                   memory_order_acq_rel, memory_order_relaxed))
            continue;
        stats_own_stripe = stripe + 1;
        if (pthread_setspecific(at_thread_end, (void *)(uintptr_t)stats_own_stripe) == 0)
            return stripe;
        atomic_fetch_and_explicit(&stripes_taken, ~(UINT64_C(1) << stripe), memory_order_acq_rel);
        break;
    }
    stats_own_stripe = STATS_SHARED_STRIPE + 1;
    return STATS_SHARED_STRIPE;
}

uint64_t stats_sum(struct stats *stats, enum stats_counter counter)
{
    uint64_t sum = 0;
    for (int i = 0; i < STATS_STRIPES; i++)
        sum += atomic_load_explicit(&stats->stripes[i].counts[counter], memory_order_relaxed);
    return sum;
}
