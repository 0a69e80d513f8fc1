/* value.c - reads and deletes the value of one key.
 *
 * GETRANGE bounds what is read, so that a large value of another program costs no more than one of weir's.
 */
#include "backends/redis/cluster/cluster.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/inspect/inspector.h"

#include <stdlib.h>
#include <string.h>

static bool hear_clock(void *user, const struct redis_wire_scalar *scalar)
{
    struct weir_inspector *inspector = user;
    char digits[24];
    if (scalar->depth != 1 || scalar->place[0] > 1 || !scalar->text || scalar->len >= sizeof digits)
        return false;
    memcpy(digits, scalar->text, scalar->len);
    digits[scalar->len] = '\0';
    inspector->clock[scalar->place[0]] = strtoll(digits, NULL, 10);
    return true;
}

void inspect_write_time(struct weir_inspector *inspector)
{
    redis_wire_show_lists(&inspector->talk.link.wire, hear_clock, inspector);
    redis_bytes_words(&inspector->talk.link.out, 0, "TIME", NULL);
}

void inspect_write_read(struct weir_inspector *inspector, const char *name, size_t len)
{
    struct redis_bytes *out = &inspector->talk.link.out;
    redis_bytes_words(out, 3, "GETRANGE", NULL);
    redis_bytes_string(out, name, len);
    redis_bytes_text(out, "0");
    redis_bytes_number(out, REDIS_VALUE_MAX); /* a byte more than any state */
}

int inspect_hear_time(struct weir_inspector *inspector, int64_t *now_us)
{
    struct redis_reply reply;
    int error = redis_talk_hear_kind(&inspector->talk, "TIME", REDIS_REPLY_IS_LIST, &reply, inspect_why(inspector));
    *now_us = (int64_t)inspector->clock[0] * WEIR_SECOND + (int64_t)inspector->clock[1];
    if (!error && (inspector->clock[0] < 0 || *now_us < 0 || *now_us > WEIR_MAX_TIME_US)) {
        message_write(inspect_why(inspector), "the server's clock is out of range");
        error = WEIR_EIO;
    }
    return error;
}

int inspect_take_value(struct weir_inspector *inspector, const struct redis_reply *reply, int64_t now_us,
                       struct weir_inspected *out)
{
    const struct message why = inspect_why(inspector);
    if (redis_reply_is_error(reply, "WRONGTYPE")) {
        out->found = WEIR_FOUND_FOREIGN;
    } else if (reply->kind == REDIS_REPLY_IS_ERROR) {
        redis_reply_refusal(reply, "GETRANGE", why.text, why.size);
        return WEIR_EIO;
    } else if (reply->kind != REDIS_REPLY_IS_STRING) {
        message_write(why, "the server does not speak Redis' protocol");
        return WEIR_EIO;
    } else if (reply->len == 0) {
        out->found = WEIR_FOUND_NOTHING;
    } else {
        const bool is_ours = redis_value_decode((const unsigned char *)reply->text, reply->len, now_us, out);
        out->found = is_ours ? WEIR_FOUND_STATE : WEIR_FOUND_FOREIGN;
    }
    out->has_former = out->has_former && out->found == WEIR_FOUND_STATE;
    return WEIR_OK;
}

/* Write what is to be asked about a name. */
static void write_question(struct weir_inspector *inspector, const char *name, size_t len, bool deletes)
{
    if (!deletes) {
        inspect_write_read(inspector, name, len);
        return;
    }
    char beside[REDIS_KEY_MAX + 2]; /* slots and their costs */
    memcpy(beside, name, len);
    redis_bytes_words(&inspector->talk.link.out, 3, "DEL", NULL);
    redis_bytes_string(&inspector->talk.link.out, name, len);
    memcpy(beside + len, ":s", 2);
    redis_bytes_string(&inspector->talk.link.out, beside, len + 2);
    memcpy(beside + len, ":c", 2);
    redis_bytes_string(&inspector->talk.link.out, beside, len + 2);
}

/* Read or delete a key. The node `to`, to which a redirect led, needs ASKING first if the slot is still moving. */
static int ask_once(struct weir_inspector *inspector, struct weir_key key, const char *name, size_t len, bool deletes,
                    const struct redis_redirect *redirect, struct redis_reply *reply, int64_t *now_us)
{
    struct redis_talk *talk = &inspector->talk;
    const bool asks = redirect->kind == REDIS_REDIRECT_ASK;
    int error = redirect->kind == REDIS_NO_REDIRECT ? inspect_open_slot(inspector, redis_key_slot(key))
                                                    : inspect_open_node(inspector, &redirect->to);
    if (error)
        return error;
    inspect_write_time(inspector);
    if (asks)
        redis_bytes_words(&talk->link.out, 0, "ASKING", NULL);
    write_question(inspector, name, len, deletes);
    error = inspect_hear_time(inspector, now_us);
    if (!error && asks)
        error = redis_talk_hear_kind(talk, "ASKING", REDIS_REPLY_IS_STATUS, reply, inspect_why(inspector));
    return error ? error : redis_talk_hear(talk, deletes ? "DEL" : "GETRANGE", reply, inspect_why(inspector));
}

static int ask(struct weir_inspector *inspector, const char *limit, struct weir_key key, bool deletes,
               struct redis_reply *reply, int64_t *now_us)
{
    struct redis_redirect redirect = { .kind = REDIS_NO_REDIRECT };
    char name[REDIS_KEY_MAX];
    const size_t len = redis_key_write(inspector->prefix, limit, key, name);
    for (int tries = 0; tries <= REDIS_HOPS_MAX; tries++) {
        int error = ask_once(inspector, key, name, len, deletes, &redirect, reply, now_us);
        if (error || !inspector->map || !redis_redirect_read(reply, &redirect))
            return error;
        if (redirect.to.host[0] == '\0')
            memcpy(redirect.to.host, inspector->talk.with.host, sizeof redirect.to.host);
        if (redirect.kind == REDIS_REDIRECT_MOVED)
            redis_map_begin(inspector->map); /* it is out of date */
    }
    message_write(inspect_why(inspector), "the nodes of the redis cluster redirect the key from one to another");
    return WEIR_EIO;
}

int inspect_read(struct weir_inspector *inspector, const char *limit, struct weir_key key, struct weir_inspected *out)
{
    struct redis_reply reply;
    int64_t now_us = 0;
    int error = ask(inspector, limit, key, false, &reply, &now_us);
    return error ? error : inspect_take_value(inspector, &reply, now_us, out);
}

int inspect_delete(struct weir_inspector *inspector, const char *limit, struct weir_key key, bool *existed)
{
    struct redis_reply reply;
    int64_t now_us = 0;
    int error = ask(inspector, limit, key, true, &reply, &now_us);
    if (error)
        return error;
    *existed = reply.kind == REDIS_REPLY_IS_NUMBER && reply.number > 0;
    if (reply.kind == REDIS_REPLY_IS_NUMBER)
        return WEIR_OK;
    redis_reply_refusal(&reply, "DEL", inspector->why, sizeof inspector->why);
    return WEIR_EIO;
}
