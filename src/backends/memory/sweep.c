/* sweep.c - makes room: drops fresh keys, a few at a time, and moves entries together, so that a page of the slab can
 * serve keys of another size. */
#include "backends/memory/table.h"
#include "core/ground/arith.h"

/* A new key that finds the table full tries up to ROOM_STEPS entries that are due, ROOM_SHARD_STEPS under a mutex,
 * before it is turned away. Those that are not fresh are filed anew, so the next one finds them out of the way. */
#define ROOM_STEPS 512
#define ROOM_SHARD_STEPS 64
#define ROOM_DROPS 16 /* keys of a shard that it drops at a time if max_bytes is reached */

int64_t entry_fresh_at_us(const struct table *table, const struct entry *entry)
{
    const struct rule *rule = entry_rule(table, entry);
    const struct weir_plan *former = rule_former(rule);
    const int64_t fresh_at_us = state_fresh_at_us(&rule->plan, entry_state(entry, 0));
    if (!former || !behind_has_former(former))
        return fresh_at_us;
    const size_t at = state_words(&rule->plan) + behind_former_at(former);
    return max_of(fresh_at_us, state_fresh_at_us(former, entry_state(entry, at)));
}

static int64_t table_soonest_us(const struct table *table, size_t at)
{
    return atomic_load_explicit(&table->soonest_us[at], memory_order_relaxed);
}

/* Write the shard's element of the tournament, and those above it that it changes. */
static void shard_note_soonest(struct table *table, struct shard *shard, int64_t soonest_us) REQUIRES(shard->mutex)
{
    size_t at = table->shard_count + shard->number;
    if (soonest_us == table_soonest_us(table, at))
        return;
    lock_take(&table->soonest_mutex);
    while (at > 0 && table_soonest_us(table, at) != soonest_us) {
        atomic_store_explicit(&table->soonest_us[at], soonest_us, memory_order_relaxed);
        if (!shard_has_cells(table, shard))
            break;
        soonest_us = min_of(soonest_us, table_soonest_us(table, at ^ 1));
        at /= 2;
    }
    lock_give(&table->soonest_mutex);
}

void shard_note(struct table *table, struct shard *shard, struct entry *entry, int64_t fresh_at_us)
{
    due_file(&shard->due, entry, fresh_at_us);
    if (fresh_at_us < shard_soonest_us(table, shard))
        shard_note_soonest(table, shard, fresh_at_us);
}

/* Return an entry that has been fresh since `at_us`, claimed. NULL: none of *steps was. Filing the others anew may
 * leave the shard's soonest time too early. */
static struct entry *shard_find_fresh(struct table *table, struct shard *shard, int64_t at_us, unsigned *steps)
    REQUIRES(shard->mutex)
{
    struct entry *entry;
    for (; *steps > 0 && (entry = due_first(&shard->due, at_us)); --*steps) {
        shard->tried++;
        entry_hold(table, entry);
        const int64_t fresh_at_us = entry_fresh_at_us(table, entry);
        if (fresh_at_us <= at_us)
            return entry;
        due_file(&shard->due, entry, fresh_at_us);
        entry_let_go(table, entry);
    }
    return NULL;
}

static void shard_evict(struct table *table, struct shard *shard, struct entry *entry) REQUIRES(shard->mutex)
{
    shard_remove(table, shard, entry);
    shard->evictions++;
    const uint64_t keys = shard->first->hh.tbl->num_items;
    if (shard_has_cells(table, shard) && cells_are_loose(&table->cells, shard->number, keys))
        cells_narrow(&table->cells, shard->number, keys, &table->readers);
}

void shard_sweep(struct table *table, struct shard *shard, int64_t at_us, unsigned steps)
{
    struct entry *fresh;
    if (shard_soonest_us(table, shard) > at_us)
        return;
    for (; (fresh = shard_find_fresh(table, shard, at_us, &steps)); steps--)
        shard_evict(table, shard, fresh);
    shard_note_soonest(table, shard, due_soonest_us(&shard->due));
}

uint64_t table_evictions(struct table *table)
{
    uint64_t evictions = 0;
    for (size_t i = 0; i <= table->shard_count; i++) {
        struct shard *shard = &table->shards[i];
        lock_take(&shard->mutex);
        evictions += shard->evictions;
        lock_give(&shard->mutex);
    }
    return evictions;
}

/* ---- Packing ---- */

struct packing {
    struct table *table;
    int64_t now_us;
};

/* Lead the links of a bucket and of the due entries to an entry that takes another one's place. */
static void shard_relink(struct shard *shard, struct entry *entry, const struct entry *old) REQUIRES(shard->mutex)
{
    entry_copy_handle(entry, old);
    if (entry->hh.hh_prev)
        entry->hh.hh_prev->hh_next = &entry->hh;
    else
        shard_bucket(shard, entry->hh.hashv)->hh_head = &entry->hh;
    if (entry->hh.hh_next)
        entry->hh.hh_next->hh_prev = &entry->hh;
    due_moved(entry);
}

/* Move a record that lies behind its entry. The count of changes continues in each slot, see entry_make(). A key that
 * has no place in its new slot is found through its bucket. */
static void shard_move_own(struct table *table, struct shard *shard, struct entry *old, struct entry *entry,
                           uint32_t old_place, uint32_t place) REQUIRES(shard->mutex)
{
    const struct rule *rule = entry_rule(table, old);
    const uint64_t old_word = record_held_word(old->record);
    entry->record = entry_own(entry);
    const uint64_t word = record_held_word(entry->record);
    record_release(entry->record, word_of(word, rule->number, word_len(old_word)) | WORD_BUSY);
    entry_write(entry, 0, entry_state(old, 0), record_words(rule->words, entry_key_len(old)));
    cells_move(&table->cells, shard->number, old->hh.hashv, old_place, place);
    if (place == 0)
        cells_note(&table->cells, shard->number, old->hh.hashv, 0, 0);
    record_release(old->record, word_of(old_word, 0, 0));
}

/* Move a claimed entry to another slot of its class. */
static void shard_move(struct table *table, struct shard *shard, struct entry *old) REQUIRES(shard->mutex)
{
    void *memory;
    const bool has_own = entry_has_own(old);
    const size_t bytes = entry_size(table, old);
    if (slab_take(&table->slab, bytes, shard->number, &memory) != SLAB_OK) {
        entry_let_go(table, old);
        return;
    }
    struct entry *entry = memory;
    const uint32_t place = slab_place(&table->slab, entry, bytes);
    if (!has_own && place == 0) { /* its cell must name it */
        slab_give(&table->slab, memory, bytes);
        entry_let_go(table, old);
        return;
    }
    if (has_own) {
        shard_move_own(table, shard, old, entry, slab_place(&table->slab, old, bytes), place);
    } else {
        entry->record = old->record;
        if (entry_is_apart(old)) {
            entry_set_apart(entry);
            record_write(entry_own(entry), 0, entry_state(old, 0), entry_rule(table, old)->words);
        }
        atomic_store_explicit(cells_owner(&table->cells, old->record), place, memory_order_release);
    }
    shard_relink(shard, entry, old);
    slab_give(&table->slab, old, bytes);
    entry_let_go(table, entry);
}

static void table_pack_entry(void *user, unsigned owner, void *memory)
{
    const struct packing *packing = user;
    struct table *table = packing->table;
    struct shard *shard = &table->shards[owner];
    struct entry *entry = memory;
    lock_take(&shard->mutex);
    if (slab_is_owned(&table->slab, entry, owner)) {
        entry_hold(table, entry);
        if (entry_fresh_at_us(table, entry) <= packing->now_us)
            shard_evict(table, shard, entry);
        else
            shard_move(table, shard, entry);
    }
    lock_give(&shard->mutex);
}

/* Empty a page of the slab. Its entries move to others of their size; fresh ones are evicted. False: no size has a
 * page's worth of free slots. The caller holds no lock. */
static bool table_pack(struct table *table, int64_t now_us)
{
    struct packing packing = { table, now_us };
    return slab_pack(&table->slab, table_pack_entry, &packing);
}

/* ---- Room for new keys ---- */

/* Try up to ROOM_SHARD_STEPS of *steps in one shard, and drop up to `most` fresh entries; with `most` 0, only find one.
 * Return how many were found. */
static int64_t shard_make_room(struct table *table, struct shard *shard, int64_t now_us, int64_t most, unsigned *steps)
{
    const unsigned turn = *steps < ROOM_SHARD_STEPS ? *steps : ROOM_SHARD_STEPS;
    unsigned left = turn;
    int64_t found = 0;
    struct entry *fresh;
    lock_take(&shard->mutex);
    while ((found == 0 || found < most) && (fresh = shard_find_fresh(table, shard, now_us, &left))) {
        found++;
        if (most > 0)
            shard_evict(table, shard, fresh);
        else
            entry_let_go(table, fresh);
    }
    shard_note_soonest(table, shard, due_soonest_us(&shard->due));
    lock_give(&shard->mutex);
    *steps -= left < turn || found > 0 ? turn - left : 1; /* none was due: another thread was there first */
    return found;
}

bool table_make_room(struct table *table, int64_t now_us, int64_t keys, bool drop, int64_t *soonest_us)
{
    unsigned steps = ROOM_STEPS;
    const int64_t excess = atomic_load_explicit(&table->keys, memory_order_relaxed) + keys - table->max_keys;
    const int64_t wanted = drop && excess > 0 ? excess : 1, most = !drop ? 0 : excess > 0 ? excess : ROOM_DROPS;
    int64_t found = 0;
    if (excess <= 0 && slab_can_pack(&table->slab) && (!drop || table_pack(table, now_us)))
        return true;
    while ((*soonest_us = table_soonest_us(table, 1)) <= now_us && steps > 0) {
        size_t at = 1;
        while (at < table->shard_count)
            at = 2 * at + (table_soonest_us(table, 2 * at) > table_soonest_us(table, 2 * at + 1));
        found += shard_make_room(table, &table->shards[at - table->shard_count], now_us, most - found, &steps);
        if (found >= wanted)
            return true;
    }
    return found > 0;
}
