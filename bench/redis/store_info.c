/* store_info.c - what a server tells of itself, by INFO, as far as its user may ask: see store.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/redis/flight/key.h"
#include "redis/user_store.h"

bool store_can_be_asked(const struct store *store)
{
    return !store->is_users || user_store_can_be_asked();
}

/* The text behind `name` in that part of INFO, up to the line's end. False: it does not tell. */
static bool ask(const struct store *store, const char *part, const char *name, char *out, size_t size)
{
    if (!store_can_be_asked(store))
        return false;
    const char *words[] = { "INFO", part };
    redisContext *connection = store_connect(store);
    redisReply *reply = redisCommandArgv(connection, 2, words, NULL);
    const char *found = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
    if (found)
        snprintf(out, size, "%.*s", (int)strcspn(found + strlen(name), "\r\n"), found + strlen(name));
    freeReplyObject(reply);
    redisFree(connection);
    return found != NULL;
}

void store_version(const struct store *store, char *out, size_t size)
{
    if (!ask(store, "server", "redis_version:", out, size))
        snprintf(out, size, "of unknown version");
}

int64_t store_cpu_us(const struct store *store)
{
    char user[32], system[32];
    if (!store->is_users)
        return redis_server_cpu_us(&store->server);
    if (!ask(store, "cpu", "used_cpu_user:", user, sizeof user) ||
        !ask(store, "cpu", "used_cpu_sys:", system, sizeof system))
        return -1;
    return (int64_t)((strtod(user, NULL) + strtod(system, NULL)) * 1e6);
}

int64_t store_key_bytes(const struct store *store, const char *limit, const struct bench_key *key)
{
    if (!store_can_be_asked(store))
        return -1;
    char name[REDIS_KEY_MAX];
    const char *words[] = { "MEMORY", "USAGE", name };
    const size_t len[] = { strlen(words[0]), strlen(words[1]),
                           redis_key_write(store->prefix[0] ? store->prefix : "weir:", limit, weir_key(key, KEY_LEN),
                                           name) };
    redisContext *connection = store_connect(store);
    redisReply *reply = redisCommandArgv(connection, 3, words, len);
    int64_t bytes = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    redisFree(connection);
    return bytes;
}
