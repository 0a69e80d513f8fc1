/* remote.h - weir's distributed and hybrid mode through its public API, on a Redis server. */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include "redis/load.h"

#define REMOTE_PATIENCE_US (5 * WEIR_SECOND) /* a benchmark waits rather than fails */

struct remote {
    weir *weir;
    weir_limit *limit;
    unsigned sources; /* a bit for each enum weir_source that its decisions may have; others count as failed */
};

/* Return options for the mode under which a call fails if Redis does not answer within REMOTE_PATIENCE_US. */
struct weir_options remote_options(enum weir_mode mode);

/* Open a limiter on the server, with the policy under that name. False if its decisions do not come from Redis. Local
 * and machine mode do not use `store`. */
bool remote_open(struct remote *remote, const struct store *store, const struct weir_options *options, const char *name,
                 const struct weir_policy *policy);

/* Make memory that processes of machine mode share, write its name for the option `shared`, and return its descriptor. */
#define REMOTE_SHARED_SIZE 32
int remote_shared(char name[REMOTE_SHARED_SIZE]);

/* Return why the last remote_open() failed, until the next call. */
const char *remote_complaint(void);

/* Report why it failed, below the section and on stderr. */
void remote_report_missing(struct bench *bench);

/* Define another limit of the same limiter, which closes both. Fails on an error. */
struct remote remote_define(const struct remote *remote, const char *name, const struct weir_policy *policy);

/* Take `cost` permits of each key 0 to keys-1, so that none is idle. */
void remote_fill(const struct remote *remote, uint64_t keys, int64_t cost);

/* Return the limiter's counters. */
struct weir_stats remote_stats(const struct remote *remote);

void remote_close(struct remote *remote);

/* load_call of a struct remote: weir_try() for each draw. */
size_t remote_call(void *remote, int thread, const struct bench_key *draws, size_t n);

#endif
