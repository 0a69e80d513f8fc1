/* server.c - what a decision costs Redis: server CPU, by script and by the number of decisions in a call.
 *
 * One connection keeps a fixed number of calls in flight. Once half of them are answered it sends as many new ones, so
 * that the server never waits for its caller. The benchmark calls weir's scripts directly here, without weir's
 * transport. A denial that weir foresees, because the key was denied before, is TIME and GET without a script.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/timer.h"
#include "redis/store.h"

enum form { FORM_GATEWAY, FORM_KEYS, FORM_HOT, FORM_PAIRS, FORM_FLOOR, FORM_READ };

struct pipeline { /* one way of calling */
    const char *name;
    enum form form;
    enum kind kind;
    int decisions; /* per call, for as many keys or for one key */
    int in_flight; /* calls */
    bool denied;   /* each request costs more than a full bucket */
    bool drained;  /* of FORM_PAIRS: the keys hold nothing but what was just reserved, which drains within 0.1 ms */
    size_t cursor;
    bool settles; /* of FORM_PAIRS with one decision: the next call gives back, as every second one does */
    uint64_t asked, given;
    struct sample server_us, per_second;
};

static const struct pipeline PIPELINES[] = {
    { .name = "gateway script", .form = FORM_GATEWAY, .decisions = 1, .in_flight = 16 },
    { .name = "weir", .form = FORM_KEYS, .decisions = 1, .in_flight = 16 },
    { .name = "weir, keys in a call", .form = FORM_KEYS, .decisions = 32, .in_flight = 16 },
    { .name = "weir, keys in a call", .form = FORM_KEYS, .decisions = 64, .in_flight = 16 },
    { .name = "weir, keys in a call", .form = FORM_KEYS, .decisions = 256, .in_flight = 16 },
    { .name = "weir, costs of a hot key in a call", .form = FORM_HOT, .decisions = 64, .in_flight = 16 },
    { .name = "gateway script", .form = FORM_GATEWAY, .decisions = 1, .in_flight = 16, .denied = true },
    { .name = "weir, denied again", .form = FORM_READ, .decisions = 1, .in_flight = 16, .denied = true },
    { .name = "weir, denied first", .form = FORM_KEYS, .decisions = 1, .in_flight = 16, .denied = true },
    { .name = "only the clock and the key", .form = FORM_FLOOR, .decisions = 1, .in_flight = 16, .denied = true },
    { .name = "gateway script", .form = FORM_GATEWAY, .decisions = 1, .in_flight = 64 },
    { .name = "weir", .form = FORM_KEYS, .decisions = 1, .in_flight = 64 },
    { .name = "weir, keys in a call", .form = FORM_KEYS, .decisions = 64, .in_flight = 1 },
    { .name = "weir, costs of a hot key in a call", .form = FORM_HOT, .decisions = 64, .in_flight = 1 },
    { .name = "weir", .form = FORM_KEYS, .kind = KIND_INTERVAL, .decisions = 1, .in_flight = 16 },
    { .name = "weir", .form = FORM_KEYS, .kind = KIND_FIXED, .decisions = 1, .in_flight = 16 },
    { .name = "weir", .form = FORM_KEYS, .kind = KIND_SLIDING, .decisions = 1, .in_flight = 16 },
    { .name = "weir", .form = FORM_KEYS, .kind = KIND_LEAKY, .decisions = 1, .in_flight = 16 },
    { .name = "weir, reserved and settled", .form = FORM_PAIRS, .decisions = 1, .in_flight = 64 },
    { .name = "weir, reserved and settled", .form = FORM_PAIRS, .decisions = 64, .in_flight = 1 },
    { .name = "the same, drained since", .form = FORM_PAIRS, .drained = true, .decisions = 1, .in_flight = 64 },
    { .name = "the same, drained since", .form = FORM_PAIRS, .drained = true, .decisions = 64, .in_flight = 1 },
};
#define PIPELINES_LEN ((int)(sizeof PIPELINES / sizeof PIPELINES[0]))

/* ---- Asking ---- */

/* Draw the next `n` keys that differ from one another, if there are that many. */
static void draw_distinct(struct pipeline *pipeline, const struct store *store, struct bench_key *keys, int n)
{
    for (int i = 0, passed = 0; i < n; passed++) {
        bool again = false;
        keys[i] = store->stream.draws[pipeline->cursor];
        if (pipeline->drained)
            store_drained(&keys[i]);
        pipeline->cursor = (pipeline->cursor + 1) % store->stream.len;
        for (int earlier = 0; earlier < i && !again; earlier++)
            again = strcmp(keys[i].text, keys[earlier].text) == 0;
        i += !again || passed > 1000;
    }
}

#define RESERVED 8 /* permits of a pair; one of them comes back */

static int64_t now_us(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000;
}

static void send_call(struct pipeline *pipeline, const struct store *store, redisContext *connection)
{
    struct call call;
    struct bench_key keys[CALL_KEYS_MAX];
    const int64_t cost = pipeline->denied ? 2 * (int64_t)CALLS_BURST : pipeline->form == FORM_PAIRS ? RESERVED : 1;
    draw_distinct(pipeline, store, keys, pipeline->form == FORM_HOT ? 1 : pipeline->decisions);
    if (pipeline->form == FORM_GATEWAY)
        call_gateway(&call, store->gateway_sha1, keys, cost);
    else if (pipeline->form == FORM_FLOOR)
        call_floor(&call, store->floor_sha1, keys);
    else if (pipeline->form == FORM_READ)
        call_read(&call, keys);
    else if (pipeline->form == FORM_PAIRS && (pipeline->decisions > 1 || pipeline->settles))
        call_settle(&call, pipeline->kind, keys, (size_t)pipeline->decisions, cost, now_us());
    else if (pipeline->form != FORM_HOT)
        call_weir(&call, pipeline->kind, keys, (size_t)pipeline->decisions, cost, 1);
    else {
        key_write(0, &keys[0]);
        call_weir(&call, pipeline->kind, keys, 1, 1, (uint16_t)pipeline->decisions);
    }
    pipeline->settles = !pipeline->settles;
    if (pipeline->form == FORM_READ)
        redisAppendCommand(connection, "TIME");
    redisAppendCommandArgv(connection, call.words, (const char **)call.argv, call.len);
    pipeline->asked += call.decisions;
}

static void read_replies(struct pipeline *pipeline, redisContext *connection, int n)
{
    for (int i = 0; i < n; i++) {
        void *reply;
        bool is_decided = pipeline->form != FORM_FLOOR && pipeline->form != FORM_READ;
        if (pipeline->form == FORM_READ && redisGetReply(connection, &reply) == REDIS_OK) /* the time */
            freeReplyObject(reply);
        if (redisGetReply(connection, &reply) != REDIS_OK)
            bench_fail("lost the private redis-server: %s", connection->errstr);
        uint64_t permits = is_decided ? call_permits(reply) : 0;
        if (pipeline->form == FORM_PAIRS && pipeline->decisions > 1)
            permits = permits == UINT64_MAX ? 0 : permits / (RESERVED / 2); /* half of its decisions are takes */
        pipeline->given += permits == UINT64_MAX ? 0 : permits;
        freeReplyObject(reply);
    }
}

static void run_pipeline(struct pipeline *pipeline, const struct store *store, redisContext *connection, double seconds,
                         bool counts)
{
    int half = pipeline->in_flight > 1 ? pipeline->in_flight / 2 : 1;
    uint64_t asked_before = pipeline->asked;
    int64_t server_start_us = redis_server_cpu_us(&store->server);
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    int waiting = 0;
    do {
        while (waiting < pipeline->in_flight) {
            send_call(pipeline, store, connection);
            waiting++;
        }
        read_replies(pipeline, connection, half);
        waiting -= half;
    } while (clock_ns(CLOCK_MONOTONIC) < end_ns);
    read_replies(pipeline, connection, waiting);
    double elapsed_ns = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns);
    double decisions = (double)(pipeline->asked - asked_before);
    if (counts) {
        sample_add(&pipeline->server_us, (double)(redis_server_cpu_us(&store->server) - server_start_us) / decisions);
        sample_add(&pipeline->per_second, decisions * 1e9 / elapsed_ns);
    }
}

/* ---- The section ---- */

/* Return the gateway's row of the same outcome for as many calls in flight or, with one in flight, for as many
 * decisions. */
static const struct pipeline *yardstick_of(const struct pipeline *pipelines, const struct pipeline *pipeline)
{
    for (int i = 0; i < PIPELINES_LEN; i++)
        if (pipelines[i].form == FORM_GATEWAY && pipelines[i].denied == pipeline->denied &&
            pipelines[i].in_flight == (pipeline->in_flight == 1 ? pipeline->decisions : pipeline->in_flight))
            return &pipelines[i];
    return NULL;
}

/* Report what a take and a return together cost, relative to a take. */
static void report_pair(struct bench *bench, const struct pipeline *pipelines, const struct pipeline *pair)
{
    for (int i = 0; i < PIPELINES_LEN; i++) {
        const struct pipeline *takes = &pipelines[i];
        if (takes->form != FORM_KEYS || takes->kind != pair->kind || takes->denied ||
            takes->decisions != pair->decisions || takes->in_flight != pair->in_flight)
            continue;
        struct sample ratio = sample_ratio(&pair->server_us, &takes->server_us);
        for (int k = 0; k < ratio.n; k++)
            ratio.values[k] *= 2; /* requests to a pair */
        report_sample(bench->report, "a pair to a take", &ratio);
    }
}

static void report_pipeline(struct bench *bench, const struct pipeline *pipelines, const struct pipeline *pipeline)
{
    const struct pipeline *yardstick = yardstick_of(pipelines, pipeline);
    report_row(bench->report);
    report_text(bench->report, "script", pipeline->name);
    report_text(bench->report, "algorithm", kind_name(pipeline->kind));
    report_count(bench->report, "decisions a call", (uint64_t)pipeline->decisions);
    report_count(bench->report, "calls in flight", (uint64_t)pipeline->in_flight);
    report_number(bench->report, "admitted %", 100.0 * (double)pipeline->given / (double)pipeline->asked);
    report_sample(bench->report, "decisions/s", &pipeline->per_second);
    report_sample(bench->report, "server us", &pipeline->server_us);
    if (!yardstick || yardstick == pipeline)
        return;
    struct sample ratio = sample_ratio(&pipeline->server_us, &yardstick->server_us);
    report_sample(bench->report, "of the gateway's", &ratio);
    if (pipeline->form == FORM_PAIRS)
        report_pair(bench, pipelines, pipeline);
}

void bench_server(struct bench *bench)
{
    const struct store *store = store_of(bench, "server");
    static struct pipeline pipelines[PIPELINES_LEN];
    if (!store)
        return;
    bench_progress("server: filling keys of the other algorithms");
    for (int kind = KIND_TOKEN + 1; kind < KINDS; kind++)
        store_fill_weir(store, (enum kind)kind);
    store_fill_drained(store);
    redisContext *connection = store_connect(store);
    for (int i = 0; i < PIPELINES_LEN; i++) {
        pipelines[i] = PIPELINES[i];
        bench_progress("server: %s, %s, %d calls in flight", pipelines[i].name, kind_name(pipelines[i].kind),
                       pipelines[i].in_flight);
        run_pipeline(&pipelines[i], store, connection, bench->seconds / 4, false);
    }
    for (int repeat = 0; repeat < bench->repeats; repeat++)
        for (int i = 0; i < PIPELINES_LEN; i++)
            run_pipeline(&pipelines[repeat % 2 == 0 ? i : PIPELINES_LEN - 1 - i], store, connection, bench->seconds,
                         true);
    redisFree(connection);
    store_section(
        bench, store, "server",
        "server CPU us per decision, scripts alone, calls pipelined on one connection; median (min..max); "
        "the gateway's: bench/gateway.lua with as many calls in flight, or 64 next to weir's 1 call of 64 decisions");
    for (int i = 0; i < PIPELINES_LEN; i++)
        report_pipeline(bench, pipelines, &pipelines[i]);
}
