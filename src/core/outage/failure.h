/* failure.h - decides by the backend and, if that fails, by options.on_failure; in one place for all verbs. */
#ifndef CORE_OUTAGE_FAILURE_H
#define CORE_OUTAGE_FAILURE_H

#include "core/outage/outage.h"

/* Make limiter->outage. WEIR_OK or WEIR_ENOMEM. */
int failure_init(struct weir *limiter, const struct weir_options *options);
void failure_free(struct weir *limiter);

/* Ask the backend, and answer in its place if it fails: as ops->decide(). A request that the fallback decided is
 * rewritten to what the fallback was asked: its cold_since_us is then 0 or more. */
int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out);

/* Do the second half of that, for a backend that has answered with `error`. */
int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   struct weir_decision *out);

/* Fill a denial that asks to retry soon: the key is being settled. */
void failure_deny_for_now(const struct weir_backend_request *request, struct weir_decision *out);

/* End the outage, because the backend has answered for this key; not if another part of the backend is away. */
void failure_over(struct weir *limiter, const struct weir_key *key, int64_t now_us);

/* End the outage that lasts as if the whole backend had answered. The next failure begins another one, with every key
 * cold. Does nothing without a fallback. The caller holds no mutex. Two events need it:
 *
 *     - the fallback's plans have changed, because a share or a policy has. A state carried over to a larger plan would
 *       not be cold any more; a smaller plan could not hold what is owed
 *     - a part of the backend has come back while another is away. Its keys are forgotten then, and must not count as
 *       fresh when it fails again */
void failure_split(struct weir *limiter);

/* In the child of a fork, end the outage that lasts: the child does not settle what its parent's fallback admitted. */
void failure_begin_in_child(struct weir *limiter);

/* Ask the backend that made a decision for something that follows from it. `request` is the decision's, perhaps
 * changed; its time is read anew. */
int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out);

/* True if on_failure decided instead of the backend. */
static inline bool failure_decided(const struct weir_decision *decision)
{
    return decision->source >= WEIR_BY_FALLBACK;
}

#endif
