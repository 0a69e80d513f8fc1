/* key.c - makes one key of several parts. */
#include <stdio.h>
#include <weir/weir.h>

int weir_key_join(const struct weir_key *parts, size_t n, void *out, size_t size)
{
    if (!parts || n == 0 || (!out && size > 0))
        return WEIR_EINVAL;
    size_t len = 0;
    char prefix[24] = "";
    for (size_t i = 0; i < n; i++) { /* no sum here overflows: each part is checked before it is added */
        if (parts[i].len > WEIR_MAX_KEY_LEN || len > WEIR_MAX_KEY_LEN || (parts[i].len > 0 && !parts[i].data))
            return WEIR_EINVAL;
        const int digits = n > 1 ? snprintf(prefix, sizeof prefix, "%zu:", parts[i].len) : 0;
        len += (size_t)digits + parts[i].len + (n > 1);
    }
    if (len == 0 || len > WEIR_MAX_KEY_LEN)
        return WEIR_EINVAL;
    if (len > size)
        return (int)len;
    char *at = out;
    for (size_t i = 0; i < n; i++) {
        const int digits = n > 1 ? snprintf(prefix, sizeof prefix, "%zu:", parts[i].len) : 0;
        memcpy(at, prefix, (size_t)digits);
        at += digits;
        if (parts[i].len > 0)
            memcpy(at, parts[i].data, parts[i].len);
        at += parts[i].len;
        if (n > 1)
            *at++ = ',';
    }
    return (int)len;
}
