/* load.c - callers in several threads that request decisions as fast as they are answered: see load.h.
 *
 * A repetition is measured again, as in measure.c, if other programs took more than DISTURBED of a processor and more
 * than DISTURBED_US, the second because the system counts in steps of 10 ms.
 */
#include "redis/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure/hist.h"
#include "measure/timer.h"
#include "redis/user_store.h"

#define DISTURBED 0.1
#define DISTURBED_US 20000

struct caller { /* one thread of one repetition */
    struct load *load;
    pthread_barrier_t *start;
    int thread;
    int64_t time_ns, start_ns, end_ns;
    uint64_t decisions, failed;
    struct hist hist;
};

static struct caller callers[MEASURE_MAX_THREADS]; /* one repetition at a time */

/* Return the processor time of other programs. What else runs next to the user's server is unknown: it may be on any
 * machine. */
static double others_us(const struct store *store, const struct load_cost *cost)
{
    int64_t machine_us = measure_machine_cpu_us();
    if (machine_us < 0 || (store && store->is_users))
        return 0;
    double us = (double)machine_us - cost->client_us;
    if (store)
        us -= cost->server_us;
    return us;
}

struct load_cost load_cost_so_far(const struct store *store, weir *limiter)
{
    struct load_cost cost = { .server_us = store ? (double)store_cpu_us(store) : -1,
                              .client_us = (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e3 };
    struct weir_stats stats = { .size = sizeof stats };
    if (limiter && weir_stats_read(limiter, &stats) == WEIR_OK)
        cost.store_calls = (double)stats.store_calls;
    cost.others_us = others_us(store, &cost);
    return cost;
}

struct load_cost load_cost_since(const struct load_cost *before, const struct store *store, weir *limiter)
{
    const struct load_cost now = load_cost_so_far(store, limiter);
    return (struct load_cost){ .server_us = before->server_us < 0 ? -1 : now.server_us - before->server_us,
                               .client_us = now.client_us - before->client_us,
                               .others_us = now.others_us - before->others_us,
                               .store_calls = now.store_calls - before->store_calls };
}

bool load_was_disturbed(const struct load_cost *cost, double seconds)
{
    return cost->others_us > DISTURBED_US + DISTURBED * seconds * 1e6;
}

static void *call_until_time_is_up(void *argument)
{
    struct caller *caller = argument;
    struct load *load = caller->load;
    const struct stream *stream = load->stream;
    size_t cursor = load->cursors[caller->thread];
    pthread_barrier_wait(caller->start);
    int64_t before_ns = caller->start_ns = clock_ns(CLOCK_MONOTONIC);
    do {
        user_store_heed_interrupt();
        caller->failed += load->call(load->subject, caller->thread, stream->draws + cursor, load->step);
        caller->decisions += load->step;
        cursor = (cursor + load->step) % stream->len;
        caller->end_ns = clock_ns(CLOCK_MONOTONIC);
        hist_add(&caller->hist, (uint64_t)(caller->end_ns - before_ns));
        before_ns = caller->end_ns;
    } while (caller->end_ns - caller->start_ns < caller->time_ns);
    load->cursors[caller->thread] = cursor;
    return NULL;
}

static void load_add_repetition(struct load *load, const struct load_cost *cost)
{
    int64_t start_ns = callers[0].start_ns;
    int64_t end_ns = callers[0].end_ns;
    uint64_t decisions = 0;
    for (int i = 0; i < load->threads; i++) {
        start_ns = callers[i].start_ns < start_ns ? callers[i].start_ns : start_ns;
        end_ns = callers[i].end_ns > end_ns ? callers[i].end_ns : end_ns;
        decisions += callers[i].decisions;
        load->failed += callers[i].failed;
        if (i > 0)
            hist_merge(&callers[0].hist, &callers[i].hist);
    }
    sample_add(&load->ns, (double)(end_ns - start_ns) / (double)decisions);
    sample_add(&load->per_second, (double)decisions * 1e9 / (double)(end_ns - start_ns));
    if (cost->server_us >= 0)
        sample_add(&load->server_us, cost->server_us / (double)decisions);
    if (load->weir)
        sample_add(&load->store_calls, cost->store_calls / (double)decisions);
    sample_add(&load->client_us, cost->client_us / (double)decisions);
    sample_add(&load->p50_us, hist_quantile(&callers[0].hist, 0.5) / 1e3);
    sample_add(&load->p99_us, hist_quantile(&callers[0].hist, 0.99) / 1e3);
}

/* Run one repetition of the load, which fills `callers`. Return the CPU time of both sides and of other programs. */
static struct load_cost run_callers(struct load *load, double seconds, const struct store *store)
{
    pthread_t threads[MEASURE_MAX_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)load->threads + 1);
    for (int i = 0; i < load->threads; i++) {
        callers[i] = (struct caller){ .load = load, .start = &start, .thread = i, .time_ns = (int64_t)(seconds * 1e9) };
        bench_thread(&threads[i], call_until_time_is_up, &callers[i]);
    }
    const struct load_cost before = load_cost_so_far(store, load->weir);
    pthread_barrier_wait(&start);
    for (int i = 0; i < load->threads; i++)
        pthread_join(threads[i], NULL);
    const struct load_cost cost = load_cost_since(&before, store, load->weir);
    pthread_barrier_destroy(&start);
    return cost;
}

/* Run one repetition that counts. */
static void run_load(struct load *load, double seconds, const struct store *store)
{
    if (load->lead_seconds > 0)
        run_callers(load, load->lead_seconds, store);
    struct load_cost cost = run_callers(load, seconds, store);
    for (int attempt = 1; load_was_disturbed(&cost, seconds) && measure_again(attempt); attempt++)
        cost = run_callers(load, seconds, store);
    load->is_disturbed[load->ns.n] = load_was_disturbed(&cost, seconds);
    load->disturbed_len += load->is_disturbed[load->ns.n];
    load_add_repetition(load, &cost);
}

void load_measure(struct load *loads, int n, int repeats, double seconds, const struct store *store)
{
    for (int i = 0; i < n; i++) {
        for (int thread = 0; thread < loads[i].threads; thread++) {
            size_t steps = loads[i].stream->len / STREAM_STEP;
            loads[i].cursors[thread] = steps * (size_t)thread / (size_t)loads[i].threads * STREAM_STEP;
        }
        run_callers(&loads[i], seconds / 4, store);
    }
    for (int repeat = 0; repeat < repeats; repeat++)
        for (int i = 0; i < n; i++)
            run_load(&loads[repeat % 2 == 0 ? i : n - 1 - i], seconds, store);
}

void load_complain(const char *what, const char *why)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        bench_say("%s: %s", what, why);
}
