/* forks.h - keeps objects with threads or locks working in the child of a fork.
 *
 * Threads do not exist in the child, and what they have locked or begun is left as it was. A watcher is called before
 * the fork, when it can take its locks so that no thread is halfway through what they guard, and on both sides after
 * it.
 */
#ifndef CORE_GROUND_FORKS_H
#define CORE_GROUND_FORKS_H

enum forks_moment {
    FORKS_BEFORE,    /* in the thread that forks; all watchers are called, in no order, before the next moment */
    FORKS_IN_PARENT, /* in the same thread */
    FORKS_IN_CHILD   /* in the child's only thread */
};

struct forks_watcher {
    void (*told)(struct forks_watcher *watcher, enum forks_moment moment);
    struct forks_watcher *next, **link; /* forks.c's */
};

/* Register with the system. 0, or -1 if it has no memory for that: a child would then use what is its parent's. */
int forks_ready(void);

/* Any thread, but not from told(). forks_ready() must have succeeded, or no watcher is ever called. */
void forks_watch(struct forks_watcher *watcher);
void forks_forget(struct forks_watcher *watcher);

/* Keep this process from forking between the two. For a step whose half no child may inherit, and which does not block:
 * open a file, and note its descriptor where a watcher finds it. Cancellation is disabled. Not from told(). */
void forks_hold(void);
void forks_release(void);

/* The number of forks between this process and the one that had the first watcher. A limiter that can block watches. */
extern volatile unsigned forks_count __attribute__((visibility("hidden")));

#endif
