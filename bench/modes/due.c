/* due.c - requests that come when they come: see due.h. */
#include "modes/due.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <time.h>

#include "measure/keys.h"
#include "measure/timer.h"

double due_gap_ns(uint64_t *random, double per_second)
{
    return -log1p(-random_fraction(random)) * 1e9 / per_second;
}

int64_t due_wait(int64_t due_ns)
{
    static _Thread_local bool is_prompt;
    struct timespec until = { .tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000 };
    if (!is_prompt)
        prctl(PR_SET_TIMERSLACK, 1); /* the system may wake a thread 50 us late otherwise, to save power */
    is_prompt = true;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
    return clock_ns(CLOCK_MONOTONIC);
}
