/* rows.c - the requests of a replay that are in memory. */
#include "cli/replay/input/rows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <weir/weir.h>

static uint32_t rows_key_hash(const struct rows *rows, struct span key);
static bool rows_key_intern(struct rows *rows, struct span key, uint32_t *out);
static bool slots_grow(struct rows *rows);

void rows_start(struct rows *rows)
{
    *rows = (struct rows){ .is_sorted = true };
    if (getrandom(&rows->seed, sizeof rows->seed, GRND_NONBLOCK) != sizeof rows->seed)
        rows->seed = (uint64_t)time(NULL);
}

void rows_free(struct rows *rows)
{
    free(rows->all);
    free(rows->further_keys);
    free(rows->further_costs);
    free(rows->durations_us);
    free(rows->free_places);
    free(rows->keys);
    free(rows->bytes);
    free(rows->slots);
}

/* Make room for `more` items in addition to `count`. Arrays grow by half: they are large, and doubling would waste
 * memory. */
static bool reserve(void **array, size_t *capacity, size_t count, size_t more, size_t item_size)
{
    if (*capacity - count >= more)
        return true;
    size_t wanted = count + more + count / 2 + 64;
    void *grown = wanted <= SIZE_MAX / item_size ? realloc(*array, wanted * item_size) : NULL;
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

bool rows_add(struct rows *rows, int64_t time_us, struct span key, int64_t cost)
{
    uint32_t number;
    void *all = rows->all;
    if (rows->total == ROWS_MAX || !reserve(&all, &rows->capacity, rows->count, 1, sizeof *rows->all))
        return false;
    rows->all = all;
    if (!rows_key_intern(rows, key, &number))
        return false;
    if (rows->count && time_us < rows->all[rows->count - 1].time_us)
        rows->is_sorted = false;
    const uint32_t place = rows->free_count ? rows->free_places[--rows->free_count] : rows->place_count++;
    rows->all[rows->count++] = (struct row){ time_us, cost, number, (uint32_t)rows->total++, place };
    return true;
}

bool rows_remove(struct rows *rows, size_t count)
{
    void *places = rows->free_places;
    const bool has_room = reserve(&places, &rows->free_capacity, rows->free_count, count, sizeof *rows->free_places);
    rows->free_places = places;
    for (size_t i = 0; i < count && has_room; i++)
        rows->free_places[rows->free_count++] = rows->all[i].place;
    rows->count -= count;
    memmove(rows->all, rows->all + count, rows->count * sizeof *rows->all);
    return has_room;
}

bool rows_add_more(struct rows *rows, const struct span *keys, const int64_t *costs)
{
    const size_t place = rows->all[rows->count - 1].place;
    const size_t keys_at = place * rows->more_keys, costs_at = place * rows->more_costs;
    void *further_keys = rows->further_keys, *further_costs = rows->further_costs;
    bool has_room = reserve(&further_keys, &rows->further_keys_capacity, keys_at, rows->more_keys,
                            sizeof *rows->further_keys);
    rows->further_keys = further_keys;
    has_room = has_room && reserve(&further_costs, &rows->further_costs_capacity, costs_at, rows->more_costs,
                                   sizeof *rows->further_costs);
    rows->further_costs = further_costs;
    for (size_t i = 0; i < rows->more_keys && has_room; i++)
        has_room = rows_key_intern(rows, keys[i], &rows->further_keys[keys_at + i]);
    for (size_t i = 0; i < rows->more_costs && has_room; i++)
        rows->further_costs[costs_at + i] = costs[i];
    return has_room;
}

bool rows_add_duration(struct rows *rows, int64_t duration_us)
{
    void *durations = rows->durations_us;
    const size_t at = rows->all[rows->count - 1].place;
    const bool has_room = reserve(&durations, &rows->duration_capacity, at, 1, sizeof duration_us);
    rows->durations_us = durations;
    if (has_room)
        rows->durations_us[at] = duration_us;
    return has_room;
}

uint32_t rows_key_of(const struct rows *rows, const struct row *row, size_t which)
{
    return which == 0 ? row->key : rows->further_keys[row->place * rows->more_keys + which - 1];
}

int64_t rows_cost_of(const struct rows *rows, const struct row *row, size_t which)
{
    return which == 0 ? row->cost : rows->further_costs[row->place * rows->more_costs + which - 1];
}

struct span rows_key(const struct rows *rows, size_t number)
{
    return (struct span){ rows->bytes + rows->keys[number].offset, rows->keys[number].len };
}

static bool rows_key_intern(struct rows *rows, struct span key, uint32_t *out)
{
    if (rows->key_count * 2 >= rows->slot_count && !slots_grow(rows))
        return false;
    uint32_t hash = rows_key_hash(rows, key);
    size_t slot = hash & (rows->slot_count - 1);
    for (; rows->slots[slot]; slot = (slot + 1) & (rows->slot_count - 1)) {
        *out = rows->slots[slot] - 1;
        const struct rows_key *known = &rows->keys[*out];
        if (known->hash == hash && known->len == key.len && memcmp(rows->bytes + known->offset, key.data, key.len) == 0)
            return true;
    }
    void *keys = rows->keys, *bytes = rows->bytes;
    bool has_room = reserve(&keys, &rows->key_capacity, rows->key_count, 1, sizeof *rows->keys);
    rows->keys = keys;
    has_room = has_room && reserve(&bytes, &rows->byte_capacity, rows->byte_count, key.len, 1);
    rows->bytes = bytes;
    if (!has_room)
        return false;
    memcpy(rows->bytes + rows->byte_count, key.data, key.len);
    rows->keys[rows->key_count] = (struct rows_key){ rows->byte_count, (uint32_t)key.len, hash };
    rows->byte_count += key.len;
    *out = (uint32_t)rows->key_count++;
    rows->slots[slot] = *out + 1;
    return true;
}

static bool slots_grow(struct rows *rows)
{
    size_t count = rows->slot_count ? rows->slot_count * 2 : 1024;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < rows->key_count; i++) {
        size_t slot = rows->keys[i].hash & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    free(rows->slots);
    rows->slots = slots;
    rows->slot_count = count;
    return true;
}

static uint64_t rows_mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(
        0x9e3779b97f4a7c15); /* 2^64 divided by the golden ratio: odd, with a bit pattern without structure */
    return value ^ value >> 29;
}

/* Hash eight bytes at a time into a state that depends on the secret seed. */
static uint32_t rows_key_hash(const struct rows *rows, struct span key)
{
    uint64_t state = rows_mix(rows->seed + key.len), word;
    for (; key.len >= sizeof word; key.data += sizeof word, key.len -= sizeof word) {
        memcpy(&word, key.data, sizeof word);
        state = rows_mix(rows_mix(state ^ word) + rows->seed);
    }
    word = 0;
    if (key.len)
        memcpy(&word, key.data, key.len);
    state = rows_mix(rows_mix(rows_mix(state ^ word) + rows->seed));
    return (uint32_t)(state >> 32);
}

static int row_compare(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

void rows_sort(struct rows *rows)
{
    if (!rows->is_sorted)
        qsort(rows->all, rows->count, sizeof *rows->all, row_compare);
    rows->is_sorted = true;
}

static int time_compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

void busiest_add(struct busiest *busiest, int64_t time_us)
{
    const int64_t second = time_us / WEIR_SECOND;
    busiest->run = busiest->run && second == busiest->last ? busiest->run + 1 : 1;
    busiest->last = second;
    if (busiest->run > busiest->count) {
        busiest->count = busiest->run;
        busiest->second = second;
    }
}

bool rows_busiest_second(const struct rows *rows, struct busiest *out)
{
    int64_t *times_us = malloc((rows->count ? rows->count : 1) * sizeof *times_us);
    if (!times_us)
        return false;
    for (size_t i = 0; i < rows->count; i++)
        times_us[i] = rows->all[i].time_us;
    if (!rows->is_sorted)
        qsort(times_us, rows->count, sizeof *times_us, time_compare);
    *out = (struct busiest){ 0 };
    for (size_t i = 0; i < rows->count; i++)
        busiest_add(out, times_us[i]);
    free(times_us);
    return true;
}
