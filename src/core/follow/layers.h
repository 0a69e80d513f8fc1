/* layers.h - puts a source's policies into its layer, in place of those that it had before. */
#ifndef CORE_FOLLOW_LAYERS_H
#define CORE_FOLLOW_LAYERS_H

#include "core/follow/follow.h"

struct layers_result {
    size_t changes;               /* entries that are new, changed or gone */
    size_t refused;               /* refused entries; each keeps the policy it had */
    char sentence[LOG_LINE_SIZE]; /* of the last refusal */
};

/* Do follow_policies(), except for the counting. A refused entry does not hold up the others. WEIR_OK, or WEIR_ENOMEM
 * if an entry was refused for want of memory. Log each limit that keeps a policy which no layer has any more, and each
 * override whose limit does not exist yet. */
int layers_apply(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n,
                 struct layers_result *out);

#endif
