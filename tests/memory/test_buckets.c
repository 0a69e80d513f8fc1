/* test_buckets.c - a shard's buckets come into use a few at a time, and each key stays in its own. */
#include "support.h"

#include "backends/memory/buckets.h"

#include <stdlib.h>

enum { KEYS = 6000 };

struct key {
    UT_hash_handle hh;
};

struct bench {
    struct buckets buckets;
    struct budget budget;
    UT_hash_table table;
    struct key keys[KEYS];
    struct chance chance;
};

static void bench_close(struct bench *bench)
{
    free(bench->buckets.heads);
}

static void bench_open(struct bench *bench, int64_t max_bytes)
{
    *bench = (struct bench){ .budget.max = max_bytes, .chance = chance_make(0) };
    bench->table.num_buckets = BUCKETS_FIRST;
    bench->table.buckets = calloc(BUCKETS_FIRST, sizeof *bench->table.buckets);
    must(bench->table.buckets != NULL, "there is memory");
    buckets_init(&bench->buckets, &bench->table, &bench->budget);
}

/* Add a key as shard_add() does. Return how many buckets came into use. */
static uint32_t bench_add(struct bench *bench)
{
    struct key *key = &bench->keys[bench->table.num_items++];
    const uint32_t before = bench->buckets.count;
    key->hh.hashv = (unsigned)chance_between(&bench->chance, 0, UINT32_MAX);
    buckets_put(&bench->buckets, &key->hh);
    if (buckets_are_full(&bench->buckets, bench->table.num_items))
        buckets_widen(&bench->buckets, &bench->table, &bench->budget);
    return bench->buckets.count - before;
}

/* Check all buckets: their links and counts, and whose keys they hold. */
static void bench_check(const struct bench *bench)
{
    const struct buckets *buckets = &bench->buckets;
    unsigned items = 0;
    for (uint32_t i = 0; i < buckets->count; i++) {
        const UT_hash_handle *before = NULL;
        unsigned count = 0;
        for (const UT_hash_handle *handle = buckets->heads[i].hh_head; handle; handle = handle->hh_next) {
            must(handle->hh_prev == before, "the links lead back");
            must(buckets_of(buckets, handle->hashv) == &buckets->heads[i], "a lookup finds it");
            before = handle;
            count++;
        }
        ck_assert_uint_eq(buckets->heads[i].count, count);
        items += count;
    }
    for (uint32_t i = buckets->count; i < buckets->room; i++)
        must(buckets->heads[i].hh_head == NULL && buckets->heads[i].count == 0, "empty until it is in use");
    ck_assert_uint_eq(items, bench->table.num_items);
    ck_assert_ptr_eq(bench->table.buckets, buckets->heads);
    ck_assert_uint_eq(bench->table.num_buckets, buckets->count);
    ck_assert_int_eq(budget_used(&bench->budget), (int64_t)(buckets->room * sizeof *buckets->heads));
}

TEST(a_shard_gets_a_few_buckets_at_a_time, 20)
{
    static struct bench bench;
    bench_open(&bench, INT64_C(1) << 20);
    for (int i = 0; i < KEYS; i++) {
        ck_assert_uint_le(bench_add(&bench), BUCKETS_MOST);
        ck_assert(!buckets_are_full(&bench.buckets, bench.table.num_items));
        if (i % 50 == 0)
            bench_check(&bench);
    }
    bench_check(&bench);
    ck_assert_uint_le(bench.buckets.count, KEYS / BUCKETS_KEYS + BUCKETS_MOST);
    ck_assert_uint_le(bench.buckets.room, bench.buckets.count * 5 / 4 + BUCKETS_MOST);
    bench_close(&bench);
}

TEST(without_memory_for_more_buckets_chains_grow_longer, 20)
{
    static struct bench bench;
    bench_open(&bench, 0);
    for (int i = 0; i < KEYS / 2; i++)
        ck_assert_uint_eq(bench_add(&bench), 0);
    bench_check(&bench);
    bench.budget.max = INT64_C(1) << 20;
    for (int i = KEYS / 2; i < KEYS; i++)
        ck_assert_uint_le(bench_add(&bench), BUCKETS_MOST);
    bench_check(&bench);
    ck_assert(!buckets_are_full(&bench.buckets, bench.table.num_items));
    bench_close(&bench);
}

static uint32_t reversed(uint32_t bits)
{
    uint32_t out = 0;
    for (int i = 0; i < 32; i++)
        out |= (bits >> i & 1) << (31 - i);
    return out;
}

/* So debt.c walks. More buckets may come into use meanwhile: behind a bucket, the walk goes on behind all hashes of
 * that bucket, whatever is divided later. */
TEST(buckets_in_the_order_of_their_reversed_numbers_come_once_each, 20)
{
    enum { MOST = 300 };
    for (uint32_t count = 1; count <= MOST; count++) {
        unsigned times[MOST] = { 0 };
        uint64_t from = 0;
        while (from < UINT64_C(1) << 32) {
            const uint32_t number = linear_number(reversed((uint32_t)from), count);
            times[number]++;
            from += (UINT64_C(1) << 32) / linear_parts(number, count);
        }
        for (uint32_t i = 0; i < count; i++)
            ck_assert_uint_eq(times[i], 1);
    }
}
