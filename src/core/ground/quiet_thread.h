/* quiet_thread.h - starts threads of the library, which block all signals: signals belong to the caller. */
#ifndef CORE_GROUND_QUIET_THREAD_H
#define CORE_GROUND_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Call pthread_create() with all signals blocked in the new thread. Return 0 or an errno. */
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
