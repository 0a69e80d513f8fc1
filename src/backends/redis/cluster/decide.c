/* decide.c - decisions of a Redis Cluster, by the nodes that serve the keys. */
#include "backends/redis/cluster/cluster.h"

#include "backends/redis/engine/health.h"
#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <stdlib.h>

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
    return WEIR_EIO_UNDONE; /* no node has executed it */
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
    return result == REDIS_TRY_AGAIN ? WEIR_EIO_UNDONE : result; /* no server says so of a single key */
}

/* ---- Independent requests ---- */

/* The part of a batch that goes to one node. */
struct batch_part {
    struct redis_job job;
    struct redis_thread_waiter thread;
    unsigned owner;
    bool is_under_way;
};

/* Independent requests, sorted by the node that decides them. One block of memory has room for n in all arrays: a
 * caller's stack may be small. */
struct batch {
    size_t n, part_count;
    struct batch_part *parts;
    struct weir_backend_request *requests;
    struct weir_decision *decisions;
    unsigned *from;   /* each one's place before sorting */
    unsigned *owners; /* of each one before sorting; SORTED afterwards */
};
enum { SORTED = REDIS_NOBODY + 1 };

/* NULL: out of memory. */
static struct batch *batch_make(size_t n)
{
    struct batch *batch = malloc(sizeof *batch + n * (sizeof *batch->parts + sizeof *batch->requests +
                                                      sizeof *batch->decisions + 2 * sizeof(unsigned)));
    if (!batch)
        return NULL;
    batch->parts = (struct batch_part *)(void *)(batch + 1);
    batch->requests = (struct weir_backend_request *)(void *)(batch->parts + n);
    batch->decisions = (struct weir_decision *)(void *)(batch->requests + n);
    batch->from = (unsigned *)(void *)(batch->decisions + n);
    batch->owners = batch->from + n;
    return batch;
}

/* The requests to decide: all of a caller's except but_one (n: all), with another verb unless that is NULL. */
struct batch_wish {
    const struct weir_backend_request *requests;
    size_t n, but_one;
    const enum weir_verb *verb;
};

static void batch_sort(struct batch *batch, struct redis_cluster *cluster, const struct batch_wish *wish,
                       int64_t deadline_us)
{
    for (size_t i = 0; i < wish->n; i++)
        batch->owners[i] = i == wish->but_one ? SORTED : owner_or_look(cluster, wish->requests[i].key);
    batch->n = batch->part_count = 0;
    for (size_t first = 0; first < wish->n; first++) {
        const unsigned owner = batch->owners[first];
        if (owner == SORTED)
            continue;
        struct batch_part *part = &batch->parts[batch->part_count++];
        *part = (struct batch_part){
            .job = { .requests = &batch->requests[batch->n],
                     .deadline_us = deadline_us,
                     .out = &batch->decisions[batch->n] },
            .owner = owner,
        };
        for (size_t i = first; i < wish->n; i++) {
            if (batch->owners[i] != owner)
                continue;
            batch->owners[i] = SORTED;
            batch->from[batch->n] = (unsigned)i;
            batch->requests[batch->n] = wish->requests[i];
            if (wish->verb)
                batch->requests[batch->n].verb = (uint8_t)*wish->verb;
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
                              : WEIR_EIO_UNDONE;
        part->is_under_way = error == WEIR_OK;
        if (error) /* otherwise the I/O thread has the job, and may have ended it */
            part->job.error = error;
    }
    for (size_t i = 0; i < batch->part_count; i++)
        if (batch->parts[i].is_under_way)
            redis_thread_waiter_await(&batch->parts[i].thread, redis_cluster_engine(cluster, batch->parts[i].owner));
}

/* Decide them. `out` has a place for each of the caller's requests, or is NULL. */
static int cluster_decide_batch(struct redis_cluster *cluster, const struct batch_wish *wish, int64_t deadline_us,
                                struct weir_decision *out)
{
    struct batch *batch = batch_make(wish->n);
    int error = WEIR_OK;
    if (!batch)
        return WEIR_ENOMEM;
    batch_sort(batch, cluster, wish, deadline_us);
    struct batch_part *only = batch->part_count == 1 ? batch->parts : NULL;
    if (only && only->owner != REDIS_NOBODY)
        only->job.error = redis_engine_decide(redis_cluster_engine(cluster, only->owner), &only->job);
    else
        batch_decide(batch, cluster);
    for (size_t i = 0; i < batch->part_count; i++) {
        struct redis_job *job = &batch->parts[i].job;
        if (job->error > 0) { /* a single request */
            job->out->source = REDIS_ELSEWHERE;
            job->error = WEIR_OK;
        }
        error = error ? error : job->error;
    }
    for (size_t i = 0; i < batch->n; i++) {
        struct weir_decision *decision = &batch->decisions[i];
        if (decision->source == REDIS_ELSEWHERE) {
            const int status = cluster_decide_one(cluster, &batch->requests[i], deadline_us, decision);
            decision->source = status ? WEIR_BY_NOBODY : decision->source;
            error = error ? error : status;
        }
        if (out)
            out[batch->from[i]] = *decision;
    }
    free(batch);
    return error;
}

/* ---- All or nothing ---- */

/* Charge keys that no single node has together, one after the other, until one denies or fails. Then refund the charges
 * before it, in parallel. A refund that fails is lost, like the charge of a call whose answer is lost. A part of the
 * time is kept for refunds: a node that does not answer would use up all of it. */
static int cluster_decide_in_turn(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                                  int64_t deadline_us, struct weir_decision *out)
{
    const int64_t charge_until_us = deadline_us - max_of(0, deadline_us - clock_monotonic_us()) / REFUND_PART;
    static const enum weir_verb refund = WEIR_REFUND, peek = WEIR_PEEK;
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
    cluster_decide_batch(cluster, &(struct batch_wish){ requests, charged, charged, &refund }, deadline_us, NULL);
    if (error == WEIR_EIO_UNDONE) /* the charges before it, and their refunds, were executed */
        return WEIR_EIO;
    return error ? error
                 : cluster_decide_batch(cluster, &(struct batch_wish){ requests, n, charged, &peek }, deadline_us, out);
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
               : cluster_decide_batch(cluster, &(struct batch_wish){ requests, n, n, NULL }, deadline_us, out);
}

int redis_cluster_submit(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                         struct weir_op *op)
{
    const unsigned owner = owner_or_look(cluster, request->key);
    return owner == REDIS_NOBODY ? WEIR_EIO_UNDONE
                                 : redis_engine_submit(redis_cluster_engine(cluster, owner), request, deadline_us, op);
}
