/* audit.c - many processes with many threads take permits of one key at the same time; the audit adds up the permits.
 *
 * Shared memory records when each call began and ended, and its result. Afterwards the parent finds the stretch of
 * time with the most admitted permits (envelope.h), sorts the latencies and counts sources and errors. Each round has
 * its own key, and all threads start it together.
 *
 * Exit status: 0 no over-admission and no failed call; 1 otherwise; 2 wrong arguments; 77 redis-server is not
 * installed.
 */
#include <weir/weir.h>

#include "envelope.h"
#include "redis_server.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MOST = 256, THREADS_MOST = 256, SOURCES = WEIR_BY_FAIL_CLOSED + 1, ERRORS = 8 };

static const int64_t calls_most = INT64_C(1) << 25; /* a call takes 24 bytes of shared memory */

struct job {
    int64_t limit, period_us, burst, processes, threads, requests, rounds, skew_us, timeout_us;
    const char *url, *mode;
    bool exact; /* each round must admit exactly the burst */
};

struct call {
    int64_t start_us, end_us; /* CLOCK_MONOTONIC, which all processes share */
    int32_t error;
    bool allowed;
    uint8_t source;
};

struct ledger { /* in shared memory */
    pthread_barrier_t start;
    struct weir_stats stats[PROCESSES_MOST];
    struct call calls[]; /* by round, process, thread and request */
};

struct worker {
    const struct job *job;
    struct ledger *ledger;
    weir *limiter;
    weir_limit *limit;
    int64_t number; /* of all threads of all processes */
};

static int64_t now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* ---- A process ---- */

static int64_t skewed_clock(void *user)
{
    return now_us(CLOCK_REALTIME) + *(const int64_t *)user;
}

static void log_line(void *user, enum weir_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "audit %d: log %d: %s\n", (int)getpid(), (int)level, line);
}

struct submitted {
    struct weir_op op; /* the first member */
    sem_t is_done;
    int status;
};

static void submitted_done(struct weir_op *op, int status)
{
    struct submitted *submitted = (struct submitted *)(void *)op;
    submitted->status = status;
    sem_post(&submitted->is_done);
}

static int submit(const struct worker *worker, struct weir_key key, struct weir_decision *out)
{
    struct submitted submitted = { .op = { .request = { worker->limit, key, 1, 0 }, .done = submitted_done } };
    sem_init(&submitted.is_done, 0, 0);
    int status = weir_submit(worker->limiter, &submitted.op);
    if (status == 1) {
        while (sem_wait(&submitted.is_done) != 0) /* a signal interrupts it */
            continue;
        status = submitted.status;
    }
    sem_destroy(&submitted.is_done);
    *out = submitted.op.decision;
    return status;
}

/* Take a permit by one way after another: all of them count the same key. */
static int take(const struct worker *worker, int64_t turn, struct weir_key key, struct weir_decision *out)
{
    weir_handle *handle;
    struct weir_request request = { worker->limit, key, 1, 0 };
    int error = WEIR_OK;
    switch ((worker->number + turn) % 4) {
    case 0: return weir_try(worker->limit, key, 1, out);
    case 1: return submit(worker, key, out);
    case 2: return weir_try_batch(worker->limiter, &request, 1, out);
    default:
        error = weir_key_resolve(worker->limit, key, &handle);
        if (error == WEIR_OK) {
            error = weir_handle_try(handle, 1, 0, out);
            weir_handle_free(handle);
        }
        return error;
    }
}

static void *worker_run(void *argument)
{
    const struct worker *worker = argument;
    const struct job *job = worker->job;
    char key[32];
    for (int64_t round = 0; round < job->rounds; round++) {
        struct call *calls = worker->ledger->calls +
                             (round * job->processes * job->threads + worker->number) * job->requests;
        snprintf(key, sizeof key, "round-%" PRId64, round);
        pthread_barrier_wait(&worker->ledger->start);
        for (int64_t i = 0; i < job->requests; i++) {
            struct weir_decision decision = { .allowed = false };
            calls[i].start_us = now_us(CLOCK_MONOTONIC);
            calls[i].error = take(worker, i + round, weir_key_text(key), &decision);
            calls[i].end_us = now_us(CLOCK_MONOTONIC);
            calls[i].allowed = calls[i].error == WEIR_OK && decision.allowed;
            calls[i].source = decision.source;
        }
    }
    return NULL;
}

static int process_run(const struct job *job, struct ledger *ledger, int64_t process)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_policy policy = { .limit = job->limit, .period_us = job->period_us, .burst = job->burst };
    int64_t skew_us = process % 2 == 0 ? job->skew_us : -job->skew_us;
    pthread_t threads[THREADS_MOST];
    struct worker workers[THREADS_MOST];
    weir *limiter;
    weir_limit *limit, *other;
    options.log = log_line;
    options.on_failure = WEIR_FAIL_ERROR;
    options.timeout_us = job->timeout_us;
    if (job->skew_us != 0)
        options.now_us = skewed_clock;
    options.user = &skew_us;
    if (strcmp(job->mode, "distributed") == 0) {
        options.mode = WEIR_DISTRIBUTED;
        options.redis_url = job->url;
    }
    if (weir_open(&options, &limiter) != WEIR_OK)
        return 1;
    if (weir_limit_define(limiter, "other", &policy, &other) != WEIR_OK ||
        weir_limit_define(limiter, "audit", &policy, &limit) !=
            WEIR_OK) /* the first limit's number, 0, may hide errors */
        return 1;
    for (int64_t i = 0; i < job->threads; i++) {
        workers[i] = (struct worker){ job, ledger, limiter, limit, process * job->threads + i };
        if (pthread_create(&threads[i], NULL, worker_run, &workers[i]) != 0)
            return 1;
    }
    for (int64_t i = 0; i < job->threads; i++)
        pthread_join(threads[i], NULL);
    ledger->stats[process].size = sizeof ledger->stats[process];
    weir_stats_read(limiter, &ledger->stats[process]);
    weir_close(limiter);
    return 0;
}

/* Run all processes to their ends. If one dies, the others would wait for it forever, so all are killed. */
static int processes_run(const struct job *job, struct ledger *ledger)
{
    pid_t pids[PROCESSES_MOST];
    int status, failed = 0;
    for (int64_t i = 0; i < job->processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            status = process_run(job, ledger, i);
            fflush(NULL);
            exit(status);
        }
    }
    for (int64_t left = job->processes; left > 0; left--) {
        pid_t ended = wait(&status);
        for (int64_t i = 0; i < job->processes; i++)
            if (pids[i] == ended)
                pids[i] = 0;
        if (status != 0 && failed++ == 0)
            for (int64_t i = 0; i < job->processes; i++)
                if (pids[i] > 0)
                    kill(pids[i], SIGKILL);
    }
    return failed;
}

/* ---- What came of it ---- */

static int by_size(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void report_latencies(const struct ledger *ledger, int64_t calls)
{
    int64_t *latencies = malloc((size_t)calls * sizeof *latencies);
    if (latencies == NULL)
        return;
    for (int64_t i = 0; i < calls; i++)
        latencies[i] = ledger->calls[i].end_us - ledger->calls[i].start_us;
    qsort(latencies, (size_t)calls, sizeof *latencies, by_size);
    printf("latency_p50_us %" PRId64 "\nlatency_p999_us %" PRId64 "\nlatency_max_us %" PRId64 "\n",
           latencies[calls / 2], latencies[calls - 1 - calls / 1000], latencies[calls - 1]);
    free(latencies);
}

static int64_t report_sources_and_errors(const struct ledger *ledger, int64_t calls)
{
    static const char *const names[SOURCES] = { "memory",   "full",      "backend",    "redis",
                                                "fallback", "fail_open", "fail_closed" };
    int64_t sources[SOURCES] = { 0 }, errors[ERRORS] = { 0 }, failed = 0;
    for (int64_t i = 0; i < calls; i++) {
        const struct call *call = &ledger->calls[i];
        if (call->error == WEIR_OK)
            sources[call->source < SOURCES ? call->source : 0]++;
        else
            errors[-call->error < ERRORS ? -call->error : 0]++;
    }
    for (int i = 0; i < SOURCES; i++)
        if (sources[i] > 0)
            printf("by_%s %" PRId64 "\n", names[i], sources[i]);
    for (int i = 0; i < ERRORS; i++) {
        if (errors[i] > 0)
            printf("errors \"%s\" %" PRId64 "\n", weir_strerror(-i), errors[i]);
        failed += errors[i];
    }
    return failed;
}

static void report_store(const struct job *job, const struct ledger *ledger)
{
    uint64_t requests = 0, calls = 0, timeouts = 0, connections = 0;
    for (int64_t i = 0; i < job->processes; i++) {
        requests += ledger->stats[i].store_requests;
        calls += ledger->stats[i].store_calls;
        timeouts += ledger->stats[i].store_timeouts;
        connections += ledger->stats[i].store_connections;
    }
    printf("store_requests %" PRIu64 "\nstore_calls %" PRIu64 "\nstore_timeouts %" PRIu64 "\nstore_connections %" PRIu64
           "\n",
           requests, calls, timeouts, connections);
}

/* Check each round, which has its own key, and report the worst. True if all were within the limit. */
static bool report_rounds(const struct job *job, const struct ledger *ledger, struct admit *admits)
{
    int64_t size = job->burst != 0 ? job->burst : job->limit, least = INT64_MAX, most = 0;
    int64_t per_round = job->processes * job->threads * job->requests;
    double worst = 0;
    for (int64_t round = 0; round < job->rounds; round++) {
        size_t n = 0;
        for (const struct call *call = ledger->calls + round * per_round;
             call < ledger->calls + (round + 1) * per_round; call++)
            if (call->allowed)
                admits[n++] = (struct admit){ call->start_us, call->end_us, 1 };
        double burst = envelope_burst(admits, n, job->limit, job->period_us);
        worst = burst > worst ? burst : worst;
        most = (int64_t)n > most ? (int64_t)n : most;
        least = (int64_t)n < least ? (int64_t)n : least;
    }
    printf("rounds %" PRId64 "\nadmitted_least %" PRId64 "\nadmitted_most %" PRId64 "\nburst_worst %.3f\nexcess %.3f\n",
           job->rounds, least, most, worst, worst > (double)size ? worst - (double)size : 0.0);
    /* the envelope's doubles may be off by a billionth of a permit */
    return worst <= (double)size + 1e-6 * (double)size && (!job->exact || (least == size && most == size));
}

static int report(const struct job *job, const struct ledger *ledger)
{
    int64_t calls = job->processes * job->threads * job->requests * job->rounds;
    struct admit *admits = malloc((size_t)(calls / job->rounds) * sizeof *admits);
    if (admits == NULL)
        return 1;
    bool within = report_rounds(job, ledger, admits);
    free(admits);
    report_latencies(ledger, calls);
    int64_t failed = report_sources_and_errors(ledger, calls);
    report_store(job, ledger);
    if (!within || failed > 0)
        printf("FAILED: %s\n", within ? "calls ended in errors" : "not what the limit says");
    return !within || failed > 0;
}

/* ---- Arguments ---- */

static const char usage[] =
    "usage: audit [--limit N] [--period-us N] [--burst N] [--procs N] [--threads N] [--requests N] [--rounds N]\n"
    "             [--skew-us N] [--timeout-us N] [--exact] [--mode distributed|local] [--url URL]\n"
    "Without --url a private server is started. --requests is for each thread and round. --skew-us sets the clocks of\n"
    "every other process ahead by that much and those of the rest behind. --exact: each round must admit the whole\n"
    "burst and nothing more.\n";

static bool read_arguments(int argc, char **argv, struct job *job)
{
    static const struct option options[] = {
        { "limit", required_argument, NULL, 0 },
        { "period-us", required_argument, NULL, 1 },
        { "burst", required_argument, NULL, 2 },
        { "procs", required_argument, NULL, 3 },
        { "threads", required_argument, NULL, 4 },
        { "requests", required_argument, NULL, 5 },
        { "rounds", required_argument, NULL, 6 },
        { "skew-us", required_argument, NULL, 7 },
        { "timeout-us", required_argument, NULL, 8 },
        { "mode", required_argument, NULL, 'm' },
        { "url", required_argument, NULL, 'u' },
        { "exact", no_argument, NULL, 'e' },
        { NULL, 0, NULL, 0 },
    };
    int64_t *const numbers[] = { &job->limit,    &job->period_us, &job->burst,   &job->processes, &job->threads,
                                 &job->requests, &job->rounds,    &job->skew_us, &job->timeout_us };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        char *end = NULL;
        switch (option) {
        case 'm': job->mode = optarg; break;
        case 'u': job->url = optarg; break;
        case 'e': job->exact = true; break;
        case '?': return false;
        default:
            *numbers[option] = strtoll(optarg, &end, 10);
            if (end == optarg || *end != '\0' || *numbers[option] < 0)
                return false;
        }
    }
    bool local = strcmp(job->mode, "local") == 0;
    return optind == argc && (local || strcmp(job->mode, "distributed") == 0) && job->processes >= 1 &&
           job->processes <= PROCESSES_MOST && job->threads >= 1 && job->threads <= THREADS_MOST &&
           job->requests >= 1 && job->rounds >= 1 && job->requests <= calls_most &&
           job->rounds <= calls_most / job->requests &&
           job->processes * job->threads * job->requests * job->rounds <= calls_most;
}

int main(int argc, char **argv)
{
    struct job job = { .limit = 50,
                       .period_us = WEIR_HOUR,
                       .processes = 16,
                       .threads = 8,
                       .requests = 5,
                       .rounds = 10,
                       .timeout_us = WEIR_MINUTE,
                       .mode = "distributed" };
    struct redis_server server = { .daemon.pid = 0 };
    pthread_barrierattr_t shared;
    if (!read_arguments(argc, argv, &job)) {
        fputs(usage, stderr);
        return 2;
    }
    if (job.url == NULL && strcmp(job.mode, "distributed") == 0) {
        if (redis_server_missing())
            return 77;
        if (redis_server_start(&server, REDIS_SERVER_UNIX, NULL) != 0) {
            fprintf(stderr, "audit: %s\n", server.daemon.error);
            return 1;
        }
        job.url = server.url;
    }
    size_t calls = (size_t)(job.processes * job.threads * job.requests * job.rounds);
    struct ledger *ledger = mmap(NULL, sizeof *ledger + calls * sizeof(struct call), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ledger == MAP_FAILED) {
        perror("audit: shared memory");
        return 1;
    }
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&ledger->start, &shared, (unsigned)(job.processes * job.threads));
    int failed = processes_run(&job, ledger);
    if (failed > 0)
        fprintf(stderr, "audit: %d of the processes failed\n", failed);
    else
        failed = report(&job, ledger);
    redis_server_stop(&server);
    return failed > 0;
}
