/* test_faults_late.c - processes that are cut off from Redis again and again: fault H11 of tests/tools/faults.conf.
 *
 * Four processes ask for far more than the limit. Some of them, or all, reach Redis through a proxy that closes its
 * door. If some do, these add their share of one outage, however many outages there are. If all do, the key lies idle
 * in Redis, so each outage admits anew. An outage lasts until all of them have had enough answers without Redis, and
 * ends when all have had one from Redis: the test measures how long that took. The excess is taken from the times of
 * the calls alone, so it is real.
 */
#include "redis_place.h"

#include "core/ground/clock.h"
#include "envelope.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROCESSES = 4,
    RATE = 50,
    BURST = 10, /* refills in a fifth of a second */
    CUTS = 8,
    DENIALS = 100, /* without Redis, before a cut ends: about half a second */
    FIRST = 6,     /* permits that each process takes without Redis in the first cut */
    ADMITS_MOST = 100000,
    PATIENT_US = 10 * 1000 * 1000 /* so that a busy machine causes no fault */
};

struct seat {
    _Atomic int by_redis, denied_alone, admitted_alone, count;
    struct admit admits[ADMITS_MOST];
};

struct table {
    atomic_bool is_open, stop; /* release: urls */
    char urls[PROCESSES][256];
    struct seat seats[PROCESSES];
};

static const char *const bucket = "token_bucket limit=50 period=1s burst=10";
static const char *const window = "fixed_window limit=10 period=200ms";

static void sit(const struct weir_options *options, const char *policy, struct table *table, struct seat *seat)
{
    LIMITER(limiter, options);
    weir_limit *limit = limit_of(limiter, "late", policy);
    while (!atomic_load(&table->stop) && atomic_load(&seat->count) < ADMITS_MOST) {
        const int64_t start_us = clock_monotonic_us();
        const struct weir_decision decision = taken(limit, "key", 1);
        const int place = atomic_load(&seat->count);
        if (decision.allowed) {
            seat->admits[place] = (struct admit){ start_us, clock_monotonic_us(), 1 };
            atomic_store(&seat->count, place + 1);
        }
        if (decision.source == WEIR_BY_FALLBACK)
            atomic_fetch_add(decision.allowed ? &seat->admitted_alone : &seat->denied_alone, 1);
        else
            atomic_fetch_add(&seat->by_redis, 1);
        sleep_us(5000);
    }
}

/* Start a process before there are any threads: a process forked while another thread allocates memory may never get
 * any, with a sanitizer. It waits for its URL. */
static pid_t seat_start(struct table *table, const char *policy, int rank)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    fflush(NULL);
    const pid_t pid = fork();
    must(pid >= 0, "a process");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&table->is_open))
        sleep_us(1000);
    options.mode = WEIR_DISTRIBUTED;
    options.redis_url = table->urls[rank];
    options.timeout_us = PATIENT_US;
    options.outage_cold = true;
    options.instances = PROCESSES;
    options.rank = rank;
    options.quiet = true;
    sit(&options, policy, table, &table->seats[rank]);
    _exit(0);
}

/* Wait until a counter of each of the first `late` processes has grown by `by`. */
static void await_each(struct table *table, int late, size_t counter, int by)
{
    int before[PROCESSES];
    for (int i = 0; i < late; i++)
        before[i] = atomic_load((_Atomic int *)(void *)((char *)&table->seats[i] + counter));
    for (int i = 0; i < late; i++)
        while (atomic_load((_Atomic int *)(void *)((char *)&table->seats[i] + counter)) < before[i] + by)
            sleep_us(1000);
}

/* Cut the late processes off and let them return. Return how long that took. */
static int64_t cut(struct place *place, struct table *table, int late, bool is_first)
{
    const int64_t began_us = clock_monotonic_us();
    fproxy_door(place->proxy, FPROXY_REFUSE);
    fproxy_cut(place->proxy, true);
    if (is_first)
        await_each(table, late, offsetof(struct seat, admitted_alone), FIRST);
    await_each(table, late, offsetof(struct seat, denied_alone), DENIALS);
    fproxy_door(place->proxy, FPROXY_OPEN);
    await_each(table, late, offsetof(struct seat, by_redis), 20);
    return clock_monotonic_us() - began_us;
}

/* Return the highest level of an unlimited meter over all that was admitted. */
static double burst_of(const struct table *table)
{
    size_t n = 0;
    struct admit *admits = calloc((size_t)PROCESSES * ADMITS_MOST, sizeof *admits);
    must(admits != NULL, "memory");
    for (int i = 0; i < PROCESSES; i++)
        for (int k = 0; k < atomic_load(&table->seats[i].count); k++)
            admits[n++] = table->seats[i].admits[k];
    const double burst = envelope_burst(admits, n, RATE, WEIR_SECOND);
    free(admits);
    return burst;
}

/* Return how many permits all processes have taken without Redis. */
static int taken_alone(struct table *table)
{
    int count = 0;
    for (int i = 0; i < PROCESSES; i++)
        count += atomic_load(&table->seats[i].admitted_alone);
    return count;
}

/* Cut the first `late` processes off again and again. The limit alone admits up to `at_once` permits at once. Return
 * how many permits were taken without Redis after the first cut. */
static int cut_again_and_again(const char *policy, int at_once, int late)
{
    struct table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[PROCESSES];
    int64_t longest_us = 0;
    int status, first = 0;
    must(table != MAP_FAILED, "memory");
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = seat_start(table, policy, i);
    PLACE(place, true, NULL);
    for (int i = 0; i < PROCESSES; i++)
        snprintf(table->urls[i], sizeof table->urls[i], "%s", i < late ? place.proxy_url : place.server.url);
    atomic_store(&table->is_open, true);
    await_each(table, PROCESSES, offsetof(struct seat, by_redis), 20);
    for (int i = 0; i < CUTS; i++) {
        const int64_t lasted_us = cut(&place, table, late, i == 0);
        longest_us = lasted_us > longest_us ? lasted_us : longest_us;
        if (i == 0)
            first = taken_alone(table);
    }
    atomic_store(&table->stop, true);
    for (int i = 0; i < PROCESSES; i++)
        must(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "a process that ends well");

    const double burst = burst_of(table);
    const double one = (double)longest_us / WEIR_SECOND * RATE * late / PROCESSES;
    const int again = taken_alone(table) - first;
    printf(
        "%d of %d cut off %d times for %.2f s at most: %.1f permits at once, of %d and %.1f in one outage; %d without "
        "Redis the first time, and %d more\n",
        late, PROCESSES, CUTS, (double)longest_us / WEIR_SECOND, burst, at_once, one, first, again);
    ck_assert_int_ge(first, FIRST * late);
    ck_assert(burst >= BURST);
    ck_assert(burst <= at_once + one + 1);
    munmap(table, sizeof *table);
    asker_close(&place.asker);
    return again;
}

TEST(instances_cut_off_repeatedly_add_their_share_of_a_single_outage, 120)
{
    cut_again_and_again(bucket, BURST, PROCESSES / 2);
}

/* Two windows may meet. */
TEST(windows_add_their_share_of_a_single_outage_too, 120)
{
    cut_again_and_again(window, 2 * BURST, PROCESSES / 2);
}

/* Each cut admits about 15; a rule that does not see the key idle admits next to nothing from the second cut on. */
TEST(repeated_outages_of_all_instances_admit_permits_each_time, 120)
{
    ck_assert_int_ge(cut_again_and_again(bucket, BURST, PROCESSES), (CUTS - 1) * PROCESSES);
}
