/* throttle.h - the limits of CL.THROTTLE, whose parameters come with every call.
 *
 * Each set of parameters becomes one limit, cl.throttle.<max_burst>.<count>.<period>, at its first call. So all servers
 * on one Redis count together. weir forgets no limit, so there is a bound: THROTTLE_MAX sets in a server's life.
 */
#ifndef WEIR_CLI_SERVE_THROTTLE_H
#define WEIR_CLI_SERVE_THROTTLE_H

#include "cli/span.h"

#include <weir/weir.h>

#define THROTTLE_MAX 16384

#define THROTTLE_ERROR "Cell error: Store error:" /* how redis-cell begins its errors */

struct throttle_set {
    int64_t max_burst, count, period_s;
    weir_limit *limit; /* NULL: the slot is empty */
};

struct throttle {
    struct throttle_set *sets; /* 2 * THROTTLE_MAX slots, probed in order */
    uint64_t seed;             /* clients choose the parameters, and must not be able to choose the slot */
    size_t used;
};

/* Prepare. False: out of memory, or the system has no random numbers. */
bool throttle_init(struct throttle *throttle);
void throttle_free(struct throttle *throttle);

/* Return the limit for these parameters, or NULL with a sentence in `fault`. */
weir_limit *throttle_limit(struct throttle *throttle, weir *limiter, int64_t max_burst, int64_t count, int64_t period_s,
                           struct fault *fault);

#endif
