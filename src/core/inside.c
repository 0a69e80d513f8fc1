/* inside.c - closes a limiter to those outside, and waits for those inside. */
#include "core/inside.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_LEAST_NS 20000
#define PAUSE_MOST_NS 1000000
#define PAUSE_UNSEEN_NS 10000000

static bool barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void inside_init(struct weir *limiter)
{
    limiter->fences = !barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    for (int i = 0; i < STATS_STRIPES; i++)
        atomic_store_explicit(&limiter->stats.stripes[i].inside, 0, memory_order_relaxed);
}

void inside_shut(struct weir *limiter)
{
    atomic_store(&limiter->is_shut, true);
    if (!limiter->fences) {
        /* It was registered for, but may have been forbidden since (seccomp): then a time that is long against what a
         * processor takes to make a store seen. */
        if (!barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_UNSEEN_NS }, NULL);
    }
}

/* Who leaves is taken off one stripe, and who entered may be on another that was looked at before: the sum is never too
 * small, for nobody enters any more. */
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
