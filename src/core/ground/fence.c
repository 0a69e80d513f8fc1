/* fence.c - membarrier(2). */
#include "core/ground/fence.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_UNSEEN_NS 10000000

static bool barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool fence_ready(void)
{
    return barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

/* It was registered for, but may have been forbidden since (seccomp): then a time that is long against what a processor
 * takes to make a store seen. */
void fence_all(void)
{
    struct timespec left = { .tv_nsec = PAUSE_UNSEEN_NS };
    if (barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) /* a signal must not make it short */
        ;
}
