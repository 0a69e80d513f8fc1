/* request.h - one request and the account of its key: what can be told of it here, and what an answer changes.
 */
#ifndef BACKENDS_HYBRID_REQUEST_H
#define BACKENDS_HYBRID_REQUEST_H

#include "backends/hybrid/lease_call.h"

#define HYBRID_GROUP_MAX WEIR_MAX_ALL /* requests that are looked at together */

/* A deadline, or a span of time to wait as a negative number: that begins when it is known that there is something to
 * wait for, for a reading of the clock costs as much as a decision by a lease. */
int64_t hybrid_deadline_us(int64_t deadline_or_span_us);

/* The account of a request as it stands: under the plan in force, by the clock that the request has. NULL: there is
 * none, nor has one been made if `make`. */
struct account *request_account(struct hybrid *hybrid, struct account_shard *shard,
                                const struct weir_backend_request *request, bool make, int64_t now_us)
    REQUIRES(shard->mutex);

/* lease_decide() for a take of `cost`, counted. */
enum lease_answer request_decide(struct account_shard *shard, struct account *account, int64_t now_us, int64_t cost,
                                 struct weir_decision *out) REQUIRES(shard->mutex);

/* lease_make_order() for it. */
struct lease_order request_make_order(const struct hybrid *hybrid, struct account *account, int64_t now_us,
                                      int64_t cost, int64_t waiting);

/* A flight for permits ahead of any request. NULL: there is no need for one now, or no memory. */
struct lease_call *request_call_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                      const struct weir_backend_request *request, int64_t now_us)
    REQUIRES(shard->mutex);

/* Take in what the remote has decided of `ask`, without a lock held. False: what the request lacked has come, but its
 * lease has not what it takes even with that. */
bool request_answered(struct hybrid *hybrid, const struct weir_backend_request *request,
                      const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                      struct weir_decision *out);

/* The same for a member of a group, or what is asked for ahead: it is decided by the remote alone. */
void request_answered_in_group(struct hybrid *hybrid, const struct weir_backend_request *request,
                               const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                               struct weir_decision *out);

/* Nothing comes of what was asked for. */
void request_failed(struct hybrid *hybrid, const struct weir_backend_request *request, const struct lease_order *order);

#endif
