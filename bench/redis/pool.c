/* pool.c - the usual way to call Redis from many threads: a pool of blocking connections.
 *
 * It is better than most pools: each caller has its own connection and never waits for one.
 */
#include "redis/pool.h"

void pool_open(struct pool *pool, const struct store *store, enum pool_script script, int callers)
{
    pool->store = store;
    pool->script = script;
    for (pool->connections_len = 0; pool->connections_len < callers; pool->connections_len++)
        pool->connections[pool->connections_len] = store_connect(store);
}

void pool_close(struct pool *pool)
{
    while (pool->connections_len > 0)
        redisFree(pool->connections[--pool->connections_len]);
}

size_t pool_call(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    const struct pool *pool = subject;
    struct call call;
    size_t failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (pool->script == POOL_GATEWAY)
            call_gateway(&call, pool->store->gateway_sha1, &draws[i], 1);
        else if (pool->script == POOL_WEIR)
            call_weir(&call, KIND_TOKEN, &draws[i], 1, 1, 1);
        else
            call_ping(&call);
        redisReply *reply = store_ask(pool->connections[thread], &call);
        failed += pool->script == POOL_PING ? reply->type != REDIS_REPLY_STATUS : call_permits(reply) != 1;
        freeReplyObject(reply);
    }
    return failed;
}
