/* redis_cluster.c - a Redis Cluster: its engines, and the map of slots by which they are chosen. */
#include "backends/redis_cluster.h"

#include "backends/redis_key.h"
#include "backends/redis_scout.h"
#include "core/arith.h"
#include "core/clock.h"

#include <stdlib.h>
#include <string.h>

#define LEFT_US (5 * WEIR_SECOND) /* an engine is kept at a node that has no slots any more for so long */

static struct redis_engine *engine_at(const struct redis_cluster *cluster, size_t i)
{
    return atomic_load_explicit(&cluster->engines[i], memory_order_relaxed);
}

static size_t engine_count(const struct redis_cluster *cluster)
{
    return atomic_load_explicit(&cluster->count, memory_order_acquire);
}

/* ---- Nodes ---- */

/* One more engine, which is aimed at nothing yet: its index, or REDIS_NOBODY. */
static unsigned add_engine(struct redis_cluster *cluster) REQUIRES(cluster->lock)
{
    const size_t i = engine_count(cluster);
    struct redis_engine *engine;
    if (cluster->closing || i == REDIS_NODES_MAX || redis_engine_start(cluster->config, cluster, &engine) != WEIR_OK)
        return REDIS_NOBODY;
    atomic_store_explicit(&cluster->engines[i], engine, memory_order_relaxed);
    atomic_store_explicit(&cluster->count, i + 1, memory_order_release);
    return (unsigned)i;
}

/* The engine of a node, aimed at it if none was: its index, or REDIS_NOBODY if no more are to be had. */
static unsigned find_node(struct redis_cluster *cluster, const struct redis_node_name *name) REQUIRES(cluster->lock)
{
    const size_t count = engine_count(cluster);
    unsigned unaimed = REDIS_NOBODY;
    for (unsigned i = 0; i < count; i++) {
        if (redis_node_name_is(&cluster->nodes[i].name, name))
            return i;
        if (unaimed == REDIS_NOBODY && cluster->nodes[i].name.port == 0)
            unaimed = i;
    }
    if (unaimed == REDIS_NOBODY)
        unaimed = add_engine(cluster);
    if (unaimed == REDIS_NOBODY)
        return REDIS_NOBODY;
    cluster->nodes[unaimed] = (struct redis_cluster_node){ .name = *name };
    redis_engine_aim(engine_at(cluster, unaimed), name);
    return unaimed;
}

/* A node that is not in the map. It may be on its way out, with requests under way to it. */
static void leave_node(struct redis_cluster *cluster, unsigned i, int64_t now_us) REQUIRES(cluster->lock)
{
    struct redis_cluster_node *node = &cluster->nodes[i];
    if (node->left_us == 0)
        node->left_us = now_us;
    if (now_us - node->left_us < LEFT_US)
        return;
    *node = (struct redis_cluster_node){ .left_us = 0 };
    redis_engine_aim(engine_at(cluster, i), NULL);
}

static bool is_up(const struct redis_engine *engine)
{
    return atomic_load_explicit(&engine->gate, memory_order_acquire) != REDIS_GATE_DOWN;
}

bool redis_cluster_adopt(struct redis_cluster *cluster, const struct redis_map *map, const char *asked)
{
    const int64_t now_us = clock_monotonic_us();
    uint16_t engines[REDIS_NODES_MAX];
    bool in_map[REDIS_NODES_MAX] = { false }, has_holes = false, is_well = true;
    lock_take(&cluster->lock);
    for (size_t i = 0; i < map->node_count; i++) {
        struct redis_node_name name = map->nodes[i];
        if (name.host[0] == '\0')
            memcpy(name.host, asked, strlen(asked) + 1);
        engines[i] = (uint16_t)find_node(cluster, &name);
        if (engines[i] != REDIS_NOBODY)
            in_map[engines[i]] = true;
    }
    for (size_t slot = 0; slot < REDIS_CLUSTER_SLOTS; slot++) {
        const uint16_t owner = map->owner[slot] == REDIS_NOBODY ? REDIS_NOBODY : engines[map->owner[slot]];
        atomic_store_explicit(&cluster->owner[slot], owner, memory_order_relaxed);
        has_holes = has_holes || owner == REDIS_NOBODY;
    }
    const size_t count = engine_count(cluster);
    for (unsigned i = 0; i < count; i++) {
        atomic_store_explicit(&cluster->serves[i], in_map[i], memory_order_relaxed);
        if (in_map[i]) {
            cluster->nodes[i].left_us = 0;
            is_well = is_well && is_up(engine_at(cluster, i));
        } else if (cluster->nodes[i].name.port != 0) {
            leave_node(cluster, i, now_us);
        }
    }
    if (!has_holes)
        atomic_store_explicit(&cluster->holes_us, 0, memory_order_relaxed);
    else if (atomic_load_explicit(&cluster->holes_us, memory_order_relaxed) == 0)
        atomic_store_explicit(&cluster->holes_us, now_us, memory_order_relaxed);
    lock_give(&cluster->lock);
    return is_well && !has_holes;
}

void redis_cluster_not_found(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    if (engine_count(cluster) == 1 && cluster->nodes[0].name.port == 0)
        redis_engine_aim(engine_at(cluster, 0), NULL);
    lock_give(&cluster->lock);
}

bool redis_cluster_node(struct redis_cluster *cluster, size_t i, struct redis_node_name *name, bool *up)
{
    if (i >= engine_count(cluster))
        return false;
    lock_take(&cluster->lock);
    *name = cluster->nodes[i].name;
    lock_give(&cluster->lock);
    *up = atomic_load_explicit(&engine_at(cluster, i)->gate, memory_order_acquire) == REDIS_GATE_UP;
    return true;
}

/* ---- Redirections ---- */

/* The engine that a redirection leads to, or REDIS_NOBODY. */
static unsigned follow(struct redis_cluster *cluster, const struct redis_engine *from,
                       const struct redis_redirect *redirect)
{
    struct redis_node_name to = redirect->to;
    unsigned owner = REDIS_NOBODY;
    lock_take(&cluster->lock);
    const size_t count = engine_count(cluster);
    for (size_t i = 0; i < count && to.host[0] == '\0'; i++)
        if (engine_at(cluster, i) == from)
            memcpy(to.host, cluster->nodes[i].name.host, sizeof to.host);
    if (to.host[0] != '\0')
        owner = find_node(cluster, &to);
    if (owner != REDIS_NOBODY && redirect->kind == REDIS_REDIRECT_MOVED) {
        atomic_store_explicit(&cluster->owner[redirect->slot], (uint16_t)owner, memory_order_relaxed);
        atomic_store_explicit(&cluster->serves[owner], true, memory_order_relaxed);
    }
    lock_give(&cluster->lock);
    if (redirect->kind == REDIS_REDIRECT_MOVED)
        redis_cluster_look(cluster);
    return owner;
}

void redis_cluster_send_on(struct redis_cluster *cluster, const struct redis_engine *from, struct redis_waiter *waiter,
                           int status, const struct redis_redirect *redirect)
{
    struct weir_op *op = redis_waiter_op(waiter);
    int error = WEIR_EIO;
    if (waiter->hops < REDIS_HOPS_MAX && redirect) {
        const unsigned to = follow(cluster, from, redirect);
        waiter->hops++;
        waiter->asking = status == REDIS_ASKING;
        if (to != REDIS_NOBODY)
            error = redis_engine_take_over(engine_at(cluster, to), waiter); /* it may be gone, with its op */
    }
    if (error <= 0)
        op->done(op, error == WEIR_EFULL ? WEIR_EIO : error);
}

/* ---- Decisions ---- */

/* Who decides of a key, by the map: an index, or REDIS_NOBODY, and then the map is asked for. */
static unsigned owner_of(struct redis_cluster *cluster, struct weir_key key)
{
    const unsigned owner = atomic_load_explicit(&cluster->owner[redis_key_slot(key)], memory_order_relaxed);
    if (owner == REDIS_NOBODY)
        redis_cluster_look(cluster);
    return owner;
}

/* An errand whose requests are all of one slot, by whoever has it. As ops->decide(), or REDIS_TRY_AGAIN. */
static int decide_together(struct redis_cluster *cluster, struct redis_errand *errand)
{
    unsigned owner = owner_of(cluster, errand->requests[0].key);
    struct redis_redirect redirect;
    errand->redirect = &redirect;
    for (int hops = 0; owner != REDIS_NOBODY; hops++) {
        struct redis_engine *engine = engine_at(cluster, owner);
        errand->error = WEIR_OK;
        const int result = redis_engine_decide(engine, errand);
        if (result <= 0 || result == REDIS_TRY_AGAIN)
            return result;
        if (hops == REDIS_HOPS_MAX)
            break;
        owner = follow(cluster, engine, &redirect);
        errand->asking = result == REDIS_ASKING;
    }
    return WEIR_EIO;
}

static int decide_one(struct redis_cluster *cluster, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_decision *out)
{
    struct redis_errand errand = { .requests = request, .n = 1, .deadline_us = deadline_us, .out = out };
    return decide_together(cluster, &errand);
}

static int ask_as(struct redis_cluster *cluster, const struct weir_backend_request *request, enum weir_verb verb,
                  int64_t deadline_us, struct weir_decision *out)
{
    struct weir_backend_request changed = *request;
    changed.verb = verb;
    return decide_one(cluster, &changed, deadline_us, out);
}

/* All or nothing of keys that no one node has together: charged one after the other, in their order, until one denies or
 * fails. Then those before it get back what they were charged; if that fails it is lost, as by a call whose answer is. */
static int decide_in_turn(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                          int64_t deadline_us, struct weir_decision *out)
{
    struct weir_decision refunded;
    size_t charged = 0;
    int error = WEIR_OK;
    while (charged < n) {
        error = decide_one(cluster, &requests[charged], deadline_us, &out[charged]);
        if (error || !out[charged].allowed)
            break;
        charged++;
    }
    if (charged == n)
        return WEIR_OK;
    for (size_t i = charged; i-- > 0;)
        ask_as(cluster, &requests[i], WEIR_REFUND, deadline_us, &refunded);
    for (size_t i = 0; i < n && !error; i++)
        if (i != charged)
            error = ask_as(cluster, &requests[i], WEIR_PEEK, deadline_us, &out[i]);
    return error;
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
    struct redis_errand errand = {
        .requests = requests,
        .n = n,
        .all = true,
        .deadline_us = deadline_us,
        .out = out,
    };
    const int result = lie_together(requests, n) ? decide_together(cluster, &errand) : REDIS_TRY_AGAIN;
    return result == REDIS_TRY_AGAIN ? decide_in_turn(cluster, requests, n, deadline_us, out) : result;
}

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
        struct redis_engine *engine = share->owner == REDIS_NOBODY ? NULL : engine_at(cluster, share->owner);
        share->errand.error = engine && is_up(engine) ? redis_caller_begin(&share->caller, engine, &share->errand)
                                                      : WEIR_EIO;
        share->is_under_way = share->errand.error == WEIR_OK;
    }
    for (size_t i = 0; i < batch->share_count; i++)
        if (batch->shares[i].is_under_way)
            redis_caller_await(&batch->shares[i].caller, engine_at(cluster, batch->shares[i].owner));
}

static int decide_each(struct redis_cluster *cluster, const struct weir_backend_request *requests, size_t n,
                       int64_t deadline_us, struct weir_decision *out)
{
    struct batch batch;
    int error = WEIR_OK;
    batch_sort(&batch, cluster, requests, n, deadline_us);
    if (batch.share_count == 1 && batch.shares[0].owner != REDIS_NOBODY)
        batch.shares[0].errand.error = redis_engine_decide(engine_at(cluster, batch.shares[0].owner),
                                                           &batch.shares[0].errand);
    else
        batch_decide(&batch, cluster);
    for (size_t i = 0; i < batch.share_count; i++)
        error = error ? error : batch.shares[i].errand.error;
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
    return owner == REDIS_NOBODY ? WEIR_EIO : redis_engine_submit(engine_at(cluster, owner), request, deadline_us, op);
}

/* ---- What there is to tell ---- */

int64_t redis_cluster_reachable_us(const struct redis_cluster *cluster, const struct weir_key *key)
{
    const int64_t holes_us = atomic_load_explicit(&cluster->holes_us, memory_order_relaxed);
    if (key) {
        const unsigned owner = atomic_load_explicit(&cluster->owner[redis_key_slot(*key)], memory_order_relaxed);
        return owner == REDIS_NOBODY ? holes_us : redis_engine_reachable_us(engine_at(cluster, owner));
    }
    const size_t count = engine_count(cluster);
    int64_t worst_us = holes_us ? holes_us : INT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (atomic_load_explicit(&cluster->serves[i], memory_order_relaxed))
            worst_us = min_of(worst_us, redis_engine_reachable_us(engine_at(cluster, i)));
    return worst_us;
}

void redis_cluster_stats(const struct redis_cluster *cluster, struct weir_stats *add)
{
    const size_t count = engine_count(cluster);
    for (size_t i = 0; i < count; i++)
        redis_engine_stats(engine_at(cluster, i), add);
}

bool redis_cluster_is_here(const struct redis_cluster *cluster)
{
    const size_t count = engine_count(cluster);
    for (size_t i = 0; i < count; i++)
        if (redis_io_is_here(engine_at(cluster, i)))
            return true;
    return false;
}

void redis_cluster_look(struct redis_cluster *cluster)
{
    redis_scout_look(cluster->scout);
}

/* ---- Life ---- */

/* No more engines are made. */
static void begin_closing(struct redis_cluster *cluster)
{
    lock_take(&cluster->lock);
    cluster->closing = true;
    lock_give(&cluster->lock);
}

static void free_all(struct redis_cluster *cluster)
{
    begin_closing(cluster);
    const size_t count = engine_count(cluster);
    for (size_t i = 0; i < count; i++)
        redis_engine_stop(engine_at(cluster, i));
    for (size_t i = 0; i < count; i++)
        redis_engine_free(engine_at(cluster, i));
    lock_destroy(&cluster->lock);
    free(cluster);
}

int redis_cluster_start(const struct redis_config *config, struct redis_cluster **out)
{
    struct redis_cluster *cluster = calloc(1, sizeof *cluster);
    struct redis_engine *first;
    if (!cluster)
        return WEIR_ENOMEM;
    cluster->config = config;
    lock_init(&cluster->lock);
    int error = redis_scout_make(cluster, &cluster->scout);
    if (error) {
        free_all(cluster);
        return error;
    }
    error = redis_engine_start(config, cluster, &first);
    if (!error) {
        atomic_init(&cluster->engines[0], first);
        atomic_init(&cluster->serves[0], true);
        atomic_store_explicit(&cluster->count, 1, memory_order_release);
        error = redis_scout_start(cluster->scout);
    }
    if (error) {
        struct redis_scout *scout = cluster->scout;
        free_all(cluster);
        redis_scout_free(scout);
        return error;
    }
    *out = cluster;
    return WEIR_OK;
}

void redis_cluster_shut(struct redis_cluster *cluster)
{
    begin_closing(cluster);
    const size_t count = engine_count(cluster);
    redis_scout_shut(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_shut(engine_at(cluster, i));
}

void redis_cluster_free(struct redis_cluster *cluster)
{
    struct redis_scout *scout = cluster->scout;
    redis_scout_stop(scout);
    free_all(cluster);
    redis_scout_free(scout);
}

void redis_cluster_abandon(struct redis_cluster *cluster)
{
    const size_t count = engine_count(cluster);
    redis_scout_abandon(cluster->scout);
    for (size_t i = 0; i < count; i++)
        redis_engine_abandon(engine_at(cluster, i));
}
