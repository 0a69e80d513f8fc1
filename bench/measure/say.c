/* say.c - what the benchmark says on stderr while it measures: see say.h. */
#include "measure/say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "measure/timer.h"

static bool has_line; /* a line of progress stands on the terminal */

static int step, steps;

__attribute__((format(printf, 1, 0))) static void show(const char *format, va_list arguments)
{
    static int64_t start_ns;
    char line[120], of[40] = "";
    const int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    start_ns = start_ns ? start_ns : now_ns;
    has_line = isatty(STDERR_FILENO);
    vsnprintf(line, sizeof line, format, arguments);
    if (step > 0)
        snprintf(of, sizeof of, "step %d of %d: ", step, step > steps ? step : steps);
    fprintf(stderr, has_line ? "\r%4.0f s  %s%-60.60s" : "%4.0f s  %s%s\n", (double)(now_ns - start_ns) / 1e9, of,
            line);
}

void bench_steps(int more)
{
    steps += more;
}

void bench_step(const char *format, ...)
{
    va_list arguments;
    step++;
    va_start(arguments, format);
    show(format, arguments);
    va_end(arguments);
}

void bench_progress(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    show(format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 1, 0))) static void say_line(const char *format, va_list arguments)
{
    fputs(has_line ? "\nweir-bench: " : "weir-bench: ", stderr);
    has_line = false;
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void bench_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
}

void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
    exit(2);
}

void *bench_allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    if (!memory)
        bench_fail("no memory for %zu times %zu bytes", n, size);
    return memory;
}

void bench_thread(pthread_t *out, void *(*run)(void *argument), void *argument)
{
    if (pthread_create(out, NULL, run, argument) != 0)
        bench_fail("cannot start threads");
}
