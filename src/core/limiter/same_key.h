/* same_key.h - tells whether two requests are about the same key of the same limit. */
#ifndef CORE_LIMITER_SAME_KEY_H
#define CORE_LIMITER_SAME_KEY_H

#include <weir/backend.h>

#include <string.h>

/* True if both are; the overrides of a limit share its keys. */
static inline bool same_key(const struct weir_backend_request *a, const struct weir_backend_request *b)
{
    return a->hash == b->hash && a->limit_id == b->limit_id && a->key.len == b->key.len &&
           memcmp(a->key.data, b->key.data, a->key.len) == 0;
}

#endif
