/* forks.c - lets what has threads or locks live on in the child of a fork. */
#include "core/ground/forks.h"

#include "core/ground/lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

volatile unsigned forks_count; /* written in the child, while it has one thread */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct lock lock = { PTHREAD_MUTEX_INITIALIZER }; /* of what follows, held while the process forks */
static bool is_ready;                                    /* the system tells of forks */
static struct forks_watcher *watchers;

static void tell(enum forks_moment moment)
{
    for (struct forks_watcher *watcher = watchers; watcher; watcher = watcher->next)
        watcher->told(watcher, moment);
}

static void before(void) UNCHECKED
{
    lock_take(&lock);
    tell(FORKS_BEFORE);
}

static void in_parent(void) UNCHECKED
{
    tell(FORKS_IN_PARENT);
    lock_give(&lock);
}

static void in_child(void) UNCHECKED
{
    forks_count++;
    is_ready = true; /* it is told, even if who arranged that had not come to say so */
    tell(FORKS_IN_CHILD);
    lock_give(&lock);
}

/* The first time without the lock: nobody is told yet, so a child that is forked meanwhile would never get it. (A
 * pthread_once_t begins anew there.) Who tries again holds it, which is left to chance: it takes a fork at the moment
 * at which memory is there again. */
static void begin(void)
{
    if (!is_ready)
        is_ready = pthread_atfork(before, in_parent, in_child) == 0;
}

int forks_ready(void)
{
    pthread_once(&once, begin);
    lock_take(&lock);
    begin(); /* there may be memory by now */
    const int result = is_ready ? 0 : -1;
    lock_give(&lock);
    return result;
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
