/* each.h - how the hybrid backend decides takes: each by itself, or a group. */
#ifndef BACKENDS_HYBRID_EACH_H
#define BACKENDS_HYBRID_EACH_H

#include "backends/hybrid/lease_call.h"

/* Decide takes without `ahead`, as ops->decide() and ops->submit() do; n is at most HYBRID_GROUP_MAX. The
 * deadline of a single request may be a span: a negative number, see hybrid_deadline_us(). */
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
