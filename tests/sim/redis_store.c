/* redis_store.c - runs the real scripts in a real server on the store's requests, at the same virtual times.
 *
 * The core's decision from what a script found must equal the store's decision, with the same charge; otherwise the
 * run fails. The keys follow the store through its failovers.
 */
#include "redis_store.h"

#include "backends/redis/flight/state.h"
#include "scripts.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 40 };

static struct scripts scripts;

/* Open as scripts_open() does, which only works inside a Check test. */
bool redis_store_open(void)
{
    if (!redis_server_found())
        return false;
    if (redis_server_start(&scripts.server, REDIS_SERVER_UNIX, NULL) != 0) {
        fprintf(stderr, "sim: %s\n", scripts.server.daemon.error);
        exit(2);
    }
    scripts.redis = redisConnectUnix(scripts.server.socket);
    if (!scripts.redis || scripts.redis->err) {
        fputs("sim: no connection to the server\n", stderr);
        exit(2);
    }
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++)
        freeReplyObject(ASK(&scripts, "SCRIPT", "LOAD", redis_scripts[i].text));
    return true;
}

void redis_store_close(void)
{
    scripts_close(&scripts);
}

static void command(const char *a, const char *b, const char *c, const char *d)
{
    const char *words[] = { a, b, c, d };
    freeReplyObject(ask(&scripts, d ? 4 : c ? 3 : b ? 2 : 1, words));
}

static void key_of(char name[NAME_SIZE], const char *prefix, int limit, int key)
{
    snprintf(name, NAME_SIZE, "%s%d:{%d}", prefix, limit, key);
}

static void begin(void)
{
    command("FLUSHALL", NULL, NULL, NULL);
}

/* Delete the keys, except for the snapshot of a failover. */
static void forget(const struct sim *sim)
{
    char name[NAME_SIZE];
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            key_of(name, "live", limit, key);
            command("DEL", name, NULL, NULL);
        }
    }
}

/* COPY needs Redis 6.2. */
static void copy_all(const struct sim *sim, const char *from, const char *to)
{
    static const char copy[] = "local state, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) "
                               "redis.call('DEL', KEYS[2]) "
                               "if state then redis.call('PSETEX', KEYS[2], left, state) end";
    char names[2][NAME_SIZE];
    const char *words[] = { "EVAL", copy, "2", names[0], names[1] };
    for (int limit = 0; limit < sim->limit_count; limit++) {
        for (int key = 0; key < sim->key_count; key++) {
            key_of(names[0], from, limit, key);
            key_of(names[1], to, limit, key);
            freeReplyObject(ask(&scripts, 5, words));
        }
    }
}

static void snapshot(const struct sim *sim)
{
    copy_all(sim, "live", "kept");
}

static void fail_over(const struct sim *sim)
{
    copy_all(sim, "kept", "live");
}

static size_t items_write(const struct asked *asked, unsigned char *out)
{
    size_t len = 0;
    if ((asked->verb == WEIR_REFUND && asked->ahead > 0) || asked->verb == WEIR_RENEW) {
        redis_item_write(out, asked->verb == WEIR_RENEW ? (int)WEIR_RENEW : (int)REDIS_RETURN, false, asked->cost,
                         asked->ahead);
        return REDIS_ITEM_SIZE;
    }
    if (asked->cost > 0) {
        redis_item_write(out, (int)asked->verb, asked->ahead > 0, asked->cost, 1);
        len = REDIS_ITEM_SIZE;
    }
    if (asked->ahead > 0 || asked->cost == 0) {
        redis_item_write(out + len, asked->cost > 0 ? REDIS_LEASE_IF_TAKEN : REDIS_LEASE, false, asked->ahead,
                         asked->spread);
        len += REDIS_ITEM_SIZE;
    }
    return len;
}

static int64_t number_read(const unsigned char *bytes)
{
    int64_t number = 0;
    for (int i = 6; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number;
}

static void check(struct sim *sim, const struct asked *asked, int64_t now_us, const struct weir_decision *expected)
{
    static struct call call;
    char name[NAME_SIZE];
    unsigned char stamp[REDIS_STAMP_MAX], items[2 * REDIS_ITEM_SIZE];
    struct cell found = { .plan = asked->plan, .is_there = true };
    enum redis_found what = REDIS_FOREIGN;
    struct weir_decision decision;
    key_of(name, "live", asked->limit, asked->key);
    call_begin(&call, redis_script_of(&asked->plan), 1);
    call_word(&call, name, strlen(name));
    call_word(&call, stamp, redis_stamp_write(&asked->plan, stamp));
    call_items(&call, items, items_write(asked, items));
    call_number(&call, now_us);
    call_send(&scripts, &call);
    redisReply *reply = reply_next(&scripts);
    const size_t len = answer_len(reply);
    const unsigned char *bytes = (const unsigned char *)reply->str;
    size_t at = REDIS_HEAD_SIZE;
    if (len > at) {
        const size_t origin_len = redis_origin_read(bytes + at, len - at, &found.origin);
        found.has_origin = origin_len > 0;
        at += origin_len;
    }
    if (len < at || redis_state_read(&asked->plan, bytes + at, len - at, found.state, &what) < 0 ||
        what == REDIS_FOREIGN) {
        violation(sim, "the script answers: %s", reply->type == REDIS_REPLY_ERROR ? reply->str : "nonsense");
        freeReplyObject(reply);
        return;
    }
    if (what == REDIS_FRESH)
        state_charge(&asked->plan, found.state, now_us, 0);
    cell_decide(&found, asked, now_us, &decision);
    const int64_t charged = asked->verb == WEIR_CHARGE                      ? asked->cost - decision.ahead
                            : asked->verb == WEIR_TAKE && decision.allowed  ? asked->cost + decision.ahead
                            : asked->verb == WEIR_RENEW && decision.allowed ? asked->cost
                                                                            : 0;
    if (memcmp(&decision, expected, sizeof decision) != 0 || number_read(bytes + 7) != charged)
        violation(sim, "the script charged %lld of limit%d key%d, remaining %lld; the store %lld, remaining %lld",
                  (long long)number_read(bytes + 7), asked->limit, asked->key, (long long)decision.remaining,
                  (long long)charged, (long long)expected->remaining);
    freeReplyObject(reply);
}

const struct store_twin redis_store = { begin, forget, snapshot, fail_over, check };
