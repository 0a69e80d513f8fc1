/* token_bucket.h - the decision of token_bucket.c. */
#ifndef CORE_ALGORITHM_TOKEN_BUCKET_H
#define CORE_ALGORITHM_TOKEN_BUCKET_H

#include "core/algorithm/level.h"

static inline bool token_bucket_decide(const struct weir_plan *plan, int64_t *state, int64_t now_us, int64_t cost,
                                       enum weir_verb verb, struct weir_decision *out)
{
    struct level level = level_read(plan, state, now_us);
    return level_decide(plan, &level, state, now_us, cost, verb, out);
}

#endif
