/* line.h - the lines of callers that wait for permits: one for each key, first come first served.
 *
 * A waiter is a thread in weir_acquire() or a submitted WEIR_OP_ACQUIRE. It joins the line of its key before it asks
 * for permits. While no waiter of a line has been denied, waiters may ask at the same time, provided that each asks for
 * at least as much as those before it. Then no later one can be admitted instead of an earlier one. After the first
 * denial only the first of the line asks.
 *
 * A waiter belongs to its owner, who removes it before it goes. The mutex of struct errands guards all of this.
 */
#ifndef CORE_API_LINE_H
#define CORE_API_LINE_H

#include "core/limiter/limiter.h"

#define LINE_BUCKETS 256 /* a power of two */

struct line_waiter {
    struct weir_limit *limit; /* not an override */
    struct weir_key key;
    uint64_t hash; /* of the key */
    int64_t cost;
    int64_t end_us;  /* on CLOCK_MONOTONIC: when it gives up */
    int64_t due_us;  /* of a first one that was denied: when its permits will be there; else 0 */
    int64_t look_us; /* the same: when it asks again, which may be earlier */
    bool is_first;
    struct line_waiter *before, *next; /* in its line */

    /* Of the whole line; only the first one's are valid. */
    struct line_waiter *next_line; /* in the bucket */
    struct line_waiter *last;
    int64_t most;   /* the largest requested cost */
    bool is_held;   /* a waiter was denied, and waits */
    bool is_closed; /* who joins must not ask before it is the first */
    bool is_freed;  /* permits have come back since the first began to ask: if it is denied, it asks again */
};

struct lines {
    struct line_waiter *buckets[LINE_BUCKETS]; /* the first of each line */
    _Atomic size_t count;                      /* of waiters; may be read without the mutex */
};

/* Join the line of its key. The first six fields are set. Return true if it may ask now. */
bool line_join(struct lines *lines, struct line_waiter *waiter);

/* Return the first waiter of a waiter's line, or NULL if there is no such line. The waiter may have left. */
struct line_waiter *line_first(struct lines *lines, const struct line_waiter *waiter);

/* A waiter has been denied until `due_us`. It waits for its turn and, if it is the first, until `look_us`. */
void line_denied(struct lines *lines, struct line_waiter *waiter, int64_t due_us, int64_t look_us);

/* The first of a line is about to ask. Permits that come back from now on may be too late for its request. */
void line_asks(struct lines *lines, const struct line_waiter *waiter);

/* Permits have come back. Return the first waiter of that line, which may now ask, or NULL. */
struct line_waiter *line_freed(struct lines *lines, const struct line_waiter *like);

/* Leave the line. Return the waiter that has become its first one, or NULL. */
struct line_waiter *line_leave(struct lines *lines, struct line_waiter *waiter);

#endif
