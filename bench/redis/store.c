/* store.c - the Redis server that distributed and hybrid mode are measured on: see store.h.
 *
 * Keys are filled before anything is measured and live longer than any measurement, so that none measures adding keys.
 */
#include "redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/redis/flight/key.h"
#include "backends/redis/wire/scripts.h"
#include "redis/user_store.h"

#define KEYS 100000
#define QUICK_KEYS 10000
#define PIPELINE 32

static struct store private_store;
static bool tried, running, filled;

static void store_stop(void)
{
    if (running)
        redis_server_stop(&private_store.server);
    running = false;
}

redisContext *store_connect(const struct store *of)
{
    redisContext *connection = of->is_users ? user_store_connect() : redisConnectUnix(of->server.socket);
    if (!connection || connection->err)
        bench_fail("cannot connect to the redis-server: %s", connection ? connection->errstr : "no memory");
    return connection;
}

redisReply *store_ask(redisContext *connection, const struct call *call)
{
    redisReply *reply = redisCommandArgv(connection, call->words, (const char **)call->argv, call->len);
    if (!reply)
        bench_fail("lost the redis-server: %s", connection->errstr);
    return reply;
}

static void store_pipeline(redisContext *connection, uint64_t calls,
                           void (*make)(void *user, uint64_t i, struct call *call), void *user)
{
    struct call call;
    for (uint64_t start = 0; start < calls; start += PIPELINE) {
        uint64_t end = start + PIPELINE < calls ? start + PIPELINE : calls;
        for (uint64_t i = start; i < end; i++) {
            make(user, i, &call);
            redisAppendCommandArgv(connection, call.words, (const char **)call.argv, call.len);
        }
        for (uint64_t i = start; i < end; i++) {
            void *reply;
            if (redisGetReply(connection, &reply) != REDIS_OK)
                bench_fail("lost the redis-server: %s", connection->errstr);
            if (call_permits(reply) == UINT64_MAX)
                exit(2); /* call_permits() has printed the error */
            freeReplyObject(reply);
        }
    }
}

/* ---- Filling ---- */

static void make_gateway(void *user, uint64_t i, struct call *call)
{
    struct bench_key key;
    key_write(i, &key);
    call_gateway(call, ((const struct store *)user)->gateway_sha1, &key, CALLS_FILL);
}

static void make_weir(void *user, uint64_t i, struct call *call)
{
    struct bench_key key;
    key_write(i, &key);
    call_weir(call, *(enum kind *)user, &key, 1, CALLS_FILL, 1);
}

void store_fill_weir(const struct store *of, enum kind kind)
{
    redisContext *connection = store_connect(of);
    store_pipeline(connection, of->keys, make_weir, &kind);
    redisFree(connection);
}

void store_drained(struct bench_key *key)
{
    key->text[0] = 'x'; /* no hexadecimal digit */
}

static void make_drained(void *user, uint64_t i, struct call *call)
{
    struct bench_key key;
    (void)user;
    key_write(i, &key);
    store_drained(&key);
    call_weir(call, KIND_TOKEN, &key, 1, 8, 1);
}

void store_fill_drained(const struct store *of)
{
    redisContext *connection = store_connect(of);
    store_pipeline(connection, of->keys, make_drained, NULL);
    redisFree(connection);
}

/* ---- The server ---- */

static void load_script(redisContext *connection, const char *text, size_t len, char sha1[SHA1_LEN + 1])
{
    redisReply *reply = redisCommand(connection, "SCRIPT LOAD %b", text, len);
    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != SHA1_LEN)
        bench_fail("a script cannot be loaded: %s", reply && reply->str ? reply->str : connection->errstr);
    memcpy(sha1, reply->str, SHA1_LEN + 1);
    freeReplyObject(reply);
}

static void load_scripts(redisContext *connection)
{
    char sha1[SHA1_LEN + 1];
    load_script(connection, gateway_script, strlen(gateway_script), private_store.gateway_sha1);
    load_script(connection, floor_script, strlen(floor_script), private_store.floor_sha1);
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        load_script(connection, redis_scripts[i].text, redis_scripts[i].len, sha1);
        if (strcmp(sha1, redis_scripts[i].sha1) != 0)
            bench_fail("%s: %s", redis_scripts[i].name, "its SHA-1 does not match its text");
    }
}

static bool store_start(void)
{
    measure_unpin_main();
    if (!redis_server_found())
        snprintf(private_store.server.daemon.error, sizeof private_store.server.daemon.error,
                 "no redis-server found (Debian's redis-tools)");
    else
        running = redis_server_start(&private_store.server, REDIS_SERVER_UNIX, NULL) == 0;
    if (running) {
        measure_pin_server(private_store.server.daemon.pid);
        snprintf(private_store.url, sizeof private_store.url, "%s", private_store.server.url);
    }
    measure_pin_main();
    if (!running)
        return false;
    atexit(store_stop);
    char version[24];
    store_version(&private_store, version, sizeof version);
    snprintf(private_store.about, sizeof private_store.about, "redis-server %s, private, on a Unix socket", version);
    bench_progress("started %s, pid %d; it ends with this program", private_store.about,
                   (int)private_store.server.daemon.pid);
    return true;
}

static bool start_once(void)
{
    if (!tried)
        store_start();
    tried = true;
    return running;
}

struct store *store_of_modes(struct bench *bench)
{
    if (!bench->modes[WEIR_DISTRIBUTED] && !bench->modes[WEIR_HYBRID])
        return NULL;
    if (bench->redis_url)
        return user_store(bench->redis_url);
    if (start_once())
        return &private_store;
    bench_say("distributed and hybrid mode: NOT MEASURED: %s", private_store.server.daemon.error);
    return NULL;
}

static void store_fill(const struct bench *bench)
{
    redisContext *connection = store_connect(&private_store);
    load_scripts(connection);
    private_store.keys = bench->keys > 0 ? bench->keys : bench->is_quick ? QUICK_KEYS : KEYS;
    stream_make(&private_store.stream, private_store.keys);
    store_pipeline(connection, private_store.keys, make_gateway, &private_store);
    redisFree(connection);
    store_fill_weir(&private_store, KIND_TOKEN);
}

struct store *store_of(struct bench *bench, const char *name)
{
    if (!start_once()) {
        bench_say("%s: NOT MEASURED: %s", name, private_store.server.daemon.error);
        report_section(bench->report, name, "NOT MEASURED");
        report_note(bench->report, private_store.server.daemon.error);
        return NULL;
    }
    if (!filled)
        store_fill(bench);
    filled = true;
    return &private_store;
}

void store_section(struct bench *bench, const struct store *of, const char *name, const char *sentence)
{
    char whole[400];
    snprintf(whole, sizeof whole, "%s; %s, %llu keys zipf", sentence, of->about, (unsigned long long)of->keys);
    report_section(bench->report, name, whole);
}

/* ---- What a server tells of itself, by INFO, as far as its user may ask ---- */

bool store_can_be_asked(const struct store *store)
{
    return !store->is_users || user_store_can_be_asked();
}

/* Copy the text after `name` in that part of INFO, up to the line's end. False if the server does not report it. */
static bool info_ask(const struct store *store, const char *part, const char *name, char *out, size_t size)
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
    if (!info_ask(store, "server", "redis_version:", out, size))
        snprintf(out, size, "of unknown version");
}

int64_t store_cpu_us(const struct store *store)
{
    char user[32], system[32];
    if (!store->is_users)
        return redis_server_cpu_us(&store->server);
    if (!info_ask(store, "cpu", "used_cpu_user:", user, sizeof user) ||
        !info_ask(store, "cpu", "used_cpu_sys:", system, sizeof system))
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
                           redis_key_write(store->prefix[0] ? store->prefix : "weir:", limit, key_of(key), name) };
    redisContext *connection = store_connect(store);
    redisReply *reply = redisCommandArgv(connection, 3, words, len);
    int64_t bytes = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    redisFree(connection);
    return bytes;
}
