/* errands.h - work that a limiter's own threads do for submitted requests, when it is due.
 *
 * weir_submit() must not block. Requests that the backend can decide only by blocking, and those that wait for a time,
 * become errands: a peek, a reset, a group, and each try of a WEIR_OP_ACQUIRE. An errand that waits costs memory and no
 * thread.
 * The threads start with the first errand: up to ERRANDS_THREADS of them if the backend can block, otherwise one.
 *
 *     weir_submit() -> errand -> heap, by time -> thread -> errand->run() -> `done`, or the heap again
 *
 * When the limiter is closed, every errand runs without further delay, and sees `is_closing`. The threads end when none
 * is left.
 */
#ifndef CORE_API_ERRANDS_H
#define CORE_API_ERRANDS_H

#include "core/api/line.h"
#include "core/api/rest.h"

#define ERRANDS_THREADS 4

struct acquire;

/* (e) errands->mutex, (c) constant */
struct errand {
    void (*run)(struct weir *limiter, struct errand *errand); /* (c) on a thread of the limiter, which holds no lock */
    int64_t due_us;                                           /* (e) on CLOCK_MONOTONIC */
    uint64_t number;                                          /* (e) of two that are due, the lower one runs first */
    size_t place;                                             /* (e) in the heap, from 1; 0: not there */
};

struct errands {
    struct lock mutex;
    pthread_cond_t changed;            /* CLOCK_MONOTONIC; the heap, or is_closing */
    struct errand **heap;              /* (e) from 1; the parent of i is i / 2 */
    size_t count, room;                /* (e) of the heap; room is at least `admitted` */
    size_t admitted;                   /* (e) errands that have not ended */
    uint64_t numbers;                  /* (e) given so far */
    unsigned threads, idle;            /* (e) */
    pthread_t thread[ERRANDS_THREADS]; /* (e) */
    bool is_closing;                   /* (e) */
    struct lines lines;                /* (e) */
    struct rests rests;                /* (e) */

    struct acquire *asked[LINE_BUCKETS]; /* (e) ops whose permits are asked for or taken, until `done` has run */
    uint64_t acquires;                   /* (e) submitted so far */
    unsigned looks;                      /* (e) denials so far after which a waiter asks again early */
};

/* Make limiter->errands. WEIR_OK or WEIR_ENOMEM. */
int errands_init(struct weir *limiter);

/* Free them. No thread is left. NULL is ignored. */
void errands_free(struct errands *errands);

/* In the child of a fork, which holds the mutex: forget the parent's errands and threads. */
void errands_begin_in_child(struct errands *errands);

/* The limiter is closing: wake all waiters. */
void errands_shut(struct weir *limiter, void (*wake)(struct line_waiter *waiter));

/* After the last errand has ended, wait for the threads. */
void errands_join(struct weir *limiter);

/* Make room for one errand more. WEIR_OK, WEIR_EFULL: WEIR_MAX_SUBMITTED have not ended, WEIR_ENOMEM, or WEIR_EIO: the
 * system has no thread left. */
int errands_admit(struct weir *limiter) REQUIRES(limiter->errands->mutex);

/* An errand that was admitted has ended. */
void errands_ended(struct weir *limiter) REQUIRES(limiter->errands->mutex);

/* Have an admitted errand run at `due_us`, or move one that waits to that time. */
void errands_put(struct weir *limiter, struct errand *errand, int64_t due_us) REQUIRES(limiter->errands->mutex);

#endif
