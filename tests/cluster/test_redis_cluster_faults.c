/* test_redis_cluster_faults.c - cluster primaries that hand over, die or pause, and seeds that cannot be used. Redis
 * keeps deciding the keys of the other primaries. Faults D2, D3, D6, D7 and E1. */
#include "cluster_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALLERS = 2, KEYS = 30, KEYS_OF_FEW = 1500, FEW_IN_A_ROW = 16, TIMEOUT_US = 3000 * 1000 };

static struct cluster common;

/* ---- Callers on keys of one primary, and on keys of the others ---- */

struct trouble {
    struct place place;
    weir *limiter;
    weir_limit *limit;
    weir_limit *spent;       /* its key was used up before the fault, and the replicas know it */
    struct load hit, spared; /* hit: keys of primary `hit`; spared: keys of the other primaries */
    struct load few;         /* as hit, but with keys that are soon used up */
    char spent_key[LOAD_KEY_SIZE];
    int64_t began_us, asks;
};

static void keys_of(struct load *load, const struct cluster *cluster, bool (*wanted)(int primary, int hit), int hit)
{
    for (int i = 0; load->n < KEYS; i++)
        for (int primary = 0; primary < cluster->wish.primaries; primary++)
            if (wanted(primary, hit) && load->n < KEYS)
                key_of(cluster, primary, i, load->keys[load->n++].text);
}

static bool is_hit(int primary, int hit)
{
    return primary == hit;
}

static bool is_spared(int primary, int hit)
{
    return primary != hit;
}

static void recover_all(struct trouble *trouble)
{
    for (size_t i = 0; i < KEYS; i++) {
        recover(trouble->limit, trouble->hit.keys[i].text);
        recover(trouble->limit, trouble->spared.keys[i].text);
    }
}

static struct trouble *trouble_begin(struct cluster *cluster, int hit)
{
    static struct trouble only; /* each test runs in its own process */
    struct trouble *trouble = &only;
    struct weir_options options = cluster_options(&trouble->place, cluster, TIMEOUT_US);
    options.on_failure = WEIR_FAIL_LOCAL;
    trouble->limiter = limiter_of(&options);
    trouble->limit = limit_of(trouble->limiter, "limit", UNREFILLED);
    trouble->spent = limit_of(trouble->limiter, "spent", FIFTY_AN_HOUR);
    keys_of(&trouble->hit, cluster, is_hit, hit);
    keys_of(&trouble->spared, cluster, is_spared, hit);
    recover_all(trouble);
    key_of(cluster, hit, 0, trouble->spent_key);
    must(taken(trouble->spent, trouble->spent_key, 50).allowed, "all of it is taken");
    await_cluster_replicas(cluster);
    trouble->asks = map_asks(cluster);
    trouble->began_us = wire_now_us();
    trouble->few.in_a_row = FEW_IN_A_ROW;
    load_keys(&trouble->few, first_slot(cluster, hit), last_slot(cluster, hit), KEYS_OF_FEW);
    load_start(&trouble->few, trouble->limiter, limit_of(trouble->limiter, "few", FEW_OF_EACH), CALLERS);
    load_start(&trouble->hit, trouble->limiter, trouble->limit, CALLERS);
    load_start(&trouble->spared, trouble->limiter, trouble->limit, CALLERS);
    sleep_us(100000);
    return trouble;
}

/* Print the log so far, to explain a failure. */
static void place_say(struct place *place)
{
    pthread_mutex_lock(&place->log_lock);
    printf("%s", place->log);
    pthread_mutex_unlock(&place->log_lock);
}

/* Check that Redis decides again soon, that no caller saw an error or a long wait, and that used permits stay used. */
static void trouble_end(struct trouble *trouble, struct cluster *cluster, const char *what)
{
    int64_t back_us = recover(trouble->limit, trouble->hit.keys[0].text);
    sleep_us(200000);
    load_end(&trouble->hit);
    load_end(&trouble->spared);
    load_end(&trouble->few);
    printf("%s: Redis decides again %" PRId64 " us after the promotion was seen (timeout %d us)\n", what, back_us,
           TIMEOUT_US);
    load_print(&trouble->hit, "  keys of that primary");
    load_print(&trouble->spared, "  keys of the others");
    if (trouble->spared.others > 0)
        place_say(&trouble->place);
    ck_assert_int_eq(trouble->hit.failed + trouble->spared.failed + trouble->few.failed, 0);
    ck_assert_int_le(trouble->hit.longest_us, call_most_us(TIMEOUT_US));
    ck_assert_int_le(trouble->spared.longest_us, call_most_us(TIMEOUT_US));
    recover_all(trouble);
    recover(trouble->spent, trouble->spent_key);
    struct weir_decision again = taken(trouble->spent, trouble->spent_key, 2); /* one permit refills in 72 s */
    ck_assert(again.source == WEIR_BY_REDIS && !again.allowed);
    if (trouble->asks >= 0)
        assert_no_storm(map_asks(cluster) - trouble->asks, wire_now_us() - trouble->began_us, 1, what);
}

static void trouble_close(struct trouble *trouble)
{
    weir_close(trouble->limiter);
    place_close(&trouble->place);
}

/* Return the charges that Redis lost in a failover, summed over all keys; a key never gains charges. */
static int64_t forgotten(struct load *load)
{
    int64_t sum = 0;
    for (size_t i = 0; i < load->n; i++) {
        int64_t by_redis = load->keys[i].allowed - load->keys[i].by_others;
        sum += by_redis - charged(load->limit, load->keys[i].text);
    }
    return sum;
}

/* ---- Failovers that are wanted ---- */

TEST_EACH(no_caller_notices_a_failover_under_load, 3, 60)
{
    static const char *const names[] = { "CLUSTER FAILOVER", "CLUSTER FAILOVER FORCE", "CLUSTER FAILOVER TAKEOVER" };
    const int hit = _i % 3;
    const unsigned slot = first_slot(&common, hit);
    struct trouble *trouble = trouble_begin(&common, hit);
    int before = cluster_owner(&common, slot), replica = cluster_replica(&common, before);
    cluster_good(&common, cluster_fail_over(&common, replica, (enum cluster_failover)_i));
    ck_assert_int_eq(cluster_good(&common, cluster_await_owner(&common, slot, before)), replica);
    trouble_end(trouble, &common, names[_i]);
    assert_load_exact(&trouble->spared);
    assert_few(&trouble->few, _i == CLUSTER_FAILOVER ? 1 : 2, "  keys that are soon spent");
    if (_i == CLUSTER_FAILOVER)
        assert_load_exact(&trouble->hit);
    else
        printf("  %" PRId64 " permits were with the former primary alone\n", forgotten(&trouble->hit));
    trouble_close(trouble);
    cluster_good(&common, cluster_settle(&common));
}

/* ---- Failovers that are not ---- */

/* A primary that was paused believes that it still is the primary when it wakes, until the other nodes correct it. If
 * weir asked it then, it would decide from old charges, and a key's charge would fall. */
static void assert_not_asked_when_it_wakes(struct trouble *trouble, struct cluster *cluster, int node)
{
    const char *key = trouble->hit.keys[0].text;
    int64_t highest = 0, by_others = 0, calls = 0;
    for (int64_t until_us = wire_now_us() + WEIR_SECOND; calls < 200 || wire_now_us() < until_us; calls++) {
        struct timed timed = timed_try(trouble->limit, key, 1);
        must_succeed(timed.status);
        int64_t is_charged = timed.decision.limit - timed.decision.remaining;
        by_others += timed.decision.source != WEIR_BY_REDIS;
        if (timed.decision.source == WEIR_BY_REDIS && is_charged <= highest)
            ck_abort_msg("%" PRId64 " are charged, and were %" PRId64, is_charged, highest);
        if (timed.decision.source == WEIR_BY_REDIS)
            highest = is_charged;
        if (calls == 100)
            cluster_resume(cluster, node);
    }
    printf("  awake again: of %" PRId64 " calls %" PRId64 " not by Redis, none by it\n", calls, by_others);
}

static void assert_only_its_keys_fall_back(int hit, const char *what, void (*end)(struct cluster *cluster, int node))
{
    CLOSED_BY(cluster_stop) struct cluster cluster;
    const struct cluster_wish wish = { .partial = true };
    cluster_open(&cluster, &wish);
    struct trouble *trouble = trouble_begin(&cluster, hit);
    int64_t ended_us = wire_now_us();
    end(&cluster, hit);
    cluster_good(&cluster, cluster_await_owner(&cluster, first_slot(&cluster, hit), hit));
    printf("%s: a replica was promoted after %" PRId64 " ms\n", what, (wire_now_us() - ended_us) / 1000);
    trouble_end(trouble, &cluster, what);
    ck_assert_int_gt(trouble->hit.others, 0);
    assert_load_exact(&trouble->spared);
    assert_few(&trouble->few, 2, "  keys that are soon spent");
    printf("  %" PRId64 " permits were with the former primary alone, or are charged still\n",
           forgotten(&trouble->hit));
    if (end == cluster_pause)
        assert_not_asked_when_it_wakes(trouble, &cluster, hit);
    trouble_close(trouble);
}

TEST(a_killed_primarys_keys_alone_use_the_fallback_until_its_replica_is_promoted, 120)
{
    assert_only_its_keys_fall_back(0, "kill -9 of a primary", cluster_kill);
}

TEST(a_stopped_primarys_keys_alone_use_the_fallback_until_its_replica_is_promoted, 120)
{
    assert_only_its_keys_fall_back(1, "a primary that stands still", cluster_pause);
}

/* ThreadSanitizer fails when a process with a limiter and its fallback forks: it tracks at most 64 locks per thread. */
#if defined(UNDER_TSAN)
static void lose(struct cluster *cluster, int node)
{
    cluster_pause(cluster, node);
}

static void give_back(struct cluster *cluster, int node)
{
    cluster_resume(cluster, node);
}
#else
static void lose(struct cluster *cluster, int node)
{
    cluster_kill(cluster, node);
}

static void give_back(struct cluster *cluster, int node)
{
    cluster_good(cluster, cluster_restart(cluster, node));
}
#endif

TEST(without_a_majority_of_primaries_all_keys_use_the_fallback, 120)
{
    CLOSED_BY(cluster_stop) struct cluster cluster;
    struct timed timed;
    cluster_open(&cluster, NULL);
    struct trouble *trouble = trouble_begin(&cluster, 0);
    const char *left = trouble->spared.keys[1].text; /* on primary 2 */
    ck_assert_uint_ge(cluster_key_slot(left), first_slot(&cluster, 2));
    lose(&cluster, 0);
    lose(&cluster, 1);
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND;;) {
        timed = timed_try(trouble->limit, left, 1);
        must_succeed(timed.status);
        ck_assert_int_le(timed.took_us, call_most_us(TIMEOUT_US));
        if (timed.decision.source == WEIR_BY_FALLBACK)
            break;
        must(wire_now_us() < until_us, "the one that is left serves no more");
        sleep_us(1000);
    }
    sleep_us(500000);
    give_back(&cluster, 0);
    give_back(&cluster, 1);
    cluster_good(&cluster, cluster_settle(&cluster));
    int64_t back_us = recover(trouble->limit, left);
    recover_all(trouble);
    load_end(&trouble->hit);
    load_end(&trouble->spared);
    load_end(&trouble->few);
    printf("CLUSTERDOWN: Redis decides again %" PRId64 " us after all is settled\n", back_us);
    load_print(&trouble->hit, "  keys of a primary that was killed");
    load_print(&trouble->spared, "  keys of the others");
    if (trouble->spared.others > 0)
        place_say(&trouble->place);
    ck_assert_int_eq(trouble->hit.failed + trouble->spared.failed, 0);
    ck_assert_int_le(trouble->hit.longest_us, call_most_us(TIMEOUT_US));
    ck_assert_int_le(trouble->spared.longest_us, call_most_us(TIMEOUT_US));
    if (trouble->asks >= 0) /* the killed node's requests are not counted */
        assert_no_storm(map_asks(&cluster), wire_now_us() - trouble->began_us, 1, "CLUSTERDOWN");
    trouble_close(trouble);
}

/* ---- Seeds ---- */

#define ALONE "no node of the redis cluster gives a map of the slots: the server is not part of a cluster"

static void assert_used_with_seeds(const char *url)
{
    CLOSED_BY(place_close) struct place place;
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    char key[LOAD_KEY_SIZE];
    options.redis_url = url;
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "seeds", UNREFILLED);
    for (int primary = 0; primary < 3; primary++) {
        key_of(&common, primary, 0, key);
        ck_assert_int_eq(taken(limit, key, 1).source, WEIR_BY_REDIS);
    }
}

TEST(any_node_can_be_a_seed_and_one_that_is_down_is_skipped, 60)
{
    char url[256];
    for (int i = 0; i < common.n; i++) { /* replicas as well */
        cluster_url(&common, i, 1, NULL, url, sizeof url);
        assert_used_with_seeds(url);
    }
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d,127.0.0.1:%d", daemon_port_closed(), common.nodes[2].port);
    assert_used_with_seeds(url);
}

TEST(a_seed_outside_any_cluster_is_logged, 60)
{
    CLOSED_BY(redis_server_stop) struct redis_server alone;
    struct place place;
    char url[256];
    must(redis_server_start(&alone, REDIS_SERVER_UNIX_AND_PORT, NULL) == 0, alone.daemon.error);
    struct weir_options options = cluster_options(&place, &common, WEIR_SECOND);
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", alone.port);
    options.redis_url = url;
    weir *limiter = limiter_of(&options);
    struct timed timed = timed_try(limit_of(limiter, "seeds", UNREFILLED), "key", 1);
    ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
    ck_assert_int_le(timed.took_us, call_most_us(WEIR_SECOND));
    for (int64_t until_us = wire_now_us() + 20 * WEIR_SECOND; !place_logged(&place, ALONE); sleep_us(1000))
        if (wire_now_us() > until_us)
            ck_abort_msg("the log does not say so: %s", place.log);
    weir_close(limiter);
    place_close(&place);
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d,127.0.0.1:%d", alone.port, common.nodes[2].port);
    assert_used_with_seeds(url);
}

TEST(seeds_that_are_all_down_are_tried_until_one_is_up, 60)
{
    struct place place;
    char url[256], key[LOAD_KEY_SIZE];
    struct fproxy *seeds[2] = { fproxy_start(common.nodes[0].server.socket),
                                fproxy_start(common.nodes[4].server.socket) };
    must(seeds[0] != NULL && seeds[1] != NULL, "two proxies start");
    fproxy_door(seeds[0], FPROXY_REFUSE);
    fproxy_door(seeds[1], FPROXY_REFUSE);
    struct weir_options options = cluster_options(&place, &common, WEIR_SECOND);
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d,127.0.0.1:%d", fproxy_port(seeds[0]),
             fproxy_port(seeds[1]));
    options.redis_url = url;
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "seeds", UNREFILLED);
    key_of(&common, 2, 0, key);
    for (int64_t until_us = wire_now_us() + WEIR_SECOND / 4; wire_now_us() < until_us; sleep_us(1000)) {
        struct timed timed = timed_try(limit, key, 1);
        ck_assert(timed.status == WEIR_EIO || timed.status == WEIR_ETIME);
        ck_assert_int_le(timed.took_us, call_most_us(WEIR_SECOND));
    }
    fproxy_door(seeds[1], FPROXY_OPEN);
    printf("a seed is up: Redis decides after %" PRId64 " us\n", recover(limit, key));
    fproxy_door(seeds[1], FPROXY_REFUSE); /* seeds are needed only at the start */
    fproxy_cut(seeds[1], true);
    for (int primary = 0; primary < 3; primary++) {
        key_of(&common, primary, 0, key);
        ck_assert_int_eq(taken(limit, key, 1).source, WEIR_BY_REDIS);
    }
    weir_close(limiter);
    ck_assert_msg(place_logged(&place, "the nodes of the redis cluster answer again"), "%s", place.log);
    place_close(&place);
    fproxy_stop(seeds[0]);
    fproxy_stop(seeds[1]);
}

int main(void)
{
    return suite_on_cluster(tests(), &common, NULL);
}
