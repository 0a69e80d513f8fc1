/* audit_faults.c - processes in hybrid mode take permits of a few keys while faults hit them and Redis.
 *
 * Each admitted request is recorded in shared memory with the begin and the end of its call. The decision was made
 * between the two, so an excess that envelope.h finds is real, even if processes were stopped or killed. A killed
 * process cannot have used permits that it did not record. Demand alternates between less than the limit and far more:
 * these changes are when leases could exceed a limit.
 *
 * Each loss of Redis' counts may add one fresh limit. The first process to leave an outage does not know what the
 * others have admitted and may admit as much again: at most what all processes admitted in one outage. Any further
 * excess over weir_limit_info.over_max is a failure. So is a call that ends in an error, a lease used after its life,
 * and a limit that is hardly used.
 *
 * Exit status: 0 all promises kept; 1 a failure; 2 wrong arguments; 77 no Redis server found.
 */
#include <weir/weir.h>

#include "asker.h"
#include "envelope.h"
#include "redis_server.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MOST = 64, THREADS_MOST = 64, KEYS_MOST = 1000, SOURCES = WEIR_BY_FAIL_CLOSED + 1 };

#define TIDE_US 150000
#define LOW_PAUSE_US 20000 /* between the calls of a thread */
#define HIGH_PAUSE_US 2000
/* Of the permits that the rate gave over a whole run or, on a machine too busy for that, of those requested. */
#define LEAST_USED 0.3
#define PATIENCE_US 60000000 /* until the first lease */
#define LOG_MOST (INT64_C(1) << 24)

struct admitted {
    int64_t start_us; /* CLOCK_REALTIME, by which Redis decides; 0: not written */
    uint32_t took_us;
    uint16_t key;
    bool by_outage; /* decided without Redis' counts */
};

struct ledger { /* in shared memory */
    atomic_bool over;
    _Atomic int64_t logged, denied, errors, late_leases, longest_us;
    _Atomic int64_t by_source[SOURCES];
    _Atomic int64_t asked[KEYS_MOST];        /* permits of each key */
    struct weir_stats stats[PROCESSES_MOST]; /* of processes that exited normally */
    struct weir_limit_info info;             /* the same for all */
    struct admitted log[];
};

struct siege {
    const struct scenario *scenario;
    struct weir_policy policy;
    int64_t seconds, processes, threads, keys, lease_life_us, timeout_us;
    int64_t turn_us; /* 0: the scenario's */
    bool strict;
    int64_t room; /* in the log */
    struct redis_server server;
    struct ledger *ledger;
    pid_t pids[PROCESSES_MOST];
    int64_t losses; /* times that Redis lost its counts */
};

struct scenario {
    const char *name;
    bool (*act)(struct siege *siege, int64_t turn); /* every turn_us; false: the lab itself has failed */
    int64_t turn_us;                                /* unless --turn-us says another */
    bool keeps;                                     /* Redis persists each write before it answers */
};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void pause_us(int64_t us)
{
    const struct timespec time = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
    nanosleep(&time, NULL);
}

/* ---- A process ---- */

struct worker {
    const struct siege *siege;
    weir_limit *limit;
    uint64_t chance;
};

static void note_longest(struct ledger *ledger, int64_t took_us)
{
    int64_t longest_us = atomic_load(&ledger->longest_us);
    while (took_us > longest_us && !atomic_compare_exchange_weak(&ledger->longest_us, &longest_us, took_us))
        continue;
}

static void call_once(const struct siege *siege, weir_limit *limit, uint32_t number)
{
    struct ledger *ledger = siege->ledger;
    struct weir_decision decision;
    char key[16];
    snprintf(key, sizeof key, "key-%" PRIu32, number);
    atomic_fetch_add(&ledger->asked[number], 1);
    int64_t start_us = now_us();
    int error = weir_try(limit, weir_key_text(key), 1, &decision);
    int64_t took_us = now_us() - start_us;
    note_longest(ledger, took_us);
    if (error != WEIR_OK) {
        atomic_fetch_add(&ledger->errors, 1);
        return;
    }
    if (decision.source < SOURCES)
        atomic_fetch_add(&ledger->by_source[decision.source], 1);
    if (decision.source == WEIR_BY_LEASE && decision.age_us >= siege->lease_life_us)
        atomic_fetch_add(&ledger->late_leases, 1);
    if (!decision.allowed) {
        atomic_fetch_add(&ledger->denied, 1);
        return;
    }
    int64_t place = atomic_fetch_add(&ledger->logged, 1);
    if (place < siege->room) {
        ledger->log[place].key = (uint16_t)number;
        ledger->log[place].by_outage = decision.source == WEIR_BY_FALLBACK;
        ledger->log[place].took_us = (uint32_t)took_us;
        ledger->log[place].start_us = start_us;
    }
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    const struct siege *siege = worker->siege;
    while (!atomic_load(&siege->ledger->over)) {
        worker->chance = worker->chance * UINT64_C(6364136223846793005) + 1442695040888963407;
        call_once(siege, worker->limit, (uint32_t)((worker->chance >> 33) % (uint64_t)siege->keys));
        pause_us(now_us() / TIDE_US % 2 == 0 ? LOW_PAUSE_US : HIGH_PAUSE_US);
    }
    return NULL;
}

static int process_run(const struct siege *siege, int64_t rank)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct worker workers[THREADS_MOST];
    pthread_t threads[THREADS_MOST];
    weir *limiter;
    weir_limit *limit;
    options.mode = WEIR_HYBRID;
    options.redis_url = siege->server.url;
    options.timeout_us = siege->timeout_us;
    options.lease_life_us = siege->lease_life_us;
    options.strict = siege->strict;
    options.instances = siege->processes;
    options.rank = rank;
    if (weir_open(&options, &limiter) != WEIR_OK ||
        weir_limit_define(limiter, "audit", &siege->policy, &limit) != WEIR_OK)
        return 1;
    siege->ledger->info.size = sizeof siege->ledger->info;
    if (rank == 0 && weir_limit_info(limit, &siege->ledger->info) != WEIR_OK)
        return 1;
    for (int64_t i = 0; i < siege->threads; i++) {
        workers[i] = (struct worker){ siege, limit, (uint64_t)now_us() + (uint64_t)(rank * siege->threads + i) };
        if (pthread_create(&threads[i], NULL, worker_run, &workers[i]) != 0)
            return 1;
    }
    for (int64_t i = 0; i < siege->threads; i++)
        pthread_join(threads[i], NULL);
    siege->ledger->stats[rank].size = sizeof siege->ledger->stats[rank];
    weir_stats_read(limiter, &siege->ledger->stats[rank]);
    weir_close(limiter);
    return 0;
}

static bool process_start(struct siege *siege, int64_t rank)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int status = process_run(siege, rank);
        fflush(NULL);
        exit(status);
    }
    siege->pids[rank] = pid;
    return pid > 0;
}

/* ---- What happens ---- */

static bool act_nothing(struct siege *siege, int64_t turn)
{
    (void)siege, (void)turn;
    return true;
}

/* Kill one process with SIGKILL and start another in its place. */
static bool act_kill(struct siege *siege, int64_t turn)
{
    int64_t rank = turn * 5 % siege->processes;
    kill(siege->pids[rank], SIGKILL);
    waitpid(siege->pids[rank], NULL, 0);
    return process_start(siege, rank);
}

/* Stop two processes at a time for three turns each, much longer than a lease lives. */
static bool act_freeze(struct siege *siege, int64_t turn)
{
    if (turn >= 3)
        kill(siege->pids[(turn - 3) % siege->processes], SIGCONT);
    kill(siege->pids[turn % siege->processes], SIGSTOP);
    return true;
}

static bool act_stop_redis(struct siege *siege, int64_t turn)
{
    if (turn % 2 == 0)
        redis_server_pause(&siege->server);
    else
        redis_server_resume(&siege->server);
    return true;
}

static bool act_restart_redis(struct siege *siege, int64_t turn)
{
    redis_server_kill(&siege->server);
    pause_us(turn % 2 == 0 ? 0 : 300000);
    siege->losses += siege->scenario->keeps ? 0 : 1;
    return redis_server_restart(&siege->server) == 0;
}

static bool act_flush(struct siege *siege, int64_t turn)
{
    struct asker asker;
    (void)turn;
    bool flushed = asker_open(&asker, siege->server.socket) == 0 && asker_ask(&asker, NULL, 0, "FLUSHALL", NULL) == 2;
    asker_close(&asker);
    siege->losses++;
    return flushed;
}

static const struct scenario scenarios[] = {
    { .name = "steady", .act = act_nothing, .turn_us = 1000000 },
    { .name = "kill", .act = act_kill, .turn_us = 130000 },
    { .name = "freeze", .act = act_freeze, .turn_us = 330000 },
    { .name = "stop-redis", .act = act_stop_redis, .turn_us = 370000 },
    { .name = "restart-redis", .act = act_restart_redis, .turn_us = 700000 },
    { .name = "restart-redis-that-keeps", .act = act_restart_redis, .turn_us = 700000, .keeps = true },
    { .name = "flush", .act = act_flush, .turn_us = 800000 },
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* True if a lease has been used, or none is expected. */
static bool has_leased(const struct ledger *ledger)
{
    return ledger->info.lease_life_us == 0 || ledger->by_source[WEIR_BY_LEASE] > 0;
}

/* True if the run may end. On a busy machine it may take longer until a process has a lease. */
static bool is_over(const struct siege *siege, int64_t end_us)
{
    const int64_t time_us = now_us();
    return time_us >= (has_leased(siege->ledger) ? end_us : end_us + PATIENCE_US);
}

/* True if the lab worked and all processes exited normally. */
static bool run(struct siege *siege)
{
    int64_t turn = 0, end_us;
    bool good = true;
    for (int64_t i = 0; i < siege->processes; i++)
        good = process_start(siege, i) && good;
    for (end_us = now_us() + siege->seconds * 1000000; good && !is_over(siege, end_us); turn++) {
        pause_us(siege->turn_us);
        good = siege->scenario->act(siege, turn);
    }
    redis_server_resume(&siege->server);
    /* Before any of them ends: an ending process's LeakSanitizer stops its threads, and a SIGCONT would cancel the
     * SIGSTOP for which it then waits for ever. */
    for (int64_t i = 0; i < siege->processes; i++)
        if (siege->pids[i] > 0)
            kill(siege->pids[i], SIGCONT);
    atomic_store(&siege->ledger->over, true);
    for (int64_t i = 0; i < siege->processes; i++) {
        int status = 1;
        if (siege->pids[i] > 0)
            waitpid(siege->pids[i], &status, 0);
        good = status == 0 && good;
    }
    printf("turns %" PRId64 "\nlosses %" PRId64 "\n", turn, siege->losses);
    return good;
}

/* ---- Results ---- */

/* Return the size of a fresh key under the policy. */
static int64_t size_of(const struct weir_policy *policy)
{
    if (policy->algorithm == WEIR_LEAKY_BUCKET)
        return policy->capacity ? policy->capacity : policy->limit;
    return (policy->burst ? policy->burst : policy->limit) + policy->debt;
}

/* Return the largest excess in permits; below 0 if there is none or it is not known. */
static double most_over(const struct weir_policy *policy, struct admit *admits, size_t n)
{
    int64_t size = size_of(policy);
    if (policy->algorithm == WEIR_SLIDING_WINDOW)
        return (double)(envelope_stretch(admits, n, policy->period_us) - size);
    if (policy->algorithm == WEIR_FIXED_WINDOW || policy->refill == WEIR_INTERVAL)
        return (double)(envelope_grid(admits, n, policy->period_us) - size);
    return envelope_burst(admits, n, policy->limit, policy->period_us) - (double)size;
}

static void report_counts(const struct siege *siege)
{
    static const char *const names[SOURCES] = { "memory", "full",   "backend",   "redis",      "lease",
                                                "denial", "outage", "fail_open", "fail_closed" };
    uint64_t calls = 0, outages = 0, lost = 0, settled = 0, unsettled = 0;
    for (int i = 0; i < SOURCES; i++)
        if (siege->ledger->by_source[i] > 0)
            printf("by_%s %" PRId64 "\n", names[i], (int64_t)siege->ledger->by_source[i]);
    for (int64_t i = 0; i < siege->processes; i++) {
        calls += siege->ledger->stats[i].store_calls;
        outages += siege->ledger->stats[i].outages;
        lost += siege->ledger->stats[i].lease_lost;
        settled += siege->ledger->stats[i].settled;
        unsettled += siege->ledger->stats[i].unsettled;
    }
    printf("longest_call_us %" PRId64 "\nstore_calls %" PRIu64 "\nlease_lost %" PRIu64 "\noutages %" PRIu64
           "\nsettled %" PRIu64 "\nunsettled %" PRIu64 "\n",
           (int64_t)siege->ledger->longest_us, calls, lost, outages, settled, unsettled);
}

/* Collect the admissions of a key, all or only those in outages; return their number. */
static size_t admits_of(const struct siege *siege, int64_t logged, int64_t key, bool by_outage_only,
                        struct admit *admits)
{
    size_t n = 0;
    for (int64_t i = 0; i < logged; i++) {
        const struct admitted *admitted = &siege->ledger->log[i];
        if (admitted->start_us != 0 && admitted->key == key && (admitted->by_outage || !by_outage_only))
            admits[n++] = (struct admit){ admitted->start_us, admitted->start_us + admitted->took_us, 1 };
    }
    return n;
}

/* True if all keys, each of which has the whole limit, were used enough. *worst is the excess without what outages
 * explain; there is one outage a turn. */
static bool report_keys(const struct siege *siege, int64_t logged, double *worst)
{
    struct admit *admits = malloc((size_t)(logged + 1) * sizeof *admits);
    double rate = (double)siege->policy.limit / (double)siege->policy.period_us;
    bool used = true;
    *worst = -INFINITY;
    for (int64_t key = 0; key < siege->keys && admits != NULL; key++) {
        size_t n = admits_of(siege, logged, key, true, admits);
        int64_t in_outage = n > 0 ? envelope_stretch(admits, n, siege->turn_us) : 0;
        n = admits_of(siege, logged, key, false, admits);
        double over = most_over(&siege->policy, admits, n);
        double share = (double)n / fmin(rate * (double)siege->seconds * 1e6 + (double)size_of(&siege->policy),
                                        (double)siege->ledger->asked[key]);
        printf("key-%" PRId64 " admitted %zu, of what there was %.3f, over %.3f, most in an outage %" PRId64 "\n", key,
               n, share, over, in_outage);
        used = used && share >= LEAST_USED;
        *worst = over - (double)in_outage > *worst ? over - (double)in_outage : *worst;
    }
    free(admits);
    return admits != NULL && used;
}

static bool report(const struct siege *siege)
{
    const struct ledger *ledger = siege->ledger;
    int64_t logged = ledger->logged < siege->room ? ledger->logged : siege->room, late = ledger->late_leases;
    int64_t allowance = ledger->info.over_max + siege->losses * size_of(&siege->policy);
    double worst;
    bool used = report_keys(siege, logged, &worst);
    report_counts(siege);
    printf("denied %" PRId64 "\nlease_max %" PRId64 "\nover_max %" PRId64 "\nallowance %" PRId64 "\nworst_over %.3f\n",
           (int64_t)ledger->denied, ledger->info.lease_max, ledger->info.over_max, allowance, worst);
    const struct {
        const char *what;
        bool failed;
    } verdicts[] = {
        { "more was admitted than is promised", worst > (double)allowance + 1e-3 }, /* rounding of doubles */
        { "more was admitted than could be written down", ledger->logged > siege->room },
        { "calls ended in errors", ledger->errors > 0 },
        { "leases were used after their life", late > 0 },
        { "hardly anything was used", !used },
        { "nothing was leased", !has_leased(ledger) },
    };
    bool good = true;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        if (verdicts[i].failed)
            printf("FAILED: %s\n", verdicts[i].what);
        good = good && !verdicts[i].failed;
    }
    return good;
}

/* ---- Arguments ---- */

static const char usage[] =
    "usage: audit_faults [--scenario NAME] [--policy TEXT] [--seconds N] [--procs N] [--threads N] [--keys N]\n"
    "                    [--lease-life-us N] [--timeout-us N] [--turn-us N] [--strict]\n"
    "Scenarios: steady, kill, freeze (of processes), stop-redis, restart-redis, restart-redis-that-keeps, flush:\n"
    "something happens each turn.\n"
    "Windows, and buckets that refill by intervals, can be audited only with align=epoch, burst and limit alike.\n";

static bool can_be_audited(const struct weir_policy *policy)
{
    bool on_grid = policy->align == WEIR_ALIGN_EPOCH && size_of(policy) == policy->limit;
    if (policy->algorithm == WEIR_TOKEN_BUCKET)
        return policy->refill == WEIR_GREEDY || on_grid;
    return policy->algorithm != WEIR_FIXED_WINDOW || on_grid;
}

static bool read_arguments(int argc, char **argv, struct siege *siege)
{
    static const struct option options[] = {
        { "seconds", required_argument, NULL, 0 },
        { "procs", required_argument, NULL, 1 },
        { "threads", required_argument, NULL, 2 },
        { "keys", required_argument, NULL, 3 },
        { "lease-life-us", required_argument, NULL, 4 },
        { "timeout-us", required_argument, NULL, 5 },
        { "turn-us", required_argument, NULL, 6 },
        { "scenario", required_argument, NULL, 's' },
        { "policy", required_argument, NULL, 'p' },
        { "strict", no_argument, NULL, 't' },
        { NULL, 0, NULL, 0 },
    };
    int64_t *const numbers[] = { &siege->seconds,       &siege->processes,  &siege->threads, &siege->keys,
                                 &siege->lease_life_us, &siege->timeout_us, &siege->turn_us };
    char message[200] = "";
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        char *end = NULL;
        switch (option) {
        case '?': return false;
        case 't': siege->strict = true; break;
        case 's':
            siege->scenario = NULL;
            for (int i = 0; i < SCENARIOS; i++)
                if (strcmp(scenarios[i].name, optarg) == 0)
                    siege->scenario = &scenarios[i];
            break;
        case 'p':
            if (weir_policy_parse(optarg, &siege->policy, message, sizeof message) != WEIR_OK) {
                fprintf(stderr, "audit_faults: %s\n", message);
                return false;
            }
            break;
        default:
            *numbers[option] = strtoll(optarg, &end, 10);
            if (end == optarg || *end != '\0' || *numbers[option] < 1)
                return false;
        }
    }
    if (siege->scenario != NULL && siege->turn_us == 0)
        siege->turn_us = siege->scenario->turn_us;
    return optind == argc && siege->scenario != NULL && siege->processes <= PROCESSES_MOST &&
           siege->threads <= THREADS_MOST && siege->seconds <= 86400 && siege->keys <= KEYS_MOST &&
           can_be_audited(&siege->policy);
}

/* Room for twice what the limit gives, with a loss of Redis' counts each half second. */
static bool make_ledger(struct siege *siege)
{
    double rate = (double)siege->policy.limit / (double)siege->policy.period_us;
    const double seconds = (double)siege->seconds + PATIENCE_US / 1e6;
    double most = (double)siege->keys * 2 *
                  (rate * seconds * 1e6 + (2 * seconds + 2) * (double)(size_of(&siege->policy) + siege->policy.limit));
    siege->room = most < (double)LOG_MOST ? (int64_t)most : LOG_MOST;
    siege->ledger = mmap(NULL, sizeof *siege->ledger + (size_t)siege->room * sizeof(struct admitted),
                         PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return siege->ledger != MAP_FAILED;
}

int main(int argc, char **argv)
{
    static const char *const keeping[] = { "--appendonly", "yes", "--appendfsync", "always", NULL };
    struct siege siege = { .scenario = &scenarios[0],
                           .policy = { .limit = 1000, .period_us = WEIR_SECOND, .burst = 500 },
                           .seconds = 3,
                           .processes = 8,
                           .threads = 4,
                           .keys = 2,
                           .lease_life_us = 100000,
                           .timeout_us = 20000 };
    if (!read_arguments(argc, argv, &siege)) {
        fputs(usage, stderr);
        return 2;
    }
    if (redis_server_missing())
        return 77;
    if (!make_ledger(&siege) ||
        redis_server_start(&siege.server, REDIS_SERVER_UNIX, siege.scenario->keeps ? keeping : NULL) != 0) {
        fprintf(stderr, "audit_faults: no shared memory, or no server: %s\n", siege.server.daemon.error);
        return 1;
    }
    bool good = run(&siege);
    if (!good)
        printf("FAILED: the lab, or a process: %s\n", siege.server.daemon.error);
    redis_server_stop(&siege.server);
    good = report(&siege) && good;
    return good ? 0 : 1;
}
