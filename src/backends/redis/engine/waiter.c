/* waiter.c - jobs, the waiters that bring them to the I/O thread, and the queue in between. */
#include "backends/redis/engine/waiter.h"

#include "core/limiter/limiter.h"

#include <stddef.h>

void redis_job_ended(struct redis_job *job, struct redis_flight_request *aboard, int status,
                     const struct redis_redirect *redirect)
{
    if (status > 0 && job->n > 1 && !job->all) {
        aboard->out->source = REDIS_ELSEWHERE;
        return;
    }
    if (status == WEIR_OK || job->error != WEIR_OK)
        return;
    job->error = status;
    if (redirect && job->redirect)
        *job->redirect = *redirect;
}

bool redis_op_has_since(const struct weir_op *op, uint8_t verb)
{
    return verb == WEIR_RENEW || (verb == WEIR_REFUND && op->verb == WEIR_OP_SETTLE);
}

struct redis_op_waiter *redis_waiter_in_op(struct weir_op *op)
{
    return (struct redis_op_waiter *)(void *)&op->opaque[2];
}

struct weir_op *redis_waiter_op(struct redis_op_waiter *waiter)
{
    return (struct weir_op *)((char *)waiter - offsetof(struct weir_op, opaque[2]));
}

struct weir_backend_request redis_waiter_request(struct redis_op_waiter *waiter)
{
    struct weir_op *op = redis_waiter_op(waiter);
    const uint8_t verb = waiter->waiter.verb;
    const uint64_t slot = op->verb == WEIR_OP_SETTLE && verb == WEIR_CHARGE ? slot_beyond(op->reservation.id)
                                                                            : op->reservation.id;
    const bool returns = waiter->waiter.returns, has_since = redis_op_has_since(op, verb) && !slot;
    return (struct weir_backend_request){
        .limit = op->request.limit,
        .key = op->request.key,
        .hash = waiter->hash,
        .cost = waiter->cost,
        .now_us = returns ? WEIR_OWN_CLOCK : waiter->now_us,
        .cold_since_us = -1,
        .cold_left = waiter->waiter.asks ? op->reservation.at_us : 0,
        .ahead = returns     ? waiter->now_us
                 : has_since ? op->reservation.at_us
                             : waiter->waiter.ahead,
        .limit_id = waiter->waiter.limit_id,
        .spread = waiter->waiter.spread,
        .verb = verb,
        .slot = slot,
        .reservation = op->verb == WEIR_OP_RESERVE || op->verb == WEIR_OP_RENEW ? &op->reservation : NULL,
    };
}

/* ---- The queue ---- */

/* Marks a queue that has been taken for the last time. */
static struct redis_waiter queue_closed;

/* Sequentially consistent, here and where the I/O thread goes to sleep: either that thread sees this waiter, or this
 * thread sees it asleep. */
int redis_queue_put(struct redis_queue *queue, struct redis_waiter *waiter)
{
    struct redis_waiter *newest = atomic_load_explicit(&queue->newest, memory_order_relaxed);
    do {
        if (newest == &queue_closed)
            return WEIR_ECLOSED;
        waiter->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&queue->newest, &newest, waiter, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (atomic_load_explicit(&queue->asleep, memory_order_seq_cst) &&
        atomic_exchange_explicit(&queue->asleep, false, memory_order_seq_cst))
        redis_queue_wake(queue);
    return WEIR_OK;
}

struct redis_waiter *redis_queue_take(struct redis_queue *queue, bool last)
{
    struct redis_waiter *newest = atomic_exchange_explicit(&queue->newest, last ? &queue_closed : NULL,
                                                           memory_order_seq_cst);
    struct redis_waiter *oldest = NULL;
    while (newest && newest != &queue_closed) {
        struct redis_waiter *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}
