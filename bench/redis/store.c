/* store.c - the redis-server that distributed and hybrid mode are measured on: see store.h.
 *
 * Keys are filled before anything is measured, so that no measurement is one of adding keys, and live long enough not
 * to expire during one.
 */
#include "redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/redis/wire/scripts.h"
#include "redis/user_store.h"

#define KEYS 100000
#define QUICK_KEYS 10000
#define PIPELINE 32

static struct store store;
static bool tried, running, filled;

static void stop(void)
{
    if (running)
        redis_server_stop(&store.server);
    running = false;
}

__attribute__((noreturn)) static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "weir-bench: %s: %s\n", what, why);
    exit(2);
}

redisContext *store_connect(const struct store *of)
{
    redisContext *connection = of->is_users ? user_store_connect() : redisConnectUnix(of->server.socket);
    if (!connection || connection->err)
        give_up("cannot connect to the redis-server", connection ? connection->errstr : "no memory");
    return connection;
}

redisReply *store_ask(redisContext *connection, const struct call *call)
{
    redisReply *reply = redisCommandArgv(connection, call->words, (const char **)call->argv, call->len);
    if (!reply)
        give_up("lost the redis-server", connection->errstr);
    return reply;
}

void store_pipeline(redisContext *connection, uint64_t calls, void (*make)(void *user, uint64_t i, struct call *call),
                    void *user)
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
                give_up("lost the redis-server", connection->errstr);
            if (call_permits(reply) == UINT64_MAX)
                exit(2); /* it has been printed */
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

/* ---- The server ---- */

static void load_script(redisContext *connection, const char *text, size_t len, char sha1[SHA1_LEN + 1])
{
    redisReply *reply = redisCommand(connection, "SCRIPT LOAD %b", text, len);
    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != SHA1_LEN)
        give_up("a script cannot be loaded", reply && reply->str ? reply->str : connection->errstr);
    memcpy(sha1, reply->str, SHA1_LEN + 1);
    freeReplyObject(reply);
}

static void load_scripts(redisContext *connection)
{
    char sha1[SHA1_LEN + 1];
    load_script(connection, gateway_script, strlen(gateway_script), store.gateway_sha1);
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        load_script(connection, redis_scripts[i].text, redis_scripts[i].len, sha1);
        if (strcmp(sha1, redis_scripts[i].sha1) != 0)
            give_up(redis_scripts[i].name, "its SHA-1 is not that of its text");
    }
}

static bool start(void)
{
    measure_unpin_main();
    if (!redis_server_found())
        snprintf(store.server.daemon.error, sizeof store.server.daemon.error,
                 "no redis-server found (Debian's redis-tools)");
    else
        running = redis_server_start(&store.server, REDIS_SERVER_UNIX, NULL) == 0;
    if (running) {
        measure_pin_server(store.server.daemon.pid);
        snprintf(store.url, sizeof store.url, "%s", store.server.url);
    }
    measure_pin_main();
    if (!running)
        return false;
    atexit(stop);
    char version[24];
    store_version(&store, version, sizeof version);
    snprintf(store.about, sizeof store.about, "redis-server %s, private, on a Unix socket", version);
    bench_progress("started %s, pid %d; it ends with this program", store.about, (int)store.server.daemon.pid);
    return true;
}

static bool start_once(void)
{
    if (!tried)
        start();
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
        return &store;
    fprintf(stderr, "weir-bench: distributed and hybrid mode: NOT MEASURED: %s\n", store.server.daemon.error);
    return NULL;
}

static void fill(const struct bench *bench)
{
    redisContext *connection = store_connect(&store);
    load_scripts(connection);
    store.keys = bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? QUICK_KEYS : KEYS);
    stream_make(&store.stream, store.keys, SKEW_ZIPF);
    store_pipeline(connection, store.keys, make_gateway, &store);
    redisFree(connection);
    store_fill_weir(&store, KIND_TOKEN);
}

struct store *store_of(struct bench *bench, const char *name)
{
    if (!start_once()) {
        bench_missing(bench, name, store.server.daemon.error);
        return NULL;
    }
    if (!filled)
        fill(bench);
    filled = true;
    return &store;
}

void store_section(struct bench *bench, const struct store *of, const char *name, const char *sentence)
{
    char whole[400];
    snprintf(whole, sizeof whole, "%s; %s, %llu keys zipf", sentence, of->about, (unsigned long long)of->keys);
    report_section(bench->report, name, whole);
}

void store_missing(struct bench *bench, const char *what, const char *why)
{
    report_row(bench->report);
    report_text(bench->report, "not measured", what);
    report_text(bench->report, "why", why);
}
