/* acquire_turn.h - one caller that waits for permits: its turns to ask, and its place in the line. Used by acquire.c
 * for threads and by acquire_op.c for submitted requests. */
#ifndef CORE_API_ACQUIRE_TURN_H
#define CORE_API_ACQUIRE_TURN_H

#include "core/api/errands.h"

/* A thread in weir_acquire(), on its stack; or the errand of an op. (e) errands->mutex, (o) the owner's alone, (c) constant */
struct acquire {
    struct line_waiter at;               /* (e) */
    pthread_cond_t turn;                 /* a thread's: it is the first now, or the limiter is closing */
    struct errand errand;                /* (e) an op's */
    struct weir_op *op;                  /* (o) NULL: a thread's */
    uint64_t number;                     /* (c) an op's: of two, the lower one was submitted first */
    struct acquire *next_asked;          /* (e) an op's: in errands->asked */
    bool is_asked;                       /* (e) it is there */
    bool is_admitted;                    /* (e) it has its permits, and only `done` is left to run */
    bool is_ending;                      /* (e) `done` is being run */
    bool is_cancelled;                   /* (e) by weir_cancel() */
    bool may_ask;                        /* (o) now, without being the first */
    bool has_stayed;                     /* (o) acquire_stays() has returned true */
    bool hopes;                          /* (o) acquire_hopes(); set before it joins its line */
    bool is_served;                      /* (o) the permits are taken; only the delay is left to wait for */
    int status;                          /* (o) with it, the result */
    struct weir_decision decision;       /* (o) */
    bool reserves;                       /* (c) the caller gets a reservation */
    struct weir_reservation reservation; /* (o) of the last request, when it was charged */
    struct weir_backend_request request; /* (o) the last one */
};

enum acquire_outcome {
    ACQUIRE_OVER,  /* status and decision are the result */
    ACQUIRE_AGAIN, /* denied: ask again at *due_us */
    ACQUIRE_DELAY  /* admitted, to go ahead at *due_us */
};

void acquire_fill(struct acquire *acquire, const struct weir_request *request, int64_t max_wait_us);

/* Ask for the permits once. The caller holds no mutex. */
enum acquire_outcome acquire_ask(struct weir *limiter, struct acquire *acquire, int64_t *due_us);

/* Wait in line after a denial until `due_us`, or until it is time to see what other processes have done. */
void acquire_denied(struct weir *limiter, struct acquire *acquire, int64_t due_us) REQUIRES(limiter->errands->mutex);

/* Deny a waiter whose time is over or, because the first of its line must wait for too long, would be. True: the first
 * has been denied by what no longer holds. It asks again, and this waiter stays. Otherwise it has left the line. */
bool acquire_stays(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex);

/* Refund the permits of the last request, except those that have come back by themselves since. If that fails they stay
 * used. Returns the refund's error and overwrites the decision. */
int acquire_give_back(struct weir *limiter, struct acquire *acquire);

/* True if permits of the key come back earlier than denials say: a release is not foreseen. */
bool acquire_hopes(const struct line_waiter *at);

/* True if it may ask now. */
bool acquire_is_due(const struct acquire *acquire, int64_t now_us);

/* Return when a waiter that may not ask must look again: it then may, or its time is over. */
int64_t acquire_due_us(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex);

/* Leave the line. The next waiter looks whether it may ask. */
void acquire_leave(struct weir *limiter, struct acquire *acquire) REQUIRES(limiter->errands->mutex);

#endif
