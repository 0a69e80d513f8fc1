/* forks.c - keeps objects with threads or locks working in the child of a fork. */
#include "core/ground/forks.h"

#include "core/ground/cancel.h"
#include "core/ground/lock.h"
#include "core/ground/stats.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

volatile unsigned forks_count; /* written in the child, while it has one thread */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct lock lock = { PTHREAD_MUTEX_INITIALIZER }; /* guards what follows; held while the process forks */
static bool is_ready;                                    /* the system calls the handlers below */
static struct forks_watcher *watchers;
static int cancel_before_fork; /* the forking thread's, see cancel.h */

static void forks_tell(enum forks_moment moment)
{
    for (struct forks_watcher *watcher = watchers; watcher; watcher = watcher->next)
        watcher->told(watcher, moment);
}

static void before(void) UNCHECKED
{
    const int cancel_before = cancel_disable(true);
    lock_take(&lock);
    cancel_before_fork = cancel_before;
    forks_tell(FORKS_BEFORE);
}

static void forks_end(void) UNCHECKED
{
    const int cancel_before = cancel_before_fork;
    lock_give(&lock);
    cancel_restore(&cancel_before);
}

static void in_parent(void) UNCHECKED
{
    forks_tell(FORKS_IN_PARENT);
    forks_end();
}

static void in_child(void) UNCHECKED
{
    forks_count++;
    is_ready =
        true; /* the handlers were called, so they are registered, even if the registering thread had not noted it */
    stats_begin_in_child();
    forks_tell(FORKS_IN_CHILD);
    forks_end();
}

/* Register the handlers. The first time, the lock is not held: the handlers do not run yet, so a child that is forked
 * in between could never release it. (The child begins its pthread_once_t anew.) A later attempt holds the lock, and
 * would leave it locked in a child forked during the call; that takes a fork at the moment at which memory becomes
 * available again. */
static void forks_register(void)
{
    if (!is_ready)
        is_ready = pthread_atfork(before, in_parent, in_child) == 0;
}

int forks_ready(void)
{
    pthread_once(&once, forks_register);
    lock_take(&lock);
    forks_register(); /* memory may be available now */
    const int result = is_ready ? 0 : -1;
    lock_give(&lock);
    return result;
}

void forks_hold(void) UNCHECKED
{
    lock_take(&lock);
}

void forks_release(void) UNCHECKED
{
    lock_give(&lock);
}

void forks_watch(struct forks_watcher *watcher)
{
    forks_ready();
    lock_take(&lock);
    watcher->next = watchers;
    watcher->link = &watchers;
    if (watchers)
        watchers->link = &watcher->next;
    watchers = watcher;
    lock_give(&lock);
}

void forks_forget(struct forks_watcher *watcher)
{
    lock_take(&lock);
    *watcher->link = watcher->next;
    if (watcher->next)
        watcher->next->link = watcher->link;
    lock_give(&lock);
}
