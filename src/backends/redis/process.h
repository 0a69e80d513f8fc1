/* process.h - what a process has of a Redis: redis.c's own, and what tests look into. */
#ifndef BACKENDS_REDIS_PROCESS_H
#define BACKENDS_REDIS_PROCESS_H

#include "backends/redis/cluster/cluster.h"
#include "core/ground/forks.h"

/* Threads and connections of one process. */
struct redis_process {
    unsigned forks;                /* how often it had been forked off when they were made */
    struct redis_engine *engine;   /* of the one server; NULL in a cluster */
    struct redis_cluster *cluster; /* or all of these */
    struct redis_process *elder;   /* what this one's parent had, for leak checkers to find it; NULL: nothing */
};

struct redis {
    struct weir_backend backend;
    struct redis_config config;              /* (c) */
    _Atomic(struct redis_process *) current; /* (a) replaced in the child of a fork */
    _Atomic int64_t said_us;                 /* (a) when the log last had a line that it cannot be */
    struct forks_watcher forks;
};

#endif
