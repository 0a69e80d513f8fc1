/* pool.h - the usual way to call Redis from many threads: a pool of blocking connections. */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include "redis/load.h"

enum pool_script { POOL_GATEWAY, POOL_WEIR, POOL_PING };

struct pool {
    const struct store *store;
    enum pool_script script;
    int connections_len;
    redisContext *connections[MEASURE_MAX_THREADS];
};

/* Open a connection for each of `callers` callers. */
void pool_open(struct pool *pool, const struct store *store, enum pool_script script, int callers);
void pool_close(struct pool *pool);

/* load_call of a struct pool: one call for each draw, with the pool's script. */
size_t pool_call(void *pool, int thread, const struct bench_key *draws, size_t n);

#endif
