/* stack_depth.h - how much of a thread's stack a call of weir takes, from a painted stack; no timing is involved. */
#ifndef WEIR_TESTS_STACK_DEPTH_H
#define WEIR_TESTS_STACK_DEPTH_H

#include "support.h"

/* What weir.h promises. */
enum { STACK_SINGLE_MOST = 8 * 1024, STACK_GROUP_MOST = 16 * 1024 };

/* A sanitizer enlarges frames, and so does a build without optimisation. */
#if INSTRUMENTED || !defined(__OPTIMIZE__)
#define STACK_CAN_BE_MEASURED 0
#else
#define STACK_CAN_BE_MEASURED 1
#endif

/* Run `call` on a thread whose stack is painted, and return how many bytes below the caller it has touched. */
size_t stack_depth(void (*call)(void *argument), void *argument);

/* Run `call` on a thread with the smallest stack that the system allows, plus `more`, above a page that cannot be
 * touched. */
void stack_run_small(void (*call)(void *argument), void *argument, size_t more);

/* Fail the test unless the call keeps to `most` bytes. Prints what it takes. */
void assert_stack(const char *what, void (*call)(void *argument), void *argument, size_t most);

#endif
