/* test_redis_stack.c - how much of the caller's stack a call takes in distributed and hybrid mode, when all that it may
 * have to do comes together: keys used under several policies, a server that must be connected to or does not know the
 * scripts, outages, and debts to settle after them. */
#include "cluster_place.h"
#include "sentinels.h"
#include "stack_depth.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- The stores ---- */

enum store { STORE_SINGLE, STORE_SENTINEL, STORE_CLUSTER, STORES };
static const char *const store_names[STORES] = { "single", "sentinel", "cluster" };

static struct place single;
static struct sentinels trio;
static struct cluster cluster;

/* The servers that decide; the sentinels have but one. */
static size_t store_servers(enum store store, struct redis_server *servers[CLUSTER_NODES_MOST])
{
    servers[0] = store == STORE_SINGLE ? &single.server : &trio.servers[0];
    for (int i = 0; store == STORE_CLUSTER && i < cluster.n; i++)
        servers[i] = &cluster.nodes[i].server;
    return store == STORE_CLUSTER ? (size_t)cluster.n : 1;
}

static void store_pause(enum store store, bool pauses)
{
    struct redis_server *servers[CLUSTER_NODES_MOST];
    const size_t n = store_servers(store, servers);
    for (size_t i = 0; i < n; i++)
        (pauses ? redis_server_pause : redis_server_resume)(servers[i]);
}

/* Send a command of up to three words to each server. */
static void store_tell(enum store store, const char *first, const char *second, const char *third)
{
    struct redis_server *servers[CLUSTER_NODES_MOST];
    const size_t n = store_servers(store, servers);
    for (size_t i = 0; i < n; i++) {
        CLOSED_BY(asker_close) struct asker asker;
        ck_assert_int_eq(asker_open(&asker, servers[i]->socket), 0);
        ck_assert_int_gt(asker_ask(&asker, place_reply, sizeof place_reply, first, second, third, NULL), 0);
    }
}

/* ---- Limiters over them ---- */

struct ground {
    enum store store;
    enum weir_mode mode;
    struct stack_ask ask;
};

static void hear_nothing(void *user, enum weir_log_level level, const char *line)
{
}

static void ground_open(struct ground *ground, enum store store, enum weir_mode mode, int64_t timeout_us)
{
    char url[512];
    struct weir_options options = WEIR_OPTIONS_INIT;
    ground->store = store;
    ground->mode = mode;
    if (store == STORE_SINGLE)
        snprintf(url, sizeof url, "%s", single.server.url);
    else if (store == STORE_SENTINEL)
        sentinels_url(&trio, 0, trio.servers[0].login, url, sizeof url);
    else
        cluster_url(&cluster, 0, cluster.n, NULL, url, sizeof url);
    options.mode = mode;
    options.redis_url = url;
    options.timeout_us = timeout_us;
    options.instances = 1;
    options.log = hear_nothing;
    stack_ask_begin(&ground->ask, limiter_of(&options));
    stack_ask_define(&ground->ask, STACK_BUCKET);
    recover(ground->ask.limits[0], "recovered");
    store_tell(store, "FLUSHALL", NULL, NULL);
}

static void ground_close(struct ground *ground)
{
    stack_ask_end(&ground->ask);
    weir_close(ground->ask.limiter);
}

/* Define the limits by one policy after another, and leave the last to the call. */
static void ground_play(struct ground *ground, const struct stack_history *history)
{
    for (size_t p = 0; p < 4 && history->policies[p]; p++) {
        if (p > 0)
            stack_ask_use(&ground->ask, p == 1 ? 800 : 1);
        stack_ask_define(&ground->ask, history->policies[p]);
    }
}

static void ground_measure(struct ground *ground, const struct stack_verb *verb, const char *when)
{
    char text[128];
    snprintf(text, sizeof text, "%s, %s, %s", store_names[ground->store],
             ground->mode == WEIR_HYBRID ? "hybrid" : "distributed", when);
    assert_stack(verb, &ground->ask, text);
}

/* The parameter of tests that run over each store in each mode. */
#define STORE_OF(i) ((enum store)((i) / 2))
#define MODE_OF(i) ((i) % 2 ? WEIR_HYBRID : WEIR_DISTRIBUTED)
enum { GROUNDS = 2 * STORES };

/* ---- Tests ---- */

TEST_EACH(every_verb_stays_within_its_stack_bound_after_any_redefinition, GROUNDS, 60)
{
    static struct ground ground;
    ground_open(&ground, STORE_OF(_i), MODE_OF(_i), PATIENT_US);
    for (int i = 0; i < STACK_HISTORIES * STACK_VERBS; i++) {
        const struct stack_history *history = &stack_histories[i / STACK_VERBS];
        store_tell(ground.store, "FLUSHALL", NULL, NULL);
        ground_play(&ground, history);
        ground_measure(&ground, &stack_verbs[i % STACK_VERBS], history->name);
        must_succeed(ground.ask.status);
    }
    ground_close(&ground);
}

TEST_EACH(a_call_that_connects_or_sends_scripts_stays_within_its_stack_bound, GROUNDS, 60)
{
    static struct ground ground;
    for (int i = 0; i < STACK_VERBS; i++) {
        ground_open(&ground, STORE_OF(_i), MODE_OF(_i), PATIENT_US);
        ground_measure(&ground, &stack_verbs[i], "connecting"); /* in a cluster to the other nodes */
        store_tell(ground.store, "SCRIPT", "FLUSH", NULL);
        ground_measure(&ground, &stack_verbs[i], "the scripts are lost");
        must_succeed(ground.ask.status);
        ground_close(&ground);
    }
}

/* Measure a verb as an outage begins, in it and after it, when all keys are owed for. */
static void measure_outage(struct ground *ground, const struct stack_verb *verb, const char *policy)
{
    const char *words[] = { "as the outage begins", "in the outage", "as it ends", "after it" };
    stack_ask_define(&ground->ask, STACK_BUCKET);
    stack_ask_use(&ground->ask, 1);
    stack_ask_define(&ground->ask, policy);
    store_pause(ground->store, true);
    ground_measure(ground, verb, words[0]);
    for (int i = 0; i < 3; i++)
        stack_ask_use(&ground->ask, 1);
    ground_measure(ground, verb, words[1]);
    if (ground->ask.now_us > 0)
        ground->ask.now_us += 3 * WEIR_HOUR;
    stack_ask_use(&ground->ask, 1);
    store_pause(ground->store, false);
    ground_measure(ground, verb, words[2]);
    recover(ground->ask.limits[0], "recovered");
    ground_measure(ground, verb, words[3]);
}

TEST_EACH(every_verb_stays_within_its_stack_bound_in_and_after_outages, GROUNDS, 60)
{
    static struct ground ground;
    for (int i = 0; i < STACK_VERBS; i++) {
        ground_open(&ground, STORE_OF(_i), MODE_OF(_i), 20000);
        measure_outage(&ground, &stack_verbs[i], "token_bucket limit=10000000 period=1m");
        must_succeed(weir_clock(ground.ask.limiter, &ground.ask.now_us));
        measure_outage(&ground, &stack_verbs[i], STACK_LARGE);
        ground_close(&ground);
    }
}

TEST_EACH(calls_run_on_the_smallest_stack, GROUNDS, 60)
{
    static struct ground ground;
    for (int i = 0; STACK_CAN_BE_MEASURED && i < STACK_VERBS; i++) {
        ground_open(&ground, STORE_OF(_i), MODE_OF(_i), PATIENT_US);
        ground_play(&ground, &stack_histories[6]);
        stack_run_small(&stack_verbs[i], &ground.ask);
        must_succeed(ground.ask.status);
        ground_close(&ground);
    }
}

int main(void)
{
    if (redis_server_missing())
        return 77;
    static const char *const uses[] = { "sentinels", NULL };
    if (sentinels_start(&trio, &(struct sentinels_wish){ .servers = 1, .sentinels = 1, .uses = uses }) != 0) {
        printf("%s\n", trio.error);
        return 1;
    }
    place_open(&single, false, NULL);
    const int status = suite_on_cluster(tests(), &cluster, &(struct cluster_wish){ .without_replica = true });
    place_close(&single);
    sentinels_stop(&trio);
    return status;
}
