/* cells.c - makes keys of cells, walks along them, and frees them. */
#include "backends/machine/cells.h"

/* ---- A key's words ---- */

bool walk_on(struct walk *walk)
{
    const uint32_t next = walk->second != 0 && walk->cell == walk->first
                              ? walk->second
                              : cell_after(walk->stripe, walk->shape, walk->first, walk->cell);
    if (next == 0)
        return false;
    walk->cell = next;
    walk->at = 0;
    return true;
}

bool walk_read(struct walk *walk, int64_t *out, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        const uint64_t at = walk_next(walk);
        if (at == 0)
            return false;
        out[i] = (int64_t)stripe_load(walk->stripe, at);
    }
    return true;
}

bool walk_skip(struct walk *walk, size_t words)
{
    while (words > walk_room(walk) - walk->at) {
        words -= walk_room(walk) - walk->at;
        if (!walk_on(walk))
            return false;
    }
    walk->at += (unsigned)words;
    return true;
}

bool walk_change(struct walk *walk, struct change *change, const int64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = walk_next(walk);
        if (at == 0)
            return false;
        if (stripe_load(walk->stripe, at) != (uint64_t)words[i])
            change_add(change, at, (uint64_t)words[i]);
    }
    return true;
}

bool walk_write(struct walk *walk, const int64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        const uint64_t at = walk_next(walk);
        if (at == 0)
            return false;
        stripe_store(walk->stripe, at, (uint64_t)from[i]);
    }
    return true;
}

/* Return the word of a key's bytes from `at` on, padded with zeros. */
static uint64_t key_word(struct weir_key key, size_t at)
{
    const unsigned char *bytes = (const unsigned char *)key.data + at;
    uint64_t word = 0;
    if (__builtin_expect(key.len - at >= sizeof word, 1))
        memcpy(&word, bytes, sizeof word);
    else
        memcpy(&word, bytes, key.len - at);
    return word;
}

bool cell_has_key_of(const struct machine_stripe *stripe, uint64_t at, struct weir_key key)
{
    uint64_t differs = 0, word;
    size_t i = 0;
    for (; i + sizeof word <= key.len; i += sizeof word) {
        memcpy(&word, (const unsigned char *)key.data + i, sizeof word);
        differs |= stripe_load(stripe, at++) ^ word;
    }
    if (i < key.len)
        differs |= stripe_load(stripe, at) ^ key_word(key, i);
    return differs == 0;
}

bool walk_write_key(struct walk *walk, struct weir_key key)
{
    for (size_t i = 0; i < key.len; i += 8) {
        const uint64_t at = walk_next(walk);
        if (at == 0)
            return false;
        stripe_store(walk->stripe, at, key_word(key, i));
    }
    return true;
}

bool walk_has_key(struct walk *walk, struct weir_key key)
{
    if (walk->at > 0 && (key.len + 7) / 8 <= walk_room(walk) - walk->at)
        return cell_has_key(walk->stripe, walk_at(walk, walk->at), key);
    for (size_t i = 0; i < key.len; i += 8) {
        const uint64_t at = walk_next(walk);
        if (at == 0 || stripe_load(walk->stripe, at) != key_word(key, i))
            return false;
    }
    return true;
}

/* ---- Changes ---- */

/* Have the list of free cells begin with `first`, and count `n` cells less. */
static void list_begin(struct change *change, uint32_t first, uint32_t n)
{
    const uint64_t counts = change_get(change, COUNTS_WORD);
    change_put(change, ROOM_WORD, word_of_halves(first, 0));
    change_put(change, COUNTS_WORD, word_of_halves(word_low(counts), word_high(counts) - n));
}

/* Take one cell out of the list. False: damaged. */
static bool list_drop(struct change *change, const struct machine_shape *shape, uint32_t cell)
{
    const uint64_t word = change_get(change, cell_at(shape, cell));
    const uint32_t before = word_low(word), after = word_high(word), head = word_low(change_get(change, ROOM_WORD));
    if (after != 0) {
        const uint64_t next = cell_exists(shape, after) ? change_get(change, cell_at(shape, after)) : 0;
        if (word_low(next) != cell)
            return false;
        change_put(change, cell_at(shape, after), word_of_halves(before, word_high(next)));
    }
    if (cell != head) {
        const uint64_t last = cell_exists(shape, before) ? change_get(change, cell_at(shape, before)) : 0;
        if (word_high(last) != cell)
            return false;
        change_put(change, cell_at(shape, before), word_of_halves(word_low(last), after));
    }
    list_begin(change, cell == head ? after : head, 1);
    return true;
}

static bool cell_is_free(const struct machine_stripe *stripe, const struct machine_shape *shape, uint32_t cell)
{
    return cell_exists(shape, cell) && stripe_load(stripe, cell_at(shape, cell) + 1) == CELL_FREE;
}

/* Make a taken cell one that no late swap changes. */
static void cell_hold(struct machine_stripe *stripe, const struct machine_shape *shape, uint32_t cell)
{
    const uint64_t at = pair_at(shape, cell) + 1;
    stripe_store(stripe, at, pair_next(stripe_load(stripe, at)));
}

/* Take the best cell for a key of one or two cells, but not `other`. 0: damaged. */
static uint32_t cells_take_best(struct change *change, const struct machine_shape *shape, uint32_t bucket,
                                uint32_t other)
{
    const uint32_t home = bucket_home(bucket), second = bucket_second_home(bucket);
    uint32_t cell = word_low(change_get(change, ROOM_WORD));
    if (home != other && cell_is_free(change->stripe, shape, home))
        cell = home;
    else if (second != other && cell_is_free(change->stripe, shape, second))
        cell = second;
    if (!cell_exists(shape, cell) || !list_drop(change, shape, cell))
        return 0;
    cell_hold(change->stripe, shape, cell);
    return cell;
}

static uint32_t cells_take_few(struct change *change, const struct machine_shape *shape, uint32_t bucket, uint32_t n,
                               uint32_t *second)
{
    const uint32_t first = cells_take_best(change, shape, bucket, 0);
    if (first == 0 || n == 1) {
        if (first != 0)
            change_put(change, cell_at(shape, first), word_of_halves(0, 0));
        return first;
    }
    *second = cells_take_best(change, shape, bucket, first);
    if (*second == 0)
        return 0;
    stripe_store(change->stripe, cell_at(shape, *second) + 1, cell_of_more(first));
    change_put(change, cell_at(shape, first), word_of_halves(0, *second));
    change_put(change, cell_at(shape, *second), word_of_halves(first, 0));
    return first;
}

/* A run of the list is linked as the cells of a key are. */
uint32_t cells_take(struct change *change, const struct machine_shape *shape, uint32_t bucket, uint32_t n,
                    uint32_t *second)
{
    struct machine_stripe *stripe = change->stripe;
    const uint32_t first = word_low(stripe_load(stripe, ROOM_WORD));
    uint32_t cell = first;
    *second = 0;
    if (n > word_high(stripe_load(stripe, COUNTS_WORD)))
        return 0;
    if (n <= 2)
        return cells_take_few(change, shape, bucket, n, second);
    for (uint32_t i = 0; i < n; i++) {
        if (!cell_exists(shape, cell))
            return 0;
        if (i > 0)
            stripe_store(stripe, cell_at(shape, cell) + 1, cell_of_more(first));
        cell_hold(stripe, shape, cell);
        cell = word_high(stripe_load(stripe, cell_at(shape, cell)));
    }
    list_begin(change, cell, n);
    return first;
}

static void bucket_change(struct change *change, const struct machine_shape *shape, uint32_t bucket, uint32_t first)
{
    const uint64_t at = shape->bucket_word + bucket / 2, word = change_get(change, at);
    change_put(change, at, bucket % 2 ? word_of_halves(word_low(word), first) : word_of_halves(first, word_high(word)));
}

static uint32_t bucket_now(const struct change *change, const struct machine_shape *shape, uint32_t bucket)
{
    const uint64_t word = change_get(change, shape->bucket_word + bucket / 2);
    return bucket % 2 ? word_high(word) : word_low(word);
}

void key_link(struct change *change, const struct machine_shape *shape, uint32_t first, uint64_t what, uint32_t bucket)
{
    const uint64_t at = cell_at(shape, first), counts = change_get(change, COUNTS_WORD);
    change_put(change, at, word_of_halves(bucket_now(change, shape, bucket), word_high(change_get(change, at))));
    change_put(change, at + 1, what);
    bucket_change(change, shape, bucket, first);
    change_put(change, COUNTS_WORD, word_of_halves(word_low(counts) + 1, word_high(counts)));
}

bool key_unlink(struct change *change, const struct machine_shape *shape, uint32_t first, uint32_t before,
                uint32_t bucket, uint32_t n)
{
    struct walk walk = walk_begin(change->stripe, shape, first);
    for (uint32_t i = 1; i < n; i++)
        if (!walk_on(&walk))
            return false;
    const uint64_t counts = change_get(change, COUNTS_WORD);
    const uint64_t at = cell_at(shape, first), word = change_get(change, at);
    const uint32_t head = word_low(change_get(change, ROOM_WORD));
    if (before == 0) {
        bucket_change(change, shape, bucket, word_low(word));
    } else {
        const uint64_t before_at = cell_at(shape, before);
        change_put(change, before_at, word_of_halves(word_low(word), word_high(change_get(change, before_at))));
    }
    change_put(change, at, word_of_halves(0, n == 1 ? head : word_high(word)));
    change_put(change, at + 1, CELL_FREE);
    if (n > 1) {
        const uint64_t last_at = cell_at(shape, walk.cell);
        change_put(change, last_at, word_of_halves(word_low(change_get(change, last_at)), head));
        change_put(change, last_at + 1, CELL_FREE); /* it may be a home; those between stay what they are */
    }
    if (cell_exists(shape, head)) {
        const uint64_t head_at = cell_at(shape, head);
        change_put(change, head_at, word_of_halves(walk.cell, word_high(change_get(change, head_at))));
    }
    change_put(change, ROOM_WORD, word_of_halves(first, 0));
    change_put(change, COUNTS_WORD, word_of_halves(word_low(counts) - 1, word_high(counts) + n));
    return true;
}
