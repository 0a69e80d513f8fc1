/* redirect.c - parses the MOVED and ASK errors of a Redis Cluster. */
#include "backends/redis/flight/redirect.h"

#include "backends/redis/flight/key.h"

#include <string.h>

struct text {
    const char *at;
    size_t len;
};

/* Cut off and return the first word, and drop the blank after it. */
static struct text cut_word(struct text *text)
{
    const char *blank = text->len > 0 ? memchr(text->at, ' ', text->len) : NULL;
    const struct text word = { text->at, blank ? (size_t)(blank - text->at) : text->len };
    const size_t cut = blank ? word.len + 1 : word.len;
    text->at += cut;
    text->len -= cut;
    return word;
}

static bool read_slot(struct text word, unsigned *out)
{
    unsigned slot = 0;
    if (word.len == 0 || word.len > 5)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        if (word.at[i] < '0' || word.at[i] > '9')
            return false;
        slot = slot * 10 + (unsigned)(word.at[i] - '0');
    }
    *out = slot;
    return slot < REDIS_CLUSTER_SLOTS;
}

/* "host:port". An IPv6 address has no brackets, so the last colon separates the port. */
static bool read_node(struct text word, struct redis_node_name *out)
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
    struct text text = { reply->text, reply->len };
    cut_word(&text);
    if (!read_slot(cut_word(&text), &out->slot) || !read_node(text, &out->to))
        return false;
    out->kind = kind;
    return true;
}
