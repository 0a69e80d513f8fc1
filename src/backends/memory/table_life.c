/* table_life.c - makes and frees all of a table. */
#include "backends/memory/table.h"

#include "core/ground/arith.h"

#include <stdlib.h>

#define LEAST_BYTES_PER_KEY 96 /* bytes that keys are expected to take at least: entries of short ones */

static size_t shard_count_for(int64_t max_keys, int64_t max_bytes)
{
    int64_t keys = min_of(max_keys, max_bytes / 256);
    size_t count = TABLE_MIN_SHARDS;
    while (count < TABLE_MAX_SHARDS && (int64_t)count * TABLE_KEYS_PER_SHARD < keys)
        count *= 2;
    return count;
}

static void table_free_shards(struct table *table, size_t made)
{
    for (size_t i = 0; i < made; i++)
        shard_free(table, &table->shards[i]);
    free(table->soonest_us);
    free(table->sentinels);
    free(table->shards);
    cells_free(&table->cells);
    lock_destroy(&table->soonest_mutex);
    rules_destroy(&table->rules);
    slab_destroy(&table->slab);
}

int table_init(struct table *table, int64_t max_keys, int64_t max_bytes)
{
    size_t count = shard_count_for(max_keys, max_bytes);
    size_t all = count + 1;
    const int64_t for_rules = max_bytes / RULES_SHARE, for_shared = max_bytes / TABLE_SHARED_SHARE;
    *table = (struct table){
        .shard_count = count,
        .max_keys = max_keys,
        .budget.max = max_bytes - for_rules - for_shared,
        .shared.max = for_shared,
    };
    const int64_t keys_per_shard = min_of(max_keys, max_bytes / LEAST_BYTES_PER_KEY) / (int64_t)count;
    table->shard_shift = 64 - (unsigned)__builtin_ctzll(count);
    readers_init(&table->readers);
    int failed = rules_init(&table->rules, &table->readers, &table->budget, for_rules);
    failed |= slab_init_placed(&table->slab, &table->budget, &table->readers, max_bytes);
    failed |= cells_init(&table->cells, count, keys_per_shard, &table->budget, &table->slab);
    table->shards = aligned_alloc(alignof(struct shard), all * sizeof *table->shards);
    table->sentinels = calloc(all, sizeof *table->sentinels);
    table->soonest_us = calloc(count + all, sizeof *table->soonest_us);
    lock_init(&table->soonest_mutex);

    size_t made = 0;
    if (!failed && table->shards && table->sentinels && table->soonest_us) {
        memset(table->shards, 0, all * sizeof *table->shards);
        for (size_t i = 0; i < count + all; i++)
            atomic_init(&table->soonest_us[i], INT64_MAX);
        size_t per_shard = sizeof *table->shards + sizeof *table->sentinels + 2 * sizeof *table->soonest_us;
        budget_overdraw(&table->budget, (int64_t)(all * per_shard));
        while (made < all && shard_init(table, (unsigned)made) == 0)
            made++;
    }
    if (made == all)
        return 0;
    table_free_shards(table, made);
    return -1;
}

void table_free(struct table *table)
{
    table_free_shards(table, table->shard_count + 1);
}
