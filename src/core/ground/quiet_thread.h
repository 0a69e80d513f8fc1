/* quiet_thread.h - threads of the library's own, which no signal reaches: signals are the caller's. */
#ifndef CORE_GROUND_QUIET_THREAD_H
#define CORE_GROUND_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create(), with all signals blocked in the thread. 0, or an errno. */
static inline int quiet_thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *user),
                                     void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, attributes, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
