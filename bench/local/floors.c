/* floors.c - what the parts of a decision cost on this machine: clocks, locks, a table lookup.
 *
 * Each operation runs back to back, so independent ones may overlap, as they may in a loop of decisions. The bare table
 * is one uthash table with its default hash and growth, and entries of 96 bytes packed into one slab.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

#include "bench.h"
#include "local/sections.h"
#include "measure/pages.h"
#include "measure/timer.h"

#define FLOOR_SECONDS_SHARE 0.5 /* of a cell's time: these figures vary less than decisions */

static volatile uint64_t sink; /* stops the compiler from removing the work */

/* ---- Clocks, locks, one shared number ---- */

static uint64_t work_clock(void *subject, const struct bench_key *draws, size_t n)
{
    clockid_t clock = *(clockid_t *)subject;
    struct timespec now;
    (void)draws;
    for (size_t i = 0; i < n; i++)
        clock_gettime(clock, &now);
    return 0;
}

#if defined(__x86_64__)
static uint64_t work_counter(void *subject, const struct bench_key *draws, size_t n)
{
    (void)subject, (void)draws;
    for (size_t i = 0; i < n; i++)
        sink = __builtin_ia32_rdtsc();
    return 0;
}
#endif

/* Read the clock as a decision does: the system's, or the counter that continues it. */
static uint64_t work_limiters_clock(void *subject, const struct bench_key *draws, size_t n)
{
    int64_t now_us = 0;
    (void)draws;
    for (size_t i = 0; i < n; i++)
        weir_clock(subject, &now_us);
    sink = (uint64_t)now_us;
    return 0;
}

static struct {
    _Alignas(128) pthread_mutex_t mutex;
    _Alignas(128) _Atomic uint64_t number;
} shared = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static uint64_t work_mutex(void *subject, const struct bench_key *draws, size_t n)
{
    (void)draws;
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(subject);
        pthread_mutex_unlock(subject);
    }
    return 0;
}

static uint64_t work_add(void *subject, const struct bench_key *draws, size_t n)
{
    (void)subject, (void)draws;
    for (size_t i = 0; i < n; i++)
        atomic_fetch_add_explicit(&shared.number, 1, memory_order_relaxed); /* only the cost matters */
    return 0;
}

/* ---- A bare table ---- */

struct node {
    UT_hash_handle hh;
    struct bench_key key;
    char state[24];
};

struct table {
    struct node *nodes, *slab;
    uint64_t keys;
};

static void table_make(struct table *table, uint64_t keys)
{
    table->nodes = NULL;
    table->keys = keys;
    table->slab = pages_map(keys * sizeof(struct node));
    for (uint64_t i = 0; i < keys; i++) {
        struct node *node = &table->slab[i];
        key_write(i, &node->key);
        HASH_ADD(hh, table->nodes, key, KEY_LEN, node);
    }
}

static void table_free(struct table *table)
{
    HASH_CLEAR(hh, table->nodes);
    pages_unmap(table->slab, table->keys * sizeof(struct node));
}

static uint64_t work_find(void *subject, const struct bench_key *draws, size_t n)
{
    const struct table *table = subject;
    struct node *node;
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        HASH_FIND(hh, table->nodes, &draws[i], KEY_LEN, node);
        found += node != NULL;
    }
    return found;
}

/* ---- A whole decision, made of the system's parts ---- */

struct table *floors_table_open(uint64_t keys)
{
    struct table *table = bench_allocate(1, sizeof *table);
    table_make(table, keys);
    return table;
}

void floors_table_close(struct table *table)
{
    table_free(table);
    free(table);
}

uint64_t floors_work(void *subject, const struct bench_key *draws, size_t n)
{
    const struct table *table = subject;
    struct timespec now;
    struct node *node;
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        clock_gettime(CLOCK_BOOTTIME, &now);
        pthread_mutex_lock(&shared.mutex);
        HASH_FIND(hh, table->nodes, &draws[i], KEY_LEN, node);
        found += node != NULL;
        pthread_mutex_unlock(&shared.mutex);
    }
    return found;
}

/* ---- The section ---- */

static void report_floor(struct bench *bench, const char *what, const struct cell *cell)
{
    report_row(bench->report);
    report_text(bench->report, "operation", what);
    report_count(bench->report, "threads", (uint64_t)cell->threads);
    report_sample(bench->report, "ns", &cell->ns);
}

static void measure_primitives(struct bench *bench)
{
    static clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_COARSE };
    struct subject limiter;
    subject_open(&limiter, KIND_TOKEN, ANSWER_ALLOW, 1000);
    static const char *const names[] = {
        "clock_gettime MONOTONIC",
        "clock_gettime BOOTTIME",
        "clock_gettime MONOTONIC_COARSE",
        "weir_clock",
#if defined(__x86_64__)
        "time stamp counter",
#endif
        "mutex lock + unlock",
        "mutex lock + unlock, contended",
        "fetch_add",
        "fetch_add, contended",
    };
    struct cell cells[] = {
        { .work = work_clock, .subject = &clocks[0], .threads = 1 },
        { .work = work_clock, .subject = &clocks[1], .threads = 1 },
        { .work = work_clock, .subject = &clocks[2], .threads = 1 },
        { .work = work_limiters_clock, .subject = limiter.weir, .threads = 1 },
#if defined(__x86_64__)
        { .work = work_counter, .threads = 1 },
#endif
        { .work = work_mutex, .subject = &shared.mutex, .threads = 1 },
        { .work = work_mutex, .subject = &shared.mutex, .threads = 2 },
        { .work = work_add, .threads = 1 },
        { .work = work_add, .threads = 2 },
    };
    int n = (int)(sizeof cells / sizeof cells[0]);
    bench_progress("floors: clocks and locks");
    measure_cells(cells, n, bench->repeats, bench->seconds * FLOOR_SECONDS_SHARE);
    for (int i = 0; i < n; i++)
        report_floor(bench, names[i], &cells[i]);
    subject_close(&limiter);
}

static void measure_table(struct bench *bench, uint64_t keys)
{
    struct table table;
    struct stream streams[2];
    bench_progress("floors: a bare uthash table of %llu keys", (unsigned long long)keys);
    table_make(&table, keys);
    stream_make(&streams[0], keys, SKEW_ZIPF);
    stream_make(&streams[1], keys, SKEW_UNIFORM);
    struct cell cells[2] = {
        { .work = work_find, .subject = &table, .stream = &streams[0], .threads = 1 },
        { .work = work_find, .subject = &table, .stream = &streams[1], .threads = 1 },
    };
    measure_cells(cells, 2, bench->repeats, bench->seconds * FLOOR_SECONDS_SHARE);
    for (int i = 0; i < 2; i++) {
        char what[64];
        snprintf(what, sizeof what, "uthash find, %llu keys %s", (unsigned long long)keys,
                 skew_name(i == 0 ? SKEW_ZIPF : SKEW_UNIFORM));
        report_floor(bench, what, &cells[i]);
        stream_free(&streams[i]);
    }
    table_free(&table);
}

void bench_floors(struct bench *bench)
{
    report_section(bench->report, "floors",
                   "what the parts of a decision cost alone; ns per operation, median (min..max)");
    measure_primitives(bench);
    measure_table(bench, 1000);
    measure_table(bench, bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000));
    report_end_section(bench->report);
}
