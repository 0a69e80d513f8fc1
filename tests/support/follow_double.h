/* follow_double.h - stands in for core/follow/follow.c and writes down what a source tells a limiter.
 *
 * Link with FOLLOW_DOUBLE_WRAPS (tests/CMakeLists.txt). Each report is kept as a line of text:
 *
 *     peers self=a: b=1 a=3
 *     policies: api=token_bucket limit=100 period=1s; api/10.* !a reason (Consul's weir/api/10.*)
 *     confirmed
 *     failed: a sentence
 */
#ifndef WEIR_TESTS_FOLLOW_DOUBLE_H
#define WEIR_TESTS_FOLLOW_DOUBLE_H

#include "core/follow/follow.h"

struct told {
    int64_t at_us; /* CLOCK_MONOTONIC */
    enum weir_followed what;
    char text[1024];
};

/* Forget all. */
void told_reset(void);

/* How many texts of `what` begin so, and the `i`th of them from 0 (fails the test if there is none). */
int told_count(enum weir_followed what, const char *beginning);
struct told told_at(enum weir_followed what, const char *beginning, int i);

/* Wait for `n` of them, and return the last. Fail the test after 20 s. */
struct told told_await(enum weir_followed what, const char *beginning, int n);

/* Whether any text holds this. */
bool told_anywhere(const char *text);

/* Let memory run out for the next `times` lists of policies, which reports "failed: out of memory". */
void told_lack_memory(int times);

/* The follower that was added, NULL: none. */
struct follower *told_follower(void);

#endif
