/* lock.h - a pthread mutex that clang's thread-safety analysis knows.
 *
 * A function that needs a lock says so with REQUIRES(). clang (the preset of that name) refuses a call without the
 * lock, a lock that is taken twice, and one that is not released. gcc sees plain pthread calls.
 */
#ifndef CORE_GROUND_LOCK_H
#define CORE_GROUND_LOCK_H

#include <pthread.h>
#include <time.h>

#ifdef __clang__
#define LOCK_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define LOCK_ATTRIBUTE(attribute)
#endif

#define REQUIRES(...) LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TAKES(...) LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define GIVES(...) LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))
#define UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis) /* with the reason beside it */

struct LOCK_ATTRIBUTE(capability("mutex")) lock {
    pthread_mutex_t mutex;
};

static inline void lock_init(struct lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL); /* cannot fail with default attributes on Linux */
}

/* Make a condition whose waits end on CLOCK_MONOTONIC. 0, or -1 without memory. */
static inline int lock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return -1;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed ? -1 : 0;
}

static inline void lock_destroy(struct lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void lock_take(struct lock *lock) TAKES(*lock) UNCHECKED
{
    pthread_mutex_lock(&lock->mutex);
}

static inline void lock_give(struct lock *lock) GIVES(*lock) UNCHECKED
{
    pthread_mutex_unlock(&lock->mutex);
}

#endif
