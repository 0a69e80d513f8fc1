/* errors.c - what an error answered by Redis says, about the call or about a command in its script, and what becomes of
 * the call. */
#include "backends/redis/flight/call.h"
#include "backends/redis/flight/redirect.h"
#include "backends/redis/wire/scripts.h"
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

/* Return the error of the command in the script. Up to Redis 6.2 it is the end of an error about the script: "ERR Error
 * running script (call to f_...): @user_script:1: @user_script: 1: -READONLY You can't write ...". `room` holds the
 * text of an error about a right. */
static struct redis_reply command_error(const struct redis_flight_call *call, const struct redis_reply *error,
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

void redis_call_end(struct redis_flight *flight, struct redis_flight_call *call, int status,
                    const struct redis_redirect *redirect, redis_request_ended *ended)
{
    call->answered = true;
    for (uint32_t i = 0; i < call->key_count; i++) {
        struct redis_flight_request *aboard = flight->keys[call->keys[i]].first;
        for (; aboard; aboard = aboard->next)
            redis_flight_request_end(aboard, status, redirect, ended);
    }
}

static const char *call_limit(const struct redis_flight_call *call)
{
    return call->limit ? weir_limit_name(call->limit) : NULL;
}

/* True if another node must execute the call, or this one later. Only an error about the call itself counts: an error
 * of a command in its script comes from a script that ran. */
static bool call_redirected(struct redis_flight *flight, struct redis_flight_call *call,
                            const struct redis_reply *reply, redis_request_ended *ended)
{
    struct redis_redirect redirect;
    if (!flight->rules.in_cluster)
        return false;
    if (redis_reply_is_error(reply, "TRYAGAIN"))
        redis_call_end(flight, call, REDIS_TRY_AGAIN, NULL, ended);
    else if (redis_redirect_read(reply, &redirect))
        redis_call_end(flight, call, redirect.kind == REDIS_REDIRECT_MOVED ? REDIS_MOVED : REDIS_ASKING, &redirect,
                       ended);
    else
        return false;
    return true;
}

/* True if an error says that Redis charged nothing and gave nothing back. weir's scripts for rates write once, last, so
 * an error of a command in one says that, too; requests about slots may be repeated. A proxy's errors do not say it: it
 * may have lost the answer. */
static bool is_refusal(const struct redis_reply *error)
{
    static const char *const words[] = { "READONLY",    "OOM",        "NOREPLICAS", "MISCONF", "LOADING",
                                         "CLUSTERDOWN", "MASTERDOWN", "NOPERM",     "NOAUTH",  "BUSY" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (redis_reply_is_error(error, words[i]))
            return true;
    return false;
}

/* An error means that the script did not run, or stopped before it had written anything. */
void redis_call_failed(struct redis_flight *flight, struct redis_flight_call *call, const struct redis_reply *reply,
                       redis_request_ended *ended)
{
    if (redis_reply_is_error(reply, "NOSCRIPT")) {
        flight->not_loaded |= 1u << call->script;
        return;
    }
    if (call_redirected(flight, call, reply, ended)) {
        flight->decided = true;
        return;
    }
    char room[REDIS_SENTENCE_SIZE];
    const struct redis_reply error = command_error(call, reply, room);
    redis_flight_note_error(flight, &error, "EVALSHA", call_limit(call));
    flight->read_only = flight->read_only || redis_reply_is_error(&error, "READONLY");
    redis_call_end(flight, call, is_refusal(&error) ? WEIR_EIO_UNDONE : WEIR_EIO, NULL, ended);
}
