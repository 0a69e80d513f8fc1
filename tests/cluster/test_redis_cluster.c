/* test_redis_cluster.c - the backend contract on a Redis Cluster; keys on all primaries, and requests over several of
 * them; faults A1 and D5. */
#include "backends/redis/process.h"
#include "cluster_place.h"
#include "contract/contract.h"
#include "core/limiter/limiter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct cluster common;

/* ---- The contract ---- */

/* Give each limiter its own key prefix, so that tests do not affect each other. */
static int open_as(enum weir_mode mode, const struct weir_options *options, weir **out)
{
    static int opened;
    char prefix[WEIR_MAX_NAME_LEN], url[256];
    struct weir_options own = *options;
    snprintf(prefix, sizeof prefix, "weir:test-%d-%d:", (int)getpid(), opened++);
    cluster_url(&common, 0, 2, NULL, url, sizeof url);
    own.mode = mode;
    own.redis_url = url;
    own.redis_prefix = prefix;
    own.on_failure = WEIR_FAIL_ERROR;
    own.timeout_us = PATIENT_US;
    own.by_local_clock = own.now_us != NULL;
    return weir_open(&own, out);
}

static int open_distributed(const struct weir_options *options, weir **out)
{
    return open_as(WEIR_DISTRIBUTED, options, out);
}

static int open_hybrid(const struct weir_options *options, weir **out)
{
    return open_as(WEIR_HYBRID, options, out);
}

/* Take all lanes of all nodes, so that every request uses the nodes' threads. */
static int open_by_threads(const struct weir_options *options, weir **out)
{
    int error = open_distributed(options, out);
    if (error)
        return error;
    struct redis_cluster *cluster = atomic_load(&((struct redis *)(*out)->backend)->current)->cluster;
    while (atomic_load(&cluster->count) < 3)
        sleep_us(1000);
    for (size_t i = 0; i < 3; i++)
        while (redis_lane_take(redis_cluster_engine(cluster, i)) != NULL)
            ;
    return WEIR_OK;
}

static const struct contract_backend by_threads = { "cluster by its threads", CONTRACT_ALL, open_by_threads,
                                                    .sources_vary = false };
static const struct contract_backend by_caller = { "cluster", CONTRACT_ALL, open_distributed, .sources_vary = false };
static const struct contract_backend hybrid = { "hybrid on a cluster", CONTRACT_ALL, open_hybrid,
                                                .sources_vary = true };

/* ---- Keys everywhere ---- */

enum { MANY = 100000, BATCH = 1000, RANDOM_KEY_MOST = 40 };

/* Draw any bytes, with more braces and percent signs than usual, and append a number that makes the key unique. */
static size_t random_key(struct chance *chance, uint32_t number, unsigned char *key)
{
    static const unsigned char nasty[] = { '{', '}', '%', '\0', '\r', '\n' };
    size_t len = (size_t)chance_between(chance, 1, RANDOM_KEY_MOST - 4);
    for (size_t i = 0; i < len; i++)
        key[i] = chance_one_in(chance, 8) ? nasty[chance_between(chance, 0, sizeof nasty - 1)]
                                          : (unsigned char)chance_next(chance);
    memcpy(key + len, &number, sizeof number);
    return len + sizeof number;
}

static void take_of_all(weir *limiter, weir_limit *limit, int64_t remaining)
{
    static unsigned char keys[BATCH][RANDOM_KEY_MOST];
    static struct weir_request requests[BATCH];
    static struct weir_decision decisions[BATCH];
    struct chance chance = chance_make(6);
    for (uint32_t number = 0; number < MANY; number += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            size_t len = random_key(&chance, number + i, keys[i]);
            requests[i] = (struct weir_request){ .limit = limit, .key = weir_key(keys[i], len), .cost = 1 };
        }
        must_succeed(weir_try_batch(limiter, requests, BATCH, decisions));
        for (int i = 0; i < BATCH; i++) {
            must(decisions[i].source == WEIR_BY_REDIS && decisions[i].allowed, "Redis admits it");
            must(decisions[i].remaining == remaining, "of another key");
        }
    }
}

TEST(a_hundred_thousand_keys_are_stored_once_each_over_all_primaries, 60)
{
    CLOSED_BY(place_close) struct place place;
    int64_t before[3], asks = map_asks(&common), began_us = wire_now_us();
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "many", "fixed_window limit=9 period=366d");
    for (int i = 0; i < 3; i++)
        before[i] = cluster_count(&common, i, "DBSIZE");
    take_of_all(limiter, limit, 8);
    take_of_all(limiter, limit, 7);
    int64_t took_us = wire_now_us() - began_us;
    printf("2 x %d keys in batches of %d: %" PRId64 " ms\n", MANY, BATCH, took_us / 1000);
    for (int i = 0; i < 3; i++) {
        int64_t more = cluster_count(&common, i, "DBSIZE") - before[i];
        ck_assert_msg(more > MANY / 4 && more < MANY / 2, "primary %d has %" PRId64 " of them", i, more);
        must(cluster_ask(&common, i, place_reply, sizeof place_reply, "FLUSHALL") == 2, "they are dropped");
    }
    ck_assert_msg(place_log_lines(&place) == 0, "%s", place.log);
    assert_no_storm(asks < 0 ? -1 : map_asks(&common) - asks, took_us, 1, "keys everywhere");
}

TEST(a_batch_over_all_primaries_answers_each_request_in_its_place, 60)
{
    enum { N = 300 };
    static char keys[N][LOAD_KEY_SIZE];
    static struct weir_request requests[N];
    static struct weir_decision decisions[N];
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "placed", "fixed_window limit=100 period=366d");
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "%d-%d", (int)getpid(), i * 2 / 3); /* some keys occur twice */
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 + i % 60 };
    }
    must_succeed(weir_try_batch(limiter, requests, N, decisions));
    for (int i = 0; i < N; i++) {
        bool second = i > 0 && strcmp(keys[i], keys[i - 1]) == 0;
        int64_t left = second ? decisions[i - 1].remaining : 100, cost = 1 + i % 60;
        must(decisions[i].allowed == (cost <= left), "each by its own cost");
        must(decisions[i].remaining == (cost <= left ? left - cost : left), "each of another key");
    }
}

/* ---- Several limits at once ---- */

static struct weir_request request_of(weir_limit *limit, const char *key, int64_t cost)
{
    return (struct weir_request){ .limit = limit, .key = weir_key_text(key), .cost = cost };
}

static struct weir_decision tried_all(weir *limiter, const struct weir_request *requests, size_t n)
{
    struct weir_decision decision;
    must_succeed(weir_try_all(limiter, requests, n, &decision));
    must(decision.source == WEIR_BY_REDIS, "Redis decides");
    return decision;
}

TEST(a_group_over_one_hash_tag_is_one_call, 60)
{
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    LIMITER(limiter, &options);
    struct weir_request requests[4];
    char key[LOAD_KEY_SIZE];
    static const char *const names[] = { "a", "b", "c", "d" };
    for (int primary = 0; primary < 3; primary++) {
        key_of(&common, primary, 0, key);
        for (int i = 0; i < 4; i++)
            requests[i] = request_of(limit_of(limiter, names[i], "fixed_window limit=10 period=366d"), key, i + 1);
        taken(requests[0].limit, key, 1); /* make the connection first */
        uint64_t calls = stats_of(limiter).store_calls;
        ck_assert(tried_all(limiter, requests, 4).allowed);
        ck_assert(tried_all(limiter, requests, 4).remaining == 2);
        struct weir_decision denied = tried_all(limiter, requests, 4);
        ck_assert(!denied.allowed && denied.bound_by == 3);
        ck_assert_uint_eq(stats_of(limiter).store_calls, calls + 3);
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(charged(requests[i].limit, key), 2 * (i + 1) + (i == 0));
    }
}

/* Find one key per primary, in the order of the primaries, beginning with `first`. */
static void keys_apart(int first, char keys[3][LOAD_KEY_SIZE])
{
    for (int i = 0; i < 3; i++)
        key_of(&common, (first + i) % 3, 0, keys[i]);
}

TEST(a_group_over_several_primaries_is_charged_completely_or_not_at_all, 60)
{
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "apart", "fixed_window limit=10 period=366d");
    for (uint32_t tight = 0; tight < 3; tight++) {
        char keys[3][LOAD_KEY_SIZE];
        struct weir_request requests[3];
        keys_apart((int)tight, keys);
        for (int i = 0; i < 3; i++) {
            must_succeed(weir_reset(limit, weir_key_text(keys[i])));
            requests[i] = request_of(limit, keys[i], 3);
        }
        taken(limit, keys[tight], 8);
        struct weir_decision denied = tried_all(limiter, requests, 3);
        ck_assert(!denied.allowed && denied.bound_by == tight && denied.retry_after_us > 0);
        ck_assert_int_eq(denied.remaining, 2);
        for (uint32_t i = 0; i < 3; i++) /* unchanged */
            ck_assert_int_eq(charged(limit, keys[i]), i == tight ? 8 : 0);
        for (int i = 0; i < 3; i++)
            requests[i].cost = 2;
        struct weir_decision allowed = tried_all(limiter, requests, 3);
        ck_assert(allowed.allowed && allowed.bound_by == tight && allowed.remaining == 0);
        for (uint32_t i = 0; i < 3; i++)
            ck_assert_int_eq(charged(limit, keys[i]), i == tight ? 10 : 2);
    }
}

struct group_load {
    weir *limiter;
    struct weir_request requests[3];
    _Atomic int64_t allowed;
};

static void *take_of_group(void *argument)
{
    struct group_load *load = argument;
    for (int i = 0; i < 60; i++)
        atomic_fetch_add(&load->allowed, tried_all(load->limiter, load->requests, 3).allowed);
    return NULL;
}

TEST(concurrent_groups_over_several_primaries_charge_exactly, 60)
{
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    char keys[3][LOAD_KEY_SIZE];
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    struct group_load load = { .limiter = limiter_of(&options) };
    weir_limit *wide = limit_of(load.limiter, "wide", UNREFILLED);
    weir_limit *tight = limit_of(load.limiter, "tight", "fixed_window limit=100 period=366d");
    for (int place_of_tight = 0; place_of_tight < 3; place_of_tight++) {
        atomic_store(&load.allowed, 0);
        keys_apart(0, keys);
        for (int i = 0; i < 3; i++) {
            load.requests[i] = request_of(i == place_of_tight ? tight : wide, keys[i], 1);
            must_succeed(weir_reset(load.requests[i].limit, load.requests[i].key));
        }
        crew_start(&crew, 4, take_of_group, &load);
        crew_join(&crew);
        ck_assert_int_eq(load.allowed, 100);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(charged(load.requests[i].limit, keys[i]), 100);
    }
    weir_close(load.limiter);
}

/* The second key's primary is paused. The first key is charged (or was, and is refunded); the third is never
 * requested. */
TEST_EACH(keys_of_several_primaries_are_charged_in_the_order_given, 3, 60)
{
    struct place place;
    char keys[3][LOAD_KEY_SIZE];
    struct weir_request requests[3];
    struct weir_options options = cluster_options(&place, &common, WEIR_SECOND);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "order", "fixed_window limit=10 period=366d");
    keys_apart(_i, keys);
    for (int i = 0; i < 3; i++) {
        recover(limit, keys[i]);
        requests[i] = request_of(limit, keys[i], 3);
    }
    int64_t first = script_calls(&common, _i), third = script_calls(&common, (_i + 2) % 3);
    struct weir_decision decision;
    cluster_pause(&common, (_i + 1) % 3);
    int status = weir_try_all(limiter, requests, 3, &decision);
    cluster_resume(&common, (_i + 1) % 3);
    ck_assert(status == WEIR_ETIME || status == WEIR_EIO);
    ck_assert_int_gt(script_calls(&common, _i), first);
    ck_assert_int_eq(script_calls(&common, (_i + 2) % 3), third);
    weir_close(limiter);
    place_close(&place);
    cluster_good(&common, cluster_settle(&common));
}

/* One of three primaries is paused: the fallback decides its keys, and Redis decides all others. */
TEST_EACH(in_a_batch_only_keys_of_the_stopped_primary_use_the_fallback, 3, 60)
{
    enum { N = 30 };
    CLOSED_BY(place_close) struct place place;
    static char keys[N][LOAD_KEY_SIZE];
    struct weir_request requests[N];
    struct weir_decision decisions[N];
    struct weir_options options = cluster_options(&place, &common, WEIR_SECOND);
    options.on_failure = WEIR_FAIL_LOCAL;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "partly", "token_bucket limit=100 period=1h");
    for (int i = 0; i < N; i++) {
        key_of(&common, i % 3, i / 3, keys[i]);
        recover(limit, keys[i]);
        requests[i] = request_of(limit, keys[i], 1);
    }
    for (int times = 0; times < 2; times++) {
        cluster_pause(&common, _i);
        int status = weir_try_batch(limiter, requests, N, decisions);
        cluster_resume(&common, _i);
        must_succeed(status);
        for (int i = 0; i < N; i++)
            ck_assert_msg(decisions[i].source == (i % 3 == _i ? WEIR_BY_FALLBACK : WEIR_BY_REDIS),
                          "%d of primary %d: %d", i, i % 3, decisions[i].source);
        for (int i = 0; i < N; i++)
            recover(limit, keys[i]);
    }
}

/* ---- Several processes ---- */

enum { PROCESSES = 8, THREADS = 4, ROUNDS = 30, EACH = 5, LIMIT = 50 };

struct tally {
    _Atomic int64_t allowed[ROUNDS];
    atomic_int ready, errors;
};

struct worker {
    weir_limit *limit;
    struct tally *tally;
    pid_t family;
};

static void *take_of_each_round(void *argument)
{
    struct worker *worker = argument;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < EACH; i++) {
            char key[32];
            struct weir_decision decision = { .allowed = false };
            snprintf(key, sizeof key, "%d-%d", (int)worker->family, round);
            if (weir_try(worker->limit, weir_key_text(key), 1, &decision) != WEIR_OK ||
                decision.source != WEIR_BY_REDIS)
                atomic_fetch_add(&worker->tally->errors, 1);
            atomic_fetch_add(&worker->tally->allowed[round], decision.allowed);
        }
    return NULL;
}

static void work(struct tally *tally, pid_t family)
{
    struct place place;
    struct crew crew;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    struct worker worker = { .tally = tally, .family = family };
    LIMITER(limiter, &options);
    worker.limit = limit_of(limiter, "shared", "fixed_window limit=50 period=366d");
    atomic_fetch_add(&tally->ready, 1);
    while (atomic_load(&tally->ready) < PROCESSES)
        sleep_us(1000);
    crew_start(&crew, THREADS, take_of_each_round, &worker);
    crew_join(&crew);
}

TEST(many_processes_admit_exactly_the_limit, 60)
{
    struct tally *tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(tally != MAP_FAILED, "memory that all share");
    pid_t family = getpid(), children[PROCESSES];
    int64_t asks = map_asks(&common), began_us = wire_now_us();
    for (int i = 0; i < PROCESSES; i++)
        if ((children[i] = fork()) == 0) {
            work(tally, family);
            _exit(0);
        }
    for (int i = 0, status; i < PROCESSES; i++)
        ck_assert(waitpid(children[i], &status, 0) == children[i] && status == 0);
    ck_assert_int_eq(tally->errors, 0);
    for (int round = 0; round < ROUNDS; round++)
        ck_assert_msg(tally->allowed[round] == LIMIT, "round %d: %" PRId64, round, tally->allowed[round]);
    assert_no_storm(asks < 0 ? -1 : map_asks(&common) - asks, wire_now_us() - began_us, PROCESSES, "many processes");
    munmap(tally, sizeof *tally);
}

int main(void)
{
    Suite *suite = tests();
    contract_add(suite, &by_caller);
    contract_add(suite, &by_threads);
    contract_add(suite, &hybrid);
    return suite_on_cluster(suite, &common, NULL);
}
