/* failure.h - decides by the backend and, if that fails, by options.on_failure; in one place for all verbs. */
#ifndef CORE_OUTAGE_FAILURE_H
#define CORE_OUTAGE_FAILURE_H

#include "core/outage/outage.h"

/* Make limiter->outage. WEIR_OK or WEIR_ENOMEM. */
int failure_init(struct weir *limiter, const struct weir_options *options);
void failure_free(struct weir *limiter);

#define FAILURE_BATCH_MAX 256 /* the most requests of a call to failure_decide() */

/* Decide for limits that are fixed (fixed.h); with `all` there must be none. For the others ask the backend, and answer
 * in its place if it fails: as ops->decide(). A request that the fallback decided is
 * rewritten to what the fallback was asked: its cold_since_us is then 0 or more. */
int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out);

/* Answer requests to which a backend has already answered with `error`, as above. `asked`: outage_asked() before that.
 */
int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   uint32_t asked, struct weir_decision *out);

/* Fill a denial that asks to retry soon: the key is being settled. */
void failure_deny_for_now(const struct weir_backend_request *request, struct weir_decision *out);

/* Ask the backend that made a decision for something that follows from it. `request` is the decision's, perhaps
 * changed; its time is read anew. */
int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out);

/* True if the backend could not decide, so that on_failure does. */
static inline bool failure_is_failure(int error)
{
    return error == WEIR_ETIME || error == WEIR_EIO || error == WEIR_EIO_UNDONE;
}

/* True if on_failure decided instead of the backend. */
static inline bool failure_decided(const struct weir_decision *decision)
{
    return decision->source >= WEIR_BY_FALLBACK && decision->source <= WEIR_BY_FAIL_CLOSED;
}

#endif
