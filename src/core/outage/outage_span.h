/* outage_span.h - when an outage begins, and when it ends. */
#ifndef CORE_OUTAGE_OUTAGE_SPAN_H
#define CORE_OUTAGE_OUTAGE_SPAN_H

#include "core/outage/outage.h"

/* Return the word of the outage that the backend is in; begin one if none lasts. `error` is how it failed for this
 * key. The caller holds no mutex. */
uint64_t outage_enter(struct weir *limiter, const struct weir_key *key, int64_t now_us, int error);

/* End the outage, because the backend has answered for this key; not if another part of the backend is away. */
void outage_over(struct weir *limiter, const struct weir_key *key, int64_t now_us);

/* End the outage that lasts as if the whole backend had answered. The next failure begins another one, with every key
 * cold. Does nothing without a fallback. The caller holds no mutex. Two events need it:
 *
 *     - the fallback's plans have changed, because a share or a policy has. A state carried over to a larger plan would
 *       not be cold any more; a smaller plan could not hold what is owed
 *     - a part of the backend has come back while another is away. Its keys are forgotten then, and must not count as
 *       fresh when it fails again */
void outage_split(struct weir *limiter);

/* In the child of a fork, end the outage that lasts: the child does not settle what its parent's fallback admitted. */
void outage_begin_in_child(struct weir *limiter);

/* True if all outages together, the one that has lasted for `lasts_us` included, have used up open_for_us. */
bool outage_open_is_spent(const struct outage *outage, int64_t lasts_us);

#endif
