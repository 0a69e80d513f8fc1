/* waiter.h - jobs, the waiters that bring them to the I/O thread, and the queue in between.
 *
 *     a caller's requests -> job -> lane, or waiter -> queue -> I/O thread -> flight
 *     an op               ->              waiter -> queue -> I/O thread -> flight
 */
#ifndef BACKENDS_REDIS_ENGINE_WAITER_H
#define BACKENDS_REDIS_ENGINE_WAITER_H

#include "backends/redis/flight/flight.h"
#include "backends/redis/flight/redirect.h"
#include "core/ground/wake_fd.h"

#include <stdatomic.h>

struct redis_engine;

/* The requests that a caller hands in together, and their outcome. */
struct redis_job {
    const struct weir_backend_request *requests;
    size_t n;
    bool all, asking; /* all: all or nothing; asking: ASKING must precede its calls */
    int64_t deadline_us;
    struct weir_decision *out;
    int error; /* the first error of any request; for a single request or all or nothing also a positive status of
                * redis_request_ended */
    struct redis_redirect *redirect; /* receives the redirect that comes with such a status; NULL outside a cluster */
    struct redis_engine *engine;     /* whose lane runs the job */
};

/* In a cluster, the source of one decision among several independent ones that another node must make. */
#define REDIS_ELSEWHERE (WEIR_BY_NOBODY - 1)

/* Note how a request of the job has ended. */
void redis_job_ended(struct redis_job *job, struct redis_flight_request *aboard, int status,
                     const struct redis_redirect *redirect);

/* ---- Waiters ---- */

enum redis_waiter_kind { REDIS_WAITER_THREAD, REDIS_WAITER_OP };

/* Anything that waits for the I/O thread: the first member of the struct that `kind` names. */
struct redis_waiter {
    struct redis_waiter *next; /* in the queue */
    int64_t deadline_us;
    /* The rest of an op's request; a thread has its job. An op has no room for these elsewhere. */
    int64_t ahead;
    uint32_t limit_id;
    uint16_t spread;     /* at most WEIR_MAX_SPREAD */
    uint8_t hops;        /* how many redirects the request has followed */
    uint8_t kind : 1;    /* enum redis_waiter_kind */
    uint8_t asking : 1;  /* ASKING must precede the next call */
    uint8_t returns : 1; /* WEIR_REFUND with `ahead`, which is in redis_op_waiter.now_us; unless
                          * redis_op_has_since() */
    uint8_t asks : 1;    /* how long its key lay idle; cold_left is in the op's reservation */
    uint8_t verb : 3;
} __attribute__((may_alias));

/* A thread in redis_engine_decide(), on its stack. */
struct redis_thread_waiter {
    struct redis_waiter waiter;
    struct redis_job *job;
    size_t left;      /* requests that have not ended */
    unsigned bell;    /* the one that wakes it */
    atomic_bool done; /* release: the job and its decisions; the waiter may be gone from then on */
};

/* A submitted request, in those words of its op that are the backend's. The op itself has the limit and the key. */
struct redis_op_waiter {
    struct redis_waiter waiter;
    uint64_t hash;
    int64_t now_us, cost;
} __attribute__((may_alias));
_Static_assert(sizeof(struct redis_op_waiter) <= 7 * sizeof(uint64_t), "it fits the words of an op");

/* True if `ahead` of an op's request is in its reservation: of a settlement or a renewal. */
bool redis_op_has_since(const struct weir_op *op, uint8_t verb);

struct redis_op_waiter *redis_waiter_in_op(struct weir_op *op);
struct weir_op *redis_waiter_op(struct redis_op_waiter *waiter);

/* Return the request that the op submitted. */
struct weir_backend_request redis_waiter_request(struct redis_op_waiter *waiter);

/* ---- The queue ---- */

struct redis_queue {
    int wake_fd;                           /* constant; wakes the I/O thread */
    _Atomic(struct redis_waiter *) newest; /* each leads to the one before it */
    atomic_bool asleep;                    /* the I/O thread sleeps, or is about to */
};

/* Hand a waiter over to the I/O thread: WEIR_OK or WEIR_ECLOSED. */
int redis_queue_put(struct redis_queue *queue, struct redis_waiter *waiter);

/* Return all waiters, oldest first. `last`: later ones get WEIR_ECLOSED. */
struct redis_waiter *redis_queue_take(struct redis_queue *queue, bool last);

/* Wake the I/O thread, whatever it waits for. */
static inline void redis_queue_wake(struct redis_queue *queue)
{
    wake_fd_ring(queue->wake_fd);
}

#endif
