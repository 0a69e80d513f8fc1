/* sweep.c - drops fresh keys, a few at a time. */
#include "backends/memory/table.h"
#include "core/ground/arith.h"

/* A new key that finds the table full tries up to ROOM_STEPS entries, ROOM_SHARD_STEPS of a shard, in ROOM_SHARDS
 * shards before it is turned away. */
#define ROOM_STEPS 512
#define ROOM_SHARD_STEPS 64
#define ROOM_SHARDS 4096

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

/* Try up to ROOM_SHARD_STEPS of *steps in one shard. *soonest_us becomes the time at which one of its entries is
 * fresh. */
static bool shard_make_room(struct table *table, struct shard *shard, int64_t now_us, bool drop, unsigned *steps,
                            int64_t *soonest_us)
{
    unsigned turn = *steps < ROOM_SHARD_STEPS ? *steps : ROOM_SHARD_STEPS;
    unsigned left = turn;
    lock_take(&shard->mutex);
    struct entry *fresh = shard_find_fresh(table, shard, now_us, &left);
    if (fresh && drop)
        shard_evict(table, shard, fresh);
    else if (fresh)
        entry_let_go(fresh);
    *soonest_us = atomic_load_explicit(&table->soonest_us[shard->number], memory_order_relaxed);
    if (*soonest_us <= now_us)
        *soonest_us = shard->round_soonest_us; /* the round is not over: use what it has seen so far */
    lock_give(&shard->mutex);
    *steps -= turn - left;
    return fresh != NULL;
}

bool table_make_room(struct table *table, struct shard *near, int64_t now_us, bool drop, int64_t *soonest_us)
{
    unsigned steps = ROOM_STEPS, before;
    size_t shards = table->shard_count < ROOM_SHARDS ? table->shard_count : ROOM_SHARDS;
    do { /* again while steps are left and shards are not done */
        before = steps;
        *soonest_us = INT64_MAX;
        for (size_t i = 0; i < shards && steps > 0; i++) {
            size_t index = (near->number + i) & (table->shard_count - 1);
            int64_t soonest = atomic_load_explicit(&table->soonest_us[index], memory_order_relaxed);
            if (soonest <= now_us && shard_make_room(table, &table->shards[index], now_us, drop, &steps, &soonest))
                return true;
            *soonest_us = min_of(*soonest_us, soonest);
        }
    } while (steps > 0 && steps < before);
    return false;
}
