/* scripts.c - the scripts called by hand: see scripts.h. */
#include "scripts.h"

#include "backends/redis/flight/state.h"
#include "support.h"

#include "support.h"

#include <inttypes.h>
#include <stdio.h>

void scripts_open(struct scripts *scripts)
{
    if (redis_server_start(&scripts->server, REDIS_SERVER_UNIX, NULL) != 0)
        ck_abort_msg("%s", scripts->server.daemon.error);
    scripts->redis = redisConnectUnix(scripts->server.socket);
    must(scripts->redis != NULL && scripts->redis->err == 0, "no connection");
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        redisReply *reply = ASK(scripts, "SCRIPT", "LOAD", redis_scripts[i].text);
        ck_assert_str_eq(reply->str, redis_scripts[i].sha1);
        freeReplyObject(reply);
    }
}

void scripts_close(struct scripts *scripts)
{
    redisFree(scripts->redis);
    redis_server_stop(&scripts->server);
}

void call_word(struct call *call, const void *bytes, size_t len)
{
    must(call->n < CALL_WORDS && call->used + len <= sizeof call->bytes, "the call is too long for the test");
    if (len > 0)
        memcpy(call->bytes + call->used, bytes, len);
    call->words[call->n] = call->bytes + call->used;
    call->lens[call->n++] = len;
    call->used += len;
}

void call_number(struct call *call, int64_t number)
{
    char text[24];
    call_word(call, text, (size_t)snprintf(text, sizeof text, "%" PRId64, number));
}

void call_begin(struct call *call, enum redis_script_id script, int64_t keys)
{
    call->n = 0;
    call->used = 0;
    call_word(call, "EVALSHA", 7);
    call_word(call, redis_scripts[script].sha1, 40);
    call_number(call, keys);
}

void call_tail(struct call *call, const unsigned char *bytes, size_t len)
{
    static unsigned char word[CALL_ITEMS + REDIS_ECHO_SIZE];
    must(len <= CALL_ITEMS, "room for the bytes");
    memcpy(word, bytes, len);
    memcpy(word + len, "echo", REDIS_ECHO_SIZE);
    call_word(call, word, len + REDIS_ECHO_SIZE);
}

void call_items(struct call *call, const unsigned char *items, size_t len)
{
    static unsigned char packed[CALL_ITEMS];
    const size_t n = len / REDIS_ITEM_SIZE;
    must(REDIS_COUNTS_SIZE + n * REDIS_RETURN_SIZE <= CALL_ITEMS, "room for the items");
    memcpy(packed + REDIS_COUNTS_SIZE, items, len);
    call_tail(call, packed, redis_items_pack(packed, n));
}

size_t answer_len(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len < REDIS_HEAD_SIZE + REDIS_ECHO_SIZE)
        return 0;
    size_t len = (size_t)reply->len - REDIS_ECHO_SIZE;
    return memcmp(reply->str + len, "echo", REDIS_ECHO_SIZE) == 0 ? len : 0;
}

void call_send(struct scripts *scripts, const struct call *call)
{
    must(redisAppendCommandArgv(scripts->redis, call->n, (const char **)call->words, call->lens) == REDIS_OK,
         "no memory");
}

void words_send(struct scripts *scripts, int n, const char *const *words)
{
    must(redisAppendCommandArgv(scripts->redis, n, (const char **)words, NULL) == REDIS_OK, "no memory");
}

redisReply *reply_next(struct scripts *scripts)
{
    void *reply = NULL;
    if (redisGetReply(scripts->redis, &reply) != REDIS_OK)
        ck_abort_msg("the server is gone: %s", scripts->redis->errstr);
    return reply;
}

redisReply *ask(struct scripts *scripts, int n, const char *const *words)
{
    words_send(scripts, n, words);
    return reply_next(scripts);
}
