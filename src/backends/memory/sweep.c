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

unsigned shard_sweep(struct table *table, struct shard *shard, int64_t now_us, int64_t grace_us, unsigned *steps,
                     unsigned most)
{
    _Atomic int64_t *soonest_us = &table->soonest_us[shard->number];
    unsigned dropped = 0;
    while (*steps > 0 && dropped < most &&
           atomic_load_explicit(soonest_us, memory_order_relaxed) <= now_us - grace_us) {
        if (!shard->hand) {
            shard->round_soonest_us = INT64_MAX;
            shard->hand = shard->first->hh.next;
        }
        struct entry *entry = shard->hand;
        if (entry) {
            entry_hold(entry);
            int64_t fresh_at_us = entry_fresh_at_us(table, entry);
            shard->hand = entry->hh.next;
            --*steps;
            if (fresh_at_us <= now_us - grace_us) {
                shard_remove(table, shard, entry);
                dropped++;
            } else {
                entry_let_go(entry);
                shard->round_soonest_us = min_of(shard->round_soonest_us, fresh_at_us);
            }
        }
        if (!shard->hand)
            atomic_store_explicit(soonest_us, shard->round_soonest_us, memory_order_relaxed);
    }
    shard->evictions += dropped;
    return dropped;
}

/* Try up to ROOM_SHARD_STEPS of *steps in one shard. *soonest_us becomes the time at which one of its entries is
 * fresh. */
static bool shard_make_room(struct table *table, struct shard *shard, int64_t now_us, unsigned *steps,
                            int64_t *soonest_us)
{
    unsigned turn = *steps < ROOM_SHARD_STEPS ? *steps : ROOM_SHARD_STEPS;
    unsigned left = turn;
    lock_take(&shard->mutex);
    bool dropped = shard_sweep(table, shard, now_us, 0, &left, 1) > 0;
    *soonest_us = atomic_load_explicit(&table->soonest_us[shard->number], memory_order_relaxed);
    if (*soonest_us <= now_us)
        *soonest_us = shard->round_soonest_us; /* the round is not over: use what it has seen so far */
    lock_give(&shard->mutex);
    *steps -= turn - left;
    return dropped;
}

bool table_make_room(struct table *table, struct shard *near, int64_t now_us, int64_t *soonest_us)
{
    unsigned steps = ROOM_STEPS, before;
    size_t shards = table->shard_count < ROOM_SHARDS ? table->shard_count : ROOM_SHARDS;
    do { /* again while steps are left and shards are not done */
        before = steps;
        *soonest_us = INT64_MAX;
        for (size_t i = 0; i < shards && steps > 0; i++) {
            size_t index = (near->number + i) & (table->shard_count - 1);
            int64_t soonest = atomic_load_explicit(&table->soonest_us[index], memory_order_relaxed);
            if (soonest <= now_us && shard_make_room(table, &table->shards[index], now_us, &steps, &soonest))
                return true;
            *soonest_us = min_of(*soonest_us, soonest);
        }
    } while (steps > 0 && steps < before);
    return false;
}
