/* wake_fd.h - a descriptor by which one thread wakes another that polls: an eventfd, on which nothing blocks.
 *
 * Once rung it is readable, however often and by however many threads, until it is drained. Who is woken drains it
 * before he looks at what he was woken for: then what comes later rings again, and no ring is lost. What was written
 * before a ring is seen after the drain that took it, for the system passes both through one lock.
 *
 * Any thread may ring or drain as long as the descriptor is open; it is closed by close().
 */
#ifndef CORE_GROUND_WAKE_FD_H
#define CORE_GROUND_WAKE_FD_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -1, and errno: the system has none to give. */
static inline int wake_fd_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/* EAGAIN is a counter that is full: that wakes as well. */
static inline void wake_fd_ring(int fd)
{
    const uint64_t one = 1;
    ssize_t written;
    do
        written = write(fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
    assert(written == sizeof one || errno == EAGAIN);
}

/* Whether it had been rung since it was drained last. */
static inline bool wake_fd_drain(int fd)
{
    uint64_t rings;
    ssize_t taken;
    do
        taken = read(fd, &rings, sizeof rings);
    while (taken < 0 && errno == EINTR);
    assert(taken == sizeof rings || errno == EAGAIN);
    return taken == sizeof rings;
}

#endif
