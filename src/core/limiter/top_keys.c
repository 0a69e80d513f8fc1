/* top_keys.c - a hash table of counts, and a heap with the smallest count on top. */
#include "core/limiter/top_keys.h"

#include "core/ground/arith.h"

#include <stdlib.h>

struct top_entry {
    uint64_t hash; /* of the key; no two limits hash alike */
    const struct weir_limit *limit;
    uint64_t count, error;
    size_t at; /* in the heap */
    size_t key_len;
    UT_hash_handle hh;
    unsigned char key[WEIR_TOP_KEY_SIZE];
};

/* (c) constant, (m) mutex */
struct top_keys {
    size_t room;   /* (c) */
    bool in_clear; /* (c) */
    struct lock mutex;
    size_t used;             /* (m) */
    struct top_entry *table; /* (m) by hash */
    struct top_entry **heap; /* (m) `used` of them: no entry is smaller than the one at (i - 1) / 2 */
    struct top_entry entries[];
};

struct top_keys *top_keys_make(size_t room, bool in_clear)
{
    struct top_keys *top = calloc(1, sizeof *top + room * sizeof *top->entries);
    struct top_entry **heap = calloc(room, sizeof *heap);
    if (!top || !heap) {
        free(top);
        free(heap);
        return NULL;
    }
    top->room = room;
    top->in_clear = in_clear;
    top->heap = heap;
    lock_init(&top->mutex);
    return top;
}

void top_keys_free(struct top_keys *top)
{
    if (!top)
        return;
    HASH_CLEAR(hh, top->table);
    free(top->heap);
    lock_destroy(&top->mutex);
    free(top);
}

void top_keys_hold(struct top_keys *top) UNCHECKED
{
    if (top)
        lock_take(&top->mutex);
}

void top_keys_go_on(struct top_keys *top) UNCHECKED
{
    if (top)
        lock_give(&top->mutex);
}

/* ---- The heap ---- */

static void heap_put(struct top_keys *top, size_t at, struct top_entry *entry) REQUIRES(top->mutex)
{
    top->heap[at] = entry;
    entry->at = at;
}

/* Move an entry that has grown away from the top. */
static void heap_sink(struct top_keys *top, struct top_entry *entry) REQUIRES(top->mutex)
{
    size_t at = entry->at;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < top->used && top->heap[child + 1]->count < top->heap[child]->count)
            child++;
        if (child >= top->used || top->heap[child]->count >= entry->count)
            break;
        heap_put(top, at, top->heap[child]);
        at = child;
    }
    heap_put(top, at, entry);
}

/* Move a new entry towards the top. */
static void heap_rise(struct top_keys *top, struct top_entry *entry) REQUIRES(top->mutex)
{
    size_t at = entry->at;
    while (at > 0 && top->heap[(at - 1) / 2]->count > entry->count) {
        heap_put(top, at, top->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(top, at, entry);
}

/* ---- Counting ---- */

/* Let the key take over an unused entry, or the one with the smallest count. Without memory for the table the key is
 * not found again and takes over another entry. */
static struct top_entry *entry_take_over(struct top_keys *top, const struct weir_backend_request *request)
    REQUIRES(top->mutex)
{
    const bool is_new = top->used < top->room;
    struct top_entry *entry = is_new ? &top->entries[top->used] : top->heap[0];
    if (is_new)
        *entry = (struct top_entry){ .count = 0 };
    else if (entry->hh.tbl)
        HASH_DEL(top->table, entry);
    entry->error = entry->count;
    entry->hash = request->hash;
    entry->limit = request->limit;
    entry->key_len = top->in_clear ? request->key.len : 0;
    memcpy(entry->key, request->key.data,
           top->in_clear ? (size_t)min_of((int64_t)request->key.len, WEIR_TOP_KEY_SIZE) : 0);
    HASH_ADD(hh, top->table, hash, sizeof entry->hash, entry);
    if (is_new) {
        heap_put(top, top->used, entry);
        top->used++;
        heap_rise(top, entry);
    }
    return entry;
}

static void count_key(struct top_keys *top, const struct weir_backend_request *request, uint64_t times)
{
    struct top_entry *entry;
    lock_take(&top->mutex);
    HASH_FIND(hh, top->table, &request->hash, sizeof request->hash, entry);
    if (!entry)
        entry = entry_take_over(top, request);
    entry->count += times;
    heap_sink(top, entry);
    lock_give(&top->mutex);
}

/* How many denials this thread has left out or counted, and when it last looked at one in memory. */
static _Thread_local uint64_t own_denials;
static _Thread_local int64_t own_last_us;

/* Return how many denials this one stands for. The multiplication scatters those that are counted (decide.c). */
static uint64_t times_of(const struct weir_backend_request *request, const struct weir_decision *decision)
{
    if (decision->source != WEIR_BY_MEMORY && decision->source != WEIR_BY_DENIAL)
        return 1;
    const int64_t last_us = own_last_us;
    own_last_us = request->now_us;
    if (decision->source == WEIR_BY_MEMORY &&
        (request->now_us - last_us >= TOP_KEYS_CALM_US || request->now_us < last_us))
        return 1;
    const uint64_t scattered = ++own_denials * UINT64_C(0x9e3779b97f4a7c15);
    return scattered < UINT64_MAX / TOP_KEYS_SAMPLE ? TOP_KEYS_SAMPLE : 0;
}

__attribute__((noinline)) void top_keys_note(struct top_keys *top, const struct weir_backend_request *request,
                                             const struct weir_decision *decision)
{
    const uint64_t times = times_of(request, decision);
    if (times > 0)
        count_key(top, request, times);
}

/* ---- Reading ---- */

static int by_count(const void *a, const void *b)
{
    const struct top_entry *first = *(struct top_entry *const *)a, *second = *(struct top_entry *const *)b;
    if (first->count != second->count)
        return first->count < second->count ? 1 : -1;
    return first->hash < second->hash ? -1 : first->hash > second->hash;
}

/* Copy the entries with the largest counts. Sorts the heap for that and then turns it round, which makes it one again.
 */
static size_t copy_sorted(struct top_keys *top, struct weir_top_key *out, size_t room) REQUIRES(top->mutex)
{
    const size_t n = top->used < room ? top->used : room;
    qsort(top->heap, top->used, sizeof *top->heap, by_count);
    for (size_t i = 0; i < n; i++) {
        const struct top_entry *entry = top->heap[i];
        out[i] = (struct weir_top_key){
            .limit = entry->limit->of,
            .denied = entry->count,
            .error = entry->error,
            .hash = entry->hash,
            .key_len = entry->key_len,
        };
        memcpy(out[i].key, entry->key, entry->key_len < WEIR_TOP_KEY_SIZE ? entry->key_len : WEIR_TOP_KEY_SIZE);
    }
    for (size_t i = 0; i < top->used / 2; i++) {
        struct top_entry *swapped = top->heap[i];
        top->heap[i] = top->heap[top->used - 1 - i];
        top->heap[top->used - 1 - i] = swapped;
    }
    for (size_t i = 0; i < top->used; i++)
        top->heap[i]->at = i;
    return n;
}

size_t top_keys_read(struct top_keys *top, struct weir_top_key *out, size_t room, bool restart)
{
    lock_take(&top->mutex);
    const size_t n = copy_sorted(top, out, room);
    if (restart) {
        HASH_CLEAR(hh, top->table);
        top->used = 0;
    }
    lock_give(&top->mutex);
    return n;
}

void top_keys_forget(struct top_keys *top, const struct weir_limit *limit)
{
    lock_take(&top->mutex);
    size_t kept = 0;
    HASH_CLEAR(hh, top->table);
    for (size_t i = 0; i < top->used; i++) {
        if (top->entries[i].limit->of == limit)
            continue;
        top->entries[kept] = top->entries[i];
        memset(&top->entries[kept].hh, 0, sizeof top->entries[kept].hh);
        kept++;
    }
    top->used = 0;
    for (size_t i = 0; i < kept; i++) {
        struct top_entry *entry = &top->entries[i];
        HASH_ADD(hh, top->table, hash, sizeof entry->hash, entry);
        heap_put(top, top->used++, entry);
        heap_rise(top, entry);
    }
    lock_give(&top->mutex);
}
