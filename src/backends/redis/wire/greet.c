/* greet.c - what a connection to Redis begins with, and what the server must answer to that. */
#include "backends/redis/wire/link.h"

#include <stdio.h>
#include <string.h>

#define GREETING_ROOM (1 << 17) /* more than all scripts and secrets take */

static void write_auth(struct redis_link *link, const char *user, const char *password)
{
    if (!password)
        return;
    redis_bytes_command(&link->out, user ? 3 : 2);
    redis_bytes_text(&link->out, "AUTH");
    if (user)
        redis_bytes_text(&link->out, user);
    redis_bytes_text(&link->out, password);
    link->secret = true;
    link->greetings++;
}

static void write_word(struct redis_link *link, const char *word)
{
    redis_bytes_command(&link->out, 1);
    redis_bytes_text(&link->out, word);
    link->greetings++;
}

static void write_scripts(struct redis_link *link)
{
    for (unsigned i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        redis_bytes_command(&link->out, 3);
        redis_bytes_text(&link->out, "SCRIPT");
        redis_bytes_text(&link->out, "LOAD");
        redis_bytes_string(&link->out, redis_scripts[i].text, redis_scripts[i].len);
        link->greetings++;
        link->loads++;
    }
}

/* The answer to ROLE begins with it. */
static bool hear_role(void *user, const struct redis_wire_scalar *scalar)
{
    struct redis_link *link = user;
    if (scalar->depth == 1 && scalar->place[0] == 0)
        link->is_primary = redis_wire_is_text(scalar, "master");
    return true;
}

void redis_greet_write(struct redis_link *link, const struct redis_target *target, enum redis_greeting greeting)
{
    link->greetings = link->loads = 0;
    link->asks_role = greeting != REDIS_GREET_SENTINEL && target->service;
    link->is_primary = link->not_primary = false;
    if (link->asks_role)
        redis_wire_show_lists(&link->wire, hear_role, link);
    if (greeting == REDIS_GREET_SENTINEL) { /* who has no db, and is asked something at once: that will do for a PING */
        write_auth(link, target->sentinel_user, target->sentinel_password);
        return;
    }
    if (greeting == REDIS_GREET_WITH_SCRIPTS)
        redis_bytes_room(&link->out, GREETING_ROOM); /* so that no password is left behind when the buffer moves */
    write_auth(link, target->user, target->password);
    if (target->db != 0) {
        redis_bytes_command(&link->out, 2);
        redis_bytes_text(&link->out, "SELECT");
        redis_bytes_number(&link->out, target->db);
        link->greetings++;
    }
    if (link->asks_role)
        write_word(link, "ROLE");
    if (greeting == REDIS_GREET_WITH_SCRIPTS)
        write_scripts(link);
    else if (link->greetings == 0) /* a server that is full accepts, and then says so and closes */
        write_word(link, "PING");
}

/* ---- Answers ---- */

void redis_link_refused(struct redis_link *link, const struct redis_reply *error, const char *what)
{
    size_t len = 0;
    while (len < error->len && len < 20 && error->text[len] >= 'A' && error->text[len] <= 'Z')
        len++;
    char reason[96];
    snprintf(reason, sizeof reason, "the server answers %.*s to %s", len ? (int)len : 3, len ? error->text : "ERR",
             what);
    redis_link_close(link, reason);
}

static bool fits(const struct redis_link *link, const struct redis_reply *reply)
{
    if (link->asks_role && link->greetings == link->loads + 1)
        return reply->kind == REDIS_REPLY_IS_LIST;
    if (link->greetings > link->loads)
        return reply->kind == REDIS_REPLY_IS_STATUS;
    const struct redis_script *script = &redis_scripts[REDIS_SCRIPT_COUNT - link->greetings];
    return reply->kind == REDIS_REPLY_IS_STRING && reply->len == 40 && memcmp(reply->text, script->sha1, 40) == 0;
}

void redis_greet_read(struct redis_link *link)
{
    struct redis_reply reply;
    while (link->state == REDIS_LINK_GREETING && redis_link_next(link, &reply)) {
        if (reply.kind == REDIS_REPLY_IS_ERROR) {
            redis_link_refused(link, &reply, "the greeting");
        } else if (!fits(link, &reply)) {
            redis_link_close(link, "the server does not speak Redis' protocol");
        } else if (reply.kind == REDIS_REPLY_IS_LIST && !link->is_primary) {
            redis_link_close(link, "the server that a sentinel named is no primary");
            link->not_primary = true;
        } else if (--link->greetings == 0) {
            link->state = REDIS_LINK_UP;
            if (link->asks_role)
                redis_wire_show_lists(&link->wire, NULL, NULL);
        }
    }
}
