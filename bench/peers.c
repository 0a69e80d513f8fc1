/* peers.c - what following costs: the decisions of a limiter that follows Consul next to those of one that does not,
 * and how long a change takes to apply.
 *
 * For a membership change the time starts when Consul itself reports it: the benchmark waits for the same change in a
 * blocking query on its own socket. Consul answers both queries at about the same moment, in either order, so the
 * result can be negative. For a policy change the time starts before the policy is written.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "consul_server.h"
#include "measure/timer.h"

#define GOAL_RATIO 1.02
#define GOAL_SHARE_MS 50
#define GOAL_POLICY_MS 100
#define CHANGES 15
#define THOROUGH_CHANGES 50
#define QUICK_CHANGES 3
#define KEYS 1000
#define COST_REPEATS 4 /* times those of other sections: the difference is small */
#define INSTANCES 3
#define LIMIT 1000
#define REST_NS 150000000 /* between changes: afterwards all wait in their queries again, and none is delayed */
#define POLL_NS 50000
#define MOST_NS INT64_C(10000000000)

static struct consul_server server;

static void asked(int status)
{
    if (status != 0)
        bench_fail("peers: Consul: %s", server.daemon.error);
}

static void sleep_ns(int64_t ns)
{
    const struct timespec time = { .tv_nsec = (long)ns };
    nanosleep(&time, NULL);
}

/* ---- Limiters that follow ---- */

struct follows {
    struct weir_peers peers;
    struct weir_consul consul;
    struct weir_options options;
};

/* Set options that follow the service of instance "me", which is registered already, and policies under "weir". */
static struct weir_options *follow(struct follows *follows)
{
    *follows = (struct follows){
        .peers = { .size = sizeof follows->peers, .service = "bench", .id = "me", .hold_down_us = 1000 },
        .consul = { .size = sizeof follows->consul, .address = server.address },
        .options = WEIR_OPTIONS_INIT,
    };
    follows->options.peers = &follows->peers;
    follows->options.consul = &follows->consul;
    follows->options.consul_policies = "weir";
    return &follows->options;
}

static void open_ready(struct subject *subject, struct follows *follows, enum kind kind, uint64_t keys)
{
    subject_open_with(subject, follow(follows), kind, ANSWER_ALLOW, keys);
    if (weir_await_ready(subject->weir, 10 * WEIR_SECOND) != WEIR_OK)
        bench_fail("peers: a limiter had no answer from Consul within 10 s");
}

/* ---- What a decision costs ---- */

static void measure_cost(struct bench *bench)
{
    struct subject subjects[2];
    struct follows follows;
    struct stream stream;
    bench_progress("peers: what a decision costs");
    stream_make(&stream, KEYS, SKEW_ZIPF);
    subject_open(&subjects[0], KIND_TOKEN, ANSWER_ALLOW, KEYS);
    measure_unpin_main(); /* the following thread must not share the processor */
    open_ready(&subjects[1], &follows, KIND_TOKEN, KEYS);
    measure_pin_main();
    struct cell cells[2];
    for (int i = 0; i < 2; i++) {
        subject_fill(&subjects[i], ANSWER_ALLOW, KEYS);
        cells[i] = (struct cell){ .work = subject_work, .subject = &subjects[i], .stream = &stream, .threads = 1 };
    }
    int repeats = bench->extent == EXTENT_QUICK ? bench->repeats : COST_REPEATS * bench->repeats;
    measure_cells(cells, 2, repeats < MEASURE_MAX_REPEATS ? repeats : MEASURE_MAX_REPEATS, bench->seconds);
    struct sample ratio = sample_ratio(&cells[1].ns, &cells[0].ns);
    report_row(bench->report);
    report_text(bench->report, "what", "a decision, local mode");
    report_sample(bench->report, "alone ns", &cells[0].ns);
    report_sample(bench->report, "following ns", &cells[1].ns);
    report_sample(bench->report, "following/alone", &ratio);
    report_goal(bench->report, "decision of a limiter that follows Consul, relative to one that does not", &ratio,
                AT_MOST, GOAL_RATIO);
    for (int i = 0; i < 2; i++) {
        subject_finish(&subjects[i], KEYS);
    }
    stream_free(&stream);
}

/* ---- From a change to where it is in force ---- */

struct witness { /* queries Consul, as the limiter does */
    pthread_t thread;
    struct consul_server server;
    int64_t index;
    int64_t answered_ns;
};

static void *witness_wait(void *argument)
{
    static _Thread_local struct consul_answer answer;
    struct witness *witness = argument;
    char path[128];
    snprintf(path, sizeof path, "/v1/health/service/bench?passing&wait=10s&index=%lld", (long long)witness->index);
    if (consul_server_ask(&witness->server, "GET", path, NULL, 20000, &answer) != 0)
        bench_fail("peers: Consul: %s", witness->server.daemon.error);
    witness->answered_ns = clock_ns(CLOCK_MONOTONIC);
    return NULL;
}

static bool share_total_is(struct subject *subjects, int64_t total)
{
    struct weir_stats stats = { .size = sizeof stats };
    if (weir_stats_read(subjects[0].weir, &stats) != WEIR_OK)
        bench_fail("peers: a limiter does not report its share");
    return stats.share_weight * total == stats.share_total;
}

static bool limit_is_everywhere(struct subject *subjects, int64_t limit)
{
    struct weir_decision decision;
    for (int i = 0; i < INSTANCES; i++)
        if (weir_peek(subjects[i].limit, weir_key_text("key"), 1, &decision) != WEIR_OK || decision.limit != limit)
            return false;
    return true;
}

/* Wait until it holds; return the time. */
static int64_t await_ns(bool (*holds)(struct subject *, int64_t), struct subject *subjects, int64_t value)
{
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    while (!holds(subjects, value)) {
        if (clock_ns(CLOCK_MONOTONIC) - start_ns > MOST_NS)
            bench_fail("peers: a change does not apply after 10 s");
        sleep_ns(POLL_NS);
    }
    return clock_ns(CLOCK_MONOTONIC);
}

/* Add or remove a second instance, so that the share halves or grows back. Return the delay in ms. */
static double change_membership(struct subject *subject, bool comes)
{
    struct witness witness = { .server = server };
    if (consul_server_passing(&server, "bench", &witness.index) < 0)
        bench_fail("peers: Consul: %s", server.daemon.error);
    if (pthread_create(&witness.thread, NULL, witness_wait, &witness) != 0)
        bench_fail("peers: the benchmark: cannot start threads");
    sleep_ns(REST_NS);
    asked(comes ? consul_server_register(&server, "bench", "other", 1) : consul_server_deregister(&server, "other"));
    int64_t in_force_ns = await_ns(share_total_is, subject, comes ? 2 : 1);
    pthread_join(witness.thread, NULL);
    return (double)(in_force_ns - witness.answered_ns) / 1e6;
}

static void peers_report_change(struct bench *bench, const char *what, const struct sample *ms, double goal_ms)
{
    struct sample worst = { 0 };
    char line[120];
    sample_add(&worst, sample_max(ms));
    report_row(bench->report);
    report_text(bench->report, "what", what);
    report_count(bench->report, "changes", (uint64_t)ms->n);
    report_sample(bench->report, "ms", ms);
    snprintf(line, sizeof line, "%s; ms, worst of all", what);
    report_goal(bench->report, line, &worst, AT_MOST, goal_ms);
}

static void measure_membership(struct bench *bench, int changes)
{
    struct sample shrinks = { 0 }, grows = { 0 };
    struct subject subject;
    struct follows follows;
    bench_progress("peers: changes of the membership");
    open_ready(&subject, &follows, KIND_TOKEN, KEYS);
    for (int i = 0; i < changes; i++) {
        sample_add(&shrinks, change_membership(&subject, true));
        sample_add(&grows, change_membership(&subject, false));
    }
    subject_close(&subject);
    peers_report_change(bench, "from Consul's report until a smaller share applies", &shrinks, GOAL_SHARE_MS);
    peers_report_change(bench, "until a larger one applies, with a hold-down of 1 ms", &grows, GOAL_SHARE_MS);
}

static void measure_policies(struct bench *bench, int changes)
{
    struct sample ms = { 0 };
    struct subject subjects[INSTANCES];
    struct follows follows[INSTANCES];
    bench_progress("peers: changes of a policy");
    for (int i = 0; i < INSTANCES; i++)
        open_ready(&subjects[i], &follows[i], KIND_TOKEN, KEYS);
    for (int i = 0; i < changes; i++) {
        char policy[64];
        snprintf(policy, sizeof policy, "token_bucket limit=%d period=1s", LIMIT + i);
        sleep_ns(REST_NS);
        int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        asked(consul_server_put(&server, "weir/token", policy)); /* the limits are named after their algorithm */
        sample_add(&ms, (double)(await_ns(limit_is_everywhere, subjects, LIMIT + i) - start_ns) / 1e6);
    }
    asked(consul_server_delete(&server, "weir/token"));
    for (int i = 0; i < INSTANCES; i++)
        subject_close(&subjects[i]);
    peers_report_change(bench, "from writing a policy to Consul until all 3 instances enforce it", &ms, GOAL_POLICY_MS);
}

void bench_peers(struct bench *bench)
{
    int changes = bench->extent == EXTENT_QUICK ? QUICK_CHANGES : bench->thorough ? THOROUGH_CHANGES : CHANGES;
    measure_unpin_main();
    if (!consul_server_found()) {
        bench_missing(bench, "peers", "no consul found: sh tests/tools/servers.sh consul-1.8 gets one");
        measure_pin_main();
        return;
    }
    asked(consul_server_start(&server, CONSUL_SERVER_OPEN));
    asked(consul_server_register(&server, "bench", "me", 1));
    measure_pin_main();
    report_section(bench->report, "peers",
                   "a limiter that follows a private Consul agent, peers and policies; median (min..max)");
    measure_cost(bench);
    measure_unpin_main();
    measure_membership(bench, changes);
    measure_policies(bench, changes);
    measure_pin_main();
    report_end_section(bench->report);
    consul_server_stop(&server);
}
