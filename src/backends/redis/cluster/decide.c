/* decide.c - decisions of a Redis Cluster, by the nodes that serve the keys. */
#include "backends/redis/cluster/cluster.h"

#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#define REFUND_PART 4 /* this part of a call's time is kept for refunds */

/* Return the index of the engine for a key. If there is none, or it is down, ask for a new map. */
static unsigned owner_or_look(struct redis_cluster *cluster, struct weir_key key)
{
    const unsigned owner = redis_cluster_owner(cluster, key);
    if (owner == REDIS_NOBODY || redis_engine_is_down(redis_cluster_engine(cluster, owner)))
        redis_cluster_look(cluster);
    return owner;
}

/* Run a job whose requests share a slot. Returns as ops->decide(), or REDIS_TRY_AGAIN. */
static int cluster_decide_together(struct redis_cluster *cluster, struct redis_job *job)
{
    unsigned owner = owner_or_look(cluster, job->requests[0].key);
    for (int hops = 0; owner != REDIS_NOBODY; hops++) {
        struct redis_engine *engine = redis_cluster_engine(cluster, owner);
        job->error = WEIR_OK;
        const int result = redis_engine_decide(engine, job);
        if (result <= 0 || result == REDIS_TRY_AGAIN)
            return result;
        if (hops == REDIS_HOPS_MAX)
            break;
        owner = redis_cluster_follow(cluster, engine, job->redirect);
        job->asking = result == REDIS_ASKING;
    }
    return WEIR_EIO;
}

static int cluster_decide_one(struct redis_cluster *cluster, const struct weir_backend_request *request,
                              int64_t deadline_us, struct weir_decision *out)
{
    struct redis_redirect redirect;
    struct redis_job job = {
        .requests = request,
        .n = 1,
        .deadline_us = deadline_us,
        .out = out,
        .redirect = &redirect,
    };
    const int result = cluster_decide_together(cluster, &job);
    return result == REDIS_TRY_AGAIN ? WEIR_EIO : result; /* no server says so of a single key */
}

/* ---- Independent requests ---- */

/* The part of a batch that goes to one node. */
struct batch_part {
    struct redis_job job;
    struct redis_thread_waiter thread;
    unsigned owner;
    bool is_under_way;
};

/* Independent requests, sorted by the node that decides them. */
struct batch {
    size_t n, part_count;
    size_t from[WEIR_MAX_ALL]; /* each one's place before sorting */
    struct weir_backend_request requests[WEIR_MAX_ALL];
    struct weir_decision decisions[WEIR_MAX_ALL];
    struct batch_part parts[WEIR_MAX_ALL];
};

static void batch_sort(struct batch *batch, struct redis_cluster *cluster, const struct weir_backend_request *requests,
                       size_t n, int64_t deadline_us)
{
    unsigned owners[WEIR_MAX_ALL];
    for (size_t i = 0; i < n; i++)
        owners[i] = owner_or_look(cluster, requests[i].key);
    bool is_sorted[WEIR_MAX_ALL] = { false };
    batch->n = batch->part_count = 0;
    for (size_t first = 0; first < n; first++) {
        if (is_sorted[first])
            continue;
        struct batch_part *part = &batch->parts[batch->part_count++];
        *part = (struct batch_part){
            .job = { .requests = &batch->requests[batch->n],
                     .deadline_us = deadline_us,
                     .out = &batch->decisions[batch->n] },
            .owner = owners[first],
        };
        for (size_t i = first; i < n; i++) {
            if (owners[i] != part->owner)
                continue;
            is_sorted[i] = true;
            batch->from[batch->n] = i;
            batch->requests[batch->n] = requests[i];
            batch->decisions[batch->n++].source = WEIR_BY_NOBODY;
            part->job.n++;
        }
    }
}

/* Run all parts at the same time. */
static void batch_decide(struct batch *batch, struct redis_cluster *cluster)
{
    for (size_t i = 0; i < batch->part_count; i++) {
        struct batch_part *part = &batch->parts[i];
        struct redis_engine *engine = part->owner == REDIS_NOBODY ? NULL : redis_cluster_engine(cluster, part->owner);
        const int error = engine && !redis_engine_is_down(engine)
                              ? redis_thread_waiter_begin(&part->thread, engine, &part->job)
                              : WEIR_EIO;
        part->is_under_way = error == WEIR_OK;
        if (error) /* otherwise the I/O thread has the job, and may have ended it */
            part->job.error = error;
    }
    for (size_t i = 0; i < batch->part_count; i++)
        if (batch->parts[i].is_under_way)
            redis_thread_waiter_await(&batch->parts[i].thread, redis_cluster_engine(cluster, batch->parts[i].owner));
}

static int cluster_decide_batch(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                                int64_t deadline_us, struct weir_decision *out)
{
    struct batch batch;
    int error = WEIR_OK;
    batch_sort(&batch, cluster, requests, n, deadline_us);
    if (batch.part_count == 1 && batch.parts[0].owner != REDIS_NOBODY)
        batch.parts[0].job.error = redis_engine_decide(redis_cluster_engine(cluster, batch.parts[0].owner),
                                                       &batch.parts[0].job);
    else
        batch_decide(&batch, cluster);
    for (size_t i = 0; i < batch.part_count; i++) {
        struct redis_job *job = &batch.parts[i].job;
        if (job->error > 0) { /* a single request */
            job->out->source = REDIS_ELSEWHERE;
            job->error = WEIR_OK;
        }
        error = error ? error : job->error;
    }
    for (size_t i = 0; i < batch.n; i++) {
        struct weir_decision *decision = &batch.decisions[i];
        if (decision->source == REDIS_ELSEWHERE) {
            const int status = cluster_decide_one(cluster, &batch.requests[i], deadline_us, decision);
            decision->source = status ? WEIR_BY_NOBODY : decision->source;
            error = error ? error : status;
        }
        out[batch.from[i]] = *decision;
    }
    return error;
}

/* ---- All or nothing ---- */

/* Decide all requests but one, independently, with another verb. */
static int cluster_decide_others(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
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
    const int error = count > 0 ? cluster_decide_batch(cluster, others, count, deadline_us, decisions) : WEIR_OK;
    for (size_t i = n; i-- > 0 && !error;)
        if (i != but_one)
            out[i] = decisions[--count];
    return error;
}

/* Charge keys that no single node has together, one after the other, until one denies or fails. Then refund the charges
 * before it, in parallel. A refund that fails is lost, like the charge of a call whose answer is lost. A part of the
 * time is kept for refunds: a node that does not answer would use up all of it. */
static int cluster_decide_in_turn(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                                  int64_t deadline_us, struct weir_decision *out)
{
    const int64_t charge_until_us = deadline_us - max_of(0, deadline_us - clock_monotonic_us()) / REFUND_PART;
    struct weir_decision refunded[WEIR_MAX_ALL];
    size_t charged = 0;
    int error = WEIR_OK;
    while (charged < n) {
        error = cluster_decide_one(cluster, &requests[charged], charge_until_us, &out[charged]);
        if (error || !out[charged].allowed)
            break;
        charged++;
    }
    if (charged == n)
        return WEIR_OK;
    cluster_decide_others(cluster, requests, charged, charged, WEIR_REFUND, deadline_us, refunded);
    return error ? error : cluster_decide_others(cluster, requests, n, charged, WEIR_PEEK, deadline_us, out);
}

static bool lie_together(const struct weir_backend_request *requests, size_t n)
{
    const unsigned slot = redis_key_slot(requests[0].key);
    for (size_t i = 1; i < n; i++)
        if (redis_key_slot(requests[i].key) != slot)
            return false;
    return true;
}

static int cluster_decide_group(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                                int64_t deadline_us, struct weir_decision *out)
{
    struct redis_redirect redirect;
    struct redis_job job = {
        .requests = requests,
        .n = n,
        .all = true,
        .deadline_us = deadline_us,
        .out = out,
        .redirect = &redirect,
    };
    const int result = lie_together(requests, n) ? cluster_decide_together(cluster, &job) : REDIS_TRY_AGAIN;
    return result == REDIS_TRY_AGAIN ? cluster_decide_in_turn(cluster, requests, n, deadline_us, out) : result;
}

/* ---- Decisions ---- */

int redis_cluster_decide(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n, bool all,
                         int64_t deadline_us, struct weir_decision *out)
{
    if (n == 1)
        return cluster_decide_one(cluster, requests, deadline_us, out);
    return all ? cluster_decide_group(cluster, requests, n, deadline_us, out)
               : cluster_decide_batch(cluster, requests, n, deadline_us, out);
}

int redis_cluster_submit(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    const unsigned owner = owner_or_look(cluster, request->key);
    return owner == REDIS_NOBODY ? WEIR_EIO
                                 : redis_engine_submit(redis_cluster_engine(cluster, owner), request, deadline_us, op);
}
