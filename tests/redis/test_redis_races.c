/* test_redis_races.c - no permit is taken twice, lost, or held forever: faults A1 to A8 of distributed mode. */
#include "redis_place.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Replies that never come ---- */

struct errand {
    weir_limit *limit;
    const char *key;
    int64_t calls_each; /* per thread; 0: until done */
    atomic_bool done;
    _Atomic int64_t calls, allowed, denied, errors;
};

static void *take_all_the_while(void *argument)
{
    struct errand *errand = argument;
    struct weir_decision decision;
    for (int64_t i = 0; errand->calls_each == 0 ? !atomic_load(&errand->done) : i < errand->calls_each; i++) {
        atomic_fetch_add(&errand->calls, 1);
        if (weir_try(errand->limit, weir_key_text(errand->key), 1, &decision) != WEIR_OK)
            atomic_fetch_add(&errand->errors, 1);
        else
            atomic_fetch_add(decision.allowed ? &errand->allowed : &errand->denied, 1);
    }
    return NULL;
}

/* Return what the server has charged the key, asked over a separate connection without faults. */
static int64_t debits(struct place *place, const char *key)
{
    struct weir_options options = place_options(place, 5 * WEIR_SECOND);
    options.redis_url = place->server.url;
    weir *limiter = limiter_of(&options);
    struct weir_decision left = peeked(limit_of(limiter, "limit", UNREFILLED), key, 1);
    weir_close(limiter);
    return left.limit - left.remaining;
}

static const struct {
    enum fproxy_fault fault;
    const char *name;
    bool delivers;
} losses[] = {
    { FPROXY_CLOSE_REPLY, "closed before the reply", true },
    { FPROXY_RESET_REPLY, "reset before the reply", true },
    { FPROXY_CUT_REPLY, "half a reply", true },
    { FPROXY_GARBAGE, "garbage", true },
    { FPROXY_STALL, "silence", true },
    { FPROXY_CUT_REQUEST, "half a request", false },
    { FPROXY_RESET_REQUEST, "reset before the request", false },
    { FPROXY_LOSE_REQUEST, "a lost request", false },
};

/* Return the proxy's counts once no more requests arrive. */
static struct fproxy_counts counts_at_rest(struct place *place)
{
    struct fproxy_counts now = fproxy_counts(place->proxy), before;
    do {
        before = now;
        sleep_us(50000);
        now = fproxy_counts(place->proxy);
    } while (now.requests != before.requests);
    return now;
}

/* One caller takes one permit per call: each script call that reaches the server is one charge, and nothing else is.
 * With --full: ten thousand losses in all. */
TEST_EACH(a_lost_reply_never_causes_a_second_charge, sizeof losses / sizeof losses[0], 30)
{
    const int64_t most = full_or(1250, INSTRUMENTED ? 50 : 100);
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, 20000);
    weir *limiter = limiter_of(&options);
    struct errand errand = { .limit = limit_of(limiter, "limit", UNREFILLED), .key = "key", .calls_each = 1 };
    recover(errand.limit, "another");
    const int64_t peeks = fproxy_counts(place.proxy).delivered;
    const int64_t least = full_or(most, most / 5), began_us = wire_now_us();
    const int64_t until_us = began_us + 2 * WEIR_SECOND,
                  late_us = began_us + full_or(5 * WEIR_MINUTE, 20 * WEIR_SECOND);
    ck_assert_int_eq(peeks, fproxy_counts(place.proxy).requests);
    fproxy_fault(place.proxy, losses[_i].fault, "EVALSHA", 2, -1);
    struct fproxy_counts before = fproxy_counts(place.proxy), counts = before;
    while (counts.faults < most && wire_now_us() < (counts.faults < least ? late_us : until_us)) {
        take_all_the_while(&errand);
        counts = fproxy_counts(place.proxy);
    }
    weir_close(limiter);
    counts = counts_at_rest(&place);
    int64_t delivered = counts.delivered - before.delivered, taken = debits(&place, "key");
    ck_assert_msg(taken == delivered, "%s: %" PRId64 " delivered, %" PRId64 " debited", losses[_i].name, delivered,
                  taken);
    ck_assert_int_ge(counts.faults, least);
    ck_assert_int_ge(errand.errors, counts.faults);
    ck_assert_int_le(errand.allowed, taken);
    ck_assert_int_le(taken, errand.calls);
}

TEST(sixteen_threads_that_lose_replies_are_charged_at_most_once_per_call, 30)
{
    PLACE(place, true, NULL);
    struct weir_options options = place_options(&place, INSTRUMENTED ? WEIR_SECOND / 2 : 50000);
    weir *limiter = limiter_of(&options);
    struct errand errand = { .limit = limit_of(limiter, "limit", UNREFILLED), .key = "key" };
    struct crew crew;
    recover(errand.limit, "another");
    crew_start(&crew, 16, take_all_the_while, &errand);
    for (int i = 0; i < 40; i++) {
        fproxy_fault(place.proxy, losses[i % 5].fault, "EVALSHA", 3, 4);
        sleep_us(20000);
    }
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; errand.allowed == 0 && wire_now_us() < until_us;)
        sleep_us(1000);
    atomic_store(&errand.done, true);
    crew_join(&crew);
    weir_close(limiter);
    int64_t taken = debits(&place, "key");
    ck_assert_int_gt(errand.errors, 0);
    ck_assert_int_gt(errand.allowed, 0);
    ck_assert_int_le(errand.allowed, taken);
    ck_assert_int_le(taken, errand.allowed + errand.errors);
}

/* ---- Keys that never expire ---- */

static const char *const kinds[KIND_COUNT] = { "token_bucket limit=100 period=1m",
                                               "token_bucket limit=100 period=1m refill=interval",
                                               "fixed_window limit=100 period=1m", "sliding_window limit=100 period=1m",
                                               "leaky_bucket limit=100 period=1m" };
static const int64_t kinds_reset_most_ms = 2 * 60 * 1000; /* of any of them, plus a sliding window's block */

struct load {
    weir *limiter;
    weir_limit *limits[KIND_COUNT];
    atomic_bool done;
    atomic_int number;
};

static void *take_of_many_keys(void *argument)
{
    struct load *load = argument;
    struct chance chance = chance_make((uint64_t)atomic_fetch_add(&load->number, 1));
    struct weir_decision decision;
    char key[16];
    while (!atomic_load(&load->done)) {
        weir_limit *limit = load->limits[chance_between(&chance, 0, KIND_COUNT - 1)];
        snprintf(key, sizeof key, "%" PRId64, chance_between(&chance, 0, 999));
        struct weir_request all[] = { { load->limits[0], weir_key_text(key), 1, 0 },
                                      { load->limits[3], weir_key_text(key), 2, 0 } };
        if (chance_one_in(&chance, 4))
            weir_try_all(load->limiter, all, 2, &decision);
        else if (chance_one_in(&chance, 9))
            weir_refund(limit, weir_key_text(key), 1);
        else
            weir_try(limit, weir_key_text(key), chance_between(&chance, 1, 10), &decision);
    }
    return NULL;
}

TEST(a_server_killed_at_any_moment_keeps_no_key_forever, 60)
{
    static const char *const config[] = { "--appendonly", "yes", NULL };
    static const char scan[] = "local most, n = 0, 0 for _, key in ipairs(redis.call('KEYS', '*')) do "
                               "local left = redis.call('PTTL', key) n = n + 1 "
                               "if left == -1 then return -1 end if left > most then most = left end end "
                               "return n > 0 and most or 0";
    enum { KILLS = INSTRUMENTED ? 6 : 12 };
    struct place place;
    struct chance chance = chance_make(3);
    struct crew crew;
    static struct load load;
    place_open(&place, false, config);
    struct weir_options options = place_options(&place, 100000);
    load.limiter = limiter_of(&options);
    for (int i = 0; i < KIND_COUNT; i++)
        load.limits[i] = limit_of(load.limiter, (char[]){ (char)('a' + i), '\0' }, kinds[i]);
    recover(load.limits[0], "key");
    crew_start(&crew, 4, take_of_many_keys, &load);
    int64_t keys = 0;
    while (strtoll(place_ask(&place, "DBSIZE"), NULL, 10) < 2)
        sleep_us(1000);
    for (int i = 0; i < KILLS; i++) {
        sleep_us(chance_between(&chance, 1000, 40000));
        redis_server_kill(&place.server);
        must(redis_server_restart(&place.server) == 0, place.server.daemon.error);
        asker_close(&place.asker);
        must(asker_open(&place.asker, place.server.socket) == 0, place.asker.error);
        int64_t most_ms = strtoll(place_ask(&place, "EVAL", scan, "0"), NULL, 10);
        ck_assert_int_ge(most_ms, 0);
        ck_assert_int_le(most_ms, kinds_reset_most_ms + 2001);
        keys += strtoll(place_ask(&place, "DBSIZE"), NULL, 10);
        recover(load.limits[0], "key");
    }
    atomic_store(&load.done, true);
    crew_join(&crew);
    ck_assert_int_gt(keys, KILLS);
    weir_close(load.limiter);
    place_close(&place);
}

/* ---- Denials ---- */

TEST(denials_and_peeks_write_nothing, 30)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(limiter, &options);
    for (int i = 0; i < KIND_COUNT; i++) {
        weir_limit *limit = limit_of(limiter, "limit", kinds[i]);
        char state[256];
        place_ask(&place, "FLUSHALL");
        ck_assert(taken(limit, "key", 90).allowed);
        ssize_t len = asker_ask(&place.asker, state, sizeof state, "GET", "weir:limit:{key}", NULL);
        ck_assert_int_gt(len, 12);
        int64_t writes = place_info(&place, "persistence", "rdb_changes_since_last_save:");
        for (int j = 0; j < 20; j++) {
            struct weir_decision denied = taken(limit, "key", 100);
            ck_assert(!denied.allowed);
            ck_assert_int_eq(denied.source, WEIR_BY_REDIS);
            ck_assert_int_gt(denied.retry_after_us, 0);
            peeked(limit, "key", 1);
            peeked(limit, "fresh", 1);
        }
        ck_assert_int_eq(place_info(&place, "persistence", "rdb_changes_since_last_save:"), writes);
        place_ask(&place, "GET", "weir:limit:{key}");
        ck_assert_mem_eq(place_reply, state, (size_t)len);
    }
}

/* ---- Threads ---- */

enum { STALLS = 8, PERMITS = 200 };

struct market {
    weir *limiter;
    weir_limit *limit, *wide;
    _Atomic int64_t admitted[STALLS];
    atomic_int number;
};

struct basket { /* of one thread */
    struct market *market;
    atomic_int waiting;
};

static void submitted_done(struct weir_op *op, int status)
{
    struct basket *basket = op->user;
    if (status == WEIR_OK && op->decision.allowed)
        atomic_fetch_add(&basket->market->admitted[*(const char *)op->request.key.data - 'a'], op->request.cost);
    atomic_fetch_sub(&basket->waiting, 1);
}

/* Take single permits by every function until none is left, so that the last one is found. */
static void *buy_all(void *argument)
{
    struct market *market = argument;
    struct chance chance = chance_make((uint64_t)(100 + atomic_fetch_add(&market->number, 1)));
    struct basket basket = { .market = market };
    struct weir_op ops[8];
    static const char names[STALLS] = "abcdefgh";
    for (int denied = 0; denied < 40;) {
        int64_t stall = chance_between(&chance, 0, STALLS - 1), way = chance_between(&chance, 0, 3);
        struct weir_key key = weir_key(&names[stall], 1);
        struct weir_request requests[4] = { { market->limit, key, 1, 0 }, { market->wide, key, 1, 0 } };
        struct weir_decision decisions[4] = { { .allowed = false } };
        int64_t admitted = 0;
        if (way == 0) {
            must_succeed(weir_try(market->limit, key, 1, &decisions[0]));
            admitted = decisions[0].allowed;
        } else if (way == 1) {
            must_succeed(weir_try_all(market->limiter, requests, 2, &decisions[0]));
            admitted = decisions[0].allowed;
        } else if (way == 2) {
            requests[1] = requests[2] = requests[3] = requests[0];
            must_succeed(weir_try_batch(market->limiter, requests, 4, decisions));
            for (int i = 0; i < 4; i++)
                admitted += decisions[i].allowed;
        } else {
            for (int i = 0; i < 8; i++) {
                ops[i] = (struct weir_op){ .request = requests[0], .done = submitted_done, .user = &basket };
                atomic_fetch_add(&basket.waiting, 1);
                int status = weir_submit(market->limiter, &ops[i]);
                must(status == 0 || status == 1, "a request is submitted");
                if (status == 0)
                    submitted_done(&ops[i], WEIR_OK);
            }
            for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; atomic_load(&basket.waiting) > 0;) {
                must(wire_now_us() < until_us, "what was submitted is done");
                sched_yield();
            }
            continue;
        }
        atomic_fetch_add(&market->admitted[stall], admitted);
        denied = admitted > 0 ? 0 : denied + 1;
    }
    return NULL;
}

TEST(threads_that_mix_all_kinds_of_takes_take_every_permit_once, 60)
{
    struct crew crew;
    static struct market market;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 10 * WEIR_SECOND);
    market.limiter = limiter_of(&options);
    market.limit = limit_of(market.limiter, "limit", "fixed_window limit=200 period=366d");
    market.wide = limit_of(market.limiter, "wide", UNREFILLED);
    crew_start(&crew, 16, buy_all, &market);
    crew_join(&crew);
    for (int i = 0; i < STALLS; i++)
        ck_assert_int_eq(market.admitted[i], PERMITS);
    struct weir_stats stats = stats_of(market.limiter);
    ck_assert_uint_eq(stats.errors, 0);
    ck_assert_uint_eq(stats.fallbacks, 0);
    weir_close(market.limiter);
    ck_assert_int_eq(place_log_lines(&place), 0);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
