/* timer.c - sleeping until a time: see timer.h. */
#include "measure/timer.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>

int64_t due_wait(int64_t due_ns)
{
    static _Thread_local bool is_prompt;
    struct timespec until = { .tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000 };
    if (!is_prompt)
        prctl(PR_SET_TIMERSLACK, 1); /* otherwise the system may wake a thread 50 us late to save power */
    is_prompt = true;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
    return clock_ns(CLOCK_MONOTONIC);
}
