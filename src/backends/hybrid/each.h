/* each.h - the decisions of the hybrid backend for requests each by itself, and for all or none of them. */
#ifndef BACKENDS_HYBRID_EACH_H
#define BACKENDS_HYBRID_EACH_H

#include "backends/hybrid/lease_call.h"

/* Takes, without `ahead`. As ops->decide() and ops->submit(); n is HYBRID_GROUP_MAX at most. A deadline of one request
 * may be a span of time, as a negative number. */
int hybrid_decide_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_decision *out);
int hybrid_decide_batch(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n,
                        int64_t deadline_us, struct weir_decision *out);
int hybrid_submit_one(struct hybrid *hybrid, const struct weir_backend_request *request, int64_t deadline_us,
                      struct weir_op *op);

/* hybrid/all.c */
int hybrid_decide_all(struct hybrid *hybrid, const struct weir_backend_request *requests, size_t n, int64_t deadline_us,
                      struct weir_decision *out);

#endif
