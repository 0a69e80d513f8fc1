/* test_serve_servers.c - weir serve as processes, asked through hiredis: one server, and three on one Redis of which
 * one is killed under load. */
#include "daemon.h"
#include "redis_server.h"
#include "support.h"

#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SERVERS = 3, CLIENTS = 8, LIMIT = 4000 };

struct serve {
    struct daemon daemon;
    char socket[120];
};

static redisContext *serve_connect(const struct serve *serve)
{
    redisContext *connection = redisConnectUnix(serve->socket);
    if (connection && connection->err) {
        redisFree(connection);
        connection = NULL;
    }
    return connection;
}

static bool serve_is_ready(void *user)
{
    redisContext *connection = serve_connect(user);
    redisReply *reply = connection ? redisCommand(connection, "PING") : NULL;
    const bool is_ready = reply && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0;
    freeReplyObject(reply);
    if (connection)
        redisFree(connection);
    return is_ready;
}

/* Start a server with a limit of LIMIT an hour; `redis` is the URL of distributed mode, NULL: local mode. */
static void serve_start(struct serve *serve, const char *redis)
{
    char path[120];
    memset(serve, 0, sizeof *serve);
    ck_assert_msg(daemon_folder_make(&serve->daemon, "serve") == 0, "%s", serve->daemon.error);
    snprintf(path, sizeof path, "%s/limits", serve->daemon.dir);
    snprintf(serve->socket, sizeof serve->socket, "%s/sock", serve->daemon.dir);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "api = fixed_window limit=%d period=1h\n", LIMIT);
    ck_assert_int_eq(fclose(file), 0);
    char *words[] = {
        WEIR_PROGRAM,  "serve",   "-f",          "limits",       "--unix", "sock", redis ? "--mode" : NULL,
        "distributed", "--redis", (char *)redis, "--on-failure", "error",  NULL
    };
    ck_assert_msg(daemon_run(&serve->daemon, words, NULL, serve_is_ready, serve) == 0, "%s", serve->daemon.error);
}

static void serve_stop(struct serve *serve)
{
    daemon_stop(&serve->daemon);
    daemon_folder_remove(&serve->daemon);
}

static void assert_integers(redisReply *reply, size_t count, const long long *expected)
{
    ck_assert_ptr_nonnull(reply);
    ck_assert_msg(reply->type == REDIS_REPLY_ARRAY, "type %d: %s", reply->type, reply->str ? reply->str : "");
    ck_assert_uint_eq(reply->elements, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
        if (expected[i] >= -1)
            ck_assert_int_eq(reply->element[i]->integer, expected[i]);
    }
    freeReplyObject(reply);
}

TEST(hiredis_understands_every_reply, 60)
{
    CLOSED_BY(serve_stop) struct serve serve;
    serve_start(&serve, NULL);
    redisContext *c = serve_connect(&serve);
    ck_assert_ptr_nonnull(c);
    enum { ANY = -2 };
    assert_integers(redisCommand(c, "WEIR.TRY api %b %d", "a\r\n\0b", (size_t)5, 3), 8,
                    (const long long[]){ 1, LIMIT, LIMIT - 3, 0, ANY, 0, 0, 0 });
    assert_integers(redisCommand(c, "WEIR.PEEK api %b", "a\r\n\0b", (size_t)5), 8,
                    (const long long[]){ 1, LIMIT, LIMIT - 3, 0, ANY, 0, 0, 0 });
    assert_integers(redisCommand(c, "WEIR.TRYALL api a 1 api b %d", LIMIT + 1), 8,
                    (const long long[]){ 0, LIMIT, LIMIT, -1, ANY, 0, 0, 1 });
    assert_integers(redisCommand(c, "CL.THROTTLE user123 15 30 60"), 5, (const long long[]){ 0, 16, 15, -1, 2 });
    redisReply *reserved = redisCommand(c, "WEIR.RESERVE api r 100");
    ck_assert_ptr_nonnull(reserved);
    ck_assert_uint_eq(reserved->elements, 9);
    redisReply *settled = redisCommand(c, "WEIR.SETTLE api r %s 40", reserved->element[8]->str);
    ck_assert_ptr_nonnull(settled);
    ck_assert_str_eq(settled->str, "OK");
    freeReplyObject(settled);
    freeReplyObject(reserved);
    assert_integers(redisCommand(c, "WEIR.PEEK api r"), 8,
                    (const long long[]){ 1, LIMIT, LIMIT - 40, 0, ANY, 0, 0, 0 });
    redisReply *error = redisCommand(c, "WEIR.TRY none a");
    ck_assert_ptr_nonnull(error);
    ck_assert_int_eq(error->type, REDIS_REPLY_ERROR);
    freeReplyObject(error);
    for (int i = 1; i <= 1000; i++)
        ck_assert_int_eq(redisAppendCommand(c, "WEIR.TRY api pipeline"), REDIS_OK);
    for (int i = 1; i <= 1000; i++) {
        redisReply *reply = NULL;
        ck_assert_int_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
        assert_integers(reply, 8, (const long long[]){ 1, LIMIT, LIMIT - i, 0, ANY, 0, 0, 0 });
    }
    redisFree(c);
}

/* ---- Three servers ---- */

struct fleet {
    struct serve *servers;
    atomic_int next;     /* the number of the next client */
    atomic_int answered; /* clients that a server has answered */
    atomic_int admitted; /* by all clients */
    atomic_int moves;    /* connections that broke */
    atomic_int errors;   /* replies that were errors: on a busy machine Redis may answer too late */
    atomic_bool killed;
};

/* Take permits until one is denied; while half of them are left, look only, until a server has been killed. Go on with
 * the next server when a connection breaks: requests that were under way may have been charged, and are not counted.
 * Nor are those that are answered with an error. */
static void *client_run(void *argument)
{
    struct fleet *fleet = argument;
    int at = atomic_fetch_add(&fleet->next, 1);
    redisContext *connection = NULL;
    bool is_answered = false;
    for (bool is_denied = false; !is_denied;) {
        if (!connection)
            connection = serve_connect(&fleet->servers[++at % SERVERS]);
        const bool takes = atomic_load(&fleet->admitted) < LIMIT / 2 || atomic_load(&fleet->killed);
        const char *command = takes ? "WEIR.TRY api everyone" : "WEIR.PEEK api everyone";
        redisReply *reply = connection ? redisCommand(connection, command) : NULL;
        if (!reply && connection) {
            redisFree(connection);
            connection = NULL;
            atomic_fetch_add(&fleet->moves, 1);
        }
        if (!reply)
            continue;
        atomic_fetch_add(&fleet->answered, !is_answered);
        is_answered = true;
        if (reply->type != REDIS_REPLY_ARRAY) {
            must(reply->type == REDIS_REPLY_ERROR, "a decision or an error");
            atomic_fetch_add(&fleet->errors, 1);
            freeReplyObject(reply);
            continue;
        }
        is_denied = reply->element[0]->integer == 0;
        atomic_fetch_add(&fleet->admitted, takes && !is_denied);
        freeReplyObject(reply);
    }
    redisFree(connection);
    return NULL;
}

TEST(clients_of_a_killed_server_continue_at_another_within_the_limit, 120)
{
    struct redis_server redis;
    struct serve servers[SERVERS];
    ck_assert_msg(redis_server_start(&redis, REDIS_SERVER_UNIX, NULL) == 0, "%s", redis.daemon.error);
    for (int i = 0; i < SERVERS; i++)
        serve_start(&servers[i], redis.url);
    struct fleet fleet = { .servers = servers };
    struct crew crew;
    crew_start(&crew, CLIENTS, client_run, &fleet);
    while (atomic_load(&fleet.admitted) < LIMIT / 4 || atomic_load(&fleet.answered) < CLIENTS)
        usleep(100); /* each server has clients to lose */
    daemon_kill(&servers[1].daemon);
    atomic_store(&fleet.killed, true);
    crew_join(&crew);
    ck_assert_int_gt(atomic_load(&fleet.moves), 0);
    ck_assert_int_le(atomic_load(&fleet.admitted), LIMIT);
    ck_assert_int_ge(atomic_load(&fleet.admitted), LIMIT - atomic_load(&fleet.moves) - atomic_load(&fleet.errors));
    for (int i = 0; i < SERVERS; i++)
        serve_stop(&servers[i]);
    redis_server_stop(&redis);
}

int main(void)
{
    return redis_server_missing() ? 77 : suite_run(tests());
}
