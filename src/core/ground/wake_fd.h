/* wake_fd.h - a descriptor with which one thread wakes another that polls: a non-blocking eventfd.
 *
 * Once rung it is readable until it is drained, however often and by however many threads it was rung. A thread that
 * wakes drains it before it looks for work. Work that arrives later then rings again, so no ring is lost. Memory that a
 * thread wrote before its ring is visible after the drain that took the ring: the system passes both through one lock.
 *
 * Any thread may ring or drain while the descriptor is open; close() closes it.
 */
#ifndef CORE_GROUND_WAKE_FD_H
#define CORE_GROUND_WAKE_FD_H

#include "core/ground/cancel.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Return a descriptor, or -1 with errno. */
static inline int wake_fd_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/* Wake the thread that polls. EAGAIN means that the counter is full, which wakes it as well. */
static inline void wake_fd_ring(int fd)
{
    CANCEL_DISABLED;
    const uint64_t one = 1;
    ssize_t written;
    do
        written = write(fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
    assert(written == sizeof one || errno == EAGAIN);
}

/* Drain it; true if it has been rung since the last drain. */
static inline bool wake_fd_drain(int fd)
{
    CANCEL_DISABLED;
    uint64_t rings;
    ssize_t taken;
    do
        taken = read(fd, &rings, sizeof rings);
    while (taken < 0 && errno == EINTR);
    assert(taken == sizeof rings || errno == EAGAIN);
    return taken == sizeof rings;
}

#endif
