/* returns_kept.c - refunds and settlements that give permits back while the backend is out of reach.
 *
 * A request whose answer is lost may have been executed, and must not be sent twice: that would create permits. So only
 * those are kept that were certainly not executed: the backend says beforehand that it is out of reach, or answers that
 * it refuses to write (WEIR_EIO_UNDONE). They are sent until they are executed or an answer is lost, one after the
 * other: the thread that delivers an answer sends the next. A permit that comes back late, or not at all, is one too few
 * for a while and never one too many.
 */
#include "core/outage/returns_kept.h"

#include "core/limiter/inside.h"
#include "core/limiter/request.h"

#include <stdlib.h>

#define KEPT_MOST 16384
#define REFUSED_MOST 64 /* after as many refusals in a row the rest waits for the next report, see returns_send() */

struct kept_return {
    struct weir_op op; /* the first member */
    struct kept_return *next;
    int64_t permits, since_us; /* since_us: when they were charged; 0: a plain refund */
    char key[];
};

static void kept_append(struct kept_returns *kept, struct kept_return *own)
{
    own->next = NULL;
    *kept->end = own;
    kept->end = &own->next;
    kept->count++;
}

static struct kept_return *kept_take(struct kept_returns *kept)
{
    struct kept_return *own = kept->first;
    if (!own)
        return NULL;
    kept->first = own->next;
    if (!kept->first)
        kept->end = &kept->first;
    kept->count--;
    return own;
}

void returns_init(struct kept_returns *kept)
{
    *kept = (struct kept_returns){ .end = &kept->first };
}

/* Not checked: a fork holds the mutex, or no other thread is left. */
void returns_drop(struct weir *limiter) UNCHECKED
{
    struct kept_returns *kept = &limiter->outage->kept;
    struct kept_return *own;
    while ((own = kept_take(kept)))
        free(own);
    kept->is_sending = false;
}

/* Return the limit by which a kept return finds its state again: a candidate's is a separate one. */
static struct weir_limit *returns_limit(struct weir_limit *limit)
{
    return limit->first ? limit : limit->of;
}

bool returns_keep(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out)
{
    if (!limiter->backend->ops->reachable_us || outage_is_in_reach(limiter, &request->key) ||
        !returns_keep_refused(limiter, request, out))
        return false;
    if (outage_is_in_reach(limiter, &request->key)) /* it has returned in the meantime */
        returns_send(limiter);
    return true;
}

bool returns_keep_refused(struct weir *limiter, const struct weir_backend_request *request, struct weir_decision *out)
{
    const struct weir_backend_ops *ops = limiter->backend->ops;
    if (request->slot || !limiter->outage->settle.is_on || !ops->submit || !ops->watch)
        return false;
    struct kept_return *own = malloc(sizeof *own + request->key.len);
    if (!own)
        return false;
    memset(own, 0, sizeof *own);
    memcpy(own->key, request->key.data, request->key.len);
    own->permits = request->cost;
    own->since_us = request->ahead;
    own->op.request = (struct weir_request){ .limit = returns_limit(request->limit),
                                             .key = weir_key(own->key, request->key.len),
                                             .cost = request->cost };
    lock_take(&limiter->outage->settle.mutex);
    struct kept_returns *kept = &limiter->outage->kept;
    const bool has_room = kept->count < KEPT_MOST;
    if (has_room)
        kept_append(kept, own);
    lock_give(&limiter->outage->settle.mutex);
    if (!has_room) {
        free(own);
        return false;
    }
    struct weir_plan plan;
    weir_request_plan(request, &plan);
    *out = (struct weir_decision){ .allowed = true, .source = WEIR_BY_FALLBACK, .limit = plan.size };
    return true;
}

/* ---- Sending ---- */

static void kept_sent(struct weir_op *op, int status);

/* Submit one. 1: kept_sent() will run; otherwise the status with which it has ended. */
static int kept_submit(struct weir *limiter, struct kept_return *own)
{
    const struct weir_request *of = &own->op.request;
    int64_t now_us;
    if (request_time(limiter, &now_us) != WEIR_OK)
        return WEIR_EIO_UNDONE;
    struct weir_backend_request request = backend_request(of->limit, of->key, own->permits, now_us, WEIR_REFUND);
    request.ahead = own->since_us;
    own->op.verb = own->since_us > 0 ? WEIR_OP_SETTLE : WEIR_OP_REFUND;
    own->op.reservation = (struct weir_reservation){ .permits = own->permits, .at_us = own->since_us };
    own->op.request.limit = request.limit; /* the key's override: the backend reads the op */
    own->op.done = kept_sent;
    memcpy(own->op.opaque, &limiter, sizeof limiter);
    return limiter->backend->ops->submit(limiter->backend, &request, deadline_us(limiter), &own->op);
}

/* One has ended with `status`: it waits again if it was certainly not executed, or else it is freed. */
static void kept_end(struct weir *limiter, struct kept_return *own, int status)
{
    struct kept_returns *kept = &limiter->outage->kept;
    if (status != WEIR_EIO_UNDONE && status != WEIR_EFULL && status != WEIR_ENOMEM) {
        free(own);
        return;
    }
    own->op.request.limit = returns_limit(own->op.request.limit);
    lock_take(&limiter->outage->settle.mutex);
    kept_append(kept, own);
    if (++kept->refused >= REFUSED_MOST)
        kept->unseen = 0;
    lock_give(&limiter->outage->settle.mutex);
}

/* Send until one waits for its answer or none can be sent. Returns to parts that are out of reach stay. This counts as
 * a call inside the limiter, which may be gone after it ends. */
static void kept_go_on(struct weir *limiter)
{
    struct kept_returns *kept = &limiter->outage->kept;
    for (;;) {
        lock_take(&limiter->outage->settle.mutex);
        struct kept_return *own = kept->unseen > 0 ? kept_take(kept) : NULL;
        kept->unseen -= own != NULL;
        kept->is_sending = own != NULL;
        lock_give(&limiter->outage->settle.mutex);
        if (!own) {
            inside_leave(limiter, 1);
            return;
        }
        if (!outage_is_in_reach(limiter, &own->op.request.key)) {
            lock_take(&limiter->outage->settle.mutex);
            kept_append(kept, own);
            lock_give(&limiter->outage->settle.mutex);
            continue;
        }
        const int status = kept_submit(limiter, own);
        if (status == 1)
            return; /* the thread that delivers the answer goes on */
        kept_end(limiter, own, status);
    }
}

static void kept_sent(struct weir_op *op, int status)
{
    struct weir *limiter;
    memcpy(&limiter, op->opaque, sizeof limiter);
    if (status == WEIR_OK)
        limiter->freed(limiter);
    kept_end(limiter, (struct kept_return *)(void *)op, status); /* its first member */
    kept_go_on(limiter);
}

void returns_send(struct weir *limiter)
{
    struct kept_returns *kept = &limiter->outage->kept;
    lock_take(&limiter->outage->settle.mutex);
    const bool begins = kept->count > 0 && !kept->is_sending;
    kept->unseen = kept->count;
    kept->refused = 0;
    kept->is_sending = kept->is_sending || begins;
    lock_give(&limiter->outage->settle.mutex);
    if (!begins)
        return;
    if (inside_enter(limiter, 1) == WEIR_OK) {
        kept_go_on(limiter);
        return;
    }
    lock_take(&limiter->outage->settle.mutex); /* the limiter is closing */
    kept->is_sending = false;
    lock_give(&limiter->outage->settle.mutex);
}
