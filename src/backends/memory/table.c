/* table.c - finding, adding, moving and removing keys. */
#include "backends/memory/table.h"

#include "backends/shared/wait_briefly.h"
#include "core/ground/arith.h"

#include <stdlib.h>

/* Put uthash's own growth out of reach: shard_grow() decides. uthash expands these names where its macros are
 * used. */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 0x7fffffffU
#undef HASH_INITIAL_NUM_BUCKETS
#define HASH_INITIAL_NUM_BUCKETS 8U
#undef HASH_INITIAL_NUM_BUCKETS_LOG2
#define HASH_INITIAL_NUM_BUCKETS_LOG2 3U

/* ---- Finding ---- */

/* Waits for three stores as a rule, or until a thread that was preempted between them runs again. */
void entry_hold(struct entry *entry)
{
    uint64_t word = entry_word(entry) & ~WORD_BUSY;
    for (int tries = 0; !entry_claim(entry, &word); tries++) {
        word &= ~WORD_BUSY;
        wait_briefly(tries);
    }
}

static uint32_t entry_place(const struct table *table, const struct entry *entry)
{
    return slab_place(&table->slab, entry, entry_bytes(entry_rule(table, entry)->words, entry->hh.keylen));
}

static bool entry_is_of(const struct table *table, const struct entry *entry,
                        const struct weir_backend_request *request)
{
    const struct rule *rule = entry_rule(table, entry);
    return rule->key.limit_id == request->limit_id && entry_has_key(entry, rule->words, request->key);
}

struct entry *shard_find(struct table *table, const struct shard *shard, const struct weir_backend_request *request)
{
    const unsigned hash = (unsigned)request->hash;
    if (shard_is_indexed(table, shard)) {
        const struct index_line *line = index_line(&table->index, shard->number, hash);
        uint64_t matches = index_matches(line, index_tag(request->hash));
        for (; matches != 0; matches &= matches - 1) {
            const uint32_t place = index_place(line, index_first(matches));
            struct entry *entry = place != 0 ? slab_entry(&table->slab, place) : NULL;
            if (entry && entry->hh.hashv == hash && entry->hh.keylen == request->key.len &&
                entry_is_of(table, entry, request)) {
                entry_hold(entry);
                return entry;
            }
        }
        if (!index_has_spilled(line))
            return NULL;
    }
    for (UT_hash_handle *handle = shard_bucket(shard, hash)->hh_head; handle; handle = handle->hh_next) {
        struct entry *entry = (struct entry *)handle; /* its first member */
        if (handle->hashv == hash && handle->keylen == request->key.len && entry_is_of(table, entry, request)) {
            if (shard_is_indexed(table, shard))
                index_put_found(&table->index, shard->number, request->hash, entry_place(table, entry));
            entry_hold(entry);
            return entry;
        }
    }
    return NULL;
}

/* ---- Memory ---- */

/* Take memory for an entry. States that keys share are few, and no look uses them: they need no pages. */
static enum slab_error entry_take(struct table *table, const struct shard *shard, size_t bytes, void **out)
{
    if (shard_is_indexed(table, shard))
        return slab_take(&table->slab, bytes, shard->number, out);
    if (!budget_take(&table->shared, (int64_t)bytes))
        return SLAB_NO_BUDGET;
    *out = malloc(bytes);
    if (!*out)
        budget_give(&table->shared, (int64_t)bytes);
    return *out ? SLAB_OK : SLAB_NO_MEMORY;
}

static void entry_give(struct table *table, const struct shard *shard, struct entry *entry, size_t bytes)
{
    if (shard_is_indexed(table, shard)) {
        slab_give(&table->slab, entry, bytes);
    } else {
        free(entry);
        budget_give(&table->shared, (int64_t)bytes);
    }
}

/* ---- The whole table ---- */

#define LEAST_BYTES_PER_KEY 96 /* bytes that keys are expected to take at least: entries of short ones */

static size_t shard_count_for(int64_t max_keys, int64_t max_bytes)
{
    int64_t keys = min_of(max_keys, max_bytes / 256);
    size_t count = TABLE_MIN_SHARDS;
    while (count < TABLE_MAX_SHARDS && (int64_t)count * TABLE_KEYS_PER_SHARD < keys)
        count *= 2;
    return count;
}

/* Return the load at which a shard grows: 1.5 to 2.38 entries a bucket, different in neighbouring shards. */
static unsigned shard_grow_at(const struct shard *shard, unsigned buckets)
{
    return buckets / 8 * (12 + shard->number % 8) + 8;
}

static void shard_table_changed(struct shard *shard)
{
    const UT_hash_table *table = shard->first->hh.tbl;
    shard->buckets = table->buckets;
    shard->bucket_mask = table->num_buckets - 1;
    shard->grow_at = shard_grow_at(shard, table->num_buckets);
}

static int64_t shard_buckets_bytes(const struct shard *shard)
{
    return (int64_t)shard->first->hh.tbl->num_buckets * (int64_t)sizeof(UT_hash_bucket);
}

static int shard_init(struct table *table, unsigned number)
{
    struct shard *shard = &table->shards[number];
    struct entry *head = NULL;
    shard->number = number;
    shard->first = &table->sentinels[number];
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, head, shard->first, 0, 0, shard->first);
    if (!shard->first->hh.tbl)
        return -1;
    lock_init(&shard->mutex);
    shard_table_changed(shard);
    budget_overdraw(&table->budget, shard_buckets_bytes(shard) + (int64_t)sizeof(UT_hash_table));
    return 0;
}

static void shard_free(struct table *table, struct shard *shard)
{
    for (unsigned i = 0; i <= shard->bucket_mask; i++)
        for (UT_hash_handle *handle = shard->buckets[i].hh_head, *next; handle; handle = next) {
            struct entry *entry = (struct entry *)handle; /* its first member */
            next = handle->hh_next;
            if (entry == shard->first)
                continue;
            struct rule *rule = entry_rule(table, entry);
            entry_give(table, shard, entry, entry_bytes(rule->words, handle->keylen));
            rule_drop(&table->rules, rule);
        }
    if (shard->recent)
        rule_drop(&table->rules, shard->recent);
    free(shard->first->hh.tbl->buckets);
    free(shard->first->hh.tbl);
    lock_destroy(&shard->mutex);
}

static void table_free_shards(struct table *table, size_t made)
{
    for (size_t i = 0; i < made; i++)
        shard_free(table, &table->shards[i]);
    free(table->soonest_us);
    free(table->sentinels);
    free(table->shards);
    index_free(&table->index);
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
    failed |= index_init(&table->index, count, keys_per_shard, &table->budget);
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

/* ---- One key ---- */

enum table_error shard_rule(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                            const struct weir_plan *plan, uint64_t version, const struct weir_plan *former,
                            size_t spare_words, struct rule **out)
{
    const bool is_plain = !former && spare_words == 0;
    if (is_plain && shard->recent && rule_is(shard->recent, request, plan)) {
        rule_hold(shard->recent);
        rule_raise(shard->recent, version);
        *out = shard->recent;
        return TABLE_OK;
    }
    bool is_spent = false;
    struct rule *rule = rule_get(&table->rules, request, plan, version, former, spare_words, &is_spent);
    if (!rule)
        return is_spent ? TABLE_NO_ROOM : TABLE_NO_MEMORY;
    if (is_plain) {
        if (shard->recent)
            rule_drop(&table->rules, shard->recent);
        rule_hold(rule);
        shard->recent = rule;
    }
    *out = rule;
    return TABLE_OK;
}

static void table_fetch_hash(void *slab, uint32_t place)
{
    const struct entry *entry = slab_entry(slab, place);
    __builtin_prefetch(&entry->hh.hashv);
}

/* Prefetch all entries of a shard that is about to grow. uthash walks bucket after bucket and waits for each
 * entry to be loaded before it knows the next. Among millions of uncached entries, these waits are most of the
 * time of growing. The index knows all places, so their loads overlap. */
static void shard_fetch(struct table *table, const struct shard *shard) REQUIRES(shard->mutex)
{
    const uint32_t lines = index_lines(&table->index, shard->number);
    for (uint32_t i = 0; i < lines; i++)
        for (unsigned slot = 0; slot < INDEX_SLOTS; slot++) {
            const uint32_t place = index_place(index_line_at(&table->index, shard->number, i), slot);
            if (place != 0)
                table_fetch_hash(&table->slab, place);
        }
}

static void shard_grow(struct table *table, struct shard *shard) REQUIRES(shard->mutex)
{
    int64_t old_bytes = shard_buckets_bytes(shard);
    int oomed = 0;
    if (!budget_take(&table->budget, 2 * old_bytes))
        return;
    if (shard_is_indexed(table, shard))
        shard_fetch(table, shard);
    HASH_EXPAND_BUCKETS(hh, shard->first->hh.tbl, oomed);
    budget_give(&table->budget, oomed ? 2 * old_bytes : old_bytes);
    shard_table_changed(shard);
}

static uint32_t table_hash_of(void *slab, uint32_t place)
{
    const struct entry *entry = slab_entry(slab, place);
    return entry->hh.hashv;
}

static void entry_index(struct table *table, struct shard *shard, const struct entry *entry, uint64_t hash,
                        size_t bytes) REQUIRES(shard->mutex)
{
    if (!shard_is_indexed(table, shard))
        return;
    index_put(&table->index, shard->number, hash, slab_place(&table->slab, entry, bytes));
    if (index_is_narrow(&table->index, shard->number, shard->first->hh.tbl->num_items))
        index_widen(&table->index, shard->number, table_fetch_hash, table_hash_of, &table->slab);
}

/* Put an entry into its bucket. uthash would also keep the order of insertion, in the pointers that due.h uses. */
static void shard_put(struct shard *shard, struct entry *entry, const struct weir_backend_request *request)
    REQUIRES(shard->mutex)
{
    int oomed = 0;
    UT_hash_table *table = shard->first->hh.tbl;
    const struct entry made = {
        .hh = { .tbl = table, .keylen = (unsigned)request->key.len, .hashv = (unsigned)request->hash }
    };
    entry_copy_handle(entry, &made);
    atomic_store_explicit(&entry->due_us, ENTRY_NOT_DUE, memory_order_relaxed);
    table->num_items++;
    HASH_ADD_TO_BKT(*shard_bucket(shard, entry->hh.hashv), hh, &entry->hh, oomed);
}

enum table_error entry_make(struct table *table, struct shard *shard, struct rule *rule,
                            const struct weir_backend_request *request, struct entry **out)
{
    void *memory;
    const size_t bytes = entry_bytes(rule->words, request->key.len), key_at = rule->words;
    enum slab_error error = entry_take(table, shard, bytes, &memory);
    if (error) {
        rule_drop(&table->rules, rule);
        return error == SLAB_NO_BUDGET ? TABLE_NO_ROOM : TABLE_NO_MEMORY;
    }
    struct entry *entry = memory;
    /* A look that still uses the former entry in this memory must find the count continued. Looks never use
     * entries that are not in a page. */
    const bool is_paged = bytes <= SLAB_MAX_ENTRY && shard_is_indexed(table, shard);
    const uint64_t word = is_paged ? atomic_load_explicit(&entry->word, memory_order_relaxed) : 0;
    atomic_store_explicit(&entry->word, word_of(word, rule->number, request->key.len) | WORD_BUSY,
                          memory_order_release);
    entry_write_key(entry, key_at, request->key);
    shard_put(shard, entry, request);
    entry_index(table, shard, entry, request->hash, bytes);
    *out = entry;
    return TABLE_OK;
}

enum table_error shard_add(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, struct entry **out)
{
    bool counted = shard_is_indexed(table, shard);
    /* Most tables that are full are so for long: read first, because every new key would move the cache line. */
    if (counted && atomic_load_explicit(&table->keys, memory_order_relaxed) >= table->max_keys)
        return TABLE_NO_ROOM;
    if (counted && atomic_fetch_add_explicit(&table->keys, 1, memory_order_relaxed) >= table->max_keys) {
        atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
        return TABLE_NO_ROOM;
    }
    struct rule *rule;
    enum table_error error = shard_rule(table, shard, request, plan, version, NULL, 0, &rule);
    if (!error)
        error = entry_make(table, shard, rule, request, out);
    if (error) {
        if (counted)
            atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
        return error;
    }
    if (shard->first->hh.tbl->num_items > shard->grow_at)
        shard_grow(table, shard);
    return TABLE_OK;
}

bool shard_has_bytes(struct table *table, const struct shard *shard, size_t words, size_t key_len)
{
    const size_t bytes = entry_bytes(words, key_len);
    return shard_is_indexed(table, shard) ? slab_has_room(&table->slab, bytes)
                                          : budget_has(&table->shared, (int64_t)bytes);
}

bool shard_has_room(struct table *table, const struct shard *shard, const struct weir_backend_request *request,
                    const struct weir_plan *plan)
{
    const bool is_counted = shard_is_indexed(table, shard);
    return (!is_counted || atomic_load_explicit(&table->keys, memory_order_relaxed) < table->max_keys) &&
           shard_has_bytes(table, shard, state_words(plan), request->key.len) &&
           ((shard->recent && rule_is(shard->recent, request, plan)) || rules_have_room(&table->rules, request, plan));
}

void entry_drop(struct table *table, struct shard *shard, struct entry *entry)
{
    struct rule *rule = entry_rule(table, entry);
    size_t bytes = entry_bytes(rule->words, entry->hh.keylen);
    entry_release(entry, word_of(atomic_load_explicit(&entry->word, memory_order_relaxed), 0, 0));
    if (shard_is_indexed(table, shard))
        index_move(&table->index, shard->number, entry->hh.hashv, slab_place(&table->slab, entry, bytes), 0);
    due_remove(entry);
    HASH_DEL_IN_BKT(*shard_bucket(shard, entry->hh.hashv), &entry->hh);
    shard->first->hh.tbl->num_items--;
    entry_give(table, shard, entry, bytes);
    rule_drop(&table->rules, rule);
}

void shard_remove(struct table *table, struct shard *shard, struct entry *entry)
{
    entry_drop(table, shard, entry);
    if (shard_is_indexed(table, shard))
        atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
}
