/* cluster_place.c - what the tests on a Redis Cluster share: see cluster_place.h. */
#include "cluster_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int suite_on_cluster(Suite *suite, struct cluster *cluster, const struct cluster_wish *wish)
{
    if (redis_server_missing())
        return 77;
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    struct cluster_wish patient = { 0 };
    if (wish != NULL)
        patient = *wish;
    patient.patient = true;
    if (cluster_start(cluster, &patient) != 0) {
        puts(cluster->error);
        return 1;
    }
    const int status = suite_run(suite);
    cluster_stop(cluster);
    return status;
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
    cluster_url(cluster, 0, cluster->wish.primaries, NULL, url, sizeof url);
    place_open_bare(place);
    struct weir_options options = place_options(place, timeout_us);
    options.redis_url = url;
    return options;
}

/* ---- Keys and their slots ---- */

static void name_key(unsigned number, char text[LOAD_KEY_SIZE])
{
    snprintf(text, LOAD_KEY_SIZE, "%x-%x", (unsigned)getpid() & 0xffffff, number & 0xfffffff);
}

void key_between(unsigned first, unsigned last, int which, char text[LOAD_KEY_SIZE])
{
    for (unsigned i = 0;; i++) {
        name_key(i, text);
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

/* ---- Asking the nodes ---- */

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
    ck_assert_int_le(asks, limiters * (30 + 10 * took_us / WEIR_SECOND));
}

/* ---- Callers in the background ---- */

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    int64_t seen = atomic_load(most);
    while (value > seen && !atomic_compare_exchange_weak(most, &seen, value))
        continue;
}

/* True if Redis decided and not the fallback; leases and remembered denials count as Redis. */
static bool is_by_redis(const struct weir_decision *decision)
{
    return decision->source == WEIR_BY_REDIS || decision->source == WEIR_BY_LEASE || decision->source == WEIR_BY_DENIAL;
}

static void note(struct load *load, struct load_key *key, int status, const struct weir_decision *decision)
{
    if (status != WEIR_OK) {
        atomic_fetch_add(&load->failed, 1);
        atomic_store(&load->error, status);
        return;
    }
    atomic_fetch_add(&key->allowed, decision->allowed);
    if (is_by_redis(decision)) {
        int64_t now_us = wire_now_us(), last_us = atomic_exchange(&load->redis_us, now_us);
        raise_to(&load->gap_us, last_us != 0 ? now_us - last_us : 0);
    } else {
        atomic_fetch_add(&load->others, 1);
        atomic_fetch_add(&key->by_others, decision->allowed);
    }
}

/* A group of submitted requests, and the number of open ones. */
struct submitted {
    struct weir_op ops[LOAD_GROUP];
    int statuses[LOAD_GROUP];
    atomic_int left;
};

static void submitted_done(struct weir_op *op, int status)
{
    struct submitted *submitted = op->user;
    submitted->statuses[op - submitted->ops] = status;
    atomic_fetch_sub(&submitted->left, 1);
}

static void submit_all(struct load *load, const struct weir_request *requests, struct weir_decision *decisions,
                       int *statuses)
{
    struct submitted submitted = { .left = LOAD_GROUP };
    for (int i = 0; i < LOAD_GROUP; i++) {
        submitted.ops[i] = (struct weir_op){ .request = requests[i], .done = submitted_done, .user = &submitted };
        int result = weir_submit(load->limiter, &submitted.ops[i]);
        if (result != 1)
            submitted_done(&submitted.ops[i], result);
    }
    while (atomic_load(&submitted.left) > 0)
        sleep_us(50);
    for (int i = 0; i < LOAD_GROUP; i++) {
        statuses[i] = submitted.statuses[i];
        decisions[i] = submitted.ops[i].decision;
    }
}

/* Ask for keys from number `at` on in the load's way; return how many. */
static int take_some(struct load *load, size_t at)
{
    const int n = load->way == LOAD_TRY ? 1 : LOAD_GROUP, row = load->in_a_row > 0 ? load->in_a_row : 1;
    struct load_key *keys[LOAD_GROUP];
    struct weir_request requests[LOAD_GROUP];
    struct weir_decision decisions[LOAD_GROUP];
    int statuses[LOAD_GROUP] = { 0 };
    for (int i = 0; i < n; i++) {
        keys[i] = &load->keys[(at + (size_t)i) / (size_t)row % load->n];
        requests[i] = (struct weir_request){ .limit = load->limit, .key = weir_key_text(keys[i]->text), .cost = 1 };
    }
    int64_t began_us = wire_now_us();
    switch (load->way) {
    case LOAD_TRY: statuses[0] = weir_try(load->limit, requests[0].key, 1, decisions); break;
    case LOAD_BATCH:
        statuses[0] = weir_try_batch(load->limiter, requests, LOAD_GROUP, decisions);
        for (int i = 1; i < n; i++)
            statuses[i] = statuses[0];
        break;
    case LOAD_SUBMIT: submit_all(load, requests, decisions, statuses); break;
    }
    raise_to(&load->longest_us, wire_now_us() - began_us);
    atomic_fetch_add(&load->calls, n);
    bool well = true;
    for (int i = 0; i < n; i++) {
        note(load, keys[i], statuses[i], &decisions[i]);
        well = well && statuses[i] == WEIR_OK && is_by_redis(&decisions[i]);
    }
    if (!well || load->pause_us > 0)
        sleep_us(well ? load->pause_us : 200); /* the servers need the processors */
    return n;
}

static void *take_until_done(void *argument)
{
    static atomic_uint next;
    struct load *load = argument;
    size_t at = atomic_fetch_add(&next, 1) * 7919U;
    while (!atomic_load(&load->done))
        at += (size_t)take_some(load, at);
    return NULL;
}

void load_keys(struct load *load, unsigned first, unsigned last, size_t n)
{
    for (unsigned i = 0; load->n < n; i++) {
        char *text = load->keys[load->n].text;
        name_key(i, text);
        unsigned slot = cluster_key_slot(text);
        load->n += slot >= first && slot <= last;
    }
}

void load_start(struct load *load, weir *limiter, weir_limit *limit, int threads)
{
    load->limiter = limiter;
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

void assert_load_undisturbed(const struct load *load)
{
    if (load->failed > 0 || load->others > 0)
        ck_abort_msg("of %" PRId64 " calls %d failed (%s), and %" PRId64 " were not decided by Redis", load->calls,
                     load->failed, weir_strerror(load->error), load->others);
}

void assert_load_exact(const struct load *load)
{
    assert_load_undisturbed(load);
    for (size_t i = 0; i < load->n; i++) {
        int64_t allowed = load->keys[i].allowed, is_charged = charged(load->limit, load->keys[i].text);
        if (allowed != is_charged)
            ck_abort_msg("key %zu in slot %u: %" PRId64 " admitted, %" PRId64 " charged", i,
                         cluster_key_slot(load->keys[i].text), allowed, is_charged);
    }
}

void assert_few(struct load *load, int beginnings, const char *what)
{
    int64_t excess = 0;
    for (size_t i = 0; i < load->n; i++) {
        struct load_key *key = &load->keys[i];
        struct weir_decision decision;
        while ((decision = taken(load->limit, key->text, 1)).allowed) {
            must(decision.source == WEIR_BY_REDIS, "Redis decides of what is left");
            key->allowed++;
        }
        int64_t by_redis = key->allowed - key->by_others;
        if ((beginnings == 1 && key->allowed < FEW) || by_redis > (int64_t)beginnings * FEW || key->by_others > FEW)
            ck_abort_msg("%s: key %zu in slot %u: %" PRId64 " admitted of %d, %" PRId64 " of them by others", what, i,
                         cluster_key_slot(key->text), key->allowed, FEW, key->by_others);
        excess += key->allowed - FEW;
    }
    printf("%s: %" PRId64 " permits too many of %zu keys of %d\n", what, excess, load->n, FEW);
}
