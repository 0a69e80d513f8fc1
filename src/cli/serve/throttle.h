/* throttle.h - the limits of CL.THROTTLE, whose parameters come with every call.
 *
 * Each set of parameters becomes one limit, cl.throttle.<max_burst>.<count>.<period>. So all servers on one Redis count
 * together. There are at most THROTTLE_MAX limits. When all are in use, a new set replaces another one and renames its
 * limit. It replaces an idle set, so that nothing is forgotten. If a sample has no idle set, it replaces the one of the
 * sample whose last request is the oldest: in local mode the keys of that set then become fresh; in distributed mode
 * their state is in Redis. In hybrid mode only idle sets are replaced: permits leased for one set must not be spent
 * under another one's name.
 */
#ifndef WEIR_CLI_SERVE_THROTTLE_H
#define WEIR_CLI_SERVE_THROTTLE_H

#include "cli/span.h"

#include <weir/weir.h>

#define THROTTLE_MAX 16384
#define THROTTLE_SAMPLE 64 /* sets that are examined to find one to replace */

#define THROTTLE_ERROR "Cell error: Store error:" /* how redis-cell begins its errors */

struct throttle_set {
    int64_t max_burst, count, period_s;
    weir_limit *limit;
    int64_t asked_us; /* when the last request came, on CLOCK_MONOTONIC */
    int64_t idle_us;  /* so long after that all its keys are fresh, or their state is in Redis */
    bool is_leased;   /* it is not replaced before it is idle */
    uint32_t waiting; /* requests under way: it is not replaced */
    uint32_t next;    /* set with the same hash, plus 1; 0: none */
};

struct throttle {
    struct throttle_set *sets;    /* THROTTLE_MAX */
    uint32_t heads[THROTTLE_MAX]; /* by hash: number of the first set, plus 1; 0: none */
    uint32_t used;                /* sets */
    uint32_t hand;                /* where the next sample begins */
    uint64_t seed;                /* clients choose the parameters, and must not be able to choose the hash */
    bool is_local;                /* states are in this process alone */
};

/* Prepare. False: out of memory, or the system has no random numbers. */
bool throttle_init(struct throttle *throttle, bool is_local);
void throttle_free(struct throttle *throttle);

/* Return the set of these parameters, asked for at `now_us`, or NULL with a sentence in `fault`. It stays in its place
 * as long as `waiting` is not 0. */
struct throttle_set *throttle_get(struct throttle *throttle, weir *limiter, int64_t max_burst, int64_t count,
                                  int64_t period_s, int64_t now_us, struct fault *fault);

#endif
