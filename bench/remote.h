/* remote.h - weir's distributed mode through its public API, on the private server. */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include "load.h"

#define REMOTE_PATIENCE_US (5 * WEIR_SECOND) /* a benchmark waits rather than fails */

struct remote {
    weir *weir;
    weir_limit *limit;
    uint8_t source; /* of its decisions, enum weir_source; those of another count as failed */
};

/* A limiter on the server, with the policy under that name. timeout_us: 0 means the library's default. False if its
 * decisions cannot be had from Redis. */
bool remote_open(struct remote *remote, const struct store *store, enum weir_on_failure on_failure, int64_t timeout_us,
                 const char *name, const struct weir_policy *policy);

/* After a false: a row of the section that says why, and a line on stderr. */
void remote_report_missing(struct bench *bench);

/* The same in local mode, to stand beside it. */
void remote_open_local(struct remote *remote, const char *name, const struct weir_policy *policy);
void remote_close(struct remote *remote);

/* load_call, of a struct remote: weir_try() for each draw; one weir_try_batch() of up to 64 for all of them. */
size_t remote_call(void *remote, int thread, const struct bench_key *draws, size_t n);
size_t remote_call_batch(void *remote, int thread, const struct bench_key *draws, size_t n);

#endif
