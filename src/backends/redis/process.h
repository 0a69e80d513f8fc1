/* process.h - the Redis backend's struct, and what each process has of it; redis.c's own, and what tests look into. */
#ifndef BACKENDS_REDIS_PROCESS_H
#define BACKENDS_REDIS_PROCESS_H

#include "backends/redis/cluster/cluster.h"
#include "backends/redis/flight/denials.h"
#include "core/ground/forks.h"

/* The threads and connections of one process. */
struct redis_process {
    unsigned forks;                /* forks_count when they were made */
    struct redis_engine *engine;   /* of the only server; NULL in a cluster */
    struct redis_cluster *cluster; /* NULL outside a cluster */
    struct redis_process *elder;   /* the parent process's, which leak checkers find here; NULL: none */
};

struct redis {
    struct weir_backend backend;
    struct redis_config config; /* (c) */
    struct redis_words words;
    _Atomic(struct redis_process *) current; /* (a) replaced in the child of a fork */
    _Atomic int64_t said_us;                 /* (a) the last line in the log about a failed replacement */
    struct forks_watcher forks;
    struct redis_denials denials;
};

#endif
