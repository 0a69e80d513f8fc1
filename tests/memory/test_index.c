/* test_index.c - the parts of a lookup: index, an entry's word and key, and places, each against a naive model.
 */
#include "support.h"

#include "backends/memory/look.h"
#include "backends/memory/memory.h"
#include "core/api/verbs.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- The index by itself ---- */

enum { SHARDS = 4, MODEL_MOST = 400 };

struct noted {
    uint64_t hash;
    uint32_t place;
    int in_shard; /* -1: it is not there */
};

/* Place i + 1 is that of notes[i]. */
struct model {
    struct budget budget;
    struct index index;
    struct noted notes[MODEL_MOST];
    int fetched;
};

static void model_fetch(void *user, uint32_t place)
{
    struct model *model = user;
    must(place >= 1 && place <= MODEL_MOST, "it is a place that was noted");
    model->fetched++;
}

static uint32_t model_hash_of(void *user, uint32_t place)
{
    const struct model *model = user;
    must(place >= 1 && place <= MODEL_MOST, "it is a place that was noted");
    return (uint32_t)model->notes[place - 1].hash;
}

static uint64_t naive_tag(const struct index_line *line, unsigned slot)
{
    return atomic_load(&line->tags[slot / 8]) >> 8 * (slot % 8) & 0xff;
}

/* With this processor's instructions and with portable code. */
static bool is_matched(const struct index_line *line, uint64_t tag, unsigned slot)
{
    bool is_first = false, is_first_by_words = false;
    for (uint64_t matches = index_matches(line, tag); matches != 0; matches &= matches - 1)
        is_first |= index_first(matches) == slot;
    for (uint64_t matches = index_matches_by_words(line, tag); matches != 0; matches &= matches - 1)
        is_first_by_words |= index_first_by_words(matches) == slot;
    must(is_first == is_first_by_words, "both find the same");
    return is_first;
}

/* Assert that each used slot has a tag and one entry that belongs there, and that lines beyond the last are empty. */
static uint64_t assert_line_is_right(const struct model *model, int shard, uint32_t number, bool *seen)
{
    const struct index_line *line = index_line_at(&model->index, (size_t)shard, number);
    uint64_t filled = 0;
    for (unsigned slot = 0; slot < INDEX_SLOTS; slot++) {
        const uint64_t tag = naive_tag(line, slot);
        const uint32_t place = index_place(line, slot);
        must((tag == 0) == (place == 0), "a slot has both or none");
        if (tag == 0)
            continue;
        const struct noted *noted = &model->notes[place - 1];
        must(place <= MODEL_MOST && !seen[place - 1], "a place stands in one slot");
        must(noted->in_shard == shard && noted->place == place, "what is noted is there");
        must(index_line(&model->index, (size_t)shard, noted->hash) == line, "it is in its line");
        must(index_tag(noted->hash) == tag && tag >= 1 && tag <= 255, "it has its tag");
        must(is_matched(line, tag, slot), "it is found by its tag");
        must(!is_matched(line, tag % 255 + 1, slot), "it is not by another");
        seen[place - 1] = true;
        filled++;
    }
    return filled;
}

static void assert_index_is_right(const struct model *model)
{
    bool seen[MODEL_MOST] = { false };
    for (int shard = 0; shard < SHARDS; shard++)
        for (uint32_t number = 0; number < model->index.most_lines; number++) {
            const uint64_t filled = assert_line_is_right(model, shard, number, seen);
            must(filled == 0 || number < atomic_load(&model->index.counts[shard]), "beyond the last line is nothing");
        }
    for (int i = 0; i < MODEL_MOST; i++) {
        const struct noted *noted = &model->notes[i];
        must(noted->in_shard < 0 || seen[i] ||
                 index_has_spilled(index_line(&model->index, (size_t)noted->in_shard, noted->hash)),
             "what is not found in its line has spilled");
    }
}

static uint64_t hash_by_chance(struct chance *chance)
{
    static const uint64_t ends[] = { 0, 1, UINT32_MAX, UINT32_MAX - 1, UINT64_C(1) << 31, (UINT64_C(1) << 31) - 1 };
    const uint64_t hash = chance_next(chance);
    switch (chance_between(chance, 0, 7)) {
    case 0: return hash & ~(UINT64_C(0xff) << 32); /* a tag of 0 */
    case 1: return (hash & ~(uint64_t)UINT32_MAX) | ends[chance_between(chance, 0, 5)];
    default: return hash;
    }
}

static uint64_t keys_in(const struct model *model, int shard)
{
    uint64_t keys = 0;
    for (int i = 0; i < MODEL_MOST; i++)
        keys += model->notes[i].in_shard == shard;
    return keys;
}

TEST(what_is_noted_is_found_in_its_line_or_the_line_has_spilled, 30)
{
    static struct model model;
    for (int run = 0; run < 20; run++) {
        struct chance chance = chance_make((uint64_t)run);
        memset(&model, 0, sizeof model);
        model.budget.max = run % 4 == 3 ? 3000 : 1 << 20; /* some runs end without room for more lines */
        must(index_init(&model.index, SHARDS, run % 2 ? 20 : 200, &model.budget) == 0, "there is memory");
        for (int i = 0; i < MODEL_MOST; i++)
            model.notes[i].in_shard = -1;
        for (int step = 0; step < 3000; step++) {
            struct noted *noted = &model.notes[chance_between(&chance, 0, MODEL_MOST - 1)];
            if (noted->in_shard >= 0) {
                index_move(&model.index, (size_t)noted->in_shard, noted->hash, noted->place, 0);
                noted->in_shard = -1;
            } else if (step % 1000 < 700 || chance_one_in(&chance, 4)) {
                noted->in_shard = (int)chance_between(&chance, 0, SHARDS - 1);
                noted->hash = hash_by_chance(&chance);
                noted->place = chance_one_in(&chance, 200) ? 0 : (uint32_t)(noted - model.notes) + 1;
                index_put(&model.index, (size_t)noted->in_shard, noted->hash, noted->place);
                const uint64_t keys = keys_in(&model, noted->in_shard);
                if (index_is_narrow(&model.index, (size_t)noted->in_shard, keys))
                    index_widen(&model.index, (size_t)noted->in_shard, model_fetch, model_hash_of, &model);
            }
            if (step % 10 == 0)
                assert_index_is_right(&model);
        }
        assert_index_is_right(&model);
        ck_assert_int_gt(model.fetched, 0);
        int64_t lines = 0;
        for (int shard = 0; shard < SHARDS; shard++)
            lines += atomic_load(&model.index.counts[shard]);
        const int64_t bytes = lines * (int64_t)sizeof(struct index_line) + SHARDS * (int64_t)sizeof(uint32_t);
        ck_assert_uint_eq(model.index.pages, 0);
        ck_assert_int_eq(atomic_load(&model.budget.used), bytes);
        index_free(&model.index);
    }
}

/* With the mutex, a lookup reads only one line unless the line has spilled. */
TEST(a_line_that_was_full_or_told_of_no_place_has_spilled_for_ever, 10)
{
    static struct model model;
    memset(&model, 0, sizeof model);
    model.budget.max = 1 << 20;
    must(index_init(&model.index, 1, 200, &model.budget) == 0, "there is memory");
    const struct index_line *line = index_line(&model.index, 0, 0);
    for (int i = 0; i <= INDEX_SLOTS; i++) {
        ck_assert_int_eq(index_has_spilled(line), 0);
        model.notes[i] = (struct noted){ .hash = (uint64_t)i << 32, .place = (uint32_t)i + 1 };
        index_put(&model.index, 0, model.notes[i].hash, model.notes[i].place);
    }
    ck_assert(index_has_spilled(line));
    for (int i = 0; i <= INDEX_SLOTS; i++)
        index_move(&model.index, 0, model.notes[i].hash, model.notes[i].place, 0);
    ck_assert(index_has_spilled(line));
    for (int i = 0; i < 5; i++) {
        index_widen(&model.index, 0, model_fetch, model_hash_of, &model);
        for (uint32_t hash = 0; hash < 16; hash++)
            ck_assert(index_has_spilled(index_line(&model.index, 0, hash << 28)));
    }
    index_free(&model.index);

    must(index_init(&model.index, 1, 200, &model.budget) == 0, "there is memory");
    index_put(&model.index, 0, 0, 0);
    ck_assert(index_has_spilled(index_line(&model.index, 0, 0)));
    index_free(&model.index);
}

/* All lines are distinct, and those that a shard gets together are adjacent. */
TEST(each_line_of_each_shard_has_its_place_in_the_mapping, 30)
{
    static const int64_t keys[] = { 0, 7, 8, 20, 200, 1024, 1365, 2047, 2048 };
    static bool seen[(size_t)1023 << 9];
    for (size_t shards = 1; shards <= 512; shards *= 2)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            struct budget budget = { .max = 1 << 20 };
            CLOSED_BY(index_free) struct index index;
            must(index_init(&index, shards, keys[k], &budget) == 0, "there is memory");
            must((index.most_lines & (index.most_lines + 1)) == 0, "all lines of the last level");
            must(index.most_lines >= 2 + keys[k] / INDEX_KEYS_MOST * 3 / 2, "as many as it takes");
            must(index.most_lines <= 2 * (2 + keys[k] / INDEX_KEYS_MOST * 3 / 2), "and not many more");
            const size_t lines = index.most_lines * shards;
            must(lines <= sizeof seen, "there is room to note them");
            memset(seen, 0, lines);
            for (size_t shard = 0; shard < shards; shard++)
                for (uint32_t number = 0; number < index.most_lines; number++) {
                    const size_t at = (size_t)(index_line_at(&index, shard, number) - index.lines);
                    must(at < lines, "it is in the mapping");
                    must(!seen[at], "it is no other's");
                    seen[at] = true;
                    if (number == 0)
                        must(at == shard, "first lines are side by side");
                    else if ((number & (number + 1)) != 0) /* not the first of a level */
                        must(index_line_at(&index, shard, number) == index_line_at(&index, shard, number - 1) + 1,
                             "those of a shard in a level are side by side");
                }
        }
}

/* As many keys in each shard as one line holds are found, with one line and with the most lines. */
TEST(keys_stay_found_from_one_line_to_the_most, 30)
{
    static struct model model;
    for (int shards = 1; shards <= 32; shards *= 2)
        for (int64_t keys = 1; keys <= 2048; keys *= 2) {
            const int noted = shards * INDEX_SLOTS;
            struct chance chance = chance_make((uint64_t)(keys * shards));
            must(noted <= MODEL_MOST, "there is room to note them");
            memset(&model, 0, sizeof model);
            model.budget.max = INT64_C(1) << 30;
            must(index_init(&model.index, (size_t)shards, keys, &model.budget) == 0, "there is memory");
            for (int i = 0; i < noted; i++) {
                model.notes[i] = (struct noted){ hash_by_chance(&chance), (uint32_t)i + 1, i % shards };
                index_put(&model.index, (size_t)(i % shards), model.notes[i].hash, model.notes[i].place);
            }
            for (int shard = 0; shard < shards; shard++) {
                uint32_t count = 1;
                while (count < model.index.most_lines) {
                    bool seen[MODEL_MOST] = { false };
                    uint64_t found = 0;
                    index_widen(&model.index, (size_t)shard, model_fetch, model_hash_of, &model);
                    must(index_lines(&model.index, (size_t)shard) > count, "it has more lines");
                    count = index_lines(&model.index, (size_t)shard);
                    for (uint32_t number = 0; number < model.index.most_lines; number++)
                        found += assert_line_is_right(&model, shard, number, seen);
                    must(found == INDEX_SLOTS, "all of its keys are there");
                }
                must(count == model.index.most_lines, "and never more than the most");
            }
            for (int i = 0; i < noted; i++)
                must(!index_has_spilled(index_line(&model.index, (size_t)(i % shards), model.notes[i].hash)),
                     "none has spilled");
            index_free(&model.index);
        }
}

/* ---- The index of a table ---- */

enum { LIMITS = 3, KEYS = 3000 };

struct walk {
    struct scene scene;
    struct table *table;
    weir_limit *limits[LIMITS];
};

static bool is_in_line(const struct table *table, const struct index_line *line, uint64_t hash,
                       const struct entry *entry)
{
    for (uint64_t matches = index_matches(line, index_tag(hash)); matches != 0; matches &= matches - 1)
        if (slab_entry(&table->slab, index_place(line, index_first(matches))) == entry)
            return true;
    return false;
}

/* Assert that the index finds every entry of uthash's buckets, unless its line has spilled, and that they have every
 * entry of the index. */
static void assert_table_is_indexed(struct walk *walk)
{
    const struct table *table = walk->table;
    int64_t keys = 0;
    for (size_t s = 0; s < table->shard_count; s++) {
        int64_t found = 0, slots = 0;
        unsigned items = 1; /* the sentinel */
        for (unsigned bucket = 0; bucket <= table->shards[s].bucket_mask; bucket++)
            for (UT_hash_handle *handle = table->shards[s].buckets[bucket].hh_head; handle; handle = handle->hh_next) {
                struct entry *entry = (struct entry *)handle;
                if (entry == table->shards[s].first)
                    continue;
                items++;
                const struct rule *rule = entry_rule(table, entry);
                const struct weir_key key = weir_key((const void *)&entry->cells[rule->words], entry->hh.keylen);
                const uint64_t hash = key_hash(walk->limits[rule->key.limit_id], key);
                const struct index_line *line = index_line(&table->index, s, hash);
                const bool is_found = is_in_line(table, line, hash, entry);
                must(entry->hh.hashv == (uint32_t)hash, "it is under its hash");
                must(word_len(entry_word(entry)) == (key.len & 1023), "its word tells its length");
                must((entry_word(entry) & WORD_BUSY) == 0, "nobody has claimed it");
                must(is_found || index_has_spilled(line), "it is found, or its line has spilled");
                found += is_found;
                keys++;
            }
        for (uint32_t number = 0; number < table->index.most_lines; number++)
            for (unsigned slot = 0; slot < INDEX_SLOTS; slot++)
                slots += naive_tag(index_line_at(&table->index, s, number), slot) != 0;
        must(slots == found, "the index says no more than there is");
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

TEST(every_entry_of_a_table_is_found_by_its_line_or_that_has_spilled, 60)
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
                assert_table_is_indexed(&walk);
        }
        assert_table_is_indexed(&walk);
        for (size_t s = 0; s < walk.table->shard_count; s++)
            if (atomic_load(&walk.table->index.counts[s]) > widest)
                widest = atomic_load(&walk.table->index.counts[s]);
        ck_assert_uint_gt(widest, run >= 2 ? 0 : 5);
        scene_close(&walk.scene);
    }
}

/* ---- Words ---- */

static const uint32_t numbers[] = { 1, 64, 127, 128, 0x55555, 0xaaaaa, (1u << RULE_BITS) - 1 };
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

TEST(a_word_tells_length_and_rule_while_its_count_goes_round, 10)
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

TEST(an_entry_has_its_key_and_none_that_differs_in_a_byte, 10)
{
    struct entry *entry = aligned_alloc(SLAB_STEP, 256);
    unsigned char room[64], *key = room + 1; /* not aligned */
    for (size_t len = 1; len <= 40; len++)
        for (size_t from = 0; from <= 3; from++) {
            memset((void *)entry, 0xa5, 256);
            for (size_t i = 0; i < len; i++)
                key[i] = (unsigned char)(i * 37 + len);
            entry_write_key(entry, from, weir_key(key, len));
            must(entry_has_key(entry, from, weir_key(key, len)), "it has its key");
            must(memcmp((const char *)entry + sizeof(struct entry) + from * 8, key, len) == 0, "as it lies in memory");
            key[len] = 0xff; /* behind the key */
            key[-1] = 0xff;
            must(entry_has_key(entry, from, weir_key(key, len)), "what lies about the key makes no difference");
            for (size_t i = 0; i < len; i++)
                for (int bit = 0; bit < 8; bit++) {
                    key[i] ^= (unsigned char)(1 << bit);
                    must(!entry_has_key(entry, from, weir_key(key, len)), "another key");
                    key[i] ^= (unsigned char)(1 << bit);
                }
        }
    free(entry);
}

/* The last word of a key is padded with zeroes, so only the length tells these keys apart. */
TEST(keys_that_end_in_zeroes_are_keys_of_their_own, 10)
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

TEST(a_place_leads_to_its_entry_and_to_none_else, 10)
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
