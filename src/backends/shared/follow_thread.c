/* follow_thread.c - starts, ends and times the thread of a source. */
#include "backends/shared/follow_thread.h"

#include "core/ground/arith.h"
#include "core/ground/clock.h"
#include "core/ground/forks.h"
#include "core/ground/quiet_thread.h"
#include "core/ground/wake_fd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void follow_thread_close(struct follow_thread *thread)
{
    if (thread->wake_fd >= 0)
        close(thread->wake_fd);
    if (thread->timer_fd >= 0)
        close(thread->timer_fd);
    thread->wake_fd = thread->timer_fd = -1;
}

/* A thread cannot wait for its own end, and returning would let it use what weir_close() has freed. The program is
 * wrong. The sentence goes to stderr because the log hook may be what called weir_close(). */
static void follow_thread_check_caller(const struct follow_thread *thread)
{
    if (!pthread_equal(thread->thread, pthread_self()))
        return;
    fputs("weir: weir_close() was called from the log hook or from weir_peers.list, on a thread that it waits for\n",
          stderr);
    abort();
}

static void follow_thread_end(struct follower *follower)
{
    struct follow_thread *thread = (struct follow_thread *)follower;
    const bool is_here = thread->forks == forks_count;
    if (is_here) {
        follow_thread_check_caller(thread);
        atomic_store_explicit(&thread->ends, true, memory_order_release);
        wake_fd_ring(thread->wake_fd);
        pthread_join(thread->thread, NULL);
    }
    follow_thread_close(thread);
    thread->destroy(thread, is_here);
}

static void follow_thread_abandon(struct follower *follower)
{
    struct follow_thread *thread = (struct follow_thread *)follower;
    follow_thread_close(thread);
    if (thread->abandon)
        thread->abandon(thread);
}

int follow_thread_refuse(struct weir *limiter, const char *what, int error, const char *why)
{
    log_line(&limiter->log, WEIR_LOG_ERROR, "%s cannot be followed: %s", what, why ? why : weir_strerror(error));
    return error;
}

int follow_thread_start(struct follow_thread *source, int error, const char *what, void *(*run)(void *source))
{
    struct weir *limiter = source->limiter;
    const char *why = error == WEIR_EIO ? strerror(errno) : NULL;
    source->follower = (struct follower){ .end = follow_thread_end, .abandon = follow_thread_abandon };
    source->wake_fd = source->timer_fd = -1;
    source->forks = forks_count;
    atomic_init(&source->ends, false);
    if (!error) {
        source->wake_fd = wake_fd_open();
        source->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
        if (source->wake_fd >= 0 && source->timer_fd >= 0 &&
            quiet_thread_start(&source->thread, NULL, run, source) == 0) {
            follow_add(limiter, &source->follower);
            return WEIR_OK;
        }
        error = WEIR_EIO;
        why = "no thread or file descriptor is available";
    }
    follow_thread_close(source);
    source->destroy(source, true);
    return follow_thread_refuse(limiter, what, error, why);
}

void follow_thread_time(struct follow_thread *thread, int64_t due_us)
{
    /* All zeros would stop the timer, so an overdue time becomes 1 us. */
    struct itimerspec due = { .it_value = clock_timespec(max_of(1, due_us)) };
    if (due_us == INT64_MAX)
        due = (struct itimerspec){ 0 };
    timerfd_settime(thread->timer_fd, TFD_TIMER_ABSTIME, &due, NULL); /* also makes it unreadable until then */
}

void follow_thread_wait(struct follow_thread *thread, int fd, int64_t due_us)
{
    follow_thread_time(thread, due_us);
    struct pollfd fds[] = {
        { .fd = thread->wake_fd, .events = POLLIN },
        { .fd = thread->timer_fd, .events = POLLIN },
        { .fd = fd, .events = POLLIN },
    };
    poll(fds, sizeof fds / sizeof fds[0], -1); /* no signal arrives here; a caller woken early waits again */
}
