/* inside.c - closes a limiter to new calls, and waits for those inside. */
#include "core/limiter/inside.h"

#include "core/ground/fence.h"

#include <time.h>

#define PAUSE_LEAST_NS 20000
#define PAUSE_MOST_NS 1000000

void inside_init(struct weir *limiter)
{
    limiter->inside.needs_fences = !fence_ready();
    for (int i = 0; i < STATS_STRIPES; i++)
        atomic_store_explicit(&limiter->stats.stripes[i].inside, 0, memory_order_relaxed);
}

void inside_shut(struct weir *limiter)
{
    atomic_store(&limiter->inside.is_shut, true);
    if (!limiter->inside.needs_fences)
        fence_all();
}

/* A call may enter on one stripe and leave on another that this loop has already read. No call enters any more, so the
 * sum is never too small. */
uint64_t inside_sum(struct weir *limiter)
{
    uint64_t sum = 0;
    for (int i = 0; i < STATS_STRIPES; i++)
        sum += atomic_load(&limiter->stats.stripes[i].inside);
    return sum;
}

void inside_await_none(struct weir *limiter)
{
    struct timespec pause = { .tv_nsec = PAUSE_LEAST_NS };
    while (inside_sum(limiter) != 0) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_MOST_NS)
            pause.tv_nsec *= 2;
    }
}
