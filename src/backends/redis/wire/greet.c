/* greet.c - writes the greeting of a connection and checks the server's answers to it. */
#include "backends/redis/wire/greet.h"

#include "backends/shared/files.h"

#include <stdio.h>
#include <string.h>

#define GREETING_ROOM (8 * REDIS_SECRET_MAX) /* more than a greeting without its scripts takes */
#define SCRIPT_ROOM 64                       /* more than the command that loads a script takes besides its text */

void redis_script_load(const struct redis_script *script, struct redis_bytes *out)
{
    redis_bytes_words(out, 1, "SCRIPT", "LOAD", NULL);
    redis_bytes_string(out, script->text, script->len);
}

/* Find the password to send: the file's, which may have been rotated since the last connection. While the file cannot
 * be read or is empty, because it is being replaced or the process has given up its rights, use the one that weir_open()
 * read. */
static void find_password(struct redis_greeting *greeting, const char *password, const char *file)
{
    char line[REDIS_SECRET_MAX + 3]; /* room for CR and LF, and for one byte too many */
    size_t len = 0;
    if (file && secret_file_read(file, line, sizeof line, &len) == 0 && len > 0 && len <= REDIS_SECRET_MAX &&
        !memchr(line, '\0', len))
        memcpy(greeting->password, line, len);
    else
        len = (size_t)(stpcpy(greeting->password, password) - greeting->password);
    greeting->password[len] = '\0';
    explicit_bzero(line, sizeof line);
}

/* True if there is a password. */
static bool write_auth(struct redis_greeting *greeting, const char *user, const char *password, const char *file,
                       struct redis_wire *wire, struct redis_bytes *out)
{
    wire->secret = NULL;
    if (!password)
        return false;
    find_password(greeting, password, file);
    wire->secret = greeting->password;
    redis_bytes_words(out, user ? 2 : 1, "AUTH", NULL);
    if (user)
        redis_bytes_text(out, user);
    redis_bytes_text(out, greeting->password);
    greeting->due++;
    greeting->logs_in = true;
    return true;
}

/* The first element of ROLE's answer is the role. */
static bool hear_role(void *user, const struct redis_wire_scalar *scalar)
{
    struct redis_greeting *greeting = user;
    if (scalar->depth == 1 && scalar->place[0] == 0)
        greeting->is_primary = redis_wire_is_text(scalar, "master");
    return true;
}

static size_t greeting_room(void)
{
    size_t room = GREETING_ROOM;
    for (unsigned i = 0; i < REDIS_SCRIPT_COUNT; i++)
        room += SCRIPT_ROOM + redis_scripts[i].len;
    return room;
}

bool redis_greet_write(struct redis_greeting *greeting, const struct redis_target *target, enum redis_guest guest,
                       struct redis_wire *wire, struct redis_bytes *out)
{
    *greeting = (struct redis_greeting){ .asks_role = guest != REDIS_GREET_SENTINEL && target->service };
    if (greeting->asks_role)
        redis_wire_show_lists(wire, hear_role, greeting);
    if (guest == REDIS_GREET_SENTINEL) /* it has no db, and the question that follows serves as a PING */
        return write_auth(greeting, target->sentinel_user, target->sentinel_password, target->sentinel_password_file,
                          wire, out);
    if (guest == REDIS_GREET_WITH_SCRIPTS)
        redis_bytes_room(out, greeting_room()); /* the buffer must not move: it would leave a copy of the password */
    const bool secret = write_auth(greeting, target->user, target->password, target->password_file, wire, out);
    if (target->db != 0) {
        redis_bytes_words(out, 1, "SELECT", NULL);
        redis_bytes_number(out, target->db);
        greeting->due++;
        greeting->selects = true;
    }
    if (greeting->asks_role) {
        redis_bytes_words(out, 0, "ROLE", NULL);
        greeting->due++;
    }
    if (guest == REDIS_GREET_WITH_SCRIPTS) {
        for (unsigned i = 0; i < REDIS_SCRIPT_COUNT; i++)
            redis_script_load(&redis_scripts[i], out);
        greeting->loads = REDIS_SCRIPT_COUNT;
        greeting->due += REDIS_SCRIPT_COUNT;
    } else if (greeting->due == 0) { /* a full server accepts a connection, reports an error and closes it */
        redis_bytes_words(out, 0, "PING", NULL);
        greeting->due++;
    }
    return secret;
}

/* ---- Answers ---- */

static bool greeting_fits(const struct redis_greeting *greeting, const struct redis_reply *reply)
{
    if (greeting->asks_role && greeting->due == greeting->loads + 1)
        return reply->kind == REDIS_REPLY_IS_LIST;
    if (greeting->due > greeting->loads)
        return reply->kind == REDIS_REPLY_IS_STATUS;
    const struct redis_script *script = &redis_scripts[REDIS_SCRIPT_COUNT - greeting->due];
    return reply->kind == REDIS_REPLY_IS_STRING && reply->len == 40 && memcmp(reply->text, script->sha1, 40) == 0;
}

/* Return the command that the next answer is about. */
static const char *greeting_asked(const struct redis_greeting *greeting)
{
    if (greeting->due <= greeting->loads)
        return "SCRIPT LOAD";
    const unsigned left = greeting->due - greeting->loads;
    if (greeting->asks_role && left == 1)
        return "ROLE";
    if (greeting->logs_in && left > (unsigned)greeting->selects + greeting->asks_role)
        return "AUTH";
    return greeting->selects ? "SELECT" : "PING";
}

bool redis_greet_take(struct redis_greeting *greeting, const struct redis_reply *reply, char *reason, size_t size)
{
    if (reply->kind == REDIS_REPLY_IS_ERROR) {
        redis_reply_refusal(reply, greeting_asked(greeting), reason, size);
    } else if (!greeting_fits(greeting, reply)) {
        snprintf(reason, size, "the server does not speak Redis' protocol");
    } else if (reply->kind == REDIS_REPLY_IS_LIST && !greeting->is_primary) {
        snprintf(reason, size, "the server that a sentinel named is not a primary");
        greeting->not_primary = true;
    } else {
        greeting->due--;
        return true;
    }
    return false;
}
