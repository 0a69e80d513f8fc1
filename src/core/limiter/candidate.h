/* candidate.h - the second half of a policy: it decides beside the first, and for some keys in its place.
 *
 *     request --> [ the half that binds the key ] --admitted--> [ the other half ] --> would_deny
 *
 * A candidate is a separate struct weir_limit. No other limit has its plan, name or id, so a backend keeps its states
 * apart and knows nothing of halves. limit_for_key() returns it for the keys that it binds, as it
 * returns an override. A candidate lasts as long as its limit or override, and is found by nothing else.
 *
 * Once the half that binds has decided, the other is asked, and the request is that of the first half again: counters,
 * events and lists of keys know first halves only.
 */
#ifndef CORE_LIMITER_CANDIDATE_H
#define CORE_LIMITER_CANDIDATE_H

#include "core/limiter/request.h"

/* Return the first half of what limit_for_key() returned. */
static inline struct weir_limit *limit_first_half(struct weir_limit *limit)
{
    return limit_has_halves(limit) && limit->first ? limit->first : limit;
}

/* Return the candidate in force of a limit or override, or NULL. */
struct weir_limit *candidate_of(const struct weir_limit *first);

/* Free a target's candidate, if there ever was one. */
void candidate_free(struct weir_limit *first);

/* Make a request that was filled one to this half, whichever binds the key. */
void candidate_aim(struct weir_backend_request *request, struct weir_limit *half);

/* Make it one to the first half. */
static inline void candidate_aim_first(struct weir_backend_request *request)
{
    if (limit_has_halves(request->limit) && request->limit->first)
        candidate_aim(request, request->limit->first);
}

/* What the half that does not bind is asked. */
struct candidate_ask {
    struct weir_backend_request request;
    struct weir_reservation reservation;
};

/* Fill *out with what the other half is to be asked after this decision. False: nothing. */
bool candidate_begin(const struct weir_backend_request *request, const struct weir_decision *decision,
                     struct candidate_ask *out);

/* Take the other half's answer: would_deny, and the request's reservation. `answer` is NULL if there is none. The request
 * becomes one to the first half. */
void candidate_end(struct weir_backend_request *request, struct weir_decision *decision,
                   const struct candidate_ask *ask, const struct weir_decision *answer);

/* Do both for a request that a backend has decided that can neither block nor fail. */
void candidate_finish_plain(struct weir_backend_request *request, struct weir_decision *decision);

#endif
