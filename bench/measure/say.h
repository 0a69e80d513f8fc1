/* say.h - what the benchmark says on stderr while it measures: progress, complaints, and the message that ends it. */
#ifndef BENCH_SAY_H
#define BENCH_SAY_H

#include <pthread.h>
#include <stddef.h>
#include <weir/weir.h>

/* Say how many steps are to come, in addition to those said before. */
void bench_steps(int more);

/* Begin a step, and show what is being measured: "step 3 of 12: ...". On a terminal the next call overwrites the line. */
__attribute__((format(printf, 1, 2))) void bench_step(const char *format, ...);

/* Show something else in the same step. */
__attribute__((format(printf, 1, 2))) void bench_progress(const char *format, ...);

/* Print a line that begins with "weir-bench: " and stays. */
__attribute__((format(printf, 1, 2))) void bench_say(const char *format, ...);

/* The same, and end the program with status 2. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_fail(const char *format, ...);

/* Fail if weir's function `what` returned an error. */
static inline void bench_require(int status, const char *what)
{
    if (status != WEIR_OK)
        bench_fail("%s: %s", what, weir_strerror(status));
}

/* Return `n` zeroed items of that size, which the caller frees. Fails without memory. */
void *bench_allocate(size_t n, size_t size);

/* Start a thread, or fail. */
void bench_thread(pthread_t *out, void *(*run)(void *argument), void *argument);

#endif
