/* cancel.h - keeps a thread from being cancelled inside the library.
 *
 * pthread_cancel() ends a thread at its next cancellation point: a wait, or almost any system call. A thread that ended
 * inside weir would keep its locks, remain counted as inside a limiter and leave nodes on a dead stack. So no call of
 * weir is a cancellation point. A block that may reach one disables cancellation; a request to cancel then takes effect
 * at the caller's next cancellation point.
 *
 * The pair of calls costs two locked instructions, as much as a decision in memory. So it stands around waits and
 * system calls, not around each verb.
 */
#ifndef CORE_GROUND_CANCEL_H
#define CORE_GROUND_CANCEL_H

#include <pthread.h>
#include <stdbool.h>

#define CANCEL_UNTOUCHED (-1)

/* Disable cancellation if `needed`, and return what cancel_restore() takes. */
static inline int cancel_disable(bool needed)
{
    int before = CANCEL_UNTOUCHED;
    if (needed)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_restore(const int *before)
{
    if (*before != CANCEL_UNTOUCHED)
        pthread_setcancelstate(*before, NULL);
}

/* A declaration: cancellation is disabled from here to the end of the block. */
#define CANCEL_DISABLED CANCEL_DISABLED_IF(true)
#define CANCEL_DISABLED_IF(needed) \
    __attribute__((cleanup(cancel_restore), unused)) const int cancel_before = cancel_disable(needed)

#endif
