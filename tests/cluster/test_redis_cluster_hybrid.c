/* test_redis_cluster_hybrid.c - leases from a Redis Cluster while slots move and while primaries hand over or are
 * killed; a cluster limiter in a forked child, and one that is called from its own `done`. */
#include "cluster_place.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INSTANCES = 3, CALLERS = 2, KEYS = 12, MOVED = 200, HITS_LEAST = 1000 };

/* Large enough to be leased and to last until after the fault. A window, so that nothing refills. */
#define LIMIT 10000
#define LEASED "fixed_window limit=10000 period=366d"

static struct cluster common;

/* ---- Several instances that lease of the same keys ---- */

struct leases {
    struct place place;
    weir *limiters[INSTANCES];
    struct load loads[INSTANCES]; /* on the same keys, all in one primary's slots */
};

static int64_t lease_hits(struct leases *leases)
{
    int64_t hits = 0;
    for (int i = 0; i < INSTANCES; i++)
        hits += (int64_t)stats_of(leases->limiters[i]).lease_hits;
    return hits;
}

static struct leases *leases_begin(struct cluster *cluster, int primary, unsigned slots, int64_t timeout_us)
{
    static struct leases only; /* each test runs in its own process */
    struct leases *leases = &only;
    struct weir_options options = cluster_options(&leases->place, cluster, timeout_us);
    options.mode = WEIR_HYBRID;
    options.instances = INSTANCES;
    options.lease_life_us = WEIR_SECOND; /* long enough for a lease to be used on a slow machine */
    options.on_failure = WEIR_FAIL_LOCAL;
    for (int i = 0; i < INSTANCES; i++) {
        struct load *load = &leases->loads[i];
        options.rank = i;
        leases->limiters[i] = limiter_of(&options);
        weir_limit *limit = limit_of(leases->limiters[i], "leased", LEASED);
        load_keys(load, first_slot(cluster, primary), first_slot(cluster, primary) + slots - 1, KEYS);
        for (size_t j = 0; j < KEYS; j++)
            must(recover(limit, load->keys[j].text) >= 0, "Redis is there");
        load->in_a_row = 500; /* keys become hot and are leased only when requested repeatedly */
        load->pause_us = 50;
        load_start(load, leases->limiters[i], limit, CALLERS);
    }
    const int64_t until_us = wire_now_us() + RECOVERY_MOST_US;
    while (lease_hits(leases) < HITS_LEAST && wire_now_us() < until_us)
        sleep_us(1000);
    return leases;
}

/* Check for each key that all instances together admitted at most `most` permits, counting what is still left. */
static void leases_end(struct leases *leases, int64_t most, const char *what)
{
    int64_t highest = 0, sum = 0, before = 0;
    for (int i = 0; i < INSTANCES; i++) {
        load_end(&leases->loads[i]);
        for (size_t j = 0; j < KEYS; j++)
            before += leases->loads[i].keys[j].allowed;
        load_print(&leases->loads[i], what);
        ck_assert_int_eq(leases->loads[i].failed, 0);
    }
    const int64_t hits = lease_hits(leases);
    for (size_t j = 0; j < KEYS; j++) {
        int64_t allowed = 0;
        for (int i = 0; i < INSTANCES; i++)
            allowed += leases->loads[i].keys[j].allowed;
        const char *key = leases->loads[0].keys[j].text;
        for (int i = 0; i < INSTANCES; i++)
            while (taken(leases->loads[i].limit, key, 1).allowed)
                allowed++;
        if (allowed > most)
            ck_abort_msg("%s: key %zu in slot %u: %" PRId64 " admitted", what, j, cluster_key_slot(key), allowed);
        highest = allowed > highest ? allowed : highest;
        sum += allowed;
    }
    printf("%s: %" PRId64 " permits in the load, %" PRId64 " decisions by leases; of %d permits %" PRId64
           " were admitted of a key at most, %" PRId64 " on average\n",
           what, before, hits, LIMIT, highest, sum / KEYS);
    ck_assert_int_ge(hits, HITS_LEAST);
}

static void leases_close(struct leases *leases)
{
    for (int i = 0; i < INSTANCES; i++)
        weir_close(leases->limiters[i]);
    place_close(&leases->place);
}

static void assert_all_by_redis(const struct leases *leases)
{
    for (int i = 0; i < INSTANCES; i++)
        assert_load_undisturbed(&leases->loads[i]);
}

TEST(leases_of_slots_that_move_stay_within_the_limit, 60)
{
    const unsigned first = first_slot(&common, 0);
    int from = cluster_owner(&common, first), to = cluster_owner(&common, first_slot(&common, 2));
    struct leases *leases = leases_begin(&common, 0, MOVED, PATIENT_US);
    for (unsigned i = 0; i < MOVED; i++) {
        cluster_good(&common, cluster_slot_begin(&common, first + i, from, to));
        cluster_good(&common, cluster_slot_carry(&common, first + i, from, to, 1000));
        cluster_good(&common, cluster_slot_end(&common, first + i, from, to));
    }
    leases_end(leases, LIMIT, "slots move");
    assert_all_by_redis(leases);
    leases_close(leases);
    cluster_good(&common, cluster_settle(&common));
}

TEST(leases_of_a_primary_that_hands_over_stay_within_the_limit, 60)
{
    const unsigned slot = first_slot(&common, 1);
    struct leases *leases = leases_begin(&common, 1, CLUSTER_SLOTS / 3, PATIENT_US);
    int before = cluster_owner(&common, slot);
    cluster_good(&common, cluster_fail_over(&common, cluster_replica(&common, before), CLUSTER_FAILOVER));
    cluster_good(&common, cluster_await_owner(&common, slot, before));
    sleep_us(300000);
    leases_end(leases, LIMIT, "CLUSTER FAILOVER");
    assert_all_by_redis(leases);
    leases_close(leases);
    cluster_good(&common, cluster_settle(&common));
}

/* The failover loses the charges within the replica's lag, here one lease per instance. Besides, each fallback may
 * admit its instance's share once. */
TEST(leases_of_a_primary_that_is_killed_stay_within_their_bound, 120)
{
    CLOSED_BY(cluster_stop) struct cluster cluster;
    const struct cluster_wish wish = { .partial = true };
    cluster_open(&cluster, &wish);
    struct leases *leases = leases_begin(&cluster, 1, CLUSTER_SLOTS / 3, WEIR_SECOND);
    cluster_kill(&cluster, 1);
    cluster_good(&cluster, cluster_await_owner(&cluster, first_slot(&cluster, 1), 1));
    for (size_t j = 0; j < KEYS; j++)
        for (int i = 0; i < INSTANCES; i++)
            for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US;;) {
                struct timed timed = timed_try(leases->loads[i].limit, leases->loads[i].keys[j].text, 1);
                must_succeed(timed.status);
                atomic_fetch_add(&leases->loads[i].keys[j].allowed, timed.decision.allowed);
                if (timed.decision.source < WEIR_BY_FALLBACK)
                    break;
                must(wire_now_us() < until_us, "Redis decides again");
                sleep_us(1000);
            }
    leases_end(leases, 3 * LIMIT, "kill -9");
    leases_close(leases);
}

/* ---- The child of a fork ---- */

#if !defined(UNDER_TSAN) /* ThreadSanitizer does not support threads in a forked child */
TEST(a_forked_child_has_a_separate_map_and_connections, 60)
{
    CLOSED_BY(place_close) struct place place;
    char keys[3][LOAD_KEY_SIZE];
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "forked", UNREFILLED);
    for (int i = 0; i < 3; i++) {
        key_of(&common, i, 0, keys[i]);
        taken(limit, keys[i], 1);
    }
    pid_t child = fork();
    if (child == 0) {
        struct weir_decision decision;
        bool good = true;
        for (int i = 0; i < 150; i++)
            good = good && weir_try(limit, weir_key_text(keys[i % 3]), 1, &decision) == WEIR_OK &&
                   decision.source == WEIR_BY_REDIS;
        weir_close(limiter);
        _exit(good ? 0 : 1);
    }
    int status;
    for (int i = 0; i < 150; i++)
        taken(limit, keys[i % 3], 1);
    ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(charged(limit, keys[i]), 101);
    weir_close(limiter);
}
#endif

/* ---- A done that waits ---- */

struct waiting_done {
    weir_limit *limit, *other; /* other: of another limiter */
    char (*keys)[LOAD_KEY_SIZE];
    int results[3], result_of_other;
    sem_t ran;
};

static void wait_in_done(struct weir_op *op, int status)
{
    struct waiting_done *waiting = op->user;
    struct weir_decision decision;
    must_succeed(status);
    for (int i = 0; i < 3; i++)
        waiting->results[i] = weir_try(waiting->limit, weir_key_text(waiting->keys[i]), 1, &decision);
    waiting->result_of_other = weir_try(waiting->other, weir_key_text(waiting->keys[0]), 1, &decision);
    sem_post(&waiting->ran);
}

TEST(a_blocking_call_inside_done_is_refused_on_every_primarys_thread, 60)
{
    CLOSED_BY(place_close) struct place place;
    char keys[3][LOAD_KEY_SIZE];
    struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    weir *limiter = limiter_of(&options), *other = limiter_of(&options);
    struct waiting_done waiting = { .limit = limit_of(limiter, "waiting", UNREFILLED),
                                    .other = limit_of(other, "other", UNREFILLED),
                                    .keys = keys };
    sem_init(&waiting.ran, 0, 0);
    for (int i = 0; i < 3; i++) {
        key_of(&common, i, 0, keys[i]);
        taken(waiting.limit, keys[i], 1); /* the first call discovers the node, on this thread */
    }
    for (int i = 0; i < 3; i++) {
        struct weir_op op = { .request = { .limit = waiting.limit, .key = weir_key_text(keys[i]), .cost = 1 },
                              .done = wait_in_done,
                              .user = &waiting };
        ck_assert_int_eq(weir_submit(limiter, &op), 1);
        while (sem_wait(&waiting.ran) != 0 && errno == EINTR)
            ;
        for (int j = 0; j < 3; j++)
            ck_assert_int_eq(waiting.results[j], WEIR_EINVAL);
        ck_assert_int_eq(waiting.result_of_other, WEIR_OK);
    }
    ck_assert(place_logged(&place, "a `done` must not wait for Redis"));
    weir_close(limiter);
    weir_close(other);
    sem_destroy(&waiting.ran);
}

int main(void)
{
    return suite_on_cluster(tests(), &common, NULL);
}
