/* stats.c - gives each thread a stripe to count in.
 *
 * A thread holds its stripe by a robust mutex, which it never unlocks: the system marks the mutex when the thread has
 * died, and the next thread that tries it gets the stripe. A destructor of thread-specific data would come too early,
 * because later destructors may still count.
 */
#include "core/ground/stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static pthread_once_t stats_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t stripe_owners[STATS_SHARED_STRIPE];
static bool stripes_have_owners; /* written once, before any thread has a stripe */

_Thread_local unsigned stats_own_stripe;

static void stats_init_owners(void)
{
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes) != 0)
        return;
    bool are_made = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0;
    for (int i = 0; are_made && i < STATS_SHARED_STRIPE; i++)
        are_made = pthread_mutex_init(&stripe_owners[i], &attributes) == 0; /* fails if the kernel lacks them */
    pthread_mutexattr_destroy(&attributes);
    stripes_have_owners = are_made;
}

/* Take the stripe if no living thread has it. The mutex orders its sums from one owner to the next. */
static bool stripe_take(unsigned stripe)
{
    const int error = pthread_mutex_trylock(&stripe_owners[stripe]);
    if (error == EOWNERDEAD)
        pthread_mutex_consistent(&stripe_owners[stripe]);
    return error == 0 || error == EOWNERDEAD;
}

unsigned stats_take_stripe(void)
{
    unsigned stripe = STATS_SHARED_STRIPE;
    pthread_once(&stats_once, stats_init_owners);
    if (stripes_have_owners)
        for (stripe = 0; stripe < STATS_SHARED_STRIPE && !stripe_take(stripe); stripe++)
            ;
    stats_own_stripe = stripe + 1;
    return stripe;
}

void stats_begin_in_child(void)
{
    const unsigned stripe = stats_own_stripe - 1;
    if (stripes_have_owners)
        stats_init_owners();
    if (stripe >= STATS_SHARED_STRIPE)
        stats_own_stripe = 0; /* there is room now */
    else
        stripe_take(stripe);
}

uint64_t stats_sum(struct stats *stats, enum stats_counter counter)
{
    uint64_t sum = 0;
    for (int i = 0; i < STATS_STRIPES; i++)
        sum += atomic_load_explicit(&stats->stripes[i].counts[counter], memory_order_relaxed);
    return sum;
}
