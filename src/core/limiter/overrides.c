/* overrides.c - a set of patterns, found by hash: one probe for the key, and one for each length of a prefix.
 *
 * Collisions probe the next slot; the table is never more than half full. A prefix and a single key may have the same
 * bytes and then are neighbours.
 */
#include "core/limiter/overrides.h"

#include "core/limiter/candidate.h"
#include "core/limiter/figures.h"
#include "core/limiter/limiter.h"

#include <stdlib.h>

enum { SLOTS_AT_FIRST = 8, INSERTED_MOST = 16 };

struct overrides *overrides_make(void)
{
    return calloc(1, sizeof(struct overrides));
}

void overrides_free(struct overrides *overrides)
{
    if (!overrides)
        return;
    for (size_t i = 0; i < overrides->count; i++) {
        figures_free(overrides->all[i]->limit);
        candidate_free(overrides->all[i]->limit);
        free(overrides->all[i]->limit);
        free(overrides->all[i]);
    }
    struct override_table *table = atomic_load_explicit(&overrides->table, memory_order_relaxed);
    while (table) {
        struct override_table *older = table->older;
        free(table);
        table = older;
    }
    free(overrides->all);
    free(overrides);
}

/* ---- Readers ---- */

static struct override *probe(const struct override_table *table, const void *bytes, size_t len, bool is_prefix,
                              uint64_t hash)
{
    for (size_t i = (size_t)hash & table->mask;; i = (i + 1) & table->mask) {
        struct override *found = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (!found)
            return NULL;
        if (found->hash == hash && found->is_prefix == is_prefix && found->len == len &&
            memcmp(found->bytes, bytes, len) == 0)
            return found;
    }
}

static bool override_is_in_force(const struct override *override)
{
    return override && atomic_load_explicit(&override->in_force, memory_order_acquire);
}

/* Return the bits of a word that stand for lengths of at most `len`. */
static uint64_t lens_within(size_t word, size_t len)
{
    const size_t first = word * 64;
    if (len < first)
        return 0;
    return len - first >= 63 ? UINT64_MAX : (UINT64_C(2) << (len - first)) - 1;
}

/* The lengths are read without order: a thread that has been told of an override sees its length, and other threads may
 * as well have asked before it existed. */
struct weir_limit *overrides_find(const struct overrides *overrides, struct weir_limit *limit, struct weir_key key,
                                  uint64_t hash)
{
    const struct override_table *table = atomic_load_explicit(&overrides->table, memory_order_acquire);
    if (!table)
        return limit;
    const struct override *found = probe(table, key.data, key.len, false, hash);
    if (override_is_in_force(found))
        return found->limit;
    for (size_t word = OVERRIDE_LEN_WORDS; word-- > 0;) {
        uint64_t lens = atomic_load_explicit(&overrides->prefix_lens[word], memory_order_relaxed);
        lens &= lens_within(word, key.len);
        while (lens) {
            const unsigned bit = 63 - (unsigned)__builtin_clzll(lens);
            const size_t len = word * 64 + bit;
            lens &= ~(UINT64_C(1) << bit);
            found = probe(table, key.data, len, true, key_hash(limit, weir_key(key.data, len)));
            if (override_is_in_force(found))
                return found->limit;
        }
    }
    return limit;
}

struct override *overrides_get(const struct overrides *overrides, const struct pattern *pattern, uint64_t hash)
{
    const struct override_table *table = atomic_load_explicit(&overrides->table, memory_order_acquire);
    return table ? probe(table, pattern->bytes, pattern->len, pattern->is_prefix, hash) : NULL;
}

/* ---- The writer ---- */

static void table_put(struct override_table *table, struct override *added)
{
    size_t i = (size_t)added->hash & table->mask;
    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed))
        i = (i + 1) & table->mask;
    atomic_store_explicit(&table->slots[i], added, memory_order_release);
}

static int grow(struct overrides *overrides)
{
    struct override_table *older = atomic_load_explicit(&overrides->table, memory_order_relaxed);
    const size_t slots = older ? 2 * (older->mask + 1) : SLOTS_AT_FIRST;
    struct override_table *table = calloc(1, sizeof *table + slots * sizeof table->slots[0]);
    if (!table)
        return WEIR_ENOMEM;
    table->mask = slots - 1;
    table->older = older;
    for (size_t i = 0; i < overrides->count; i++)
        table_put(table, overrides->all[i]);
    atomic_store_explicit(&overrides->table, table, memory_order_release);
    return WEIR_OK;
}

int overrides_reserve(struct overrides *overrides)
{
    const struct override_table *table = atomic_load_explicit(&overrides->table, memory_order_relaxed);
    if (overrides->count == overrides->room) {
        const size_t room = overrides->room ? 2 * overrides->room : SLOTS_AT_FIRST / 2;
        struct override **all = realloc(overrides->all, room * sizeof(struct override *));
        if (!all)
            return WEIR_ENOMEM;
        overrides->all = all;
        overrides->room = room;
    }
    return !table || overrides->count >= (table->mask + 1) / 2 ? grow(overrides) : WEIR_OK;
}

void overrides_add(struct overrides *overrides, struct override *added)
{
    overrides->all[overrides->count++] = added;
    table_put(atomic_load_explicit(&overrides->table, memory_order_relaxed), added);
    if (added->is_prefix)
        atomic_fetch_or_explicit(&overrides->prefix_lens[added->len / 64], UINT64_C(1) << added->len % 64,
                                 memory_order_relaxed);
}

/* ---- The order ---- */

/* A prefix is before what begins with it, and before the single key of the same bytes. */
static int by_bytes(const struct override *a, const struct override *b)
{
    const int order = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
    if (order != 0)
        return order;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return (int)b->is_prefix - (int)a->is_prefix;
}

static int by_bytes_of(const void *a, const void *b)
{
    return by_bytes(*(struct override *const *)a, *(struct override *const *)b);
}

/* Return the place of the first of the sorted ones that is behind this one. */
static size_t place_behind(const struct overrides *overrides, const struct override *one)
{
    size_t low = 0, high = overrides->sorted;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_bytes(one, overrides->all[middle]) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* A few are inserted, because to sort all of them again reads the bytes of each. */
void overrides_sort(struct overrides *overrides)
{
    if (overrides->count - overrides->sorted > INSERTED_MOST) {
        qsort(overrides->all, overrides->count, sizeof *overrides->all, by_bytes_of);
        overrides->sorted = overrides->count;
    }
    for (; overrides->sorted < overrides->count; overrides->sorted++) {
        struct override *one = overrides->all[overrides->sorted], **place = overrides->all;
        place += place_behind(overrides, one);
        memmove(place + 1, place, (size_t)(overrides->all + overrides->sorted - place) * sizeof *place);
        *place = one;
    }
}

size_t overrides_below(const struct overrides *overrides, const struct override *prefix, size_t *first)
{
    size_t low = *first = place_behind(overrides, prefix), high = overrides->sorted;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct override *one = overrides->all[middle];
        if (one->len >= prefix->len && memcmp(one->bytes, prefix->bytes, prefix->len) == 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
