/* follow_thread.h - a source that a limiter follows, with its thread.
 *
 * The thread sleeps until something arrives or is due, or the limiter ends. All signals are blocked in it. Times
 * are on CLOCK_BOOTTIME, because a report keeps aging while the system sleeps. */
#ifndef BACKENDS_SHARED_FOLLOW_THREAD_H
#define BACKENDS_SHARED_FOLLOW_THREAD_H

#include "core/follow/follow.h"

#include <pthread.h>
#include <stdatomic.h>

/* The first member of a source's struct. (c) constant once started, (a) atomic */
struct follow_thread {
    struct follower follower;
    struct weir *limiter; /* (c) the source sets it, `destroy` and `abandon` */

    /* (c) Free the source. `ended` is false in a child of fork(): there is no thread, and its work is half done. */
    void (*destroy)(struct follow_thread *thread, bool ended);

    /* (c) NULL: none. In a child of fork(), before anything is opened there: close what the parent had open. */
    void (*abandon)(struct follow_thread *thread);

    pthread_t thread; /* (c) */
    int wake_fd;      /* (c) readable when the thread must end, for sources that poll themselves */
    int timer_fd;     /* (c) the thread's; in a child of fork() both are -1 */
    unsigned forks;   /* (c) forks_count at the start */
    atomic_bool ends; /* (a) */
};

/* Start the thread of a new source and add the source to its limiter. `error` is WEIR_OK, or the reason why the source
 * could not be made: with WEIR_EIO, errno says more. On an error the source is destroyed and a line with `what` is
 * logged. WEIR_OK; WEIR_EIO: no thread or descriptor is available; or `error`. */
int follow_thread_start(struct follow_thread *source, int error, const char *what, void *(*run)(void *source));

/* Log that `what` cannot be followed, and return `error`. `why` is NULL or says more than the error. */
int follow_thread_refuse(struct weir *limiter, const char *what, int error, const char *why);

static inline bool follow_thread_ends(struct follow_thread *thread)
{
    return atomic_load_explicit(&thread->ends, memory_order_acquire);
}

/* Return when to ask next, after a question that was due at `ask_us`: every `poll_us`, however long an answer takes;
 * missed turns are not made up for. */
static inline int64_t follow_thread_next_us(int64_t ask_us, int64_t poll_us, int64_t now_us)
{
    return (ask_us + poll_us > now_us ? ask_us : now_us) + poll_us;
}

/* Make timer_fd readable at `due_us`, and not before, for sources that poll themselves. */
void follow_thread_time(struct follow_thread *thread, int64_t due_us);

/* Wait until `fd` (-1: none) is readable, `due_us` has come, or the thread must end. */
void follow_thread_wait(struct follow_thread *thread, int fd, int64_t due_us);

#endif
