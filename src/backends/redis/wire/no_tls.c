/* no_tls.c - replaces tls.c where weir is built without OpenSSL: no context can be made, so nothing else is called. */
#include "backends/redis/wire/tls.h"

#include <assert.h>

int redis_tls_context_make(const struct weir_options *options, struct redis_tls_context **out, struct message message)
{
    (void)options;
    (void)out;
    return message_refuse(
        message,
        "redis_url: this build of weir has no TLS; redis://, redis-sentinel://, redis-cluster:// or unix:// is expected");
}

void redis_tls_context_free(struct redis_tls_context *context)
{
    assert(!context);
    (void)context;
}

void redis_tls_end(struct redis_tls *tls)
{
    assert(!tls);
    (void)tls;
}

struct redis_tls *redis_tls_begin(struct redis_tls_context *context, const char *host)
{
    (void)context;
    (void)host;
    return NULL;
}

int redis_tls_shake_hands(struct redis_tls *tls, struct redis_bytes *sealed)
{
    (void)tls;
    (void)sealed;
    return -1;
}

int redis_tls_seal(struct redis_tls *tls, const void *data, size_t len, struct redis_bytes *sealed)
{
    (void)tls;
    (void)data;
    (void)len;
    (void)sealed;
    return -1;
}

int redis_tls_feed(struct redis_tls *tls, const void *data, size_t len)
{
    (void)tls;
    (void)data;
    (void)len;
    return -1;
}

int redis_tls_read(struct redis_tls *tls, void *data, size_t size, struct redis_bytes *sealed)
{
    (void)tls;
    (void)data;
    (void)size;
    (void)sealed;
    return -1;
}

const char *redis_tls_reason(const struct redis_tls *tls)
{
    (void)tls;
    return "no TLS";
}
