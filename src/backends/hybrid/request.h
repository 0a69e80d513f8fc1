/* request.h - decides one request by its key's account and takes Redis's answers into it. */
#ifndef BACKENDS_HYBRID_REQUEST_H
#define BACKENDS_HYBRID_REQUEST_H

#include "backends/hybrid/lease_call.h"

#define HYBRID_GROUP_MAX WEIR_MAX_ALL /* most requests that are handled together */

/* Return a deadline for a deadline or a span, which is a negative number and begins now. Callers convert a span
 * only once they know that they must wait: reading the clock costs as much as a decision by a lease. */
int64_t hybrid_deadline_us(int64_t deadline_or_span_us);

/* Return the request's account, under the request's plan and clock, or NULL. */
struct account *request_account(struct hybrid *hybrid, struct account_shard *shard,
                                const struct weir_backend_request *request, int64_t now_us) REQUIRES(shard->mutex);

/* The same after taking the shard's mutex. Make the account if there is none. NULL: there is no room for it. */
struct account *request_enter(struct hybrid *hybrid, struct account_shard *shard,
                              const struct weir_backend_request *request, int64_t now_us) TAKES(shard->mutex);

/* Decide a request as a take by the lease, and count the result in the shard. */
enum lease_answer request_decide(struct account_shard *shard, struct account *account, int64_t now_us,
                                 const struct weir_backend_request *request, struct weir_decision *out)
    REQUIRES(shard->mutex);

/* Return what to order from Redis for a request of `cost`; `waiting` is what others need as well. */
struct lease_order request_make_order(const struct hybrid *hybrid, struct account *account, int64_t now_us,
                                      int64_t cost, int64_t waiting);

/* Make a call that leases permits in advance. NULL: none is needed now, or out of memory. */
struct lease_call *request_call_ahead(struct hybrid *hybrid, struct account_shard *shard, struct account *account,
                                      const struct weir_backend_request *request, int64_t now_us)
    REQUIRES(shard->mutex);

/* Take the remote's answer to `order` in. False: the missing permits have arrived, but the lease still does not
 * cover the request. The caller holds no lock. */
bool request_answered(struct hybrid *hybrid, const struct weir_backend_request *request,
                      const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                      struct weir_decision *out);

/* Take in the remote's answer for a member of a group or for an order in advance: the remote alone decides those. */
void request_answered_in_group(struct hybrid *hybrid, const struct weir_backend_request *request,
                               const struct lease_order *order, int64_t asked_us, const struct weir_decision *decision,
                               struct weir_decision *out);

/* Note that an order has failed. */
void request_failed(struct hybrid *hybrid, const struct weir_backend_request *request, const struct lease_order *order);

#endif
