/* forks.h - lets what has threads or locks live on in the child of a fork.
 *
 * Threads, and what they have locked or begun, do not follow into a child. Who watches is told before the fork, when it
 * can take its locks so that nobody is half-way through what they guard, and after it on both sides.
 */
#ifndef CORE_GROUND_FORKS_H
#define CORE_GROUND_FORKS_H

enum forks_moment {
    FORKS_BEFORE,    /* in the thread that forks; all watchers are told, in no order, before the next moment */
    FORKS_IN_PARENT, /* in the same thread */
    FORKS_IN_CHILD   /* in the child's only thread */
};

struct forks_watcher {
    void (*told)(struct forks_watcher *watcher, enum forks_moment moment);
    struct forks_watcher *next, **link; /* forks.c's */
};

/* 0, or -1: there is no memory for the system to tell of forks, and a child would go by what is its parent's. */
int forks_ready(void);

/* Any thread, but not from told(). Nobody is told who was not ready. */
void forks_watch(struct forks_watcher *watcher);
void forks_forget(struct forks_watcher *watcher);

/* How many forks lie between this process and the one that first had a watcher. A limiter that can block watches. */
extern volatile unsigned forks_count __attribute__((visibility("hidden")));

#endif
