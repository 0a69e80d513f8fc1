/* test_redis_cluster_lost.c - what a Redis Cluster forgets by a command or in a failover. It keeps charges that a
 * replica has, and does not keep charges of a failed group. Faults D7 and D9. */
#include "cluster_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct cluster common;
static const char *const uses[] = { "in a cluster", "redis_replicas", NULL };

/* ---- By a command ---- */

struct flushed {
    weir_limit *limit;
    char keys[3][LOAD_KEY_SIZE]; /* one per primary */
    _Atomic int64_t allowed[3];
    atomic_bool done;
};

static void *take_of_three(void *argument)
{
    struct flushed *flushed = argument;
    for (int i = 0; !atomic_load(&flushed->done); i++) {
        struct timed timed = timed_try(flushed->limit, flushed->keys[i % 3], 1);
        must_succeed(timed.status);
        must(timed.decision.source == WEIR_BY_REDIS, "Redis decides");
        atomic_fetch_add(&flushed->allowed[i % 3], timed.decision.allowed);
    }
    return NULL;
}

TEST(each_flush_of_a_primary_admits_one_extra_limit_on_that_primary_only, 60)
{
    enum { TIMES = 4 };
    CLOSED_BY(place_close) struct place place;
    struct crew crew;
    struct flushed flushed = { .limit = NULL };
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    LIMITER(limiter, &options);
    int victim = cluster_owner(&common, first_slot(&common, 1));
    flushed.limit = limit_of(limiter, "flushed", "fixed_window limit=50 period=366d");
    for (int i = 0; i < 3; i++)
        key_of(&common, i, 0, flushed.keys[i]);
    crew_start(&crew, 4, take_of_three, &flushed);
    for (int i = 0; i < TIMES; i++) {
        while (atomic_load(&flushed.allowed[0]) < 50 || atomic_load(&flushed.allowed[1]) < 50 * (i + 1) ||
               atomic_load(&flushed.allowed[2]) < 50)
            sleep_us(1000);
        must(cluster_ask(&common, victim, place_reply, sizeof place_reply, "FLUSHALL") == 2, "it is flushed");
    }
    while (atomic_load(&flushed.allowed[1]) < 50 * (TIMES + 1))
        sleep_us(1000);
    sleep_us(50000);
    atomic_store(&flushed.done, true);
    crew_join(&crew);
    ck_assert_int_eq(flushed.allowed[0], 50);
    ck_assert_int_eq(flushed.allowed[1], 50 * (TIMES + 1));
    ck_assert_int_eq(flushed.allowed[2], 50);
}

/* ---- In a failover, with charges that a replica has ---- */

enum { CALLERS = 4, KEYS = 40 };

/* Run callers on one primary's keys, with each charge acknowledged by the replica, while `end` makes that replica
 * take over. */
static void assert_nothing_is_forgotten(struct cluster *cluster, int hit, const char *what,
                                        void (*end)(struct cluster *cluster, int owner))
{
    static struct load load;
    CLOSED_BY(place_close) struct place place;
    const unsigned slot = first_slot(cluster, hit);
    struct weir_options options = cluster_options(&place, cluster, WEIR_SECOND);
    options.redis_replicas = 1;
    memset(&load, 0, sizeof load);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "durable", UNREFILLED);
    load_keys(&load, slot, last_slot(cluster, hit), KEYS);
    for (size_t i = 0; i < KEYS; i++)
        recover(limit, load.keys[i].text);
    int before = cluster_owner(cluster, slot);
    load_start(&load, limiter, limit, CALLERS);
    sleep_us(200000);
    end(cluster, before);
    cluster_good(cluster, cluster_await_owner(cluster, slot, before));
    recover(limit, load.keys[0].text);
    cluster_good(cluster, cluster_settle(cluster)); /* the former primary is now the replica, if it lives */
    sleep_us(100000);
    load_end(&load);
    load_print(&load, what);
    options.redis_replicas = 0;
    LIMITER(reader, &options);
    weir_limit *same = limit_of(reader, "durable", UNREFILLED);
    int64_t too_many = 0;
    for (size_t i = 0; i < KEYS; i++) {
        recover(same, load.keys[i].text);
        int64_t more = charged(same, load.keys[i].text) - load.keys[i].allowed;
        ck_assert_msg(more >= 0, "%s: key %zu: %" PRId64 " admitted that are not charged", what, i, -more);
        too_many += more;
    }
    printf("%s: %" PRId64 " permits are charged that nobody was told of, %d calls failed\n", what, too_many,
           load.failed);
    ck_assert_int_gt(load.calls, load.failed);
    ck_assert_int_le(too_many, load.failed);
}

static void force(struct cluster *cluster, int owner)
{
    cluster_good(cluster, cluster_fail_over(cluster, cluster_replica(cluster, owner), CLUSTER_FAILOVER_FORCE));
}

static void take_over(struct cluster *cluster, int owner)
{
    cluster_good(cluster, cluster_fail_over(cluster, cluster_replica(cluster, owner), CLUSTER_FAILOVER_TAKEOVER));
}

TEST(a_promoted_replica_has_every_charge_that_it_acknowledged, 120)
{
    assert_nothing_is_forgotten(&common, 0, "FORCE with one replica's word", force);
    assert_nothing_is_forgotten(&common, 2, "TAKEOVER with one replica's word", take_over);
}

/* Request groups with one key on each primary. When the second primary is lost, the first key's charge must be
 * refunded. */
static void lose_and_try_groups(struct cluster *cluster, int lost)
{
    CLOSED_BY(place_close) struct place place;
    struct weir_request requests[3];
    struct weir_decision decision;
    char keys[3][LOAD_KEY_SIZE];
    struct weir_options options = cluster_options(&place, cluster, PATIENT_US);
    LIMITER(limiter, &options);
    weir_limit *limit = limit_of(limiter, "group", UNREFILLED);
    for (int i = 0; i < 3; i++) {
        key_of(cluster, (lost + 2 + i) % 3, 0, keys[i]);
        requests[i] = (struct weir_request){ .limit = limit, .key = weir_key_text(keys[i]), .cost = 1 };
    }
    must_succeed(weir_try_all(limiter, requests, 3, &decision));
    cluster_kill(cluster, lost);
    for (int i = 0; i < 20; i++) {
        int status = weir_try_all(limiter, requests, 3, &decision);
        ck_assert_msg(status == WEIR_EIO || status == WEIR_ETIME, "%s", weir_strerror(status));
        ck_assert_int_eq(charged(limit, keys[0]), 1);
        ck_assert_int_eq(charged(limit, keys[2]), 1);
    }
}

TEST(no_acknowledged_charge_or_group_refund_is_lost_when_a_primary_is_killed, 120)
{
    CLOSED_BY(cluster_stop) struct cluster cluster;
    const struct cluster_wish wish = { .partial = true, .uses = uses };
    cluster_open(&cluster, &wish);
    assert_nothing_is_forgotten(&cluster, 1, "kill -9 with one replica's word", lose_and_try_groups);
}

int main(void)
{
    return suite_on_cluster(tests(), &common, &(struct cluster_wish){ .uses = uses });
}
