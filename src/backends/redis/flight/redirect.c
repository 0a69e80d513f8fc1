/* redirect.c - parses the MOVED and ASK errors of a Redis Cluster. */
#include "backends/redis/flight/redirect.h"

#include "backends/redis/flight/key.h"
#include "backends/redis/wire/text.h"

/* "host:port". An IPv6 address has no brackets, so the last colon separates the port. */
static bool read_node(struct redis_text word, struct redis_node_name *out)
{
    const char *colon = word.len > 0 ? memrchr(word.at, ':', word.len) : NULL;
    if (!colon)
        return false;
    const size_t host_len = (size_t)(colon - word.at);
    return redis_node_name_read(out, word.at, host_len, colon + 1, word.len - host_len - 1);
}

/* "MOVED <slot> <node>" or "ASK <slot> <node>" */
bool redis_redirect_read(const struct redis_reply *reply, struct redis_redirect *out)
{
    const enum redis_redirection kind = redis_reply_is_error(reply, "MOVED") ? REDIS_REDIRECT_MOVED
                                        : redis_reply_is_error(reply, "ASK") ? REDIS_REDIRECT_ASK
                                                                             : REDIS_NO_REDIRECT;
    out->kind = REDIS_NO_REDIRECT;
    if (kind == REDIS_NO_REDIRECT)
        return false;
    struct redis_text text = { reply->text, reply->len };
    redis_text_cut(&text, ' ');
    const struct redis_text digits = redis_text_cut(&text, ' ');
    const int slot = redis_text_number(digits, 0, REDIS_CLUSTER_SLOTS - 1);
    if (digits.len > 5 || slot < 0 || !read_node(text, &out->to))
        return false;
    out->slot = (unsigned)slot;
    out->kind = kind;
    return true;
}
