/* cluster_decide.c - decisions of a Redis Cluster: by whichever of its nodes has the key. */
#include "backends/redis/cluster/cluster.h"
#include "backends/redis/flight/key.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#define REFUND_PART 4 /* the part of a call's time in which nothing is charged any more, but given back */

/* Who decides of a key; if nobody does, or he cannot be reached, the map is asked for. */
static unsigned owner_of(struct redis_cluster *cluster, struct weir_key key)
{
    const unsigned owner = redis_cluster_owner(cluster, key);
    if (owner == REDIS_NOBODY || redis_engine_is_down(redis_cluster_engine(cluster, owner)))
        redis_cluster_look(cluster);
    return owner;
}

/* An errand whose requests are all of one slot, by whoever has it. As ops->decide(), or REDIS_TRY_AGAIN. */
static int decide_together(struct redis_cluster *cluster, struct redis_errand *errand)
{
    unsigned owner = owner_of(cluster, errand->requests[0].key);
    for (int hops = 0; owner != REDIS_NOBODY; hops++) {
        struct redis_engine *engine = redis_cluster_engine(cluster, owner);
        errand->error = WEIR_OK;
        const int result = redis_engine_decide(engine, errand);
        if (result <= 0 || result == REDIS_TRY_AGAIN)
            return result;
        if (hops == REDIS_HOPS_MAX)
            break;
        owner = redis_cluster_follow(cluster, engine, errand->redirect);
        errand->asking = result == REDIS_ASKING;
    }
    return WEIR_EIO;
}

static int decide_one(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_decision *out)
{
    struct redis_redirect redirect;
    struct redis_errand errand = {
        .requests = request,
        .n = 1,
        .deadline_us = deadline_us,
        .out = out,
        .redirect = &redirect,
    };
    const int result = decide_together(cluster, &errand);
    return result == REDIS_TRY_AGAIN ? WEIR_EIO : result; /* which no server says of one key */
}

/* ---- Each by itself ---- */

/* What goes to one node of a batch. */
struct share {
    struct redis_errand errand;
    struct redis_caller caller;
    unsigned owner;
    bool is_under_way;
};

/* Requests that each stand alone, sorted by who decides of them. */
struct batch {
    size_t n, share_count;
    size_t from[WEIR_MAX_ALL]; /* where each stood */
    struct weir_backend_request requests[WEIR_MAX_ALL];
    struct weir_decision decisions[WEIR_MAX_ALL];
    struct share shares[WEIR_MAX_ALL];
};

static void batch_sort(struct batch *batch, struct redis_cluster *cluster, const struct weir_backend_request *requests,
                       size_t n, int64_t deadline_us)
{
    unsigned owners[WEIR_MAX_ALL];
    for (size_t i = 0; i < n; i++)
        owners[i] = owner_of(cluster, requests[i].key);
    bool is_sorted[WEIR_MAX_ALL] = { false };
    batch->n = batch->share_count = 0;
    for (size_t first = 0; first < n; first++) {
        if (is_sorted[first])
            continue;
        struct share *share = &batch->shares[batch->share_count++];
        *share = (struct share){
            .errand = { .requests = &batch->requests[batch->n],
                        .deadline_us = deadline_us,
                        .out = &batch->decisions[batch->n] },
            .owner = owners[first],
        };
        for (size_t i = first; i < n; i++) {
            if (owners[i] != share->owner)
                continue;
            is_sorted[i] = true;
            batch->from[batch->n] = i;
            batch->requests[batch->n] = requests[i];
            batch->decisions[batch->n++].source = WEIR_BY_NOBODY;
            share->errand.n++;
        }
    }
}

/* All of them at once. */
static void batch_decide(struct batch *batch, struct redis_cluster *cluster)
{
    for (size_t i = 0; i < batch->share_count; i++) {
        struct share *share = &batch->shares[i];
        struct redis_engine *engine = share->owner == REDIS_NOBODY ? NULL : redis_cluster_engine(cluster, share->owner);
        const int error = engine && !redis_engine_is_down(engine)
                              ? redis_caller_begin(&share->caller, engine, &share->errand)
                              : WEIR_EIO;
        share->is_under_way = error == WEIR_OK;
        if (error) /* otherwise the errand is the I/O thread's, which may have ended it */
            share->errand.error = error;
    }
    for (size_t i = 0; i < batch->share_count; i++)
        if (batch->shares[i].is_under_way)
            redis_caller_await(&batch->shares[i].caller, redis_cluster_engine(cluster, batch->shares[i].owner));
}

static int decide_each(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                       int64_t deadline_us, struct weir_decision *out)
{
    struct batch batch;
    int error = WEIR_OK;
    batch_sort(&batch, cluster, requests, n, deadline_us);
    if (batch.share_count == 1 && batch.shares[0].owner != REDIS_NOBODY)
        batch.shares[0].errand.error = redis_engine_decide(redis_cluster_engine(cluster, batch.shares[0].owner),
                                                           &batch.shares[0].errand);
    else
        batch_decide(&batch, cluster);
    for (size_t i = 0; i < batch.share_count; i++) {
        struct redis_errand *errand = &batch.shares[i].errand;
        if (errand->error > 0) { /* one alone is told so itself */
            errand->out->source = REDIS_ELSEWHERE;
            errand->error = WEIR_OK;
        }
        error = error ? error : errand->error;
    }
    for (size_t i = 0; i < batch.n; i++) {
        struct weir_decision *decision = &batch.decisions[i];
        if (decision->source == REDIS_ELSEWHERE) {
            const int status = decide_one(cluster, &batch.requests[i], deadline_us, decision);
            decision->source = status ? WEIR_BY_NOBODY : decision->source;
            error = error ? error : status;
        }
        out[batch.from[i]] = *decision;
    }
    return error;
}

/* ---- All or nothing ---- */

/* All but one of them, each by itself, with another verb than its own. */
static int ask_others(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                      size_t but_one, enum weir_verb verb, int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request others[WEIR_MAX_ALL];
    struct weir_decision decisions[WEIR_MAX_ALL];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == but_one)
            continue;
        others[count] = requests[i];
        others[count++].verb = verb;
    }
    const int error = count > 0 ? decide_each(cluster, others, count, deadline_us, decisions) : WEIR_OK;
    for (size_t i = n; i-- > 0 && !error;)
        if (i != but_one)
            out[i] = decisions[--count];
    return error;
}

/* Of keys that no one node has together: charged one after the other, in their order, until one denies or fails. Then
 * those before it get back what they were charged, all at once; if that fails it is lost, as by a call whose answer is.
 * A part of the time is for that alone, for a node that does not answer takes all there is. */
static int decide_in_turn(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                          int64_t deadline_us, struct weir_decision *out)
{
    const int64_t charge_until_us = deadline_us - max_of(0, deadline_us - clock_monotonic_us()) / REFUND_PART;
    struct weir_decision refunded[WEIR_MAX_ALL];
    size_t charged = 0;
    int error = WEIR_OK;
    while (charged < n) {
        error = decide_one(cluster, &requests[charged], charge_until_us, &out[charged]);
        if (error || !out[charged].allowed)
            break;
        charged++;
    }
    if (charged == n)
        return WEIR_OK;
    ask_others(cluster, requests, charged, charged, WEIR_REFUND, deadline_us, refunded);
    return error ? error : ask_others(cluster, requests, n, charged, WEIR_PEEK, deadline_us, out);
}

static bool lie_together(const struct weir_backend_request *requests, size_t n)
{
    const unsigned slot = redis_key_slot(requests[0].key);
    for (size_t i = 1; i < n; i++)
        if (redis_key_slot(requests[i].key) != slot)
            return false;
    return true;
}

static int decide_all(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                      int64_t deadline_us, struct weir_decision *out)
{
    struct redis_redirect redirect;
    struct redis_errand errand = {
        .requests = requests,
        .n = n,
        .all = true,
        .deadline_us = deadline_us,
        .out = out,
        .redirect = &redirect,
    };
    const int result = lie_together(requests, n) ? decide_together(cluster, &errand) : REDIS_TRY_AGAIN;
    return result == REDIS_TRY_AGAIN ? decide_in_turn(cluster, requests, n, deadline_us, out) : result;
}

/* ---- Decisions ---- */

int redis_cluster_decide(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    if (n == 1)
        return decide_one(cluster, requests, deadline_us, out);
    return all ? decide_all(cluster, requests, n, deadline_us, out)
               : decide_each(cluster, requests, n, deadline_us, out);
}

int redis_cluster_submit(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    const unsigned owner = owner_of(cluster, request->key);
    return owner == REDIS_NOBODY ? WEIR_EIO
                                 : redis_engine_submit(redis_cluster_engine(cluster, owner), request, deadline_us, op);
}
