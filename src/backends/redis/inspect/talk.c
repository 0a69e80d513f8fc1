/* talk.c - a connection to one server on which the caller waits for each answer. */
#include "backends/redis/inspect/talk.h"

#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

int redis_talk_init(struct redis_talk *talk, const struct redis_target *target, int64_t patience_us)
{
    *talk = (struct redis_talk){ .target = target, .patience_us = patience_us };
    return redis_link_init(&talk->link) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

void redis_talk_free(struct redis_talk *talk)
{
    redis_link_free(&talk->link);
}

/* Write why the talk failed, after the server's name. */
static void talk_say(const struct redis_talk *talk, struct message why, const char *reason)
{
    if (talk->with.host[0] == '\0')
        message_write(why, "redis cannot be used: %s", reason);
    else
        message_write(why, "redis at %s:%d cannot be used: %s", talk->with.host, talk->with.port, reason);
}

/* Wait until `fd` is ready. False: the time has come first. */
static bool talk_wait(int fd, short events, int64_t until_us)
{
    struct pollfd poll_fd = { .fd = fd, .events = events };
    const int64_t left_us = until_us - clock_monotonic_us();
    const struct timespec left = clock_timespec(max_of(0, left_us));
    ppoll(&poll_fd, 1, &left, NULL); /* the caller finds out what happened, also after a signal */
    return left_us > 0;
}

/* Wait for the link and step it, until it is up. */
static int talk_connect(struct redis_talk *talk, const struct redis_where *where, enum redis_guest guest,
                        int64_t until_us, struct message why)
{
    struct redis_link *link = &talk->link;
    int error = WEIR_EIO;
    redis_link_open(link, where, talk->target, guest);
    while (link->state != REDIS_LINK_CLOSED && link->state != REDIS_LINK_UP) {
        if (!talk_wait(link->fd, redis_link_events(link), until_us)) {
            redis_link_close(link, "no answer in time");
            error = WEIR_ETIME;
        } else {
            redis_link_step(link);
        }
    }
    if (link->state == REDIS_LINK_UP)
        return WEIR_OK;
    talk_say(talk, why, link->reason);
    return error;
}

static int talk_find(struct redis_talk *talk, struct redis_addresses *addresses, int64_t until_us, struct message why)
{
    struct resolver resolver;
    char reason[96] = "its name is not resolved in time";
    enum resolved found;
    redis_addresses_seek(&resolver, talk->with.host, talk->with.port);
    do {
        found = resolver_ask(&resolver, addresses->list, &addresses->count, reason, sizeof reason);
    } while (found == RESOLVING && talk_wait(resolver_fd(&resolver), POLLIN, until_us));
    resolver_destroy(&resolver);
    if (found != RESOLVED)
        talk_say(talk, why, reason);
    return found == RESOLVED ? WEIR_OK : found == RESOLVING ? WEIR_ETIME : WEIR_EIO;
}

static int talk_open_path(struct redis_talk *talk, enum redis_guest guest, int64_t until_us, struct message why)
{
    struct redis_where where = { 0 };
    struct sockaddr_un *name = (struct sockaddr_un *)&where.address.name;
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, talk->target->path, strlen(talk->target->path) + 1);
    where.address.len = sizeof *name;
    return talk_connect(talk, &where, guest, until_us, why);
}

int redis_talk_open(struct redis_talk *talk, const char *host, int port, enum redis_guest guest, struct message why)
{
    const int64_t until_us = clock_monotonic_us() + talk->patience_us;
    struct redis_addresses addresses = { 0 };
    redis_link_close(&talk->link, "another server is asked");
    talk->with = (struct redis_node_name){ .port = port };
    if (!host)
        return talk_open_path(talk, guest, until_us, why);
    snprintf(talk->with.host, sizeof talk->with.host, "%s", host);
    int error = talk_find(talk, &addresses, until_us, why);
    if (error)
        return error;
    for (size_t i = 0; i < addresses.count; i++) {
        struct redis_where where = { .address = addresses.list[i] };
        snprintf(where.host, sizeof where.host, "%s", host);
        error = talk_connect(talk, &where, guest, until_us, why);
        if (!error)
            break;
    }
    return error;
}

int redis_talk_hear(struct redis_talk *talk, const char *what, struct redis_reply *reply, struct message why)
{
    struct redis_link *link = &talk->link;
    const int64_t until_us = clock_monotonic_us() + talk->patience_us;
    int error = WEIR_EIO;
    bool has_stepped = false; /* what a step has received must be read before the next wait */
    if (link->state == REDIS_LINK_UP && link->out.failed)
        redis_link_close(link, "out of memory");
    while (link->state == REDIS_LINK_UP) {
        if (redis_link_next(link, reply))
            return WEIR_OK;
        if (link->state != REDIS_LINK_UP)
            break;
        if (has_stepped && !talk_wait(link->fd, redis_link_events(link), until_us)) {
            redis_link_close(link, "no answer in time");
            error = WEIR_ETIME;
            break;
        }
        redis_link_step(link);
        has_stepped = true;
    }
    char reason[REDIS_REASON_SIZE + 32];
    snprintf(reason, sizeof reason, "%s: %s", what, link->reason);
    talk_say(talk, why, reason);
    return error;
}

int redis_talk_hear_kind(struct redis_talk *talk, const char *what, enum redis_reply_kind kind,
                         struct redis_reply *reply, struct message why)
{
    char reason[REDIS_REASON_SIZE] = "the server does not speak Redis' protocol";
    int error = redis_talk_hear(talk, what, reply, why);
    if (error || reply->kind == kind)
        return error;
    if (reply->kind == REDIS_REPLY_IS_ERROR)
        redis_reply_refusal(reply, what, reason, sizeof reason);
    talk_say(talk, why, reason);
    return WEIR_EIO;
}
