/* same_key.h - whether two requests are about the same key of the same limit, by whichever of its overrides. */
#ifndef CORE_LIMITER_SAME_KEY_H
#define CORE_LIMITER_SAME_KEY_H

#include "core/limiter/limiter.h"

#include <string.h>

static inline bool same_key(const struct weir_backend_request *a, const struct weir_backend_request *b)
{
    return a->hash == b->hash && a->limit->of == b->limit->of && a->key.len == b->key.len &&
           memcmp(a->key.data, b->key.data, a->key.len) == 0;
}

#endif
