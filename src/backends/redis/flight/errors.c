/* errors.c - what an error answered by Redis says: about the call, or about a command in its script. */
#include "backends/redis/flight/call.h"
#include "core/ground/arith.h"

#include <stdio.h>
#include <string.h>

void redis_flight_note_error(struct redis_flight *flight, const struct redis_reply *reply, const char *command,
                             const char *limit)
{
    char sentence[REDIS_SENTENCE_SIZE];
    if (flight->error_word[0] != '\0')
        return;
    redis_reply_word(reply, flight->error_word);
    redis_reply_sentence(reply, sentence);
    snprintf(flight->error_said, sizeof flight->error_said, "%s (to %s%s%s)", sentence, command,
             limit ? " for limit " : "", limit ? limit : "");
}

/* Return where an error says that the script's user may not run a command, or NULL. Such an error lacks the word NOPERM
 * that it has outside of scripts. It is "ERR ACL failure in script: ..."; up to Redis 7.0, "The user executing the
 * script can't run this command ...". */
static const char *lacked_right(const struct redis_reply *error)
{
    static const char now[] = "ACL failure in script: ", before[] = "The user executing the script can't ";
    const char *at = memmem(error->text, error->len, now, sizeof now - 1);
    return at ? at + sizeof now - 1 : memmem(error->text, error->len, before, sizeof before - 1);
}

/* Write the name of the command that the script may not run, which Redis names from 7.2 on. Before that it may give the
 * line of the script; without a line it was the reading command, see lua/each.lua. */
static void write_lacked_command(const struct redis_flight_call *call, const struct redis_reply *error, char *out,
                                 size_t size)
{
    static const char place[] = "user_script:", begin[] = "call('";
    const char *end = error->text + error->len, *text = redis_scripts[call->script].text;
    const char *at = memmem(error->text, error->len, place, sizeof place - 1);
    long line = 0;
    for (at = at ? at + sizeof place - 1 : end; at < end && *at >= '0' && *at <= '9' && line < 10000; at++)
        line = 10 * line + (*at - '0');
    for (long i = 1; text && i < line; i++) {
        text = strchr(text, '\n');
        text += text ? 1 : 0;
    }
    const char *name = line > 0 && text ? strstr(text, begin) : NULL;
    if (name && (size_t)(name - text) < strcspn(text, "\n"))
        snprintf(out, size, "%.*s", (int)strcspn(name + sizeof begin - 1, "'"), name + sizeof begin - 1);
    else
        snprintf(out, size, "%s", call->key_count > 1 ? "MGET" : "GET");
    for (; *out; out++)
        *out = (char)(*out >= 'A' && *out <= 'Z' ? *out - 'A' + 'a' : *out);
}

struct redis_reply redis_call_error(const struct redis_flight_call *call, const struct redis_reply *error,
                                    char room[REDIS_SENTENCE_SIZE])
{
    static const char outer[] = "ERR Error running script ", run[] = "can't run this command";
    const size_t len = sizeof outer - 1;
    const char *mark = lacked_right(error);
    if (mark) {
        char command[16] = "";
        const size_t left = (size_t)(error->text + error->len - mark);
        const bool is_nameless = memmem(mark, left, run, sizeof run - 1) != NULL;
        if (is_nameless)
            write_lacked_command(call, error, command, sizeof command);
        const int used = is_nameless
                             ? snprintf(room, REDIS_SENTENCE_SIZE, "NOPERM the user can't run '%s'", command)
                             : snprintf(room, REDIS_SENTENCE_SIZE, "NOPERM %.*s", (int)min_of(128, (int)left), mark);
        return (struct redis_reply){ .kind = error->kind, .text = room, .len = (size_t)used, .secret = error->secret };
    }
    if (error->len < len || memcmp(error->text, outer, len) != 0)
        return *error;
    mark = memmem(error->text + len, error->len - len, ": -", 3);
    if (!mark)
        return *error;
    return (struct redis_reply){
        .kind = error->kind,
        .text = mark + 3,
        .len = (size_t)(error->text + error->len - (mark + 3)),
        .secret = error->secret,
    };
}
