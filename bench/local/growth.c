/* growth.c - how long single inserts take while a limiter grows from nothing, next to a bare growing uthash table.
 *
 * Each run is a child process. The fenced timer measures every insert; the thread's processor time is read between
 * inserts, outside the timed interval. If an insert took long by the clock but little processor time, the scheduler or
 * the host held it up. If it took processor time but little time by the clock, the time passed between two inserts, in
 * this program's bookkeeping or the host's. So an insert's stall is the smaller of the two. A page fault for a fresh
 * page counts. The goal bounds the longest stall.
 *
 * An insert in which the thread slept is counted in addition, by the clock. This limiter never sleeps, but the kernel
 * lets threads sleep that touch memory while it copies this to a huge page, or that need its lists of memory then.
 *
 * On a virtual machine a fresh page can cost milliseconds, because the host has to find it. Each run therefore first
 * touches and returns as much memory; the host then has it at hand unless it takes it away again. Two more rows show
 * the remaining cost of fresh memory: the same memory, touched in the same order and nothing else, once on huge pages
 * and once on small ones. No limiter that uses such pages can stall for less.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <uthash.h>

#include "local/sections.h"
#include "measure/hist.h"
#include "measure/pages.h"
#include "measure/timer.h"

#define RUNS 3
#define WARM_BYTES_PER_KEY 160 /* more than any of the tables needs */
#define SMALLEST_PAGE 4096
#define SLEEP_NS 100000 /* a sleep in a shorter insert is not looked for */
#define GOAL_MS 0.5

struct growth { /* one run */
    uint64_t keys;
    struct hist ticks;
    uint64_t worst_at;       /* the number of keys before the longest insert */
    int64_t worst_spent_ns;  /* that insert's processor time */
    int64_t stall_ns;        /* the longest of all inserts, see above */
    int64_t sleep_ns;        /* the longest in which the thread slept */
    uint64_t overhead_ticks; /* of an empty interval; processor time is not corrected */
};

typedef void insert_function(void *table, uint64_t index);

static long times_slept(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void growth_run(struct growth *growth, insert_function *insert, void *table)
{
    double tick_ns = timer_tick_ns();
    growth->overhead_ticks = timer_overhead_ticks();
    int64_t spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    long slept = times_slept();
    for (uint64_t i = 0; i < growth->keys; i++) {
        uint64_t start = timer_start();
        insert(table, i);
        uint64_t ticks = timer_end() - start;
        int64_t now_spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (ticks > growth->ticks.max) {
            growth->worst_at = i;
            growth->worst_spent_ns = now_spent_ns - spent_ns;
        }
        int64_t took_ns = (int64_t)((double)ticks * tick_ns);
        int64_t stall_ns = took_ns < now_spent_ns - spent_ns ? took_ns : now_spent_ns - spent_ns;
        if (stall_ns > growth->stall_ns)
            growth->stall_ns = stall_ns;
        if (took_ns > SLEEP_NS && times_slept() > slept) {
            growth->sleep_ns = took_ns > growth->sleep_ns ? took_ns : growth->sleep_ns;
            slept = times_slept();
        }
        spent_ns = now_spent_ns;
        hist_add(&growth->ticks, ticks);
    }
}

/* ---- weir ---- */

static void insert_weir(void *table, uint64_t index)
{
    struct subject *subject = table;
    struct weir_decision decision;
    struct bench_key key;
    key_write(index, &key);
    int status = weir_try(subject->limit, weir_key(&key, KEY_LEN), SUBJECT_FILL, &decision);
    if (status != WEIR_OK)
        bench_fail("weir_try: %s", weir_strerror(status));
}

static void grow_weir(void *shared)
{
    struct growth *growth = shared;
    struct subject subject;
    subject_open(&subject, KIND_TOKEN, ANSWER_ALLOW, growth->keys);
    growth_run(growth, insert_weir, &subject);
    subject_finish(&subject, growth->keys);
}

/* ---- one bare table ---- */

struct node {
    UT_hash_handle hh;
    struct bench_key key;
    char state[24];
};

struct bare {
    struct node *nodes, *slab;
};

static void insert_bare(void *table, uint64_t index)
{
    struct bare *bare = table;
    struct node *node = &bare->slab[index];
    key_write(index, &node->key);
    HASH_ADD(hh, bare->nodes, key, KEY_LEN, node);
}

static void grow_bare(void *shared)
{
    struct growth *growth = shared;
    struct bare bare = { .slab = pages_map(growth->keys * sizeof(struct node)) };
    growth_run(growth, insert_bare, &bare);
}

/* ---- no table: fresh memory alone ---- */

static void insert_touch(void *table, uint64_t index)
{
    volatile char *state = ((struct node *)table)[index].state;
    *state = 1;
}

static void touch_huge(void *shared)
{
    struct growth *growth = shared;
    growth_run(growth, insert_touch, pages_map(growth->keys * sizeof(struct node)));
}

static void touch_small(void *shared)
{
    struct growth *growth = shared;
    void *pages = pages_map(growth->keys * sizeof(struct node));
    pages_keep_small(pages, growth->keys * sizeof(struct node));
    growth_run(growth, insert_touch, pages);
}

/* ---- The section ---- */

static void warm_memory(size_t size)
{
    volatile char *pages = pages_map(size);
    for (size_t i = 0; i < size; i += SMALLEST_PAGE)
        pages[i] = 1;
    pages_unmap((void *)pages, size);
}

enum { TABLE_WEIR, TABLE_BARE, TABLE_HUGE, TABLE_SMALL, TABLES_LEN };

static const struct {
    const char *name;
    void (*grow)(void *shared);
} TABLES[TABLES_LEN] = {
    [TABLE_WEIR] = { "weir", grow_weir },
    [TABLE_BARE] = { "bare uthash", grow_bare },
    [TABLE_HUGE] = { "fresh memory, huge pages", touch_huge },
    [TABLE_SMALL] = { "fresh memory, small pages", touch_small },
};

static double stall_ms(const struct growth *growth)
{
    return (double)growth->stall_ns / 1e6;
}

/* Run one table. The result is valid until the next call. */
static const struct growth *run_table(uint64_t keys, int run, int table)
{
    static struct growth growth;
    timer_tick_ns(); /* calibrate once; the children inherit it */
    bench_progress("growth: %llu keys, run %d, %s", (unsigned long long)keys, run, TABLES[table].name);
    growth = (struct growth){ .keys = keys };
    warm_memory(keys * WARM_BYTES_PER_KEY);
    bench_in_child(TABLES[table].grow, &growth, sizeof growth);
    return &growth;
}

void growth_measure(uint64_t keys, int runs, struct sample *weir_ms, struct sample *memory_ms)
{
    weir_ms->n = memory_ms->n = 0;
    for (int run = 1; run <= runs; run++) {
        sample_add(weir_ms, stall_ms(run_table(keys, run, TABLE_WEIR)));
        sample_add(memory_ms, stall_ms(run_table(keys, run, TABLE_SMALL)));
    }
}

static void report_growth(struct bench *bench, const char *table, int run, const struct growth *growth)
{
    static const double quantiles[] = { 0.5, 0.99, 0.999, 0.9999 };
    static const char *const names[] = { "p50 ns", "p99 ns", "p99.9 ns", "p99.99 ns" };
    double tick_ns = timer_tick_ns();
    report_row(bench->report);
    report_text(bench->report, "table", table);
    report_count(bench->report, "keys", growth->keys);
    report_count(bench->report, "run", (uint64_t)run);
    for (int i = 0; i < 4; i++) {
        double net = hist_quantile(&growth->ticks, quantiles[i]) - (double)growth->overhead_ticks;
        report_number(bench->report, names[i], net > 0 ? net * tick_ns : 0);
    }
    report_number(bench->report, "worst ms", (double)growth->ticks.max * tick_ns / 1e6);
    report_count(bench->report, "at key", growth->worst_at);
    report_number(bench->report, "its cpu ms", (double)growth->worst_spent_ns / 1e6);
    report_number(bench->report, "stall ms", stall_ms(growth));
    report_number(bench->report, "asleep ms", (double)growth->sleep_ns / 1e6);
}

void bench_growth(struct bench *bench)
{
    uint64_t keys = bench->thorough ? 10000000 : 1000000;
    struct sample worst_ms = { 0 };
    double longest_ms = 0;
    keys = bench_largest_keys(bench, bench->extent == EXTENT_QUICK ? 100000 : keys);
    report_section(
        bench->report, "growth",
        "inserts of new keys, 0 to all, token bucket; worst: the longest insert by the clock and the "
        "processor time of that same insert; stall: the longest of all inserts, by the smaller of the two; asleep: the "
        "longest by the clock in which the thread slept");
    for (int run = 1; run <= RUNS; run++) {
        for (int i = 0; i < TABLES_LEN; i++) {
            const struct growth *growth = run_table(keys, run, i);
            report_growth(bench, TABLES[i].name, run, growth);
            if (i == TABLE_WEIR)
                longest_ms = fmax(longest_ms, stall_ms(growth));
        }
    }
    sample_add(&worst_ms, longest_ms); /* a worst case, not a median */
    report_row(bench->report);
    report_text(bench->report, "table", "weir, all runs");
    report_count(bench->report, "keys", keys);
    report_number(bench->report, "stall ms", longest_ms);
    report_goal(bench->report, "longest stall of an insert while growing, all runs, ms", &worst_ms, AT_MOST, GOAL_MS);
    report_end_section(bench->report);
}
