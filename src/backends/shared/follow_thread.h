/* follow_thread.h - the thread of a source that is followed: asleep until something comes, is due, or the limiter ends.
 *
 * All signals are blocked in it. Times are on CLOCK_BOOTTIME, so that what must not get too old does not do so while
 * the system sleeps.
 */
#ifndef BACKENDS_SHARED_FOLLOW_THREAD_H
#define BACKENDS_SHARED_FOLLOW_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* (c) constant once started, (a) atomic */
struct follow_thread {
    pthread_t thread; /* (c) */
    int wake_fd;      /* (c) readable when the thread is to end: for those who poll by themselves */
    int timer_fd;     /* (c) the thread's own; both are -1 in a child of fork() */
    unsigned forks;   /* (c) forks_count when it was started */
    atomic_bool ends; /* (a) */
};

/* WEIR_OK, or WEIR_EIO: no thread or no descriptor to be had. */
int follow_thread_start(struct follow_thread *thread, void *(*run)(void *user), void *user);

/* Let run() know, and wait until it has returned; never by that thread, which ends the program with a sentence. False
 * in a child of fork(), where nothing was waited for and what the thread was doing is half-way. */
bool follow_thread_end(struct follow_thread *thread);

/* In a child of fork(), before anything else is opened there: close what was the parent's. follow_thread_end() comes
 * later. */
void follow_thread_abandon(struct follow_thread *thread);

static inline bool follow_thread_ends(struct follow_thread *thread)
{
    return atomic_load_explicit(&thread->ends, memory_order_acquire);
}

/* When to ask again what is asked every `poll_us` and was to be asked at `ask_us`: so often, however long an answer
 * takes, but with no haste to make up for turns that were missed. */
static inline int64_t follow_thread_next_us(int64_t ask_us, int64_t poll_us, int64_t now_us)
{
    return (ask_us + poll_us > now_us ? ask_us : now_us) + poll_us;
}

/* Make timer_fd readable when `due_us` on CLOCK_BOOTTIME has come, and not before: for those who poll by themselves. */
void follow_thread_time(struct follow_thread *thread, int64_t due_us);

/* Until `fd` (-1: none) is readable, `due_us` on CLOCK_BOOTTIME has come, or the thread is to end. */
void follow_thread_wait(struct follow_thread *thread, int fd, int64_t due_us);

#endif
