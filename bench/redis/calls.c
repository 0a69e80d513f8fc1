/* calls.c - script calls as they go to Redis: see calls.h.
 *
 * The functions that weir's transport uses write its stamps and items here, and the core makes its plans; so the
 * benchmark measures what runs. The keys need no escaping.
 */
#include "redis/calls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/backend.h>

#include "backends/redis/flight/state.h"
#include "backends/redis/wire/scripts.h"
#include "core/policy/plan.h"
#include "core/policy/share.h"
#include "measure/say.h"

const struct weir_policy calls_policies[KINDS] = {
    [KIND_TOKEN] = { .limit = CALLS_PERMITS_A_SECOND, .period_us = WEIR_SECOND, .burst = CALLS_BURST },
    [KIND_INTERVAL] = { .refill = WEIR_INTERVAL, .limit = CALLS_BURST, .period_us = WEIR_DAY },
    [KIND_FIXED] = { .algorithm = WEIR_FIXED_WINDOW, .limit = CALLS_BURST, .period_us = WEIR_DAY },
    [KIND_SLIDING] = { .algorithm = WEIR_SLIDING_WINDOW, .limit = CALLS_BURST, .period_us = WEIR_DAY },
    [KIND_LEAKY] = { .algorithm = WEIR_LEAKY_BUCKET,
                     .limit = CALLS_PERMITS_A_SECOND,
                     .period_us = WEIR_SECOND,
                     .capacity = CALLS_BURST },
};

const char *kind_name(enum kind kind)
{
    static const char *const names[KINDS] = { "token", "interval", "fixed", "sliding", "leaky" };
    return names[kind];
}

static void add_bytes(struct call *call, const void *bytes, size_t len)
{
    call->argv[call->words] = bytes;
    call->len[call->words++] = len;
}

static void add_text(struct call *call, const char *text)
{
    add_bytes(call, text, strlen(text));
}

static void add_number(struct call *call, int place, int64_t number)
{
    snprintf(call->numbers[place], sizeof call->numbers[place], "%lld", (long long)number);
    add_text(call, call->numbers[place]);
}

void call_gateway(struct call *call, const char *sha1, const struct bench_key *key, int64_t cost)
{
    call->words = 0;
    call->decisions = 1;
    add_text(call, "EVALSHA");
    add_text(call, sha1);
    add_text(call, "2");
    static const char *const names[] = { "tokens", "timestamp" };
    for (int i = 0; i < 2; i++) {
        int len = snprintf(call->keys[i], sizeof call->keys[i], "gateway.{%.*s}.%s", (int)key->len, key->text,
                           names[i]);
        add_bytes(call, call->keys[i], (size_t)len);
    }
    add_number(call, 0, CALLS_PERMITS_A_SECOND);
    add_number(call, 1, CALLS_BURST);
    add_number(call, 2, time(NULL));
    add_number(call, 3, cost);
}

void call_ping(struct call *call)
{
    call->words = 0;
    call->decisions = 0;
    add_text(call, "PING");
}

static const struct weir_plan *plan_of(enum kind kind)
{
    static struct weir_plan plans[KINDS];
    static bool made[KINDS]; /* the first call happens while there is one thread */
    if (!made[kind] && plan_make(&calls_policies[kind], &share_whole, &plans[kind], (struct message){ 0 }) != WEIR_OK) {
        bench_fail("the policy for %s cannot be planned", kind_name(kind));
    }
    made[kind] = true;
    return &plans[kind];
}

static void add_key(struct call *call, enum kind kind, size_t i, const struct bench_key *key)
{
    const char *limit = kind == KIND_TOKEN ? CALLS_LIMIT : kind_name(kind);
    int len = snprintf(call->keys[i], sizeof call->keys[i], "weir:%s:{%.*s}", limit, (int)key->len, key->text);
    add_bytes(call, call->keys[i], (size_t)len);
}

const char floor_script[] = "redis.call('TIME') return redis.call('GET', KEYS[1])";

void call_floor(struct call *call, const char *sha1, const struct bench_key *key)
{
    call->words = 0;
    call->decisions = 1;
    add_text(call, "EVALSHA");
    add_text(call, sha1);
    add_number(call, 0, 1);
    add_key(call, KIND_TOKEN, 0, key);
}

void call_read(struct call *call, const struct bench_key *key)
{
    call->words = 0;
    call->decisions = 1;
    add_text(call, "GET");
    add_key(call, KIND_TOKEN, 0, key);
}

/* Begin a call that is not a single take. */
static void call_begin(struct call *call, enum kind kind, const struct bench_key *keys, size_t n)
{
    const struct weir_plan *plan = plan_of(kind);
    call->words = 0;
    add_text(call, "EVALSHA");
    add_bytes(call, redis_scripts[redis_script_of(plan)].sha1, SHA1_LEN);
    add_number(call, 0, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        add_key(call, kind, i, &keys[i]);
    add_bytes(call, call->stamp, redis_stamp_write(plan, call->stamp));
}

/* Calls are answered in turn, so the echo need not tell them apart. */
static const unsigned char no_echo[REDIS_ECHO_SIZE];

static void call_end(struct call *call, size_t items_len)
{
    memcpy(&call->items[items_len], no_echo, REDIS_ECHO_SIZE);
    add_bytes(call, call->items, items_len + REDIS_ECHO_SIZE);
}

/* Make a call of one take or settlement, whose argument is in the items. */
static void call_single(struct call *call, enum kind kind, const struct bench_key *key, size_t len)
{
    call->words = 0;
    add_text(call, "EVALSHA");
    add_bytes(call, redis_scripts[REDIS_BUCKET_SINGLE].sha1, SHA1_LEN);
    add_number(call, 0, 1);
    add_key(call, kind, 0, key);
    add_bytes(call, call->items, len);
}

void call_weir(struct call *call, enum kind kind, const struct bench_key *keys, size_t n, int64_t cost, uint16_t times)
{
    const size_t len = n == 1 && times == 1 ? redis_take_write(plan_of(kind), cost, no_echo, call->items) : 0;
    call->decisions = n * times;
    if (len > 0) {
        call_single(call, kind, keys, len);
        return;
    }
    call_begin(call, kind, keys, n);
    for (size_t i = 0; i < n; i++)
        redis_item_write(&call->items[REDIS_COUNTS_SIZE + i * REDIS_ITEM_SIZE], WEIR_TAKE, false, cost, times);
    call_end(call, redis_items_pack(call->items, n));
}

void call_settle(struct call *call, enum kind kind, const struct bench_key *keys, size_t n, int64_t cost,
                 int64_t since_us)
{
    const size_t len = n == 1 ? redis_settle_write(plan_of(kind), 1, since_us, no_echo, call->items) : 0;
    call->decisions = n;
    if (len > 0) {
        call_single(call, kind, keys, len);
        return;
    }
    call_begin(call, kind, keys, n);
    for (size_t i = 0; i < n; i++) {
        const bool takes = i < n / 2;
        redis_item_write(&call->items[REDIS_COUNTS_SIZE + i * REDIS_ITEM_SIZE], takes ? WEIR_TAKE : REDIS_RETURN, false,
                         takes ? cost : 1, takes ? 1 : since_us + (int64_t)i);
    }
    call_end(call, redis_items_pack(call->items, n));
}

uint64_t call_permits(const redisReply *reply)
{
    static atomic_bool said;
    uint64_t permits = 0;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        return reply->element[0]->integer == 1;
    if (reply->type == REDIS_REPLY_STRING && reply->len == REDIS_LEFT_SIZE + REDIS_ECHO_SIZE)
        return 1; /* each take costs 1, or too much */
    if (reply->type == REDIS_REPLY_STRING && reply->len > REDIS_HEAD_SIZE + REDIS_ECHO_SIZE) {
        const unsigned char *bytes = (const unsigned char *)reply->str;
        if (redis_denial_is_short(bytes, reply->len - REDIS_ECHO_SIZE))
            return 0;
        for (int i = 0; i < 7; i++)
            permits |= (uint64_t)bytes[7 + i] << 8 * i;
        return permits;
    }
    if (!atomic_exchange(&said, true))
        bench_say("redis-server says: %.100s", reply->str ? reply->str : "(nothing)");
    return UINT64_MAX;
}
