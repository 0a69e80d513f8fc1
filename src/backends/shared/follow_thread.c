/* follow_thread.c - the thread of a source that is followed. */
#include "backends/shared/follow_thread.h"

#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"
#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <weir/weir.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void close_both(struct follow_thread *thread)
{
    if (thread->wake_fd >= 0)
        close(thread->wake_fd);
    if (thread->timer_fd >= 0)
        close(thread->timer_fd);
    thread->wake_fd = thread->timer_fd = -1;
}

int follow_thread_start(struct follow_thread *thread, void *(*run)(void *user), void *user)
{
    thread->wake_fd = wake_fd_open();
    thread->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    thread->forks = forks_count;
    atomic_init(&thread->ends, false);
    if (thread->wake_fd < 0 || thread->timer_fd < 0) {
        close_both(thread);
        return WEIR_EIO;
    }
    if (quiet_thread_start(&thread->thread, NULL, run, user) != 0) {
        close_both(thread);
        return WEIR_EIO;
    }
    return WEIR_OK;
}

/* A thread cannot wait for its own end, and to go on would be to use what weir_close() has freed. The program is wrong,
 * and there is nobody else to tell: the log hook may be what called. */
static void not_by_itself(const struct follow_thread *thread)
{
    if (!pthread_equal(thread->thread, pthread_self()))
        return;
    fputs("weir: weir_close() was called from the log hook or from weir_peers.list, on a thread that it waits for\n",
          stderr);
    abort();
}

bool follow_thread_end(struct follow_thread *thread)
{
    const bool is_here = thread->forks == forks_count;
    if (is_here) {
        not_by_itself(thread);
        atomic_store_explicit(&thread->ends, true, memory_order_release);
        wake_fd_ring(thread->wake_fd);
        pthread_join(thread->thread, NULL);
    }
    close_both(thread);
    return is_here;
}

void follow_thread_abandon(struct follow_thread *thread)
{
    close_both(thread);
}

void follow_thread_time(struct follow_thread *thread, int64_t due_us)
{
    /* All zero would stop the timer: what was due long ago is due at 1 us. */
    struct itimerspec due = { .it_value = clock_timespec(max_of(1, due_us)) };
    if (due_us == INT64_MAX)
        due = (struct itimerspec){ 0 };
    timerfd_settime(thread->timer_fd, TFD_TIMER_ABSTIME, &due, NULL); /* makes it unreadable until then */
}

void follow_thread_wait(struct follow_thread *thread, int fd, int64_t due_us)
{
    follow_thread_time(thread, due_us);
    struct pollfd fds[] = {
        { .fd = thread->wake_fd, .events = POLLIN },
        { .fd = thread->timer_fd, .events = POLLIN },
        { .fd = fd, .events = POLLIN },
    };
    poll(fds, sizeof fds / sizeof fds[0], -1); /* no signal comes here, and who is woken early asks again */
}
