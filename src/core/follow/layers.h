/* layers.h - puts what a source of policies has into its layer, in place of what it had before. */
#ifndef CORE_FOLLOW_LAYERS_H
#define CORE_FOLLOW_LAYERS_H

#include "core/follow/follow.h"

struct layers_result {
    size_t changes;               /* entries that are new, or another than before, or gone */
    size_t refused;               /* entries that are refused, each of which keeps what was there */
    char sentence[LOG_LINE_SIZE]; /* of the last refusal */
};

/* follow_policies() but for the counting: `what` is WEIR_FOLLOW_CONSUL_POLICIES or WEIR_FOLLOW_POLICY_FILE. What one
 * entry is refused for does not hold up the others. WEIR_OK, or WEIR_ENOMEM if that is why any was. Logs where a limit
 * keeps a policy that nobody has any more, and where an override has no limit yet. */
int layers_apply(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n,
                 struct layers_result *out);

#endif
