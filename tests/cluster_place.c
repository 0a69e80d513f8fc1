/* cluster_place.c - where the tests on a Redis Cluster take place: see cluster_place.h. */
#include "cluster_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cluster_common(struct cluster *cluster, const struct cluster_wish *wish)
{
    if (server_missing())
        return 77;
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    if (cluster_start(cluster, wish) == 0)
        return 0;
    puts(cluster->error);
    return 1;
}

void cluster_open(struct cluster *cluster, const struct cluster_wish *wish)
{
    cluster_good(cluster, cluster_start(cluster, wish));
}

int cluster_good(const struct cluster *cluster, int error)
{
    if (error < 0)
        ck_abort_msg("%s", cluster->error);
    return error;
}

struct weir_options cluster_options(struct place *place, const struct cluster *cluster, int64_t timeout_us)
{
    static char url[256];
    cluster_url(cluster, 0, cluster->wish.primaries, "", url, sizeof url);
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}

/* ---- Keys and their slots ---- */

void key_between(unsigned first, unsigned last, int which, char text[LOAD_KEY_SIZE])
{
    for (unsigned i = 0;; i++) {
        snprintf(text, LOAD_KEY_SIZE, "%x-%x", (unsigned)getpid() & 0xffffff, i & 0xfffffff);
        unsigned slot = cluster_key_slot(text);
        if (slot >= first && slot <= last && which-- == 0)
            return;
    }
}

unsigned first_slot(const struct cluster *cluster, int primary)
{
    return (unsigned)(CLUSTER_SLOTS * primary / cluster->wish.primaries);
}

unsigned last_slot(const struct cluster *cluster, int primary)
{
    return first_slot(cluster, primary + 1) - 1;
}

void key_of(const struct cluster *cluster, int primary, int which, char text[LOAD_KEY_SIZE])
{
    key_between(first_slot(cluster, primary), last_slot(cluster, primary), which, text);
}

/* ---- What the nodes say ---- */

void await_cluster_replicas(struct cluster *cluster)
{
    for (int i = 0; i < cluster->n; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        if (!node->up || !cluster_is_primary(cluster, i) || cluster_replica(cluster, i) < 0)
            continue;
        must(cluster_count(cluster, i, "WAIT", "1", "9000") >= 1, "the replica follows");
    }
}

int64_t map_asks(struct cluster *cluster)
{
    int64_t sum = 0;
    for (int i = 0; i < cluster->n; i++) {
        if (!cluster->nodes[i].up)
            continue;
        if (cluster_info(cluster, i, "commandstats", "cmdstat_cluster:calls=") > 0)
            return -1;
        sum += cluster_info(cluster, i, "commandstats", "cmdstat_cluster|slots:calls=");
    }
    return sum;
}

int64_t script_calls(struct cluster *cluster, int node)
{
    return cluster_info(cluster, node, "commandstats", "cmdstat_evalsha:calls=");
}

void assert_no_storm(int64_t asks, int64_t took_us, int limiters, const char *what)
{
    if (asks < 0) {
        printf("%s: this server does not tell how often it is asked for the map\n", what);
        return;
    }
    printf("%s: the map was asked for %" PRId64 " times in %" PRId64 " ms by %d\n", what, asks, took_us / 1000,
           limiters);
    ck_assert_int_le(asks, limiters * (10 + 10 * took_us / WEIR_SECOND));
}

/* ---- Callers all the while ---- */

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    int64_t seen = atomic_load(most);
    while (value > seen && !atomic_compare_exchange_weak(most, &seen, value))
        continue;
}

static void note(struct load *load, struct load_key *key, const struct timed *timed)
{
    atomic_fetch_add(&load->calls, 1);
    raise_to(&load->longest_us, timed->took_us);
    if (timed->status != WEIR_OK) {
        atomic_fetch_add(&load->failed, 1);
        return;
    }
    atomic_fetch_add(&key->allowed, timed->decision.allowed);
    if (timed->decision.source == WEIR_BY_REDIS) {
        int64_t now_us = wire_now_us(), last_us = atomic_exchange(&load->redis_us, now_us);
        raise_to(&load->gap_us, last_us != 0 ? now_us - last_us : 0);
    } else {
        atomic_fetch_add(&load->others, 1);
        atomic_fetch_add(&key->by_others, timed->decision.allowed);
    }
}

static void *take_until_done(void *argument)
{
    static atomic_uint next;
    struct load *load = argument;
    for (size_t i = atomic_fetch_add(&next, 1) * 7919U; !atomic_load(&load->done); i++) {
        struct load_key *key = &load->keys[i % load->n];
        struct timed timed = timed_try(load->limit, key->text, 1);
        note(load, key, &timed);
        if (timed.status != WEIR_OK || timed.decision.source != WEIR_BY_REDIS)
            sleep_us(200); /* the servers need the processors */
    }
    return NULL;
}

void load_start(struct load *load, weir_limit *limit, int threads)
{
    load->limit = limit;
    crew_start(&load->crew, threads, take_until_done, load);
}

void load_end(struct load *load)
{
    atomic_store(&load->done, true);
    crew_join(&load->crew);
}

void load_print(const struct load *load, const char *what)
{
    printf("%s: %" PRId64 " calls, %" PRId64 " not by Redis, %d failed; the longest took %" PRId64
           " us, no decision of Redis for %" PRId64 " us\n",
           what, load->calls, load->others, load->failed, load->longest_us, load->gap_us);
}

int64_t charged(weir_limit *limit, const char *key)
{
    struct weir_decision decision = peeked(limit, key, 1);
    must(decision.source == WEIR_BY_REDIS, "Redis says what a key is charged with");
    return decision.limit - decision.remaining;
}

void assert_load_exact(struct load *load)
{
    ck_assert_int_eq(load->failed, 0);
    ck_assert_int_eq(load->others, 0);
    for (size_t i = 0; i < load->n; i++) {
        int64_t allowed = load->keys[i].allowed, is_charged = charged(load->limit, load->keys[i].text);
        if (allowed != is_charged)
            ck_abort_msg("key %zu in slot %u: %" PRId64 " admitted, %" PRId64 " charged", i,
                         cluster_key_slot(load->keys[i].text), allowed, is_charged);
    }
}
