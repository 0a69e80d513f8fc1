/* handle.c - a key that was resolved in advance: its bytes, its hash, and the backend's note of where it is.
 *
 * Nothing in a handle can become wrong. Each decision looks up overrides and plans, as without a handle. The note
 * belongs to the backend, which knows when it is outdated. It is passed only if the limiter has no fallback, because a
 * note is valid for one backend only.
 */
#include "core/api/verbs.h"

#include <stddef.h>
#include <stdlib.h>

int weir_key_resolve(weir_limit *limit, struct weir_key key, weir_handle **out)
{
    int error = check_arguments(limit, key, 1);
    if (error)
        return error;
    if (!out)
        return refuse_null(limit->limiter, "out");
    /* Separate cache lines, one for a key of 16 bytes: any thread that decides writes the note. */
    const size_t line = alignof(struct weir_handle);
    struct weir_handle *handle = aligned_alloc(line, (offsetof(struct weir_handle, bytes) + key.len + line - 1) &
                                                         ~(line - 1));
    if (!handle)
        return WEIR_ENOMEM;
    handle->limit = limit;
    handle->hash = key_hash(limit, key);
    handle->hint = (struct weir_backend_hint){ { 0, 0 } };
    memcpy(handle->bytes, key.data, key.len);
    handle->key = weir_key(handle->bytes, key.len);
    *out = handle;
    return WEIR_OK;
}

/* Out of line, because a request on the stack costs every call. */
__attribute__((noinline)) static int handle_try_otherwise(weir_handle *handle, int64_t cost, int64_t now_us,
                                                          struct weir_decision *out)
{
    if (!handle->limit->limiter->is_plain)
        return ask_guarded(handle->limit, handle->key, handle->hash, cost, now_us, WEIR_TAKE, out);
    const struct ask_more more = { .hint = &handle->hint };
    return ask_plain(handle->limit, handle->key, handle->hash, cost, now_us, WEIR_TAKE, more, out);
}

int weir_handle_try(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    if (!handle)
        return WEIR_EINVAL;
    const struct own_takes *takes = limit_takes(handle->limit);
    if (__builtin_expect(takes != NULL, 1))
        return takes->try_handle(handle, cost, now_us, out);
    const int error = take_check(handle->limit->limiter, cost, now_us, out);
    return error ? error : handle_try_otherwise(handle, cost, now_us, out);
}

void weir_handle_free(weir_handle *handle)
{
    free(handle);
}
