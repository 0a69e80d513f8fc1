/* progress.c - a line on the terminal that shows how far a long task has got. */
#include "cli/replay/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define ROWS_BETWEEN_LOOKS 4096 /* between looks at the clock: a few milliseconds of work */
#define FEW_STEPS 1000          /* so few steps are long: each of them looks */

static int64_t clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void progress_start(struct progress *progress, bool is_wanted)
{
    *progress = (struct progress){ .is_on = is_wanted && isatty(STDERR_FILENO) };
    progress->next_us = clock_us() + 500000;
}

void progress_show(struct progress *progress, const char *what, size_t done, size_t total)
{
    const bool is_few = total > 0 && total < FEW_STEPS;
    if (!progress->is_on || (!is_few && done % ROWS_BETWEEN_LOOKS != 0))
        return;
    int64_t now_us = clock_us();
    if (now_us < progress->next_us)
        return;
    progress->next_us = now_us + 100000;
    progress->is_shown = true;
    if (total)
        fprintf(stderr, "\r%s: %zu %%\033[K", what, done * 100 / total);
    else
        fprintf(stderr, "\r%s: %zu rows\033[K", what, done);
}

void progress_clear(struct progress *progress)
{
    if (progress->is_shown)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}
