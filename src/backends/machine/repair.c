/* repair.c - looks through a stripe, and makes a damaged one whole.
 *
 * A process that dies leaves no damage: the journal sees to that. Damage is a flipped bit, or another program that
 * wrote to the file. A key whose cells can be read stays; any other begins anew, as if it had been reset. */
#include "backends/machine/visit.h"

#include <stdlib.h>

/* ---- Looking through ---- */

struct tally {
    uint64_t keys, cells;
};

/* Count a key and its cells. False: it cannot be read. */
static bool check_key(struct machine *machine, struct machine_stripe *stripe, uint32_t first, struct tally *tally)
{
    const uint64_t what = stripe_load(stripe, cell_at(&machine->shape, first) + 1);
    const struct page *page = cell_kind(what) == CELL_KEY ? book_page(&machine->book, cell_rule(what)) : NULL;
    if (!page)
        return false;
    struct walk walk = walk_begin(stripe, &machine->shape, first);
    tally->keys++;
    tally->cells += cells_for(page->words, cell_len(what));
    return walk_skip(&walk, page->words + (cell_len(what) + 7) / 8);
}

static bool check_buckets(struct machine *machine, struct machine_stripe *stripe, struct tally *tally)
{
    const struct machine_shape *shape = &machine->shape;
    for (uint32_t bucket = 0; bucket < shape->cells; bucket++) {
        uint32_t cell = bucket_first(stripe, shape, bucket);
        while (cell != 0) {
            if (!cell_exists(shape, cell) || tally->cells >= shape->cells || !check_key(machine, stripe, cell, tally))
                return false;
            cell = word_low(stripe_load(stripe, cell_at(shape, cell)));
        }
    }
    return true;
}

bool stripe_check(struct machine *machine, struct machine_stripe *stripe)
{
    const struct machine_shape *shape = &machine->shape;
    const uint64_t room = stripe_load(stripe, ROOM_WORD), counts = stripe_load(stripe, COUNTS_WORD);
    const uint32_t bump = word_high(room), listed = word_high(counts);
    struct tally tally = { 0 };
    uint32_t free = word_low(room);
    if (bump > shape->cells || listed > bump || !check_buckets(machine, stripe, &tally))
        return false;
    for (uint32_t i = 0; i < listed; i++) {
        if (!cell_exists(shape, free) || cell_kind(stripe_load(stripe, cell_at(shape, free) + 1)) == CELL_KEY)
            return false;
        free = word_high(stripe_load(stripe, cell_at(shape, free)));
    }
    return tally.keys == word_low(counts) && tally.cells + listed == bump;
}

/* ---- Making whole ---- */

/* Return the hash of a key that check_key() can read. */
static uint64_t repair_hash(const struct machine *machine, struct machine_stripe *stripe, uint32_t first,
                            const struct page *page, size_t len, int64_t *bytes)
{
    struct walk walk = walk_begin(stripe, &machine->shape, first);
    if (!walk_skip(&walk, page->words) || !walk_read(&walk, bytes, (len + 7) / 8))
        return 0;
    return siphash13(&page->text.limit, bytes, len);
}

/* Put a key into its bucket if it can be read. Return how many cells it has; 0: it is dropped. */
static uint32_t repair_key(struct machine *machine, struct machine_stripe *stripe, uint32_t first, int64_t *bytes)
{
    const struct machine_shape *shape = &machine->shape;
    const uint64_t at = cell_at(shape, first), what = stripe_load(stripe, at + 1);
    struct tally tally = { 0 };
    if (cell_kind(what) != CELL_KEY)
        return 0;
    if (check_key(machine, stripe, first, &tally)) {
        const size_t len = cell_len(what);
        const uint64_t hash = repair_hash(machine, stripe, first, book_page(&machine->book, cell_rule(what)), len,
                                          bytes);
        if (machine_stripe_of(machine, hash) == stripe && cell_tag(hash) == cell_tag(what)) {
            const uint32_t bucket = bucket_of(shape, hash);
            const uint64_t bucket_at = shape->bucket_word + bucket / 2, word = stripe_load(stripe, bucket_at);
            const uint32_t next = bucket % 2 ? word_high(word) : word_low(word);
            stripe_store(stripe, at, word_of_halves(next, word_high(stripe_load(stripe, at))));
            stripe_store(stripe, bucket_at,
                         bucket % 2 ? word_of_halves(word_low(word), first) : word_of_halves(first, word_high(word)));
            return (uint32_t)tally.cells;
        }
    }
    stripe_store(stripe, at + 1, CELL_FREE);
    return 0;
}

/* Mark the cells of a key as used. */
static void repair_mark(const struct machine *machine, struct machine_stripe *stripe, uint32_t first, uint32_t n,
                        uint8_t *is_used)
{
    struct walk walk = walk_begin(stripe, &machine->shape, first);
    is_used[first - 1] = 1;
    for (uint32_t i = 1; i < n && walk_on(&walk); i++)
        is_used[walk.cell - 1] = 1;
}

static void repair_all(struct machine *machine, struct machine_stripe *stripe, uint8_t *is_used, int64_t *bytes)
{
    const struct machine_shape *shape = &machine->shape;
    uint32_t keys = 0, listed = 0, free = 0;
    for (uint64_t at = shape->bucket_word; at < shape->cell_word; at++)
        stripe_store(stripe, at, 0);
    for (uint32_t cell = 1; cell <= shape->cells; cell++) {
        const uint32_t n = repair_key(machine, stripe, cell, bytes);
        if (n > 0)
            repair_mark(machine, stripe, cell, n, is_used);
        keys += n > 0;
    }
    for (uint32_t cell = shape->cells; cell > 0; cell--) {
        if (is_used[cell - 1])
            continue;
        stripe_store(stripe, cell_at(shape, cell), word_of_halves(0, free));
        free = cell;
        listed++;
    }
    stripe_store(stripe, ROOM_WORD, word_of_halves(free, shape->cells));
    stripe_store(stripe, COUNTS_WORD, word_of_halves(keys, listed));
}

int stripe_repair(struct machine *machine, struct machine_stripe *stripe)
{
    const uint64_t repairs = atomic_load_explicit(&stripe->repairs, memory_order_relaxed);
    uint8_t *is_used = calloc(machine->shape.cells, 1);
    int64_t *bytes = malloc(WEIR_MAX_KEY_LEN + sizeof *bytes);
    const bool has_memory = is_used && bytes;
    if (has_memory) {
        atomic_store_explicit(&stripe->repairs, repairs | 1, memory_order_release);
        atomic_store_explicit(&stripe->journal_len, 0, memory_order_release);
        repair_all(machine, stripe, is_used, bytes);
        atomic_store_explicit(&stripe->known_soonest_us, 0, memory_order_relaxed);
        atomic_store_explicit(&stripe->repairs, (repairs | 1) + 1, memory_order_release);
        atomic_fetch_add_explicit(&stripe->damages, 1, memory_order_relaxed);
    }
    free(is_used);
    free(bytes);
    return has_memory ? WEIR_OK : WEIR_ENOMEM;
}

int stripe_enter(struct machine *machine, struct machine_stripe *stripe)
{
    const enum lock_end end = lock_enter(&machine->file, &stripe->lock, machine->patience_us);
    if (__builtin_expect(end == LOCK_TAKEN, 1))
        return WEIR_OK;
    if (end == LOCK_TIMEOUT)
        return WEIR_ETIME;
    if (journal_recover(stripe, &machine->shape))
        return WEIR_OK;
    const int error = stripe_repair(machine, stripe);
    if (error)
        stripe_leave(stripe);
    return error;
}
