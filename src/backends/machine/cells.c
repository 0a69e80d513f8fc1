/* cells.c - makes keys of cells, walks along them, and frees them. */
#include "backends/machine/cells.h"

/* ---- A key's words ---- */

bool walk_on(struct walk *walk)
{
    const uint32_t next = cell_after(walk->stripe, walk->shape, walk->first, walk->cell);
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

uint32_t cells_take(struct change *change, const struct machine_shape *shape, uint32_t n)
{
    struct machine_stripe *stripe = change->stripe;
    const uint64_t room = change_get(change, ROOM_WORD), counts = change_get(change, COUNTS_WORD);
    uint32_t listed = word_high(counts), bump = word_high(room), free = word_low(room);
    uint32_t first = 0, last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_listed = listed > 0;
        const uint32_t cell = is_listed ? free : bump + 1;
        if (!cell_exists(shape, cell))
            return 0;
        const uint64_t at = cell_at(shape, cell);
        if (is_listed) {
            free = word_high(stripe_load(stripe, at));
            listed--;
        } else {
            bump++;
            stripe_store(stripe, at, word_of_halves(0, 0));
            if (last != 0) /* the list ends by its count, so what its last cell leads to does not matter */
                stripe_store(stripe, cell_at(shape, last), word_of_halves(0, cell));
        }
        if (i == 0)
            first = cell;
        else
            stripe_store(stripe, at + 1, cell_of_more(first));
        stripe_store(stripe, pair_at(shape, cell) + 1, pair_next(stripe_load(stripe, pair_at(shape, cell) + 1)));
        last = cell;
    }
    change_put(change, ROOM_WORD, word_of_halves(free, bump));
    change_put(change, COUNTS_WORD, word_of_halves(word_low(counts), listed));
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
    const uint64_t room = change_get(change, ROOM_WORD), counts = change_get(change, COUNTS_WORD);
    const uint64_t at = cell_at(shape, first), word = change_get(change, at);
    if (before == 0) {
        bucket_change(change, shape, bucket, word_low(word));
    } else {
        const uint64_t before_at = cell_at(shape, before);
        change_put(change, before_at, word_of_halves(word_low(word), word_high(change_get(change, before_at))));
    }
    change_put(change, at, word_of_halves(0, n == 1 ? word_low(room) : word_high(word)));
    change_put(change, at + 1, CELL_FREE);
    if (n > 1)
        change_put(change, cell_at(shape, walk.cell), word_of_halves(0, word_low(room)));
    change_put(change, ROOM_WORD, word_of_halves(first, word_high(room)));
    change_put(change, COUNTS_WORD, word_of_halves(word_low(counts) - 1, word_high(counts) + n));
    return true;
}
