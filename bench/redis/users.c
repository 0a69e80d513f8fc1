/* users.c - what many users with a limit each ask of Redis: calls and keys a decision.
 *
 * 100,000 users make a request a second each on average, spread by Zipf's law: a few make thousands, most make one in
 * some seconds. Four limiters with a thread each stand for four instances; each submits its quarter of the requests at
 * random moments, without waiting for answers. At the start, the users that are above the limit have used it up, as
 * they will have after an hour.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "measure/timer.h"
#include "redis/remote.h"

#define USERS 100000
#define QUICK_USERS 5000
#define INSTANCES 4
#define UNDER_WAY_MOST 4096 /* submitted by an instance and not answered */
#define LEAD_SECONDS 3      /* longer than a remembered denial lasts */
#define BATCH 256
#define GATHER_US 1000

struct users_row {
    const char *name;
    enum weir_mode mode;
    int64_t gather_us;
};
static const struct users_row ROWS[] = {
    { "distributed", WEIR_DISTRIBUTED, 0 },
    { "hybrid", WEIR_HYBRID, 0 },
    { "hybrid, redis_gather_us=1000", WEIR_HYBRID, GATHER_US },
};

struct users_policy {
    const char *name;
    struct weir_policy policy;
    double goal; /* calls a decision, in the last row */
};
static const struct users_policy POLICIES[] = {
    { "100 a minute", { .limit = 100, .period_us = WEIR_MINUTE }, 0.12 },
    { "1000 an hour", { .limit = 1000, .period_us = WEIR_HOUR }, 0.06 },
};

struct asked {
    struct weir_op op;
    int64_t since_ns;
};

/* One instance, and its thread's alone until the thread has ended. */
struct instance {
    struct remote remote;
    const struct stream *stream;
    size_t cursor;
    uint64_t chance;
    double per_second;
    int64_t start_ns, end_ns; /* of what is measured */
    size_t idle[UNDER_WAY_MOST], idle_len;
    struct weir_stats before, after;
    uint64_t late, submitted; /* answers that came later, and requests, in the measured time */
    double waited_us;         /* sum over the late answers */
    struct asked asked[UNDER_WAY_MOST];
};

static void users_answered(struct weir_op *op, int status)
{
    struct instance *instance = op->user;
    struct asked *asked = (struct asked *)op;
    const int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    if (status != WEIR_OK)
        load_complain("weir_submit", weir_strerror(status));
    if (asked->since_ns >= instance->start_ns) {
        instance->late++;
        instance->waited_us += (double)(now_ns - asked->since_ns) / 1e3;
    }
    instance->idle[instance->idle_len++] = (size_t)(asked - instance->asked);
}

static void users_submit(struct instance *instance, int64_t now_ns)
{
    struct asked *asked = &instance->asked[instance->idle[--instance->idle_len]];
    const struct bench_key *key = &instance->stream->draws[instance->cursor++ % instance->stream->len];
    asked->since_ns = now_ns;
    asked->op = (struct weir_op){
        .request = { .limit = instance->remote.limit, .key = weir_key(key->text, KEY_LEN), .cost = 1 },
        .done = users_answered,
        .user = instance,
    };
    instance->submitted += now_ns >= instance->start_ns;
    const int status = weir_submit(instance->remote.weir, &asked->op);
    if (status == 1)
        return;
    if (status != WEIR_OK)
        load_complain("weir_submit", weir_strerror(status));
    instance->idle[instance->idle_len++] = (size_t)(asked - instance->asked);
}

static void *users_run(void *user)
{
    struct instance *instance = user;
    struct pollfd ready = { .fd = weir_event_fd(instance->remote.weir), .events = POLLIN };
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    double due_ns = (double)now_ns;
    bool is_measuring = false;
    bench_require(ready.fd < 0 ? ready.fd : WEIR_OK, "weir_event_fd");
    for (; now_ns < instance->end_ns; now_ns = clock_ns(CLOCK_MONOTONIC)) {
        if (!is_measuring && now_ns >= instance->start_ns) {
            is_measuring = true;
            instance->before = remote_stats(&instance->remote);
        }
        for (; due_ns <= (double)now_ns && instance->idle_len > 0;
             due_ns += random_gap_ns(&instance->chance, instance->per_second))
            users_submit(instance, now_ns);
        weir_dispatch(instance->remote.weir);
        const double wait_ns = due_ns - (double)clock_ns(CLOCK_MONOTONIC);
        if (wait_ns > 0 || instance->idle_len == 0)
            ppoll(&ready, 1, &(struct timespec){ .tv_nsec = wait_ns > 0 && wait_ns < 1e6 ? (long)wait_ns : 1000000 },
                  NULL);
    }
    instance->after = remote_stats(&instance->remote);
    while (instance->idle_len < UNDER_WAY_MOST) {
        poll(&ready, 1, 10);
        weir_dispatch(instance->remote.weir);
    }
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct bench_key));
}

static void take_all(const struct remote *remote, const struct bench_key *keys, size_t n, int64_t cost)
{
    struct weir_request requests[BATCH];
    struct weir_decision decisions[BATCH];
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct weir_request){ .limit = remote->limit,
                                             .key = weir_key(keys[i].text, KEY_LEN),
                                             .cost = cost };
    bench_require(weir_try_batch(remote->weir, requests, n, decisions), "weir_try_batch");
}

/* Use up the limit of those users who request more often than it allows. */
static void use_up(const struct remote *remote, const struct stream *stream, const struct weir_policy *policy,
                   double per_second)
{
    struct bench_key *sorted = malloc(stream->len * sizeof *sorted), above[BATCH];
    const double most = (double)policy->limit / ((double)policy->period_us / 1e6);
    size_t n = 0;
    if (!sorted)
        bench_fail("out of memory");
    memcpy(sorted, stream->draws, stream->len * sizeof *sorted);
    qsort(sorted, stream->len, sizeof *sorted, compare_keys);
    for (size_t i = 0, next; i < stream->len; i = next) {
        for (next = i + 1; next < stream->len && compare_keys(&sorted[i], &sorted[next]) == 0; next++)
            continue;
        if (per_second * (double)(next - i) / (double)stream->len > most)
            above[n++] = sorted[i];
        if (n == BATCH || next == stream->len) {
            take_all(remote, above, n, policy->limit);
            n = 0;
        }
    }
    free(sorted);
}

static void users_report(struct bench *bench, const struct users_row *row, const struct users_policy *policy,
                         const struct instance *instances, double users, double seconds)
{
    double decisions = 0, calls = 0, keys = 0, late = 0, waited_us = 0;
    struct sample calls_each = { .n = 0 };
    char what[96];
    for (int i = 0; i < INSTANCES; i++) {
        const struct instance *instance = &instances[i];
        decisions += (double)instance->submitted;
        calls += (double)(instance->after.store_calls - instance->before.store_calls);
        keys += (double)(instance->after.store_requests - instance->before.store_requests);
        late += (double)instance->late;
        waited_us += instance->waited_us;
    }
    sample_add(&calls_each, calls / decisions);
    report_row(bench->report);
    report_text(bench->report, "limit", policy->name);
    report_text(bench->report, "mode", row->name);
    report_number(bench->report, "decisions/s", decisions / seconds);
    report_number(bench->report, "keys asked a decision", keys / decisions);
    report_sample(bench->report, "calls a decision", &calls_each);
    report_number(bench->report, "us until an answer, mean", waited_us / late);
    snprintf(what, sizeof what, "calls to Redis a decision, many users, %s, %s", policy->name, row->name);
    /* Where requests pile up, they share calls because of that. */
    if (row->gather_us > 0 && decisions / seconds > 0.95 * users && bench->extent != EXTENT_QUICK)
        report_goal(bench->report, what, &calls_each, AT_MOST, policy->goal);
}

static bool users_measure(struct bench *bench, const struct store *store, const struct stream *stream, double users,
                          const struct users_row *row, const struct users_policy *policy)
{
    static struct instance instances[INSTANCES];
    pthread_t threads[INSTANCES];
    const double seconds = bench->extent == EXTENT_QUICK ? bench->seconds : 50 * bench->seconds;
    struct weir_options options = remote_options(row->mode);
    char name[32];
    options.instances = INSTANCES;
    options.redis_gather_us = row->gather_us;
    bench_progress("users: %s, %s", policy->name, row->name);
    snprintf(name, sizeof name, "users-%d-%d", (int)(policy - POLICIES), (int)(row - ROWS));
    for (int i = 0; i < INSTANCES; i++) {
        struct instance *instance = &instances[i];
        *instance = (struct instance){ .stream = stream,
                                       .cursor = stream->len / INSTANCES * (size_t)i,
                                       .chance = (uint64_t)i + 1,
                                       .per_second = users / INSTANCES };
        for (; instance->idle_len < UNDER_WAY_MOST; instance->idle_len++)
            instance->idle[instance->idle_len] = instance->idle_len;
        if (remote_open(&instance->remote, store, &options, name, &policy->policy))
            continue;
        while (i-- > 0)
            remote_close(&instances[i].remote);
        return false;
    }
    use_up(&instances[0].remote, stream, &policy->policy, users);
    const double lead = bench->extent == EXTENT_QUICK ? bench->seconds : LEAD_SECONDS;
    const int64_t start_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)(lead * 1e9);
    for (int i = 0; i < INSTANCES; i++) {
        instances[i].start_ns = start_ns;
        instances[i].end_ns = start_ns + (int64_t)(seconds * 1e9);
        if (pthread_create(&threads[i], NULL, users_run, &instances[i]) != 0)
            bench_fail("a thread could not be started");
    }
    for (int i = 0; i < INSTANCES; i++)
        pthread_join(threads[i], NULL);
    users_report(bench, row, policy, instances, users, seconds);
    for (int i = 0; i < INSTANCES; i++)
        remote_close(&instances[i].remote);
    return true;
}

void bench_users(struct bench *bench)
{
    const struct store *store = store_of(bench, "users");
    const uint64_t users = bench->extent == EXTENT_QUICK ? QUICK_USERS : USERS;
    struct stream stream;
    bool is_open = true;
    if (!store)
        return;
    store_section(
        bench, store, "users",
        "calls of scripts, and keys that they ask about, a decision; one request a second and user on average, "
        "zipf; 4 instances, each submits a quarter of them");
    stream_make(&stream, users, SKEW_ZIPF);
    for (size_t policy = 0; policy < sizeof POLICIES / sizeof *POLICIES && is_open; policy++)
        for (size_t row = 0; row < sizeof ROWS / sizeof *ROWS && is_open; row++)
            is_open = users_measure(bench, store, &stream, (double)users, &ROWS[row], &POLICIES[policy]);
    if (!is_open)
        remote_report_missing(bench);
    stream_free(&stream);
    report_end_section(bench->report);
}
