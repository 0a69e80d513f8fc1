/* test_chosen.c - keys as a client would choose them that knew the secret of the hash. */
#include "support.h"

#include "backends/memory/look.h"
#include "backends/memory/memory.h"
#include "core/api/verbs.h"

#include <stdlib.h>

enum { SHARD = 3, MOST = INSTRUMENTED ? 4000 : 20000 }; /* both lead to 16 shards */

struct chosen {
    struct scene scene;
    struct table *table;
    weir_limit *limit;
    uint64_t latest; /* keys are numbers; the latest one of the shard */
};

static void chosen_open(struct chosen *chosen)
{
    scene_open(&chosen->scene, OPTIONS(.max_keys = MOST));
    chosen->table = &((struct memory *)chosen->scene.limiter->backend)->table;
    chosen->limit = scene_define_text(&chosen->scene, "limit", "token_bucket limit=10 period=365d");
    chosen->latest = 0;
    ck_assert_uint_eq(chosen->table->shard_count, TABLE_MIN_SHARDS);
}

static void chosen_close(struct chosen *chosen)
{
    scene_close(&chosen->scene);
}

/* Find the next key of the shard. */
static struct weir_key chosen_next(struct chosen *chosen)
{
    struct weir_key key;
    do {
        chosen->latest++;
        key = weir_key(&chosen->latest, sizeof chosen->latest);
    } while (table_shard(chosen->table, key_hash(chosen->limit, key)) != &chosen->table->shards[SHARD]);
    return key;
}

static struct weir_decision chosen_take(struct chosen *chosen)
{
    struct weir_decision decision;
    must_succeed(weir_try(chosen->limit, chosen_next(chosen), 1, &decision));
    return decision;
}

/* Return the number of keys in the longest chain of the shard. */
static unsigned longest_chain(const struct chosen *chosen)
{
    const struct shard *shard = &chosen->table->shards[SHARD];
    unsigned longest = 0;
    for (unsigned bucket = 0; bucket < shard->buckets.count; bucket++)
        longest = shard->buckets.heads[bucket].count > longest ? shard->buckets.heads[bucket].count : longest;
    return longest;
}

/* With WEIR_TEST_FULL, ten million keys. The shard has cells for an eighth of its keys only, and decides by the mutex
 * for the others. */
TEST(a_flood_of_keys_in_one_shard_is_decided_correctly_and_bounded, 120)
{
    CLOSED_BY(chosen_close) struct chosen chosen;
    const int64_t all = full_or(10000000, INSTRUMENTED ? 8000 : 60000);
    struct weir_decision decision;
    chosen_open(&chosen);
    for (int i = 0; i < MOST; i++) {
        decision = chosen_take(&chosen);
        must(decision.allowed && decision.remaining == 9, "there is room for it");
    }
    for (int64_t i = MOST; i < all; i++) {
        decision = chosen_take(&chosen);
        must(!decision.allowed && decision.source == WEIR_BY_FULL, "the table is full");
    }
    ck_assert_int_eq(atomic_load(&chosen.table->keys), MOST);
    ck_assert_int_le(table_bytes(chosen.table), 256 * MOST);
    ck_assert_uint_le(cells_groups(&chosen.table->cells, SHARD), chosen.table->cells.most_groups);
    ck_assert_uint_le(longest_chain(&chosen), 64);                            /* 6 to 9.5 on average */
    ck_assert_uint_le(chosen.table->shards[SHARD].tried, (uint64_t)all * 18); /* docs/design/fast-path.md */
    chosen.latest = 0;
    for (int i = 0; i < MOST; i++) {
        must_succeed(weir_try(chosen.limit, chosen_next(&chosen), 2, &decision));
        must(decision.allowed && decision.remaining == 7, "each key has its state");
    }
    chosen.scene.now_us += 365 * WEIR_DAY; /* all are idle */
    for (int i = 0; i < MOST; i++)
        must(chosen_take(&chosen).remaining == 9, "it takes the place of one of them");
    ck_assert_int_le(atomic_load(&chosen.table->keys), MOST);
}

/* With few groups, all keys of one are soon found. The shard gets more groups until they are in several. */
TEST(keys_that_hash_to_one_group_get_cells_in_other_groups, 60)
{
    CLOSED_BY(chosen_close) struct chosen chosen;
    enum { SAME = 64, COUNT = 16 };
    uint64_t keys[SAME];
    chosen_open(&chosen);
    const struct cells *cells = &chosen.table->cells;
    for (int i = 0; i < SAME; i++) {
        uint64_t hash;
        do
            hash = key_hash(chosen.limit, chosen_next(&chosen));
        while (cells_number(hash, false, COUNT) != 5 || cells_number(hash, true, COUNT) != 5);
        keys[i] = chosen.latest;
        struct weir_decision decision;
        must_succeed(weir_try(chosen.limit, weir_key(&keys[i], sizeof keys[i]), 1, &decision));
        must(decision.allowed, "it has all permits");
    }
    ck_assert_uint_gt(cells_groups(cells, SHARD), COUNT);
    for (int i = 0; i < SAME; i++) {
        struct weir_decision decision;
        must_succeed(weir_try(chosen.limit, weir_key(&keys[i], sizeof keys[i]), 2, &decision));
        ck_assert_int_eq(decision.remaining, 7);
    }
    ck_assert_int_eq(atomic_load(&chosen.table->keys), SAME);
}
