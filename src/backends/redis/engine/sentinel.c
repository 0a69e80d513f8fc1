/* sentinel.c - asks a sentinel which server is the primary, then listens for news from it. */
#include "backends/redis/engine/sentinel.h"

#include "backends/redis/wire/text.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define RESOLVE_US (2 * WEIR_SECOND)
#define ANSWER_US (WEIR_SECOND / 2)  /* to connect and answer the question, or to answer a PING */
#define SILENCE_US (3 * WEIR_SECOND) /* before a PING: a dead connection is silent, too */
#define SETTLED_US WEIR_SECOND       /* a connection that lasted this long was a good one */
#define ROOM 4096                    /* more than secrets and questions take */

int redis_sentinel_init(struct redis_sentinel *sentinel, const struct redis_target *target, const struct log *log)
{
    *sentinel = (struct redis_sentinel){ .target = target, .log = log, .due_us = INT64_MAX };
    resolver_init(&sentinel->resolver, &(struct resolve_target){ 0 });
    redis_pauses_init(&sentinel->pauses);
    return redis_link_init(&sentinel->link);
}

void redis_sentinel_free(struct redis_sentinel *sentinel)
{
    resolver_destroy(&sentinel->resolver);
    redis_link_free(&sentinel->link);
}

void redis_sentinel_abandon(struct redis_sentinel *sentinel)
{
    redis_link_abandon(&sentinel->link);
    resolver_abandon(&sentinel->resolver);
}

struct pollfd redis_sentinel_polled(const struct redis_sentinel *sentinel)
{
    if (sentinel->state == REDIS_SENTINEL_RESOLVING)
        return (struct pollfd){ .fd = resolver_fd(&sentinel->resolver), .events = POLLIN };
    return (struct pollfd){ .fd = sentinel->link.fd, .events = redis_link_events(&sentinel->link) };
}

static void sentinel_idle_until(struct redis_sentinel *sentinel, int64_t due_us)
{
    sentinel->state = REDIS_SENTINEL_IDLE;
    sentinel->due_us = due_us;
    resolver_destroy(&sentinel->resolver);
    redis_link_close(&sentinel->link, "");
}

static size_t sentinel_next(const struct redis_sentinel *sentinel)
{
    return (sentinel->at + 1) % sentinel->target->host_count;
}

void redis_sentinel_ask(struct redis_sentinel *sentinel, bool another)
{
    sentinel->wanted = true;
    sentinel->failed = 0;
    if (sentinel->state == REDIS_SENTINEL_RESOLVING || sentinel->state == REDIS_SENTINEL_ASKING)
        return; /* it is being asked already */
    if (another)
        sentinel->at = sentinel_next(sentinel);
    sentinel_idle_until(sentinel, 0);
}

/* ---- Failing ---- */

static void sentinel_say(struct redis_sentinel *sentinel, bool good, const char *reason)
{
    const unsigned bit = 1u << sentinel->at;
    const size_t number = sentinel->at + 1, count = sentinel->target->host_count;
    if (good && (sentinel->known_bad & bit))
        log_later(sentinel->log, WEIR_LOG_INFO, "sentinel %zu of %zu can be used again", number, count);
    else if (!good && !(sentinel->known_bad & bit))
        log_later(sentinel->log, WEIR_LOG_WARNING, "sentinel %zu of %zu cannot be used: %s; weir asks the next one",
                  number, count, reason);
    sentinel->known_bad = good ? sentinel->known_bad & ~bit : sentinel->known_bad | bit;
}

static enum redis_sentinel_news sentinel_fail(struct redis_sentinel *sentinel, const char *reason, int64_t now_us)
{
    const bool was_good = sentinel->state == REDIS_SENTINEL_WATCHING && sentinel->subscribed &&
                          now_us - sentinel->watching_since_us > SETTLED_US;
    sentinel_say(sentinel, false, reason);
    snprintf(sentinel->reason, sizeof sentinel->reason, "%s", reason);
    sentinel->at = sentinel_next(sentinel);
    if (was_good)
        sentinel->pauses.last_us = 0;
    if (!sentinel->wanted) {
        sentinel_idle_until(sentinel, was_good ? now_us : now_us + redis_pause_next_us(&sentinel->pauses));
        return REDIS_NO_NEWS;
    }
    if (++sentinel->failed < sentinel->target->host_count) {
        sentinel_idle_until(sentinel, now_us);
        return REDIS_NO_NEWS;
    }
    sentinel->wanted = false;
    sentinel_idle_until(sentinel, INT64_MAX); /* the I/O thread asks again when it retries */
    return REDIS_SENTINELS_FAILED;
}

/* ---- Asking ---- */

static void sentinel_write_question(struct redis_sentinel *sentinel)
{
    struct redis_bytes *out = &sentinel->link.out;
    redis_bytes_words(out, 0, "SENTINEL", "get-master-addr-by-name", sentinel->target->service, NULL);
    redis_bytes_words(out, 0, "SUBSCRIBE", "+promoted-slave", "+switch-master", NULL);
    if (out->failed)
        redis_link_close(&sentinel->link, "out of memory");
}

static bool hear_scalar(void *user, const struct redis_wire_scalar *scalar)
{
    struct redis_sentinel *sentinel = user;
    const size_t i = scalar->place[0];
    if (scalar->depth > 1 || i >= REDIS_SENTINEL_HEARD || !scalar->text)
        return true;
    if (scalar->len > REDIS_WORD_MAX)
        return false;
    memcpy(sentinel->heard[i].text, scalar->text, scalar->len);
    sentinel->heard[i].len = scalar->len;
    return true;
}

/* Forget the last list's words. */
static void sentinel_forget_heard(struct redis_sentinel *sentinel)
{
    for (size_t i = 0; i < REDIS_SENTINEL_HEARD; i++)
        sentinel->heard[i].len = 0;
}

static void sentinel_open_link(struct redis_sentinel *sentinel, int64_t now_us)
{
    struct redis_where where = { .address = sentinel->addresses.list[sentinel->address] };
    snprintf(where.host, sizeof where.host, "%s", sentinel->target->hosts[sentinel->at].name);
    sentinel->state = REDIS_SENTINEL_ASKING;
    sentinel->due_us = now_us + ANSWER_US;
    sentinel->subscribed = sentinel->pinged = false;
    redis_bytes_room(&sentinel->link.out, ROOM); /* the buffer must not move: it would leave a copy of the password */
    redis_link_open(&sentinel->link, &where, sentinel->target, REDIS_GREET_SENTINEL);
    if (sentinel->link.state == REDIS_LINK_CLOSED)
        return;
    sentinel_forget_heard(sentinel);
    redis_wire_show_lists(&sentinel->link.wire, hear_scalar, sentinel);
    sentinel_write_question(sentinel);
}

static void sentinel_begin(struct redis_sentinel *sentinel, int64_t now_us)
{
    const struct redis_host *host = &sentinel->target->hosts[sentinel->at];
    redis_addresses_seek(&sentinel->resolver, host->name, host->port);
    sentinel->state = REDIS_SENTINEL_RESOLVING;
    sentinel->due_us = now_us + RESOLVE_US;
}

static enum redis_sentinel_news sentinel_resolve(struct redis_sentinel *sentinel, int64_t now_us)
{
    char reason[96];
    switch (resolver_ask(&sentinel->resolver, sentinel->addresses.list, &sentinel->addresses.count, reason,
                         sizeof reason)) {
    case RESOLVED:
        sentinel->address = 0;
        sentinel_open_link(sentinel, now_us);
        return REDIS_NO_NEWS;
    case NOT_RESOLVED: return sentinel_fail(sentinel, reason, now_us);
    case RESOLVING: break;
    }
    return sentinel->due_us <= now_us ? sentinel_fail(sentinel, "the host's name is not resolved in time", now_us)
                                      : REDIS_NO_NEWS;
}

/* Some of a host's addresses may be dead. */
static enum redis_sentinel_news sentinel_try_next_address(struct redis_sentinel *sentinel, const char *reason,
                                                          int64_t now_us)
{
    if (sentinel->state != REDIS_SENTINEL_ASKING || ++sentinel->address >= sentinel->addresses.count)
        return sentinel_fail(sentinel, reason, now_us);
    if (sentinel->link.state != REDIS_LINK_CLOSED)
        redis_link_close(&sentinel->link, reason);
    sentinel_open_link(sentinel, now_us);
    return REDIS_NO_NEWS;
}

/* ---- Answers and news ---- */

static bool sentinel_set_primary(struct redis_sentinel *sentinel, struct redis_text host, struct redis_text port)
{
    return host.len > 0 && redis_node_name_read(&sentinel->primary, host.at, host.len, port.at, port.len);
}

static struct redis_text sentinel_heard(const struct redis_sentinel *sentinel, size_t i)
{
    return (struct redis_text){ sentinel->heard[i].text, sentinel->heard[i].len };
}

static bool sentinel_is_heard(const struct redis_sentinel *sentinel, size_t i, const char *text)
{
    const struct redis_word *word = &sentinel->heard[i];
    return word->len == strlen(text) && memcmp(word->text, text, word->len) == 0;
}

static enum redis_sentinel_news sentinel_hear_answer(struct redis_sentinel *sentinel, const struct redis_reply *reply,
                                                     int64_t now_us)
{
    if (reply->kind == REDIS_REPLY_IS_NIL)
        return sentinel_fail(sentinel, "it does not know the service", now_us);
    if (reply->kind == REDIS_REPLY_IS_ERROR) {
        redis_link_refused(&sentinel->link, reply, "SENTINEL");
        return sentinel_fail(sentinel, sentinel->link.reason, now_us);
    }
    if (reply->kind != REDIS_REPLY_IS_LIST ||
        !sentinel_set_primary(sentinel, sentinel_heard(sentinel, 0), sentinel_heard(sentinel, 1)))
        return sentinel_fail(sentinel, "it names no host and port", now_us);
    sentinel->state = REDIS_SENTINEL_WATCHING; /* the deadline stays: SUBSCRIBE is not answered yet */
    sentinel->watching_since_us = now_us;
    sentinel->wanted = false;
    return REDIS_PRIMARY_NAMED;
}

/* Cut off and return the last word. */
static struct redis_text cut_last(struct redis_text *text)
{
    size_t at = text->len;
    while (at > 0 && text->at[at - 1] != ' ')
        at--;
    struct redis_text last = { text->at + at, text->len - at };
    text->len = at > 0 ? at - 1 : 0;
    return last;
}

/* Cut off `end`. False: the text does not end with it. */
static bool cut_end(struct redis_text *text, const char *end)
{
    const size_t len = strlen(end);
    if (text->len < len || memcmp(text->at + text->len - len, end, len) != 0)
        return false;
    text->len -= len;
    return true;
}

/* "<service> <old host> <old port> <new host> <new port>" */
static enum redis_sentinel_news sentinel_hear_switch(struct redis_sentinel *sentinel, struct redis_text text)
{
    struct redis_text port = cut_last(&text), host = cut_last(&text);
    cut_last(&text);
    cut_last(&text);
    const bool ours = cut_end(&text, sentinel->target->service) && text.len == 0;
    return ours && sentinel_set_primary(sentinel, host, port) ? REDIS_PRIMARY_NAMED : REDIS_NO_NEWS;
}

/* "slave <its name> <host> <port> @ <service> <old host> <old port>" */
static enum redis_sentinel_news sentinel_hear_promotion(struct redis_sentinel *sentinel, struct redis_text text)
{
    cut_last(&text);
    cut_last(&text);
    const bool ours = cut_end(&text, sentinel->target->service) && cut_end(&text, " @ ");
    struct redis_text port = cut_last(&text), host = cut_last(&text);
    return ours && sentinel_set_primary(sentinel, host, port) ? REDIS_PRIMARY_NAMED : REDIS_NO_NEWS;
}

static enum redis_sentinel_news sentinel_hear_news(struct redis_sentinel *sentinel, const struct redis_reply *reply,
                                                   int64_t now_us)
{
    const bool is_list = reply->kind == REDIS_REPLY_IS_LIST;
    if (!sentinel->subscribed && reply->kind == REDIS_REPLY_IS_ERROR) {
        redis_link_refused(&sentinel->link, reply, "SUBSCRIBE");
        return sentinel_fail(sentinel, sentinel->link.reason, now_us);
    }
    if (!is_list && reply->kind != REDIS_REPLY_IS_ERROR) /* an error also answers a PING */
        return sentinel_fail(sentinel, "an answer did not fit its question", now_us);
    if (is_list && sentinel_is_heard(sentinel, 0, "subscribe")) {
        sentinel->subscribed = true;
        sentinel_say(sentinel, true, "");
    }
    sentinel->pinged = false;
    sentinel->due_us = now_us + (sentinel->subscribed ? SILENCE_US : ANSWER_US);
    if (!is_list || !sentinel_is_heard(sentinel, 0, "message") || sentinel->heard[2].len == 0)
        return REDIS_NO_NEWS;
    if (sentinel_is_heard(sentinel, 1, "+switch-master"))
        return sentinel_hear_switch(sentinel, sentinel_heard(sentinel, 2));
    return sentinel_is_heard(sentinel, 1, "+promoted-slave")
               ? sentinel_hear_promotion(sentinel, sentinel_heard(sentinel, 2))
               : REDIS_NO_NEWS;
}

static enum redis_sentinel_news sentinel_hear(struct redis_sentinel *sentinel, int64_t now_us)
{
    struct redis_reply reply;
    redis_link_step(&sentinel->link);
    while (sentinel->link.state == REDIS_LINK_UP && redis_link_next(&sentinel->link, &reply)) {
        enum redis_sentinel_news news = sentinel->state == REDIS_SENTINEL_ASKING
                                            ? sentinel_hear_answer(sentinel, &reply, now_us)
                                            : sentinel_hear_news(sentinel, &reply, now_us);
        sentinel_forget_heard(sentinel);
        if (news != REDIS_NO_NEWS || sentinel->state == REDIS_SENTINEL_IDLE)
            return news;
    }
    if (sentinel->link.state == REDIS_LINK_CLOSED)
        return sentinel_try_next_address(sentinel, sentinel->link.reason, now_us);
    if (now_us < sentinel->due_us)
        return REDIS_NO_NEWS;
    if (sentinel->state == REDIS_SENTINEL_ASKING || !sentinel->subscribed || sentinel->pinged)
        return sentinel_try_next_address(sentinel, "no answer in time", now_us);
    redis_bytes_words(&sentinel->link.out, 0, "PING", NULL);
    redis_link_send(&sentinel->link);
    sentinel->pinged = true;
    sentinel->due_us = now_us + ANSWER_US;
    return REDIS_NO_NEWS;
}

/* True if there is something to do without waiting. */
static bool sentinel_goes_on(const struct redis_sentinel *sentinel, int64_t now_us)
{
    if (sentinel->state == REDIS_SENTINEL_IDLE)
        return sentinel->due_us <= now_us;
    return sentinel->state != REDIS_SENTINEL_RESOLVING && sentinel->link.state == REDIS_LINK_CLOSED;
}

enum redis_sentinel_news redis_sentinel_turn(struct redis_sentinel *sentinel, int64_t now_us)
{
    enum redis_sentinel_news news = REDIS_NO_NEWS;
    do {
        if (sentinel->state == REDIS_SENTINEL_IDLE && sentinel->due_us > now_us)
            return REDIS_NO_NEWS;
        if (sentinel->state == REDIS_SENTINEL_IDLE)
            sentinel_begin(sentinel, now_us);
        news = sentinel->state == REDIS_SENTINEL_RESOLVING ? sentinel_resolve(sentinel, now_us)
                                                           : sentinel_hear(sentinel, now_us);
    } while (news == REDIS_NO_NEWS && sentinel_goes_on(sentinel, now_us));
    return news;
}
