/* sweep.c - makes room: drops fresh keys, a few at a time, and moves entries together, so that a page of the slab can
 * serve keys of another size. */
#include "backends/memory/table.h"
#include "core/ground/arith.h"

/* A new key that finds the table full tries up to ROOM_STEPS entries, ROOM_SHARD_STEPS of a shard, in ROOM_SHARDS
 * shards before it is turned away. */
#define ROOM_STEPS 512
#define ROOM_SHARD_STEPS 64
#define ROOM_SHARDS 4096
#define ROOM_DROPS 16 /* keys of a shard that it drops at a time if max_bytes is reached */

int64_t entry_fresh_at_us(const struct table *table, const struct entry *entry)
{
    const struct rule *rule = entry_rule(table, entry);
    const struct weir_plan *former = rule_former(rule);
    const int64_t fresh_at_us = state_fresh_at_us(&rule->plan, entry_state(entry, 0));
    if (!former)
        return fresh_at_us;
    return max_of(fresh_at_us, state_fresh_at_us(former, entry_state(entry, state_words(&rule->plan))));
}

/* Move the hand on to an entry that has been fresh since `at_us`, and claim it. NULL: none of *steps was. */
static struct entry *shard_find_fresh(struct table *table, struct shard *shard, int64_t at_us, unsigned *steps)
    REQUIRES(shard->mutex)
{
    _Atomic int64_t *soonest_us = &table->soonest_us[shard->number];
    while (*steps > 0 && atomic_load_explicit(soonest_us, memory_order_relaxed) <= at_us) {
        if (!shard->hand) {
            shard->round_soonest_us = INT64_MAX;
            shard->hand = shard->first->hh.next;
        }
        struct entry *entry = shard->hand;
        if (entry) {
            entry_hold(entry);
            const int64_t fresh_at_us = entry_fresh_at_us(table, entry);
            --*steps;
            if (fresh_at_us <= at_us)
                return entry;
            shard->hand = entry->hh.next;
            entry_let_go(entry);
            shard->round_soonest_us = min_of(shard->round_soonest_us, fresh_at_us);
        }
        if (!shard->hand)
            atomic_store_explicit(soonest_us, shard->round_soonest_us, memory_order_relaxed);
    }
    return NULL;
}

static void shard_evict(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex)
{
    shard_remove(table, shard, entry);
    if (!shard->hand) /* it was the last one of the round */
        atomic_store_explicit(&table->soonest_us[shard->number], shard->round_soonest_us, memory_order_relaxed);
    shard->evictions++;
}

void shard_sweep(struct table *table, struct shard *shard, int64_t at_us, unsigned steps)
{
    struct entry *fresh;
    while ((fresh = shard_find_fresh(table, shard, at_us, &steps)))
        shard_evict(table, shard, fresh);
}

/* ---- Packing ---- */

struct packing {
    struct table *table;
    int64_t now_us;
};

/* Move a claimed entry to another slot of its class. The count of changes continues in each slot, see entry_make(). A
 * key that has no place in its new slot is found through its bucket. */
static void shard_move(struct table *table, struct shard *shard, struct entry *old) REQUIRES(shard->mutex)
{
    void *memory;
    const struct rule *rule = entry_rule(table, old);
    const size_t key_words = (old->hh.keylen + 7) / 8, bytes = entry_bytes(rule->words, old->hh.keylen);
    if (slab_take(&table->slab, bytes, shard->number, &memory) != SLAB_OK) {
        entry_let_go(old);
        return;
    }
    struct entry *entry = memory;
    const uint64_t old_word = atomic_load_explicit(&old->word, memory_order_relaxed);
    const uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    entry_release(entry, word_of(word, rule->number, word_len(old_word)) | WORD_BUSY);
    entry_write(entry, 0, entry_state(old, 0), rule->words + key_words);
    entry->hh = old->hh;
    entry->hh.key = &entry->cells[rule->words];
    hash_moved(&entry->hh);
    if (shard->hand == old)
        shard->hand = entry;
    const uint32_t place = slab_place(&table->slab, entry, bytes);
    index_move(&table->index, shard->number, old->hh.hashv, slab_place(&table->slab, old, bytes), place);
    if (place == 0)
        index_put(&table->index, shard->number, old->hh.hashv, 0);
    entry_release(old, word_of(old_word, 0, 0));
    slab_give(&table->slab, old, bytes);
    entry_let_go(entry);
}

static void table_pack_entry(void *user, unsigned owner, void *memory)
{
    const struct packing *packing = user;
    struct table *table = packing->table;
    struct shard *shard = &table->shards[owner];
    struct entry *entry = memory;
    lock_take(&shard->mutex);
    if (slab_is_owned(&table->slab, entry, owner)) {
        entry_hold(entry);
        if (entry_fresh_at_us(table, entry) <= packing->now_us)
            shard_evict(table, shard, entry);
        else
            shard_move(table, shard, entry);
    }
    lock_give(&shard->mutex);
}

/* Empty a page of the slab. Its entries move to others of their size; fresh ones are evicted. False: no size has a page's
 * worth of free slots. The caller holds no lock. */
static bool table_pack(struct table *table, int64_t now_us)
{
    struct packing packing = { table, now_us };
    return slab_pack(&table->slab, table_pack_entry, &packing);
}

/* ---- Room for new keys ---- */

/* Try up to ROOM_SHARD_STEPS of *steps in one shard, and drop up to `most` fresh entries; with `most` 0, only find one.
 * Return how many were found. *soonest_us becomes the time at which one of its entries is fresh. */
static int64_t shard_make_room(struct table *table, struct shard *shard, int64_t now_us, int64_t most, unsigned *steps,
                               int64_t *soonest_us)
{
    unsigned turn = *steps < ROOM_SHARD_STEPS ? *steps : ROOM_SHARD_STEPS;
    unsigned left = turn;
    int64_t found = 0;
    struct entry *fresh;
    lock_take(&shard->mutex);
    while ((found == 0 || found < most) && (fresh = shard_find_fresh(table, shard, now_us, &left))) {
        found++;
        if (most > 0)
            shard_evict(table, shard, fresh);
        else
            entry_let_go(fresh);
    }
    *soonest_us = atomic_load_explicit(&table->soonest_us[shard->number], memory_order_relaxed);
    if (*soonest_us <= now_us)
        *soonest_us = shard->round_soonest_us; /* the round is not over: use what it has seen so far */
    lock_give(&shard->mutex);
    *steps -= turn - left;
    return found;
}

bool table_make_room(struct table *table, struct shard *near, int64_t now_us, int64_t keys, bool drop,
                     int64_t *soonest_us)
{
    unsigned steps = ROOM_STEPS, before;
    size_t shards = table->shard_count < ROOM_SHARDS ? table->shard_count : ROOM_SHARDS;
    const int64_t excess = atomic_load_explicit(&table->keys, memory_order_relaxed) + keys - table->max_keys;
    const int64_t wanted = drop && excess > 0 ? excess : 1, most = !drop ? 0 : excess > 0 ? excess : ROOM_DROPS;
    int64_t found = 0;
    if (excess <= 0 && slab_can_pack(&table->slab) && (!drop || table_pack(table, now_us)))
        return true;
    do { /* again while steps are left and shards are not done */
        before = steps;
        *soonest_us = INT64_MAX;
        for (size_t i = 0; i < shards && steps > 0; i++) {
            size_t index = (near->number + i) & (table->shard_count - 1);
            int64_t soonest = atomic_load_explicit(&table->soonest_us[index], memory_order_relaxed);
            if (soonest <= now_us)
                found += shard_make_room(table, &table->shards[index], now_us, most - found, &steps, &soonest);
            if (found >= wanted)
                return true;
            *soonest_us = min_of(*soonest_us, soonest);
        }
    } while (steps > 0 && steps < before);
    return found > 0;
}
