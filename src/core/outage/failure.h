/* failure.h - what becomes of a decision whose backend failed: enum weir_on_failure, in one place for all verbs. */
#ifndef CORE_OUTAGE_FAILURE_H
#define CORE_OUTAGE_FAILURE_H

#include "core/limiter/limiter.h"
#include "core/limiter/own_ops.h"

/* Ask the backend, and if it fails answer in its place: as ops->decide(). Requests that the fallback decided are
 * rewritten to those that it was asked: failure_fell_back() tells. */
int failure_decide(struct weir *limiter, struct weir_backend_request *requests, size_t n, bool all, int64_t deadline_us,
                   struct weir_decision *out);

/* The second half of it, for a backend that has answered with `error`. */
int failure_answer(struct weir *limiter, int error, struct weir_backend_request *requests, size_t n, bool all,
                   struct weir_decision *out);

/* In place of a decision that cannot be made just now, for the key is being settled. */
void failure_deny_for_now(const struct weir_backend_request *request, struct weir_decision *out);

static inline bool failure_fell_back(const struct weir_backend_request *request)
{
    return request->cold_since_us >= 0;
}

/* The outage that lasts, if one does. Any thread; sequentially consistent. */
struct failure_outage {
    uint32_t tag; /* its number */
    int64_t since_us;
};
bool failure_outage(const struct weir *limiter, struct failure_outage *out);

/* Whether the backend says that the part of it where a key is, or with NULL all of it, can be reached just now; true if
 * it cannot tell. */
bool failure_is_in_reach(const struct weir *limiter, const struct weir_key *key);

/* The backend has answered for this key: it is over, unless another part of the backend is away. */
void failure_over(struct weir *limiter, const struct weir_key *key, int64_t now_us);

/* An outage that lasts is over as if all of the backend had answered, and goes on as another, cold once more. Without a
 * stand-in nothing is to do. No mutex is held. So it must be where
 *
 *     - the stand-in's plans have changed, of all keys or of some: their share or their policy is another. A state
 *       carried over to a larger plan would be one that is not cold any more, and to a smaller one it could not hold
 *       what is owed
 *     - a part of the backend has come back while another is away: what is forgotten of its keys then must not count
 *       as fresh when it fails again */
void failure_split(struct weir *limiter);

/* In the child of a fork, which has one thread: what its parent's stand-in has admitted is not its own, so an outage
 * that it is in begins anew. */
void failure_begin_in_child(struct weir *limiter);

/* The time of a request as outages are told by: its own, or the limiter's clock as far as it is in range. */
int64_t failure_time(const struct weir *limiter, int64_t request_us);

/* Ask for something that follows from a decision, of who made it; `request` is that of the decision, changed as may
 * be. Its time is read anew. */
int failure_follow(struct weir *limiter, struct weir_backend_request *request, struct weir_decision *out);

/* Whether somebody else decided than who was asked. */
static inline bool failure_decided(const struct weir_decision *decision)
{
    return decision->source >= WEIR_BY_FALLBACK;
}

#endif
