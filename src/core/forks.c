/* forks.c - notices that this process is the child of a fork. */
#include "core/forks.h"

#include <pthread.h>

volatile unsigned forks_count; /* written in the child, while it has one thread */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    forks_count++;
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void forks_watch(void)
{
    pthread_once(&once, watch);
}
