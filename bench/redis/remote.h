/* remote.h - weir's distributed and hybrid mode through its public API, on a redis-server. */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include "redis/load.h"

#define REMOTE_PATIENCE_US (5 * WEIR_SECOND) /* a benchmark waits rather than fails */

struct remote {
    weir *weir;
    weir_limit *limit;
    unsigned sources; /* of its decisions, a bit for each enum weir_source; those of others count as failed */
};

/* For that mode, with an error where Redis does not answer within REMOTE_PATIENCE_US. */
struct weir_options remote_options(enum weir_mode mode);

/* A limiter on the server, with the policy under that name. False if its decisions cannot be had from Redis. */
bool remote_open(struct remote *remote, const struct store *store, const struct weir_options *options, const char *name,
                 const struct weir_policy *policy);

/* After a false: why, until the next is opened. */
const char *remote_complaint(void);

/* After a false: a row of the section that says why, and a line on stderr. */
void remote_report_missing(struct bench *bench);

/* Another limit of the same limiter, closed with it. Ends the program with a message on an error. */
struct remote remote_define(const struct remote *remote, const char *name, const struct weir_policy *policy);

/* Takes `cost` permits of each key 0 to keys-1, so that none is as good as new. */
void remote_fill(const struct remote *remote, uint64_t keys, int64_t cost);

/* What the limiter has counted so far. */
struct weir_stats remote_stats(const struct remote *remote);

/* The same in local mode, to stand beside it. */
void remote_open_local(struct remote *remote, const char *name, const struct weir_policy *policy);
void remote_close(struct remote *remote);

/* load_call, of a struct remote: weir_try() for each draw; one weir_try_batch() of up to 64 for all of them. */
size_t remote_call(void *remote, int thread, const struct bench_key *draws, size_t n);
size_t remote_call_batch(void *remote, int thread, const struct bench_key *draws, size_t n);

#endif
