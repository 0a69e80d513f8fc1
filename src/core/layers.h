/* layers.h - what of the policies that are followed comes into force. */
#ifndef CORE_LAYERS_H
#define CORE_LAYERS_H

#include "core/follow.h"

struct layers_result {
    uint64_t changes, refused;
    char sentence[200]; /* of the last that was refused */
};

/* WEIR_OK, or WEIR_ENOMEM. */
int layers_apply(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n,
                 struct layers_result *out);

#endif
