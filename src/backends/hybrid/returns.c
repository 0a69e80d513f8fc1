/* returns.c - gives permits back that were leased and that this instance does not use.
 *
 * It happens beside other calls: each request that is about to go to the remote looks at its key and at a few others. A
 * return is sent at most once. If it or its answer is lost, so are the permits. The remote knows when it charged them,
 * and gives back none that have come back since (WEIR_REFUND in <weir/backend.h>). */
#include "backends/hybrid/lease_call.h"
#include "core/ground/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OTHERS_LOOKED_AT 3

struct hybrid_return {
    struct weir_op op;
    struct weir_backend_request request;
    struct hybrid_return *next;
    char key[];
};

static void return_ended(struct weir_op *op, int status)
{
    (void)status;
    free(op); /* its first member */
}

/* Return what the account can give back, or NULL. */
static struct hybrid_return *return_of(struct account_shard *shard, struct account *account, int64_t now_us,
                                       int64_t request_us) REQUIRES(shard->mutex)
{
    int64_t charged_us;
    const int64_t permits = lease_take_rest(&account->lease, now_us, &charged_us);
    account_count_lost(shard, account);
    struct hybrid_return *own = permits > 0 ? malloc(sizeof *own + account->hh.keylen) : NULL;
    if (!own)
        return NULL;
    memcpy(own->key, account->key, account->hh.keylen);
    own->next = NULL;
    own->request = (struct weir_backend_request){
        .limit = account->limit,
        .key = weir_key(own->key, account->hh.keylen),
        .hash = account->hash,
        .cost = permits,
        .now_us = request_us,
        .plan_version = account->lease.version,
        .cold_since_us = -1,
        .ahead = charged_us,
        .limit_id = account->limit_id,
        .verb = WEIR_REFUND,
    };
    own->op = (struct weir_op){
        .request = { .limit = account->limit, .key = own->request.key, .cost = permits },
        .done = return_ended,
    };
    return own;
}

static void return_send(struct hybrid *hybrid, struct hybrid_return *own)
{
    struct weir_backend *remote = hybrid->remote;
    struct weir_decision unused;
    const int64_t deadline_us = clock_monotonic_us() + hybrid->timeout_us;
    int status = 0;
    if (own->request.now_us == WEIR_OWN_CLOCK)
        status = remote->ops->submit(remote, &own->request, deadline_us, &own->op);
    else /* a replay repeats exactly only if no other thread has a part in it */
        remote->ops->decide(remote, &own->request, 1, false, deadline_us, &unused);
    if (status != 1)
        free(own);
}

void hybrid_give_back(struct hybrid *hybrid, const struct weir_backend_request *request)
{
    struct account_shard *shard = account_shard(&hybrid->accounts, request->hash);
    const int64_t now_us = hybrid_time(hybrid, request->now_us);
    const bool by_caller = request->now_us != WEIR_OWN_CLOCK;
    struct hybrid_return *first = NULL, **end = &first;
    lock_take(&shard->mutex);
    struct account *account = account_find(shard, request);
    /* Which others come up depends on chance, which a replay cannot repeat. */
    const int others = hybrid->accounts.keep_idle ? 0 : OTHERS_LOOKED_AT;
    for (int i = 0; i <= others; i++) {
        if (account && account->by_caller == by_caller && !lease_is_ahead(&account->lease, now_us))
            *end = return_of(shard, account, now_us, request->now_us);
        if (*end)
            end = &(*end)->next;
        account = shard->hand ? shard->hand : shard->accounts;
        shard->hand = account ? account->hh.next : NULL;
    }
    lock_give(&shard->mutex);
    while (first) {
        struct hybrid_return *own = first;
        first = own->next;
        return_send(hybrid, own);
    }
}
