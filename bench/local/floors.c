/* floors.c - what the parts of a decision cost on this machine by themselves: clocks, locks, hashes, a table lookup.
 *
 * Each operation runs back to back, so those that do not depend on one another may overlap, as they may in a loop of
 * decisions. The bare table is one uthash table with its default hash and growth, found with HASH_FIND, entries of 96
 * bytes packed into one slab.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "bench.h"
#include "local/sections.h"
#include "measure/pages.h"
#include "measure/timer.h"

#define FLOOR_SECONDS_SHARE 0.5 /* of a cell's time: these are steadier than decisions */

static volatile uint64_t sink; /* keeps results alive */

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

/* What a decision reads: the system's clock, or what is counted on from it. */
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
        atomic_fetch_add_explicit(&shared.number, 1, memory_order_relaxed); /* its cost is all that matters */
    return 0;
}

/* ---- A keyed hash ---- */

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein, 2012) of the 16 bytes in `words`, keyed by `secret`. */
static inline uint64_t sip_hash(const uint64_t secret[2], const uint64_t words[2])
{
    uint64_t v[4] = { secret[0] ^ UINT64_C(0x736f6d6570736575), secret[1] ^ UINT64_C(0x646f72616e646f6d),
                      secret[0] ^ UINT64_C(0x6c7967656e657261), secret[1] ^ UINT64_C(0x7465646279746573) };
    uint64_t blocks[3] = { words[0], words[1], (uint64_t)KEY_LEN << 56 };
    for (int i = 0; i < 3; i++) {
        v[3] ^= blocks[i];
        sip_round(v);
        v[0] ^= blocks[i];
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t work_hash(void *subject, const struct bench_key *draws, size_t n)
{
    uint64_t sum = 0, words[2];
    for (size_t i = 0; i < n; i++) {
        memcpy(words, &draws[i], sizeof words);
        sum += sip_hash(subject, words);
    }
    sink = sum;
    return 0;
}

static uint64_t work_hash_chained(void *subject, const struct bench_key *draws, size_t n)
{
    uint64_t last = 0, words[2];
    for (size_t i = 0; i < n; i++) {
        memcpy(words, &draws[i], sizeof words);
        words[0] ^= last;
        last = sip_hash(subject, words);
    }
    sink = last;
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

/* ---- All that a decision in this process was made of, if it were made of the system's parts ---- */

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
    static uint64_t secret[2] = { UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908) };
    struct stream stream;
    struct subject limiter;
    stream_make(&stream, 1000, SKEW_UNIFORM);
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
        "SipHash-1-3 of 16 bytes",
        "SipHash-1-3 of 16 bytes, each needs the last",
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
        { .work = work_hash, .subject = secret, .stream = &stream, .threads = 1 },
        { .work = work_hash_chained, .subject = secret, .stream = &stream, .threads = 1 },
    };
    int n = (int)(sizeof cells / sizeof cells[0]);
    bench_progress("floors: clocks, locks, hashes");
    measure_cells(cells, n, bench->repeats, bench->seconds * FLOOR_SECONDS_SHARE);
    for (int i = 0; i < n; i++)
        report_floor(bench, names[i], &cells[i]);
    subject_close(&limiter);
    stream_free(&stream);
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
                   "what the parts of a decision cost by themselves; ns per operation, median (min..max)");
    measure_primitives(bench);
    measure_table(bench, 1000);
    measure_table(bench, bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : 1000000));
    report_end_section(bench->report);
}
