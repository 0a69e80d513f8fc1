/* test_redis_memory.c - what Redis does with weir's keys when its memory is full, and that none of them stays
 * forever.
 *
 * Each eviction of a key forgives at most one limit. After `e` evictions of a key, at most 1 + e limits are admitted
 * while nothing refills, plus the possible excess of leases in hybrid mode. Redis reports each eviction.
 */
#include "redis_place.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const policies[KIND_COUNT] = {
    "token_bucket limit=50 period=1h", "token_bucket limit=50 period=1h refill=interval",
    "fixed_window limit=50 period=1h", "sliding_window limit=50 period=1h", "leaky_bucket limit=50 period=1h"
};

static void memory_most(struct place *place, const char *policy, int64_t more)
{
    char bytes[24];
    snprintf(bytes, sizeof bytes, "%" PRId64, place_info(place, "memory", "used_memory:") + more);
    ck_assert_str_eq(place_ask(place, "CONFIG", "SET", "maxmemory-policy", policy), "OK");
    ck_assert_str_eq(place_ask(place, "CONFIG", "SET", "maxmemory", bytes), "OK");
}

/* Leave the server no room at all: it may free large buffers of clients at any time. */
static void memory_full(struct place *place)
{
    ck_assert_str_eq(place_ask(place, "CONFIG", "SET", "maxmemory-policy", "noeviction"), "OK");
    ck_assert_str_eq(place_ask(place, "CONFIG", "SET", "maxmemory", "1"), "OK");
}

/* ---- No room ---- */

/* Return a digest of all data. */
static char *digest(struct place *place, char *out, size_t size)
{
    static const char script[] =
        "local all = '' local keys = redis.call('KEYS', '*') table.sort(keys) "
        "for _, k in ipairs(keys) do all = redis.sha1hex(all .. k .. redis.call('GET', k)) end "
        "return all .. ' of ' .. #keys";
    snprintf(out, size, "%s", place_ask(place, "EVAL", script, "0"));
    return out;
}

static const struct {
    enum weir_on_failure on_failure;
    enum weir_source source;
} failures[] = {
    { WEIR_FAIL_ERROR, WEIR_BY_REDIS }, /* no component decides */
    { WEIR_FAIL_LOCAL, WEIR_BY_FALLBACK },
    { WEIR_FAIL_OPEN, WEIR_BY_FAIL_OPEN },
    { WEIR_FAIL_CLOSED, WEIR_BY_FAIL_CLOSED },
};

/* Check the result of a request that would have to write. */
static void assert_not_by_redis(int failure, int status, const struct weir_decision *decision)
{
    if (failures[failure].on_failure == WEIR_FAIL_ERROR)
        ck_assert_int_eq(status, WEIR_EIO);
    else
        ck_assert_msg(status == WEIR_OK && decision->source == failures[failure].source, "%d: status %d, source %d",
                      failure, status, decision->source);
}

TEST_EACH(a_full_server_keeps_every_state_intact_and_is_used_again_once_it_has_room, sizeof failures / sizeof *failures,
          60)
{
    weir_limit *limits[KIND_COUNT];
    char before[128], after[128], name[16];
    struct weir_decision decision, decisions[KIND_COUNT];
    struct weir_request requests[KIND_COUNT];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.on_failure = failures[_i].on_failure;
    LIMITER(limiter, &options);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        snprintf(name, sizeof name, "kind-%d", kind);
        limits[kind] = limit_of(limiter, name, policies[kind]);
        ck_assert_int_eq(taken(limits[kind], "key", 20).source, WEIR_BY_REDIS);
        requests[kind] = (struct weir_request){ .limit = limits[kind], .key = weir_key_text("key"), .cost = 1 };
    }
    digest(&place, before, sizeof before);
    memory_full(&place);
    for (int i = 0; i < 5; i++) {
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            assert_not_by_redis(_i, weir_try(limits[kind], weir_key_text("key"), 1, &decision), &decision);
            assert_not_by_redis(_i, weir_try(limits[kind], weir_key_text("new"), 1, &decision), &decision);
        }
        assert_not_by_redis(_i, weir_try_all(limiter, requests, KIND_COUNT, &decision), &decision);
        assert_not_by_redis(_i, weir_try_batch(limiter, requests, KIND_COUNT, decisions), &decisions[0]);
    }
    ck_assert_str_eq(digest(&place, after, sizeof after), before);
    ck_assert_msg(place_logged(&place, "OOM"), "%s", place.log);
    ck_assert_int_eq(stats_of(limiter).outages > 0, options.on_failure != WEIR_FAIL_ERROR);
    place_ask(&place, "CONFIG", "SET", "maxmemory", "0");
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        recover(limits[kind], "key");
        const struct weir_decision again = taken(limits[kind], "key", 1);
        ck_assert_int_eq(again.source, WEIR_BY_REDIS);
        ck_assert_int_le(again.remaining, 29);
        if (_i != 1) /* the fallback's admitted permits have been charged since */
            ck_assert_int_eq(again.remaining, 29);
        ck_assert_int_eq(taken(limits[kind], "another", 1).remaining, 49);
    }
}

TEST(a_full_server_still_decides_requests_that_need_no_room, 30)
{
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", FIFTY_AN_HOUR);
    taken(limit, "key", 50);
    memory_full(&place);
    for (int i = 0; i < 10; i++) {
        const struct weir_decision denied = taken(limit, "key", 10);
        ck_assert(!denied.allowed && denied.source == WEIR_BY_REDIS);
        ck_assert_int_eq(peeked(limit, "unseen", 1).remaining, 50);
    }
    must_succeed(weir_reset(limit, weir_key_text("key")));
    ck_assert_str_eq(place_ask(&place, "DBSIZE"), "0");
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
}

/* Denied requests beside others whose charges find no room. */
struct beside {
    weir_limit *limit;
    atomic_int crew;
    _Atomic int64_t denied, shared_the_failure, full;
};

/* Make one request: a charge without room, or a denial. */
static void ask_beside(struct beside *beside, bool spent, int i)
{
    struct weir_decision decision;
    char name[24];
    snprintf(name, sizeof name, "new-%d", i);
    const int status = weir_try(beside->limit, weir_key_text(spent ? "spent" : name), 1, &decision);
    must(status == WEIR_EIO || (spent && status == WEIR_OK), "nobody is charged");
    must(status == WEIR_EIO || (!decision.allowed && decision.source == WEIR_BY_REDIS), "Redis denies");
    if (spent)
        atomic_fetch_add(status == WEIR_OK ? &beside->denied : &beside->shared_the_failure, 1);
    else
        atomic_fetch_add(&beside->full, 1);
}

static void *ask_in_a_crowd(void *argument)
{
    struct beside *beside = argument;
    const bool spent = atomic_fetch_add(&beside->crew, 1) % 2 == 0;
    for (int i = 0; i < 300; i++)
        ask_beside(beside, spent, i);
    return NULL;
}

TEST(on_a_full_server_denials_come_from_redis_except_in_a_call_with_a_charge, 60)
{
    struct crew crew;
    char before[128], after[128];
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 20 * WEIR_SECOND);
    LIMITER(limiter, &options);
    struct beside alone = { .limit = limit_of(limiter, "limit", FIFTY_AN_HOUR) }, many = { .limit = alone.limit };
    taken(alone.limit, "spent", 50);
    digest(&place, before, sizeof before);
    memory_full(&place);
    for (int i = 0; i < 100; i++)
        ask_beside(&alone, i % 2 == 0, i);
    ck_assert(alone.denied == 50 && alone.full == 50);
    crew_start(&crew, 16, ask_in_a_crowd, &many);
    crew_join(&crew);
    printf("full: of %d denials in a crowd %" PRId64 " were in a call that failed\n", 8 * 300, many.shared_the_failure);
    ck_assert_int_eq(many.full, 8 * 300);
    ck_assert_str_eq(digest(&place, after, sizeof after), before);
}

TEST(a_full_server_leases_nothing_and_earlier_leases_end_soon, 60)
{
    struct weir_limit_info info = { .size = sizeof info };
    struct weir_decision decision;
    int64_t allowed = 0, by_lease = 0, failed = 0, until_us = wire_now_us() + RECOVERY_MOST_US;
    PLACE(place, false, NULL);
    struct weir_options options = place_options(&place, 5 * WEIR_SECOND);
    options.mode = WEIR_HYBRID;
    options.lease_life_us = 300000;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "limit", UNREFILLED);
    must_succeed(weir_limit_info(limit, &info));
    for (; by_lease < 100 && wire_now_us() < until_us; sleep_us(100)) {
        decision = taken(limit, "key", 1);
        allowed += decision.allowed;
        by_lease += decision.source == WEIR_BY_LEASE;
    }
    ck_assert_int_ge(by_lease, 100);
    memory_full(&place);
    const int64_t full_us = wire_now_us();
    while (failed < 100) { /* leases from before last at most this long */
        const int64_t asked_us = wire_now_us();
        const int status = weir_try(limit, weir_key_text("key"), 1, &decision);
        must(status == WEIR_EIO || (status == WEIR_OK && decision.source == WEIR_BY_LEASE), "leased, or not at all");
        must(status == WEIR_EIO || asked_us - full_us <= info.lease_life_us, "leases have run out");
        allowed += status == WEIR_OK && decision.allowed;
        failed += status == WEIR_EIO;
    }
    place_ask(&place, "CONFIG", "SET", "maxmemory", "0");
    recover(limit, "key");
    decision = peeked(limit, "key", 1);
    ck_assert_int_ge(decision.limit - decision.remaining, allowed);
}

/* ---- Eviction ---- */

enum { LIMIT = 3, KEYS = 12000, HOT = 20, HOT_LIMIT = 400, BATCH = 64, CREW = 4 };

/* Counts the evicted keys "<limit>:{k<number>}", for each limit. */
struct tally {
    redisContext *redis;
    pthread_t thread;
    atomic_bool over;
    _Atomic int64_t all, cold[KEYS], hot[HOT];
};

static void *count_evictions(void *argument)
{
    struct tally *tally = argument;
    while (!atomic_load(&tally->over)) {
        redisReply *reply = NULL;
        must(redisGetReply(tally->redis, (void **)&reply) == REDIS_OK, tally->redis->errstr);
        must(reply->type == REDIS_REPLY_ARRAY && reply->elements == 3, "three words");
        const char *key = reply->element[2]->str;
        if (strcmp(reply->element[0]->str, "message") == 0 && strcmp(key, "over") == 0) {
            atomic_store(&tally->over, true);
        } else if (strcmp(reply->element[0]->str, "message") == 0) {
            const char *number = strchr(key, 'k');
            must(number != NULL && number > key && number[-1] == '{', key);
            const int k = atoi(number + 1);
            atomic_fetch_add(strncmp(key, "weir:hot:", 9) == 0 ? &tally->hot[k] : &tally->cold[k], 1);
            atomic_fetch_add(&tally->all, 1);
        }
        freeReplyObject(reply);
    }
    return NULL;
}

static void tally_begin(struct tally *tally, struct place *place)
{
    memset(tally, 0, sizeof *tally);
    ck_assert_str_eq(place_ask(place, "CONFIG", "SET", "notify-keyspace-events", "Ee"), "OK");
    tally->redis = redisConnectUnix(place->server.socket);
    must(tally->redis != NULL && tally->redis->err == 0, "a connection to listen by");
    redisReply *reply = redisCommand(tally->redis, "SUBSCRIBE __keyevent@0__:evicted over");
    must(reply != NULL, "subscribed");
    freeReplyObject(reply);
    must(pthread_create(&tally->thread, NULL, count_evictions, tally) == 0, "a thread");
}

/* Stop counting, once all earlier evictions are counted. */
static void tally_end(struct tally *tally, struct place *place)
{
    place_ask(place, "CONFIG", "SET", "maxmemory", "0");
    place_ask(place, "PUBLISH", "over", "over");
    must(pthread_join(tally->thread, NULL) == 0, "joined");
    redisFree(tally->redis);
    ck_assert_int_eq(tally->all, place_info(place, "stats", "evicted_keys:"));
}

struct pressure {
    weir *limiter;
    weir_limit *cold;
    atomic_int crew;
    int64_t began_us;
    atomic_bool over;
    /* Calls refused with OOM: the listener's unread messages about evictions slowly fill the memory. */
    _Atomic int64_t full;
    _Atomic int64_t admitted[KEYS];
};

/* Take permits of random keys, many more keys than fit. */
static void *press(void *argument)
{
    struct pressure *pressure = argument;
    struct chance chance = chance_make((uint64_t)atomic_fetch_add(&pressure->crew, 1));
    char names[BATCH][16];
    int numbers[BATCH];
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    while (!atomic_load(&pressure->over)) {
        for (int j = 0; j < BATCH; j++) {
            numbers[j] = (int)chance_between(&chance, 0, KEYS - 1);
            snprintf(names[j], sizeof names[j], "k%d", numbers[j]);
            requests[j] = (struct weir_request){ .limit = pressure->cold, .key = weir_key_text(names[j]), .cost = 1 };
        }
        const int status = weir_try_batch(pressure->limiter, requests, BATCH, decisions);
        must(status == WEIR_OK || status == WEIR_EIO, weir_strerror(status));
        atomic_fetch_add(&pressure->full, status == WEIR_EIO);
        for (int j = 0; j < BATCH && status == WEIR_OK; j++) {
            must(decisions[j].source == WEIR_BY_REDIS, "Redis decides");
            atomic_fetch_add(&pressure->admitted[numbers[j]], decisions[j].allowed);
        }
    }
    return NULL;
}

/* An eviction policy and the limits under it: some that refill nothing during the test, and buckets. */
struct regime {
    const char *evicts, *cold, *hot;
    int64_t cold_us, hot_us; /* until one permit refills; 0: never */
};

#define WINDOWS "fixed_window limit=3 period=366d", "fixed_window limit=400 period=366d", 0, 0
#define BUCKETS "token_bucket limit=3 period=9s", "token_bucket limit=1000 period=10s burst=400", 3000000, 10000

static const struct regime regimes[] = { { "allkeys-lru", WINDOWS },  { "volatile-lru", WINDOWS },
                                         { "volatile-ttl", WINDOWS }, { "allkeys-random", WINDOWS },
                                         { "volatile-ttl", BUCKETS }, { "allkeys-random", BUCKETS } };

static int64_t come_back(int64_t one_us, int64_t began_us)
{
    return one_us == 0 ? 0 : (wire_now_us() - began_us) / one_us + 1;
}

static void pressure_open(struct pressure *pressure, struct place *place, const struct regime *regime)
{
    memset(pressure, 0, sizeof *pressure);
    struct weir_options options = place_options(place, 20 * WEIR_SECOND);
    pressure->limiter = limiter_of(&options);
    pressure->cold = limit_of(pressure->limiter, "cold", regime->cold);
    pressure->began_us = wire_now_us();
}

static int64_t admitted_sum(const struct pressure *pressure)
{
    int64_t sum = 0;
    for (int k = 0; k < KEYS; k++)
        sum += pressure->admitted[k];
    return sum;
}

static void assert_cold_is_bounded(const struct pressure *pressure, const struct tally *tally,
                                   const struct regime *regime)
{
    const int64_t back = come_back(regime->cold_us, pressure->began_us);
    for (int k = 0; k < KEYS; k++)
        ck_assert_msg(pressure->admitted[k] <= LIMIT * (1 + tally->cold[k]) + back,
                      "k%d: %" PRId64 " admitted, evicted %" PRId64 " times", k, pressure->admitted[k], tally->cold[k]);
    if (pressure->full > 0)
        printf("%" PRId64 " calls of %d keys found the server full\n", pressure->full, (int)BATCH);
}

/* Limit the memory to what half of the keys and their clients take. */
static void fill(struct place *place, const char *policy)
{
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (strtoll(place_ask(place, "DBSIZE"), NULL, 10) < KEYS / 2)
        must(wire_now_us() < until_us, "the keys come");
    memory_most(place, policy, 0);
}

TEST_EACH(each_eviction_by_redis_admits_at_most_one_extra_limit, sizeof regimes / sizeof *regimes, 60)
{
    static struct pressure pressure;
    static struct tally tally;
    const struct regime *regime = &regimes[_i];
    struct crew crew;
    PLACE(place, false, NULL);
    pressure_open(&pressure, &place, regime);
    peeked(pressure.cold, "k0", 1);
    tally_begin(&tally, &place);
    crew_start(&crew, CREW, press, &pressure);
    fill(&place, regime->evicts);
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
         tally.all <= KEYS || admitted_sum(&pressure) <= LIMIT * KEYS; sleep_us(10000))
        must(wire_now_us() < until_us, "keys are evicted and admitted again");
    atomic_store(&pressure.over, true);
    crew_join(&crew);
    tally_end(&tally, &place);
    const int64_t admitted = admitted_sum(&pressure);
    printf("%s, %s: %d keys, %" PRId64 " of them in the end: %" PRId64 " evictions, %.2f limits admitted\n",
           regime->evicts, regime->cold, (int)KEYS, (int64_t)strtoll(place_ask(&place, "DBSIZE"), NULL, 10), tally.all,
           (double)admitted / (LIMIT * KEYS));
    assert_cold_is_bounded(&pressure, &tally, regime);
    ck_assert_msg(pressure.full > 0 || place_log_lines(&place) == 0, "%s", place.log);
    weir_close(pressure.limiter);
}

/* ---- Eviction of leased keys ---- */

struct tenants {
    struct place *place;
    const struct regime *regime;
    atomic_int crew;
    atomic_bool over;
    _Atomic int64_t admitted[HOT], by_lease, over_max;
};

/* Take all available permits of a few keys, as one of CREW instances. */
static void *lease(void *argument)
{
    struct tenants *tenants = argument;
    struct weir_options options = place_options(tenants->place, 20 * WEIR_SECOND);
    struct weir_limit_info info = { .size = sizeof info };
    struct weir_decision decision;
    char name[16];
    options.mode = WEIR_HYBRID;
    options.instances = CREW;
    options.lease_life_us = WEIR_SECOND; /* long enough for a busy machine to lease */
    options.rank = atomic_fetch_add(&tenants->crew, 1);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "hot", tenants->regime->hot);
    must_succeed(weir_limit_info(limit, &info));
    atomic_store(&tenants->over_max, info.over_max);
    for (int64_t i = 0; !atomic_load(&tenants->over); i++) {
        snprintf(name, sizeof name, "k%d", (int)(i % HOT));
        const int status = weir_try(limit, weir_key_text(name), 1, &decision);
        must(status == WEIR_OK || status == WEIR_EIO, weir_strerror(status));
        if (status != WEIR_OK)
            continue;
        atomic_fetch_add(&tenants->admitted[i % HOT], decision.allowed);
        atomic_fetch_add(&tenants->by_lease, decision.source == WEIR_BY_LEASE);
        if (i % HOT == 0)
            sleep_us(200); /* so that a lease outlives an eviction */
    }
    weir_close(limiter);
    return NULL;
}

TEST_EACH(with_leases_each_eviction_by_redis_admits_at_most_one_extra_limit, sizeof regimes / sizeof *regimes - 1, 60)
{
    static struct pressure pressure;
    static struct tally tally;
    CLOSED_BY(place_close) struct place place;
    const struct regime *regime = &regimes[_i];
    struct tenants tenants = { .place = &place, .regime = regime };
    struct crew crew, crowd;
    place_open(&place, false, NULL);
    pressure_open(&pressure, &place, regime);
    peeked(pressure.cold, "k0", 1);
    tally_begin(&tally, &place);
    crew_start(&crowd, CREW, lease, &tenants);
    crew_start(&crew, 2, press, &pressure);
    fill(&place, regime->evicts);
    const int64_t from_us = wire_now_us() + 2 * WEIR_SECOND, until_us = wire_now_us() + RECOVERY_MOST_US;
    for (; wire_now_us() < from_us || tenants.by_lease == 0 || tally.all == 0; sleep_us(10000))
        must(wire_now_us() < until_us, "keys are leased and evicted");
    atomic_store(&tenants.over, true);
    atomic_store(&pressure.over, true);
    crew_join(&crowd);
    crew_join(&crew);
    tally_end(&tally, &place);
    int64_t admitted = 0, evictions = 0, back = come_back(regime->hot_us, pressure.began_us);
    for (int k = 0; k < HOT; k++) {
        ck_assert_msg(tenants.admitted[k] <= HOT_LIMIT * (1 + tally.hot[k]) + back + tenants.over_max,
                      "k%d: %" PRId64 " admitted, evicted %" PRId64 " times", k, tenants.admitted[k], tally.hot[k]);
        admitted += tenants.admitted[k];
        evictions += tally.hot[k];
    }
    assert_cold_is_bounded(&pressure, &tally, regime);
    printf("%s, %s: %d busy keys: %" PRId64 " evictions, %.2f limits and %" PRId64 " permits that came back admitted, "
           "%" PRId64 " of all by leases, over_max %" PRId64 "\n",
           regime->evicts, regime->hot, (int)HOT, evictions, (double)(admitted - back * HOT) / (HOT_LIMIT * HOT), back,
           atomic_load(&tenants.by_lease), atomic_load(&tenants.over_max));
    ck_assert_int_eq(tenants.over_max > 0, regime->hot_us > 0);
    weir_close(pressure.limiter);
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    return suite_run(tests());
}
