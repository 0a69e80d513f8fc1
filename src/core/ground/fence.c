/* fence.c - membarrier(2). */
#include "core/ground/fence.h"

#include "core/ground/cancel.h"

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

/* The system may have forbidden the call since it was registered (seccomp). Then wait far longer than a processor takes
 * to make a store visible. */
void fence_all(void)
{
    struct timespec left = { .tv_nsec = PAUSE_UNSEEN_NS };
    if (barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return;
    CANCEL_DISABLED;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) /* a signal must not shorten the wait */
        ;
}
