/* value.c - reads and deletes the value of one key.
 *
 * GETRANGE bounds what is read, so that a large value of another program costs no more than one of weir's. A key without
 * a value may have slots, lua/slots_of.lua.
 */
#include "backends/redis/cluster/cluster.h"
#include "backends/redis/flight/key.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/inspect/inspector.h"

#include <stdio.h>
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

/* ---- Slots ---- */

/* Note the score of a list's only member: an end. */
static bool hear_end(void *user, const struct redis_wire_scalar *scalar)
{
    struct weir_inspector *inspector = user;
    char digits[32];
    if (scalar->depth != 1 || scalar->place[0] > 1 || !scalar->text)
        return false;
    if (scalar->place[0] == 0)
        return true; /* the slot's id */
    if (scalar->len >= sizeof digits)
        return false;
    memcpy(digits, scalar->text, scalar->len);
    digits[scalar->len] = '\0';
    inspector->end_us = (int64_t)strtod(digits, NULL);
    return true;
}

/* Write a command about the slots of a name from `now_us` on; with `limits` for the first of them. */
static void write_range(struct weir_inspector *inspector, const char *command, const struct redis_bytes *name,
                        int64_t now_us, bool limits)
{
    struct redis_bytes *out = &inspector->talk.link.out;
    char after[24];
    snprintf(after, sizeof after, "(%lld", (long long)now_us);
    redis_bytes_words(out, limits ? 7 : 3, command, NULL);
    redis_bytes_string(out, name->data, name->len);
    redis_bytes_text(out, after);
    redis_bytes_text(out, "+inf");
    if (!limits)
        return;
    redis_bytes_text(out, "WITHSCORES");
    redis_bytes_text(out, "LIMIT");
    redis_bytes_text(out, "0");
    redis_bytes_text(out, "1");
}

/* Hear the only end of a list; the time from `now_us` until then. */
static int hear_range(struct weir_inspector *inspector, const char *command, int64_t now_us, int64_t *left_us)
{
    struct redis_reply reply;
    inspector->end_us = now_us;
    redis_wire_show_lists(&inspector->talk.link.wire, hear_end, inspector);
    const int error = redis_talk_hear_kind(&inspector->talk, command, REDIS_REPLY_IS_LIST, &reply,
                                           inspect_why(inspector));
    *left_us = inspector->end_us - now_us;
    return error;
}

static int slots_read(struct weir_inspector *inspector, const struct redis_bytes *name, int64_t now_us,
                      struct weir_inspected *out)
{
    struct redis_talk *talk = &inspector->talk;
    struct redis_reply reply;
    const struct message why = inspect_why(inspector);
    write_range(inspector, "ZCOUNT", name, now_us, false);
    redis_bytes_words(&talk->link.out, 2, "ZSCORE", NULL);
    redis_bytes_string(&talk->link.out, name->data, name->len);
    redis_bytes_text(&talk->link.out, "");
    write_range(inspector, "ZRANGEBYSCORE", name, now_us, true);
    redis_bytes_words(&talk->link.out, 4, "ZREVRANGE", NULL);
    redis_bytes_string(&talk->link.out, name->data, name->len);
    redis_bytes_text(&talk->link.out, "0");
    redis_bytes_text(&talk->link.out, "0");
    redis_bytes_text(&talk->link.out, "WITHSCORES");
    int error = redis_talk_hear_kind(talk, "ZCOUNT", REDIS_REPLY_IS_NUMBER, &reply, why);
    out->slots = error ? 0 : reply.number;
    if (!error)
        error = redis_talk_hear(talk, "ZSCORE", &reply, why);
    if (!error && reply.kind != REDIS_REPLY_IS_STRING && reply.kind != REDIS_REPLY_IS_NIL) {
        redis_reply_refusal(&reply, "ZSCORE", why.text, why.size);
        error = WEIR_EIO;
    }
    out->state.used = out->slots;
    if (!error && reply.kind == REDIS_REPLY_IS_STRING) { /* what the costs exceed 1 by */
        char digits[32];
        const size_t len = reply.len < sizeof digits - 1 ? reply.len : sizeof digits - 1;
        memcpy(digits, reply.text, len);
        digits[len] = '\0';
        out->state.used -= (int64_t)strtod(digits, NULL);
    }
    if (!error)
        error = hear_range(inspector, "ZRANGEBYSCORE", now_us, &out->first_slot_us);
    if (!error)
        error = hear_range(inspector, "ZREVRANGE", now_us, &out->state.decision.reset_after_us);
    return error;
}

int inspect_read_slots(struct weir_inspector *inspector, const char *name, size_t len, int64_t now_us,
                       struct weir_inspected *out)
{
    struct redis_bytes beside = { 0 };
    redis_bytes_add(&beside, name, len);
    redis_bytes_add(&beside, REDIS_SLOTS_SUFFIX, REDIS_SUFFIX_LEN);
    int error = beside.failed ? WEIR_ENOMEM : slots_read(inspector, &beside, now_us, out);
    redis_bytes_free(&beside);
    if (!error && out->slots > 0) {
        out->found = WEIR_FOUND_STATE;
        out->has_former = false;
        out->state.policy = (struct weir_policy){ .algorithm = WEIR_CONCURRENCY };
    }
    return error;
}

/* Write what is to be asked about a name. */
static void write_question(struct weir_inspector *inspector, const char *name, size_t len, bool deletes)
{
    if (!deletes) {
        inspect_write_read(inspector, name, len);
        return;
    }
    char beside[REDIS_KEY_MAX + REDIS_SUFFIX_LEN];
    memcpy(beside, name, len);
    redis_bytes_words(&inspector->talk.link.out, 3, "DEL", NULL);
    redis_bytes_string(&inspector->talk.link.out, name, len);
    memcpy(beside + len, REDIS_SLOTS_SUFFIX, REDIS_SUFFIX_LEN);
    redis_bytes_string(&inspector->talk.link.out, beside, len + REDIS_SUFFIX_LEN);
    memcpy(beside + len, REDIS_COSTS_SUFFIX, REDIS_SUFFIX_LEN);
    redis_bytes_string(&inspector->talk.link.out, beside, len + REDIS_SUFFIX_LEN);
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
    if (!error)
        error = inspect_take_value(inspector, &reply, now_us, out);
    if (error || out->found != WEIR_FOUND_NOTHING)
        return error;
    char name[REDIS_KEY_MAX];
    const size_t len = redis_key_write(inspector->prefix, limit, key, name);
    return inspect_read_slots(inspector, name, len, now_us, out);
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
