/* test_cells.c - the parts of a lookup: cells, a record's word and key, and places, each against a naive model.
 */
#include "support.h"

#include "backends/memory/look.h"
#include "backends/memory/memory.h"
#include "core/api/verbs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- Groups ---- */

static uint64_t naive_tag(const struct cell_group *group, unsigned slot)
{
    return atomic_load(&group->head) >> 16 * slot & 0xffff;
}

/* Tags that differ by 1, and by their highest bit, mark or not. */
TEST(a_tag_finds_its_cells_and_the_first_one_for_certain, 10)
{
    static const uint64_t tags[] = { 0, 1, 2, 3, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff };
    enum { TAGS = sizeof tags / sizeof tags[0] };
    for (int i = 0; i < TAGS * TAGS * TAGS * 2; i++) {
        struct cell_group group;
        const uint64_t mark = i % 2 ? CELLS_MARKED : 0;
        const uint64_t head = tags[i / 2 % TAGS] | tags[i / 2 / TAGS % TAGS] << 16 | tags[i / 2 / TAGS / TAGS] << 32 |
                              mark;
        atomic_init(&group.head, head);
        for (int t = 1; t < TAGS; t++) {
            unsigned wanted = 0, found = 0;
            const uint64_t matches = cells_matches(&group, tags[t]);
            for (unsigned slot = 0; slot < CELLS_SLOTS; slot++)
                wanted |= (unsigned)(naive_tag(&group, slot) == tags[t]) << slot;
            for (uint64_t left = matches; left != 0; left &= left - 1) {
                must(cells_slot(left) < CELLS_SLOTS, "it is a cell");
                found |= 1u << cells_slot(left);
            }
            must((wanted & ~found) == 0, "none is missing");
            must((wanted == 0) == (found == 0), "none is found without one");
            must(matches == 0 || (wanted >> cells_slot(matches) & 1) == 1, "the first one is one");
        }
    }
    must(cells_tag(0) != 0 && cells_tag(UINT64_C(0xffff) << 32) == 0xffff, "no key has the tag of a free cell");
}

/* All groups are distinct, and those that a shard gets together are adjacent. */
TEST(each_group_of_each_shard_has_its_place_in_the_mapping, 30)
{
    static const int64_t keys[] = { 0, 7, 8, 20, 200, 1024, 1365, 2047, 2048 };
    static bool seen[(size_t)2047 << 9];
    for (size_t shards = 1; shards <= 512; shards *= 2)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            struct budget budget = { .max = 1 << 20 };
            CLOSED_BY(cells_free) struct cells cells;
            must(cells_init(&cells, shards, keys[k], &budget, NULL) == 0, "there is memory");
            must((cells.most_groups + 1) % CELLS_CHUNK == 0, "all groups of the last chunk");
            must(CELLS_FULL(cells.most_groups) >= (uint64_t)keys[k] * 5 / 4, "as many as it takes");
            const size_t groups = cells.most_groups * shards;
            must(groups <= sizeof seen, "there is room to note them");
            memset(seen, 0, groups);
            for (size_t shard = 0; shard < shards; shard++)
                for (uint32_t number = 0; number < cells.most_groups; number++) {
                    const size_t at = cells_index(&cells, shard, number);
                    must(at < groups, "it is in the mapping");
                    must(!seen[at], "it is no other's");
                    seen[at] = true;
                    if (number == 0)
                        must(at == shard, "first groups are side by side");
                    else if (number < CELLS_CHUNK - 1 ? (number & (number + 1)) != 0 : (number + 1) % CELLS_CHUNK != 0)
                        must(at == cells_index(&cells, shard, number - 1) + 1,
                             "those of a shard in a level or chunk are side by side");
                    for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
                        const struct record *record = cells_record(&cells.groups[at], slot);
                        must(cells_has(&cells, record), "a cell's record is in the mapping");
                        must(cells_owner(&cells, record) == &cells.owners[at].places[slot], "it has its owner");
                    }
                }
            must(!cells_has(&cells, cells_record(&cells.groups[groups], 0)), "behind them is none");
            must(!cells_has(&cells, cells_record(cells.groups - 1, CELLS_SLOTS - 1)), "and none before them");
        }
}

/* A thread may read what a cell leads to while the cell changes. */
TEST(a_cell_that_has_changed_leads_to_no_place, 10)
{
    struct cell_group group = { 0 };
    struct record *record = cells_record(&group, 1);
    const uint64_t noted = WORD_ONE_CHANGE;
    ck_assert_uint_eq(cells_place(record, record_word(record)), 0); /* never used */
    record_write(record, 0, &(int64_t){ 77 }, 1);
    record_release(record, noted);
    ck_assert_uint_eq(cells_place(record, noted), 77);
    record_release(record, noted | WORD_BUSY);
    ck_assert_uint_eq(cells_place(record, noted), 0);
    ck_assert_uint_eq(cells_place(record, noted | WORD_BUSY), 0);
    record_release(record, word_of(noted, 5, 7));
    ck_assert_uint_eq(cells_place(record, noted), 0);
    ck_assert_uint_eq(cells_place(record, record_word(record)), 0); /* it is a state */
    record_release(record, word_of(word_of(noted, 5, 7), 0, 0));
    ck_assert_uint_eq(cells_place(record, noted), 0); /* another place by now */
}

/* ---- The cells of a table ---- */

enum { LIMITS = 3, KEYS = 3000 };

struct walk {
    struct scene scene;
    struct table *table;
    weir_limit *limits[LIMITS];
};

/* Return the record of an entry, as a thread without the mutex finds it, or NULL. */
static const struct record *found_in_cells(const struct table *table, const struct entry *entry, size_t shard,
                                           uint64_t hash)
{
    for (int second = 0; second < 2; second++) {
        const struct cell_group *group = cells_group(&table->cells, shard, hash, second);
        uint64_t matches = cells_matches(group, cells_tag(hash));
        for (; matches != 0; matches &= matches - 1) {
            uint32_t place;
            struct record *cell = cells_record(group, cells_slot(matches));
            const struct record *record = look_in_cell(table, cell, &place);
            if (record != entry->record)
                continue;
            must(slab_entry(&table->slab, atomic_load(cells_owner(&table->cells, cell))) == entry, "it is the owner");
            must((place != 0) == entry_has_own(entry), "it has a place or a record");
            return record;
        }
    }
    return NULL;
}

/* Assert that the cells lead to every entry of uthash's buckets, unless its record is behind it and its first group is
 * marked, and that they lead to no other. */
static void assert_table_has_cells(struct walk *walk)
{
    const struct table *table = walk->table;
    int64_t keys = 0;
    for (size_t s = 0; s < table->shard_count; s++) {
        int64_t found = 0, cells = 0;
        unsigned items = 1; /* the sentinel */
        for (unsigned bucket = 0; bucket < table->shards[s].buckets.count; bucket++)
            for (UT_hash_handle *handle = table->shards[s].buckets.heads[bucket].hh_head; handle;
                 handle = handle->hh_next) {
                struct entry *entry = (struct entry *)handle;
                if (entry == table->shards[s].first)
                    continue;
                items++;
                const struct rule *rule = entry_rule(table, entry);
                const struct weir_key key = weir_key(
                    (const void *)&entry->record->words[entry_key_at(entry, rule->words)], entry_key_len(entry));
                const uint64_t hash = key_hash(walk->limits[rule->key.limit_id], key);
                const bool is_found = found_in_cells(table, entry, s, hash) != NULL;
                must(entry->hh.hashv == (uint32_t)hash, "it is under its hash");
                must(word_len(entry_word(entry)) == (key.len & 1023), "its word tells its length");
                must((entry_word(entry) & WORD_BUSY) == 0, "nobody has claimed it");
                must((entry->hh.keylen & ENTRY_HELD) == 0, "and no thread with the mutex");
                must(is_found || (entry_has_own(entry) && cells_are_marked(cells_group(&table->cells, s, hash, false))),
                     "it is found, or its first group is marked");
                must(entry_has_own(entry) || cells_fit(rule->words, key.len) != entry_is_apart(entry),
                     "its record fits, or is divided");
                found += is_found;
                keys++;
            }
        for (uint32_t number = 0; number < table->cells.most_groups; number++)
            for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
                const struct cell_group *group = &table->cells.groups[cells_index(&table->cells, s, number)];
                const struct record *record = cells_record(group, slot);
                const bool is_used = naive_tag(group, slot) != 0;
                cells += is_used;
                must((atomic_load(cells_owner(&table->cells, record)) != 0) == is_used, "it has both or none");
                must(is_used || (word_rule(record_word(record)) == 0 && cells_place(record, record_word(record)) == 0),
                     "a free cell has neither");
                must(!is_used || number < cells_groups(&table->cells, s), "beyond the last group is none");
            }
        must(cells == found, "the cells lead to no more than there is");
        must(table->shards[s].first->hh.tbl->num_items == items, "uthash has all of them");
    }
    must(keys == atomic_load(&table->keys), "as many keys as are counted");
}

static void walk_step(struct walk *walk, struct chance *chance, bool filling)
{
    char bytes[1100];
    struct weir_decision decision;
    const int64_t number = chance_between(chance, 0, KEYS - 1);
    weir_limit *limit = walk->limits[number % LIMITS];
    const int len = snprintf(bytes, sizeof bytes, "%0*d", number % 50 == 0 ? 1040 : 4 + (int)(number % 70),
                             (int)number);
    const struct weir_key key = weir_key(bytes, (size_t)len);
    switch (chance_between(chance, 0, filling ? 15 : 3)) {
    case 0: must_succeed(weir_reset(limit, key)); break;
    case 1: must_succeed(weir_refund(limit, key, chance_between(chance, 1, 20))); break;
    case 2:
        if (!filling)
            must_succeed(weir_reset(limit, key));
        break;
    default: must_succeed(weir_try(limit, key, chance_between(chance, 1, 5), &decision)); break;
    }
}

TEST(every_entry_of_a_table_is_found_by_its_cells_or_its_group_is_marked, 60)
{
    static const char *const policies[] = {
        "token_bucket limit=10 period=10s",
        "sliding_window limit=10 period=10s blocks=7",
        "sliding_window limit=10 period=10s blocks=94",
        "fixed_window limit=10 period=10s",
        "sliding_window limit=10 period=10s blocks=1000", /* too large for a place */
    };
    for (int run = 0; run < 4; run++) {
        struct walk walk;
        struct weir_options options = WEIR_OPTIONS_INIT;
        struct chance chance = chance_make((uint64_t)run + 100);
        options.max_keys = run % 2 ? 2000 : 100000;
        if (run >= 2)
            options.max_bytes = INT64_C(1) << 20;
        scene_open(&walk.scene, &options);
        walk.table = &((struct memory *)walk.scene.limiter->backend)->table;
        for (int i = 0; i < LIMITS; i++) {
            char name[32];
            snprintf(name, sizeof name, "limit-%d", i);
            walk.limits[i] = scene_define_text(&walk.scene, name, policies[i]);
        }
        uint32_t widest = 0;
        for (int step = 0; step < 60000; step++) {
            walk_step(&walk, &chance, step / 10000 % 2 == 0);
            if (chance_one_in(&chance, 20))
                walk.scene.now_us += chance_between(&chance, 0, 50000);
            if (step % 5000 == 4999)
                walk.scene.now_us += 20 * WEIR_SECOND;
            if (step % 2000 == 1999) { /* entries move */
                const struct weir_policy policy = policy_of(policies[chance_between(&chance, 0, 4)]);
                char name[32];
                snprintf(name, sizeof name, "limit-%d", (int)chance_between(&chance, 0, LIMITS - 1));
                must_succeed(weir_limit_define(walk.scene.limiter, name, &policy, NULL));
            }
            if (step % 100 == 0)
                assert_table_has_cells(&walk);
        }
        assert_table_has_cells(&walk);
        for (size_t s = 0; s < walk.table->shard_count; s++)
            if (cells_groups(&walk.table->cells, s) > widest)
                widest = cells_groups(&walk.table->cells, s);
        ck_assert_uint_gt(widest, run >= 2 ? 0 : 5);
        scene_close(&walk.scene);
    }
}

/* ---- Moves ---- */

struct crammed {
    struct walk walk;
    struct cells *cells;
    struct shard *shard;
};

static void crammed_open(struct crammed *crammed)
{
    scene_open(&crammed->walk.scene, OPTIONS(.max_keys = 1000)); /* 16 shards */
    crammed->walk.table = &((struct memory *)crammed->walk.scene.limiter->backend)->table;
    crammed->walk.limits[0] = scene_define_text(&crammed->walk.scene, "limit", "token_bucket limit=100 period=365d");
    crammed->cells = &crammed->walk.table->cells;
    crammed->shard = &crammed->walk.table->shards[3];
}

static void crammed_close(struct crammed *crammed)
{
    scene_close(&crammed->walk.scene);
}

static struct weir_backend_request crammed_request(const struct crammed *crammed, const char *key)
{
    return backend_request(crammed->walk.limits[0], weir_key_text(key), 1, crammed->walk.scene.now_us, WEIR_TAKE);
}

/* Take `used` permits of a key of the shard whose groups in a shard with `count` are these, after *from. */
static uint64_t take_in_groups(struct crammed *crammed, uint32_t count, uint32_t first, uint32_t second, int *from,
                               int64_t used)
{
    for (;;) {
        char key[16];
        snprintf(key, sizeof key, "%08d", ++*from);
        const uint64_t hash = key_hash(crammed->walk.limits[0], weir_key_text(key));
        if (table_shard(crammed->walk.table, hash) != crammed->shard || cells_number(hash, false, count) != first ||
            cells_number(hash, true, count) != second)
            continue;
        must(taken(crammed->walk.limits[0], key, used).allowed, "a fresh key has all permits");
        return hash;
    }
}

static void widen(struct crammed *crammed)
{
    lock_take(&crammed->shard->mutex);
    cells_widen(crammed->cells, crammed->shard->number);
    lock_give(&crammed->shard->mutex);
}

static uint32_t groups_of(const struct crammed *crammed)
{
    return cells_groups(crammed->cells, crammed->shard->number);
}

/* Group 1 of 3 is divided; the keys that belong in group 3 of 4 move there, and the others stay. */
TEST(a_group_is_divided_between_two_and_its_claimed_records_stay_claimed, 10)
{
    for (int held = 0; held < 2; held++) {
        CLOSED_BY(crammed_close) struct crammed crammed;
        enum { KEPT = 1, MOVED = 2 };
        char keys[KEPT + MOVED][16];
        struct entry *entries[KEPT + MOVED];
        struct record *records[KEPT + MOVED];
        int from = 0;
        crammed_open(&crammed);
        widen(&crammed);
        widen(&crammed);
        ck_assert_uint_eq(groups_of(&crammed), 3);
        for (int i = 0; i < KEPT + MOVED; i++) {
            const uint32_t number = i < KEPT ? 1 : 3;
            take_in_groups(&crammed, 4, number, number, &from, i + 1);
            snprintf(keys[i], sizeof keys[i], "%08d", from);
            const struct weir_backend_request request = crammed_request(&crammed, keys[i]);
            lock_take(&crammed.shard->mutex);
            entries[i] = shard_find(crammed.walk.table, crammed.shard, &request);
            records[i] = entries[i]->record;
            if (!held)
                entry_let_go(crammed.walk.table, entries[i]);
            lock_give(&crammed.shard->mutex);
        }
        const int64_t bytes = atomic_load(&crammed.walk.table->budget.used);
        widen(&crammed);
        ck_assert_uint_eq(groups_of(&crammed), 4);
        ck_assert_int_eq(atomic_load(&crammed.walk.table->budget.used),
                         bytes + (int64_t)(sizeof(struct cell_group) + sizeof(struct cell_owners)));
        for (int i = 0; i < KEPT + MOVED; i++) {
            must((entries[i]->record != records[i]) == (i >= KEPT), "those of the new group move");
            must(((entry_word(entries[i]) & WORD_BUSY) != 0) == (held != 0), "they are as they were");
            if (held)
                entry_let_go(crammed.walk.table, entries[i]);
        }
        assert_table_has_cells(&crammed.walk);
        for (int i = 0; i < KEPT + MOVED; i++) {
            const struct weir_backend_request request = crammed_request(&crammed, keys[i]);
            struct weir_decision decision;
            must(look_and_decide(crammed.walk.table, &request, NULL, true, &decision), "it is in its cell");
            ck_assert_int_eq(decision.remaining, 100 - (i + 1) - 1);
        }
    }
}

TEST(a_shard_without_room_in_the_budget_gets_no_more_groups, 10)
{
    CLOSED_BY(crammed_close) struct crammed crammed;
    int from = 0;
    crammed_open(&crammed);
    take_in_groups(&crammed, 1, 0, 0, &from, 1);
    struct budget *budget = &crammed.walk.table->budget;
    const int64_t max = budget->max, used = atomic_load(&budget->used);
    budget->max = used + (int64_t)(sizeof(struct cell_group) + sizeof(struct cell_owners)) - 1;
    widen(&crammed);
    ck_assert_uint_eq(groups_of(&crammed), 1);
    ck_assert_int_eq(atomic_load(&budget->used), used);
    budget->max = max;
    widen(&crammed);
    ck_assert_uint_eq(groups_of(&crammed), 2);
    assert_table_has_cells(&crammed.walk);
}

/* The fourth key of one group finds room only when that is divided. */
TEST(a_shard_gets_more_groups_for_a_key_that_finds_no_cell, 10)
{
    CLOSED_BY(crammed_close) struct crammed crammed;
    int from = 0;
    crammed_open(&crammed);
    for (int i = 0; i < 4; i++)
        widen(&crammed);
    ck_assert_uint_eq(groups_of(&crammed), 5);
    for (int i = 0; i < CELLS_SLOTS; i++)
        take_in_groups(&crammed, 6, 1, 1, &from, 1); /* with five groups, it has those of group 5 */
    ck_assert_uint_eq(groups_of(&crammed), 5);
    take_in_groups(&crammed, 6, 5, 5, &from, 1);
    ck_assert_uint_eq(groups_of(&crammed), 6);
    assert_table_has_cells(&crammed.walk);
}

/* Sixteen shards of 200 keys that become idle. The table counts what it uses. */
TEST(a_shard_frees_groups_once_its_keys_are_gone, 30)
{
    CLOSED_BY(crammed_close) struct crammed crammed;
    struct walk *walk = &crammed.walk;
    crammed_open(&crammed);
    weir_limit *brief = walk->limits[1] = scene_define_text(&walk->scene, "brief", "token_bucket limit=10 period=1s");
    for (int round = 0; round < 3; round++) {
        char key[20];
        for (int i = 0; i < 950; i++) {
            snprintf(key, sizeof key, "%08d", i);
            taken(i % 40 == 0 ? walk->limits[0] : brief, key, 1);
        }
        uint32_t most = 0, least = UINT32_MAX;
        for (size_t s = 0; s < walk->table->shard_count; s++)
            most = cells_groups(&walk->table->cells, s) > most ? cells_groups(&walk->table->cells, s) : most;
        ck_assert_uint_gt(most, 20);
        assert_table_has_cells(walk);
        walk->scene.now_us += 10 * WEIR_SECOND;
        for (int i = 0; i < 3000; i++) { /* new keys, which sweep */
            snprintf(key, sizeof key, "%07d", i);
            taken(brief, key, 1);
            must_succeed(weir_reset(brief, weir_key_text(key)));
        }
        for (size_t s = 0; s < walk->table->shard_count; s++)
            least = cells_groups(&walk->table->cells, s) < least ? cells_groups(&walk->table->cells, s) : least;
        ck_assert_uint_le(least, CELLS_KEPT);
        assert_table_has_cells(walk);
        for (int i = 0; i < 950; i += 40) {
            snprintf(key, sizeof key, "%08d", i);
            ck_assert_int_eq(peeked(walk->limits[0], key, 1).remaining, 100 - round - 1);
        }
        int64_t groups = 0;
        for (size_t s = 0; s < walk->table->shard_count; s++)
            groups += cells_groups(&walk->table->cells, s);
        uint32_t in_pages = 0;
        for (size_t p = 0; p <= walk->table->cells.pages; p++)
            in_pages += atomic_load(&walk->table->cells.in_pages[p]);
        ck_assert_int_le(in_pages, groups);
    }
}

TEST(records_move_to_make_room_unless_they_are_claimed, 10)
{
    for (int held = 0; held < 2; held++) {
        CLOSED_BY(crammed_close) struct crammed crammed;
        char keys[2 * CELLS_SLOTS + 1][16];
        int from = 0, n = 0;
        crammed_open(&crammed);
        widen(&crammed);
        widen(&crammed);
        ck_assert_uint_eq(groups_of(&crammed), 3);
        for (; n < 2 * CELLS_SLOTS; n++) {
            take_in_groups(&crammed, 3, n < CELLS_SLOTS ? 0 : 1, n < CELLS_SLOTS ? 1 : 2, &from, n + 1);
            snprintf(keys[n], sizeof keys[n], "%08d", from);
        }
        struct entry *entries[2 * CELLS_SLOTS];
        struct record *records[2 * CELLS_SLOTS];
        lock_take(&crammed.shard->mutex);
        for (int i = 0; i < n; i++) {
            const struct weir_backend_request request = crammed_request(&crammed, keys[i]);
            entries[i] = shard_find(crammed.walk.table, crammed.shard, &request);
            records[i] = entries[i]->record;
            must(cells_has(crammed.cells, records[i]), "it has a cell");
            if (!held)
                entry_let_go(crammed.walk.table, entries[i]);
        }
        lock_give(&crammed.shard->mutex);
        const uint32_t most_groups = crammed.cells->most_groups;
        crammed.cells->most_groups = 3; /* it cannot get more */
        const uint64_t hash = take_in_groups(&crammed, 3, 0, 0, &from, 1);
        crammed.cells->most_groups = most_groups;
        snprintf(keys[n], sizeof keys[n], "%08d", from);
        int moved = 0;
        for (int i = 0; i < n; i++)
            moved += entries[i]->record != records[i];
        ck_assert_int_eq(moved, held ? 0 : 2);
        ck_assert_int_eq(cells_are_marked(cells_group(crammed.cells, crammed.shard->number, hash, false)), held);
        for (int i = 0; i < n && held; i++)
            entry_let_go(crammed.walk.table, entries[i]);
        assert_table_has_cells(&crammed.walk);
        if (held) { /* it gets a cell at its next request, if one is free */
            const struct weir_backend_request request = crammed_request(&crammed, keys[n]);
            struct look look = look_guess(crammed.walk.table, &request);
            must_succeed(weir_reset(crammed.walk.limits[0], weir_key_text(keys[0])));
            must(!look_by_cells(crammed.walk.table, &request, &look), "it has none yet");
            ck_assert_int_eq(peeked(crammed.walk.limits[0], keys[n], 1).remaining, 99);
            must(look_by_cells(crammed.walk.table, &request, &look), "it has one");
            must(!cells_has(crammed.cells, look.record), "which leads to its entry");
            assert_table_has_cells(&crammed.walk);
            taken(crammed.walk.limits[0], keys[0], 1);
        }
        for (int i = 0; i < n; i++)
            ck_assert_int_eq(peeked(crammed.walk.limits[0], keys[i], 1).remaining, 100 - (i + 1));
        ck_assert_int_eq(peeked(crammed.walk.limits[0], keys[n], 1).remaining, 99);
    }
}

/* Steps of a look, with a move between them. */
TEST(a_look_at_a_record_that_moves_writes_nothing, 10)
{
    int moves = 0;
    for (int run = 0; run < 20 || moves < 5; run++) {
        CLOSED_BY(crammed_close) struct crammed crammed;
        int from = 0;
        char key[16];
        crammed_open(&crammed);
        for (int i = 0; i < 3; i++)
            take_in_groups(&crammed, 1, 0, 0, &from, 4);
        snprintf(key, sizeof key, "%08d", from);
        const struct weir_backend_request request = crammed_request(&crammed, key);
        struct look look = look_guess(crammed.walk.table, &request);
        must(look_by_cells(crammed.walk.table, &request, &look), "it has a cell");
        struct record *before = look.record;
        widen(&crammed);
        struct weir_decision decision = { .limit = -7 };
        struct look again = look_guess(crammed.walk.table, &request);
        must(look_by_cells(crammed.walk.table, &request, &again), "it has a cell");
        if (again.record != before) {
            moves++;
            must(look_any(crammed.walk.table, look.record, look.rule, look.word, &request, &decision) != LOOK_DONE,
                 "the word has changed");
            must(!look_retry(crammed.walk.table, look, &request, &decision), "its old cell is nobody's, or another's");
        }
        ck_assert_int_eq(decision.limit, -7);
        ck_assert_int_eq(peeked(crammed.walk.limits[0], key, 1).remaining, 96);
        assert_table_has_cells(&crammed.walk);
    }
}

static void *takes_the_key_of_one_group(void *argument)
{
    int from = 0;
    take_in_groups(argument, 2, 0, 0, &from, 1);
    return NULL;
}

/* The record in the first cell of a full group moves to make room for a key that has no other group. */
TEST(a_record_that_a_look_is_writing_moves_only_when_it_is_written, 20)
{
    CLOSED_BY(crammed_close) struct crammed crammed;
    char key[16];
    int from = 0;
    pthread_t thread;
    int64_t state[GREEDY_WORDS];
    crammed_open(&crammed);
    widen(&crammed);
    take_in_groups(&crammed, 2, 0, 1, &from, 1);
    snprintf(key, sizeof key, "%08d", from);
    for (int i = 1; i < CELLS_SLOTS; i++)
        take_in_groups(&crammed, 2, 0, 1, &from, 1);
    const struct weir_backend_request request = crammed_request(&crammed, key);
    struct look look = look_guess(crammed.walk.table, &request);
    must(look_by_cells(crammed.walk.table, &request, &look), "it has a cell");
    record_read(look.record, 0, state, GREEDY_WORDS);
    uint64_t word = look.word;
    must(record_claim(look.record, &word), "nothing has changed");
    ck_assert_int_eq(pthread_create(&thread, NULL, takes_the_key_of_one_group, &crammed), 0);
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL); /* if it does not wait, it moves the record now */
    state[0] *= 7;
    record_write(look.record, 0, state, GREEDY_WORDS);
    record_release(look.record, word_next(word));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(peeked(crammed.walk.limits[0], key, 1).remaining, 93);
    ck_assert_uint_eq(groups_of(&crammed), 2);
    struct look again = look_guess(crammed.walk.table, &request);
    must(look_by_cells(crammed.walk.table, &request, &again), "it has a cell");
    must(again.record != look.record, "it has moved");
    assert_table_has_cells(&crammed.walk);
}

/* A look may have read the word of any cell long before. */
TEST(a_cells_change_count_continues_when_a_record_moves_there, 10)
{
    static const uint64_t far = WORD_ONE_CHANGE * 1000000; /* beyond the count of a record that has hardly changed */
    CLOSED_BY(crammed_close) struct crammed crammed;
    int from = 0, moved = 0;
    crammed_open(&crammed);
    for (int i = 0; i < 2; i++)
        take_in_groups(&crammed, 1, 0, 0, &from, 4);
    for (uint32_t number = 1; number < 8; number++)
        for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
            const size_t index = cells_index(crammed.cells, crammed.shard->number, number);
            record_release(cells_record(&crammed.cells->groups[index], slot), far);
        }
    while (groups_of(&crammed) < 8)
        widen(&crammed);
    for (uint32_t number = 1; number < 8; number++)
        for (unsigned slot = 0; slot < CELLS_SLOTS; slot++) {
            const size_t index = cells_index(crammed.cells, crammed.shard->number, number);
            const uint64_t word = record_word(cells_record(&crammed.cells->groups[index], slot));
            moved += word_rule(word) != 0;
            must(word >= far, "it has counted on");
        }
    must(moved <= 2, "no other records are there");
    assert_table_has_cells(&crammed.walk);
}

/* As a growing table has them. */
TEST(nearly_all_keys_have_cells_and_most_in_their_first_group, 60)
{
    OPEN_SCENE(scene, OPTIONS(.max_keys = 40000));
    const struct table *table = &((struct memory *)scene.limiter->backend)->table;
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=10 period=365d");
    int64_t in_cells = 0, in_first = 0;
    enum { ALL = INSTRUMENTED ? 8000 : 40000 };
    for (int i = 0; i < ALL; i++) {
        char key[20];
        snprintf(key, sizeof key, "%016d", i);
        taken(limit, key, 1);
    }
    for (int i = 0; i < ALL; i++) {
        char key[20];
        snprintf(key, sizeof key, "%016d", i);
        const struct weir_backend_request request = backend_request(limit, weir_key_text(key), 1, scene.now_us,
                                                                    WEIR_PEEK);
        struct look look = look_guess(table, &request);
        const bool in_cell = look_by_cells(table, &request, &look) && cells_has(&table->cells, look.record);
        const size_t first = (size_t)(look_fetch(table, request.hash).first - table->cells.groups);
        in_cells += in_cell;
        in_first += in_cell && ((uintptr_t)look.record - (uintptr_t)table->cells.groups) / 128 == first;
    }
    ck_assert_int_ge(in_cells, ALL - ALL / 100); /* small shards leave some out */
    ck_assert_int_ge(in_first, ALL / 100 * 50);
}

/* ---- Words ---- */

static const uint32_t numbers[] = { 1, 64, 127, 128, 0x55555, 0xaaaaa, (1u << RULE_BITS) - 1 };
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

TEST(a_word_keeps_length_and_rule_while_its_count_wraps_around, 10)
{
    const uint64_t counts[] = { 0, 1, UINT64_C(1) << 31, (UINT64_C(1) << (64 - WORD_COUNT_SHIFT)) - 1 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int r = 0; r < NUMBERS; r++)
            for (size_t len = 0; len < 1024; len++) {
                const uint64_t before = counts[c] << WORD_COUNT_SHIFT |
                                        (uint64_t)numbers[NUMBERS - 1 - r] << WORD_RULE_SHIFT | (1023 - len) << 1;
                for (uint64_t busy = 0; busy < 2; busy++) {
                    const uint64_t word = word_of(before | busy, numbers[r], len);
                    must(word_rule(word) == numbers[r] && word_len(word) == len, "it tells what it was made of");
                    must((word & WORD_BUSY) == 0, "it is not busy");
                    must(word >> WORD_COUNT_SHIFT == (counts[c] + 1) << WORD_COUNT_SHIFT >> WORD_COUNT_SHIFT,
                         "it has counted one change");
                    const uint64_t next = word_next(before | busy);
                    must((next & WORD_WHOSE) == (before & WORD_WHOSE) && (next & WORD_BUSY) == 0, "the same one's");
                    must(next >> WORD_COUNT_SHIFT == (counts[c] + 1) << WORD_COUNT_SHIFT >> WORD_COUNT_SHIFT,
                         "it has counted one change");
                    must(next != before, "it is another");
                }
            }
}

TEST(a_record_has_its_key_and_none_that_differs_in_a_byte, 10)
{
    struct record *record = aligned_alloc(SLAB_STEP, 256);
    unsigned char room[64], *key = room + 1; /* not aligned */
    for (size_t len = 1; len <= 40; len++)
        for (size_t from = 0; from <= 3; from++) {
            memset((void *)record, 0xa5, 256);
            for (size_t i = 0; i < len; i++)
                key[i] = (unsigned char)(i * 37 + len);
            record_write_key(record, from, weir_key(key, len));
            must(record_has_key(record, from, weir_key(key, len)), "it has its key");
            must(memcmp((const char *)record + sizeof(struct record) + from * 8, key, len) == 0,
                 "as it lies in memory");
            key[len] = 0xff; /* behind the key */
            key[-1] = 0xff;
            must(record_has_key(record, from, weir_key(key, len)), "what lies about the key makes no difference");
            for (size_t i = 0; i < len; i++)
                for (int bit = 0; bit < 8; bit++) {
                    key[i] ^= (unsigned char)(1 << bit);
                    must(!record_has_key(record, from, weir_key(key, len)), "another key");
                    key[i] ^= (unsigned char)(1 << bit);
                }
        }
    free(record);
}

/* The last word of a key is padded with zeroes, so only the length tells these keys apart. */
TEST(keys_that_differ_in_trailing_zeroes_stay_distinct, 10)
{
    OPEN_SCENE(scene, NULL);
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=100 period=365d");
    static const char zeroes[24];
    for (int round = 1; round <= 3; round++)
        for (size_t len = 1; len <= sizeof zeroes; len++) {
            struct weir_decision decision;
            must_succeed(weir_try(limit, weir_key(zeroes, len), 1, &decision));
            ck_assert_int_eq(decision.remaining, 100 - round);
        }
}

/* ---- Places ---- */

TEST(a_place_leads_only_to_its_own_entry, 10)
{
    enum { HELD = 3000 };
    static struct readers readers;
    static void *entries[HELD];
    static size_t sizes[HELD];
    static uint8_t seen[3 * SLAB_PLACES_PER_REGION];
    struct budget budget = { .max = INT64_C(1) << 40 };
    struct slab slab;
    struct chance chance = chance_make(7);
    readers_init(&readers);
    ck_assert_int_eq(slab_init_placed(&slab, &budget, &readers, 0), 0);
    for (int step = 0; step < 100000; step++) {
        const size_t i = (size_t)chance_between(&chance, 0, HELD - 1);
        if (entries[i]) {
            const uint32_t place = slab_place(&slab, entries[i], sizes[i]);
            must((place == 0) == (sizes[i] > SLAB_MAX_ENTRY), "those that are not too large have a place");
            must(place == 0 || slab_entry(&slab, place) == entries[i], "it leads there");
            if (place != 0)
                must(seen[place]-- == 1, "nobody else has it");
            slab_give(&slab, entries[i], sizes[i]);
            entries[i] = NULL;
        } else {
            sizes[i] = (size_t)chance_between(&chance, 64, SLAB_MAX_ENTRY + 50);
            must(slab_take(&slab, sizes[i], 0, &entries[i]) == SLAB_OK, "there is memory");
            const uint32_t place = slab_place(&slab, entries[i], sizes[i]);
            must(place < sizeof seen, "three regions are enough");
            if (place != 0)
                must(seen[place]++ == 0, "nobody else has it");
        }
    }
    for (size_t i = 0; i < HELD; i++)
        if (entries[i])
            slab_give(&slab, entries[i], sizes[i]);
    slab_destroy(&slab);
}

TEST(entries_beyond_the_directory_have_no_places, 10)
{
    static struct readers readers;
    struct budget budget = { .max = INT64_C(1) << 40 };
    struct slab slab;
    readers_init(&readers);
    ck_assert_int_eq(slab_init_placed(&slab, &budget, &readers, 0), 0);
    const uint32_t regions = slab.most_regions;
    int64_t placed = 0, others = 0;
    while (slab.region_count <= regions) {
        void *entry;
        must(slab_take(&slab, SLAB_MAX_ENTRY, 0, &entry) == SLAB_OK, "there is memory");
        const uint32_t place = slab_place(&slab, entry, SLAB_MAX_ENTRY);
        must(place == 0 || slab_entry(&slab, place) == entry, "it leads there");
        placed += place != 0;
        others += place == 0;
    }
    ck_assert_int_eq(placed, (int64_t)regions * 128 * 15); /* of 128 pages, with 15 entries of a kilobyte each */
    ck_assert_int_eq(others, 1);
    slab_destroy(&slab);
}

/* A holder of a hint learns when the place may belong to another class. Reused memory keeps its old content, from which
 * a word's count continues. */
TEST(a_page_counts_as_recast_when_it_serves_another_size, 10)
{
    static struct readers readers;
    struct budget budget = { .max = INT64_C(1) << 30 };
    struct slab slab;
    void *first, *second;
    readers_init(&readers);
    ck_assert_int_eq(slab_init_placed(&slab, &budget, &readers, 0), 0);
    must(slab_take(&slab, 96, 0, &first) == SLAB_OK, "there is memory");
    ck_assert_uint_eq(slab_recast(&slab), 0); /* its first class */
    const uint32_t place = slab_place(&slab, first, 96);
    memset(first, 0x5a, 96);
    slab_give(&slab, first, 96);
    must(slab_take(&slab, 90, 0, &second) == SLAB_OK, "there is memory");
    ck_assert_ptr_eq(first, second);
    ck_assert_uint_eq(slab_place(&slab, second, 90), place);
    ck_assert_uint_eq(slab_recast(&slab), 0); /* the same class */
    for (size_t i = sizeof(void *); i < 96; i++)
        ck_assert_uint_eq(((unsigned char *)second)[i], 0x5a);
    slab_give(&slab, second, 90);
    must(slab_take(&slab, 200, 0, &second) == SLAB_OK, "there is memory");
    ck_assert_uint_eq(slab_recast(&slab), 1);
    must(slab_take(&slab, 97, 0, &first) == SLAB_OK, "there is memory");
    ck_assert_uint_eq(slab_recast(&slab), 1); /* a page that is new */
    slab_give(&slab, second, 200);
    must(slab_take(&slab, 96, 0, &second) == SLAB_OK, "there is memory");
    ck_assert_uint_eq(slab_recast(&slab), 2);
    slab_destroy(&slab);
}
