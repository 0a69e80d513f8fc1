/* shard.c - a shard: finding, adding and removing its keys. */
#include "backends/memory/table.h"

#include <stdlib.h>

/* uthash expands these names where its macros are used. */
#undef HASH_INITIAL_NUM_BUCKETS
#define HASH_INITIAL_NUM_BUCKETS BUCKETS_FIRST
#undef HASH_INITIAL_NUM_BUCKETS_LOG2
#define HASH_INITIAL_NUM_BUCKETS_LOG2 3U

/* ---- Finding ---- */

size_t entry_size(const struct table *table, const struct entry *entry)
{
    if (entry_is_apart(entry))
        return entry_apart_bytes(entry_rule(table, entry)->words);
    return entry_has_own(entry) ? entry_bytes(entry_rule(table, entry)->words, entry_key_len(entry)) : sizeof *entry;
}

static uint32_t entry_place(const struct table *table, const struct entry *entry)
{
    return slab_place(&table->slab, entry, entry_size(table, entry));
}

static bool entry_is_of(const struct table *table, const struct entry *entry,
                        const struct weir_backend_request *request)
{
    if (entry->hh.hashv != (unsigned)request->hash || entry_key_len(entry) != request->key.len)
        return false;
    const struct rule *rule = entry_rule(table, entry);
    return rule->key.limit_id == request->limit_id &&
           record_has_key(entry->record, entry_key_at(entry, rule->words), request->key);
}

/* Find an entry that has a cell. */
static struct entry *shard_find_by_cells(struct table *table, const struct shard *shard,
                                         const struct weir_backend_request *request) REQUIRES(shard->mutex)
{
    for (int second = 0; second < 2; second++) {
        const struct cell_group *group = cells_group(&table->cells, shard->number, request->hash, second);
        uint64_t matches = cells_matches(group, cells_tag(request->hash));
        for (; matches != 0; matches &= matches - 1) {
            const struct record *record = cells_record(group, cells_slot(matches));
            const uint32_t place = atomic_load_explicit(cells_owner(&table->cells, record), memory_order_relaxed);
            struct entry *entry = place != 0 ? slab_entry(&table->slab, place) : NULL;
            if (entry && entry_is_of(table, entry, request))
                return entry;
        }
    }
    return NULL;
}

/* Fetch what adding a key writes to, while the lookup before it waits for the cells. */
static void shard_fetch_for(const struct table *table, const struct shard *shard, uint64_t hash) REQUIRES(shard->mutex)
{
    const uint32_t count = cells_groups(&table->cells, shard->number);
    __builtin_prefetch(shard_bucket(shard, (unsigned)hash), 1);
    for (int second = 0; second < 2; second++)
        __builtin_prefetch(
            &table->cells.owners[cells_index(&table->cells, shard->number, cells_number(hash, second, count))], 1);
}

struct entry *shard_find(struct table *table, const struct shard *shard, const struct weir_backend_request *request)
{
    const bool has_cells = shard_has_cells(table, shard);
    if (has_cells)
        shard_fetch_for(table, shard, request->hash);
    struct entry *entry = has_cells ? shard_find_by_cells(table, shard, request) : NULL;
    if (entry) {
        entry_hold(table, entry);
        return entry;
    }
    if (has_cells && !cells_are_marked(cells_group(&table->cells, shard->number, request->hash, false)))
        return NULL;
    for (UT_hash_handle *handle = shard_bucket(shard, (unsigned)request->hash)->hh_head; handle;
         handle = handle->hh_next) {
        entry = (struct entry *)handle; /* its first member */
        if (entry == shard->first || !entry_is_of(table, entry, request))
            continue;
        if (has_cells)
            cells_note(&table->cells, shard->number, request->hash, entry_place(table, entry), 0);
        entry_hold(table, entry);
        return entry;
    }
    return NULL;
}

/* ---- Memory ---- */

/* Take memory for an entry. States that keys share are few, and no look uses them: they need no pages. */
static enum slab_error entry_take(struct table *table, const struct shard *shard, size_t bytes, void **out)
{
    if (shard_has_cells(table, shard))
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
    if (shard_has_cells(table, shard)) {
        slab_give(&table->slab, entry, bytes);
    } else {
        free(entry);
        budget_give(&table->shared, (int64_t)bytes);
    }
}

/* ---- The whole shard ---- */

int shard_init(struct table *table, unsigned number)
{
    struct shard *shard = &table->shards[number];
    struct entry *head = NULL;
    shard->number = number;
    shard->first = &table->sentinels[number];
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, head, shard->first, 0, 0, shard->first);
    if (!shard->first->hh.tbl)
        return -1;
    lock_init(&shard->mutex);
    buckets_init(&shard->buckets, shard->first->hh.tbl, &table->budget);
    budget_overdraw(&table->budget, (int64_t)sizeof(UT_hash_table));
    return 0;
}

void shard_free(struct table *table, struct shard *shard)
{
    for (uint32_t i = 0; i < shard->buckets.count; i++)
        for (UT_hash_handle *handle = shard->buckets.heads[i].hh_head, *next; handle; handle = next) {
            struct entry *entry = (struct entry *)handle; /* its first member */
            next = handle->hh_next;
            if (entry == shard->first)
                continue;
            struct rule *rule = entry_rule(table, entry);
            entry_give(table, shard, entry, entry_size(table, entry));
            rule_drop(&table->rules, rule);
        }
    if (shard->recent)
        rule_drop(&table->rules, shard->recent);
    free(shard->first->hh.tbl->buckets);
    free(shard->first->hh.tbl);
    lock_destroy(&shard->mutex);
}

/* ---- One key ---- */

#define SHARD_WIDEN_MOST 8

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

/* Put an entry into its bucket. uthash would also keep the order of insertion, in the pointers that due.h uses. */
static void shard_put(struct shard *shard, struct entry *entry, const struct weir_backend_request *request,
                      bool is_apart) REQUIRES(shard->mutex)
{
    const struct entry made = { .hh = { .keylen = (unsigned)request->key.len | ENTRY_HELD |
                                                  (is_apart ? ENTRY_APART : 0),
                                        .hashv = (unsigned)request->hash } };
    entry_copy_handle(entry, &made);
    atomic_store_explicit(&entry->due_us, ENTRY_NOT_DUE, memory_order_relaxed);
    shard->first->hh.tbl->num_items++;
    buckets_put(&shard->buckets, &entry->hh);
}

/* Make an entry whose record, at least without its state, is in a cell. If there is no cell, return SLAB_OK and leave
 * *out as it is. */
static enum slab_error entry_make_in_cell(struct table *table, struct shard *shard, const struct rule *rule,
                                          const struct weir_backend_request *request, struct entry **out)
    REQUIRES(shard->mutex)
{
    void *memory;
    struct record *record = NULL;
    const bool fits = cells_fit(rule->words, request->key.len);
    const size_t bytes = fits ? sizeof(struct entry) : entry_apart_bytes(rule->words);
    if (shard_has_cells(table, shard) && (fits || cells_divide(rule->words, request->key.len)))
        record = cells_room(&table->cells, shard->number, request->hash, CELLS_MOVES, true);
    if (!record)
        return SLAB_OK;
    const enum slab_error error = entry_take(table, shard, bytes, &memory);
    if (error)
        return error;
    const uint32_t place = slab_place(&table->slab, memory, bytes);
    if (place == 0) {
        entry_give(table, shard, memory, bytes);
        return SLAB_OK;
    }
    *out = memory;
    (*out)->record = record;
    if (!fits)
        entry_set_apart(*out);
    shard_put(shard, *out, request, !fits);
    cells_fill(&table->cells, record, request->hash, place, rule, request->key);
    return SLAB_OK;
}

/* Make an entry with its own record. */
static enum slab_error entry_make_with_own(struct table *table, struct shard *shard, const struct rule *rule,
                                           const struct weir_backend_request *request, struct entry **out)
    REQUIRES(shard->mutex)
{
    void *memory;
    const size_t bytes = entry_bytes(rule->words, request->key.len);
    const enum slab_error error = entry_take(table, shard, bytes, &memory);
    if (error)
        return error;
    struct entry *entry = *out = memory;
    struct record *record = entry->record = entry_own(entry);
    /* A look that still uses the former entry in this memory must find the count continued. Looks never use
     * entries that are not in a page. */
    const bool is_paged = bytes <= SLAB_MAX_ENTRY && shard_has_cells(table, shard);
    const uint64_t word = is_paged ? record_held_word(record) : 0;
    record_release(record, word_of(word, rule->number, request->key.len) | WORD_BUSY);
    record_write_key(record, rule->words, request->key);
    shard_put(shard, entry, request, false);
    if (shard_has_cells(table, shard))
        cells_note(&table->cells, shard->number, request->hash, slab_place(&table->slab, entry, bytes), CELLS_MOVES);
    return SLAB_OK;
}

enum table_error entry_make(struct table *table, struct shard *shard, struct rule *rule,
                            const struct weir_backend_request *request, struct entry **out)
{
    struct entry *made = NULL;
    enum slab_error error = entry_make_in_cell(table, shard, rule, request, &made);
    if (!error && !made)
        error = entry_make_with_own(table, shard, rule, request, &made);
    if (error) {
        rule_drop(&table->rules, rule);
        return error == SLAB_NO_BUDGET ? TABLE_NO_ROOM : TABLE_NO_MEMORY;
    }
    *out = made;
    return TABLE_OK;
}

/* Give a shard groups while it has too few for its keys or for a new one with this hash. One is enough unless the new
 * key still finds no cell, or memory was short before. Cells never take the bytes that the key's entry needs: one of
 * `bytes`, or a page of the slab. */
static void shard_widen(struct table *table, const struct shard *shard, uint64_t hash, size_t bytes)
    REQUIRES(shard->mutex)
{
    const int64_t spare = max_of((int64_t)bytes, (int64_t)table->slab.page_bytes);
    for (int i = 0; i < SHARD_WIDEN_MOST; i++) {
        const bool is_narrow = cells_are_narrow(&table->cells, shard->number, shard->first->hh.tbl->num_items);
        if (!is_narrow && cells_room(&table->cells, shard->number, hash, CELLS_MOVES, false))
            return;
        if (!budget_has(&table->budget, CELLS_WIDEN_BYTES + spare) || !cells_widen(&table->cells, shard->number))
            return;
    }
}

enum table_error shard_add(struct table *table, struct shard *shard, const struct weir_backend_request *request,
                           const struct weir_plan *plan, uint64_t version, struct entry **out)
{
    bool counted = shard_has_cells(table, shard);
    /* Most tables that are full are so for long: read first, because every new key would move the cache line. */
    if (counted && atomic_load_explicit(&table->keys, memory_order_relaxed) >= table->max_keys)
        return TABLE_NO_ROOM;
    if (counted && atomic_fetch_add_explicit(&table->keys, 1, memory_order_relaxed) >= table->max_keys) {
        atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
        return TABLE_NO_ROOM;
    }
    struct rule *rule;
    enum table_error error = shard_rule(table, shard, request, plan, version, NULL, 0, &rule);
    /* Here and not in entry_make(), which must not move the states that its caller copies. */
    __builtin_prefetch(shard_bucket(shard, (unsigned)request->hash)->hh_head, 1);
    if (!error && counted)
        shard_widen(table, shard, request->hash, entry_bytes(rule->words, request->key.len));
    if (!error)
        error = entry_make(table, shard, rule, request, out);
    if (error) {
        if (counted)
            atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
        return error;
    }
    if (buckets_are_full(&shard->buckets, shard->first->hh.tbl->num_items))
        buckets_widen(&shard->buckets, shard->first->hh.tbl, &table->budget);
    return TABLE_OK;
}

bool shard_has_bytes(struct table *table, const struct shard *shard, const struct weir_backend_request *request,
                     size_t words)
{
    const size_t bytes = entry_bytes(words, request->key.len);
    if (!shard_has_cells(table, shard))
        return budget_has(&table->shared, (int64_t)bytes);
    const bool fits = cells_fit(words, request->key.len);
    const bool has_cell = (fits || cells_divide(words, request->key.len)) &&
                          cells_room(&table->cells, shard->number, request->hash, CELLS_MOVES, false) != NULL;
    return slab_has_room(&table->slab, !has_cell ? bytes : fits ? sizeof(struct entry) : entry_apart_bytes(words));
}

bool shard_has_room(struct table *table, const struct shard *shard, const struct weir_backend_request *request,
                    const struct weir_plan *plan)
{
    const bool is_counted = shard_has_cells(table, shard);
    return (!is_counted || atomic_load_explicit(&table->keys, memory_order_relaxed) < table->max_keys) &&
           shard_has_bytes(table, shard, request, state_words(plan)) &&
           ((shard->recent && rule_is(shard->recent, request, plan)) || rules_have_room(&table->rules, request, plan));
}

void entry_drop(struct table *table, struct shard *shard, struct entry *entry)
{
    struct rule *rule = entry_rule(table, entry);
    const size_t bytes = entry_size(table, entry);
    if (!entry_has_own(entry)) {
        cells_empty(&table->cells, entry->record);
    } else {
        record_release(entry->record, word_of(record_held_word(entry->record), 0, 0));
        if (shard_has_cells(table, shard))
            cells_move(&table->cells, shard->number, entry->hh.hashv, slab_place(&table->slab, entry, bytes), 0);
    }
    due_remove(entry);
    HASH_DEL_IN_BKT(*shard_bucket(shard, entry->hh.hashv), &entry->hh);
    shard->first->hh.tbl->num_items--;
    entry_give(table, shard, entry, bytes);
    rule_drop(&table->rules, rule);
}

void shard_remove(struct table *table, struct shard *shard, struct entry *entry)
{
    entry_drop(table, shard, entry);
    if (shard_has_cells(table, shard))
        atomic_fetch_sub_explicit(&table->keys, 1, memory_order_relaxed);
}
