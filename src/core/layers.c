/* layers.c - what of the policies that are followed comes into force: none, in a build without layers. */
#include "core/layers.h"

#include <stdio.h>

int layers_apply(struct weir *limiter, enum weir_followed what, const struct policy_entry *entries, size_t n,
                 struct layers_result *out)
{
    (void)limiter;
    (void)what;
    *out = (struct layers_result){ .refused = n };
    if (n > 0)
        snprintf(out->sentence, sizeof out->sentence, "%s: this build has no layers of policies", entries[n - 1].where);
    return WEIR_OK;
}
