/* repair.c - looks through a stripe, and makes a damaged one whole.
 *
 * A process that dies leaves no damage: the journal sees to that. Damage is a flipped bit, or another program that
 * wrote to the file. A key whose cells can be read stays; any other begins anew, as if it had been reset. */
#include "backends/machine/visit.h"

#include <stdlib.h>

/* ---- Looking through ---- */

static void cells_mark(const struct machine *machine, struct machine_stripe *stripe, uint32_t first, uint32_t n,
                       uint8_t *is_used, uint8_t mark)
{
    struct walk walk = walk_begin(stripe, &machine->shape, first);
    for (uint32_t i = 0; i < n && (i == 0 || walk_on(&walk)); i++)
        is_used[walk.cell - 1] = mark;
}

/* Mark the cells of a key and return how many they are. 0: the key cannot be read, or a cell has a mark already, as
 * with a chain that leads back to itself; nothing is marked then. */
static uint32_t check_key(struct machine *machine, struct machine_stripe *stripe, uint32_t first, uint8_t *is_used)
{
    const uint64_t what = stripe_load(stripe, cell_at(&machine->shape, first) + 1);
    const struct page *page = cell_kind(what) == CELL_KEY ? book_page(&machine->book, cell_rule(what)) : NULL;
    const uint32_t n = page ? cells_for(page->words, cell_len(what)) : 0;
    struct walk walk = walk_begin(stripe, &machine->shape, first);
    for (uint32_t i = 0; i < n; i++) {
        if ((i > 0 && !walk_on(&walk)) || is_used[walk.cell - 1]) {
            cells_mark(machine, stripe, first, i, is_used, 0);
            return 0;
        }
        is_used[walk.cell - 1] = 1;
    }
    return n;
}

/* Mark all cells of keys that can be reached, and count these. False: one cannot be read. */
static bool check_buckets(struct machine *machine, struct machine_stripe *stripe, uint8_t *is_used, uint64_t *keys,
                          uint64_t *cells)
{
    const struct machine_shape *shape = &machine->shape;
    for (uint32_t bucket = 0; bucket < shape->cells; bucket++) {
        uint32_t cell = bucket_first(stripe, shape, bucket);
        while (cell != 0) {
            const uint32_t n = cell_exists(shape, cell) ? check_key(machine, stripe, cell, is_used) : 0;
            if (n == 0)
                return false;
            (*keys)++;
            *cells += n;
            cell = word_low(stripe_load(stripe, cell_at(shape, cell)));
        }
    }
    return true;
}

/* True if the list of free cells has cells that are no key's, each once. */
static bool check_list(const struct machine *machine, const struct machine_stripe *stripe, uint8_t *is_used)
{
    const struct machine_shape *shape = &machine->shape;
    const uint32_t listed = word_high(stripe_load(stripe, COUNTS_WORD));
    uint32_t free = word_low(stripe_load(stripe, ROOM_WORD)), before = 0;
    for (uint32_t i = 0; i < listed; i++) {
        if (!cell_exists(shape, free) || is_used[free - 1] ||
            cell_kind(stripe_load(stripe, cell_at(shape, free) + 1)) == CELL_KEY ||
            (i > 0 && word_low(stripe_load(stripe, cell_at(shape, free))) != before))
            return false;
        is_used[free - 1] = 1;
        before = free;
        free = word_high(stripe_load(stripe, cell_at(shape, free)));
    }
    return free == 0;
}

bool stripe_check(struct machine *machine, struct machine_stripe *stripe)
{
    const uint64_t counts = stripe_load(stripe, COUNTS_WORD);
    uint64_t keys = 0, cells = 0;
    uint8_t *is_used = calloc(machine->shape.cells, 1);
    const bool is_sound = is_used && check_buckets(machine, stripe, is_used, &keys, &cells) &&
                          check_list(machine, stripe, is_used) && keys == word_low(counts) &&
                          cells + word_high(counts) == machine->shape.cells;
    free(is_used);
    return is_sound;
}

/* ---- Making whole ---- */

/* Put a key into its bucket and mark its cells, if it can be read; otherwise drop it. */
static bool repair_key(struct machine *machine, struct machine_stripe *stripe, uint32_t first, uint8_t *is_used,
                       int64_t *bytes)
{
    const struct machine_shape *shape = &machine->shape;
    const uint64_t at = cell_at(shape, first), what = stripe_load(stripe, at + 1);
    const uint32_t n = check_key(machine, stripe, first, is_used);
    if (n > 0) {
        const struct visit visit = { .machine = machine,
                                     .stripe = stripe,
                                     .first = first,
                                     .len = cell_len(what),
                                     .page = book_page(&machine->book, cell_rule(what)) };
        const uint64_t hash = visit_hash(&visit, bytes);
        if (machine_stripe_of(machine, hash) == stripe && cell_tag(hash) == cell_tag(what)) {
            const uint32_t bucket = bucket_of(shape, hash);
            const uint64_t bucket_at = shape->bucket_word + bucket / 2, word = stripe_load(stripe, bucket_at);
            const uint32_t next = bucket % 2 ? word_high(word) : word_low(word);
            stripe_store(stripe, at, word_of_halves(next, word_high(stripe_load(stripe, at))));
            stripe_store(stripe, bucket_at,
                         bucket % 2 ? word_of_halves(word_low(word), first) : word_of_halves(first, word_high(word)));
            return true;
        }
        cells_mark(machine, stripe, first, n, is_used, 0);
    }
    if (cell_kind(what) == CELL_KEY)
        stripe_store(stripe, at + 1, CELL_FREE);
    return false;
}

/* Hold all cells, so that no decision changes a key during the repair; or release the keys among them. */
static void repair_hold(const struct machine *machine, struct machine_stripe *stripe, bool hold)
{
    const struct machine_shape *shape = &machine->shape;
    for (uint32_t cell = 1; cell <= shape->cells; cell++)
        if (hold)
            pair_hold(stripe, pair_at(shape, cell));
        else if (cell_kind(stripe_load(stripe, cell_at(shape, cell) + 1)) == CELL_KEY)
            pair_release(stripe, pair_at(shape, cell));
}

static void repair_all(struct machine *machine, struct machine_stripe *stripe, uint8_t *is_used, int64_t *bytes)
{
    const struct machine_shape *shape = &machine->shape;
    uint32_t keys = 0, listed = 0, free = 0;
    for (uint64_t at = shape->bucket_word; at < shape->cell_word; at++)
        stripe_store(stripe, at, 0);
    for (uint32_t cell = 1; cell <= shape->cells; cell++) {
        keys += repair_key(machine, stripe, cell, is_used, bytes);
    }
    for (uint32_t cell = shape->cells; cell > 0; cell--) {
        if (is_used[cell - 1])
            continue;
        stripe_store(stripe, cell_at(shape, cell), word_of_halves(0, free));
        stripe_store(stripe, cell_at(shape, cell) + 1, CELL_FREE);
        if (free != 0)
            stripe_store(stripe, cell_at(shape, free),
                         word_of_halves(cell, word_high(stripe_load(stripe, cell_at(shape, free)))));
        free = cell;
        listed++;
    }
    stripe_store(stripe, ROOM_WORD, word_of_halves(free, 0));
    stripe_store(stripe, COUNTS_WORD, word_of_halves(keys, listed));
}

int stripe_begin(struct machine *machine, struct machine_stripe *stripe)
{
    const uint64_t repairs = atomic_load_explicit(&stripe->repairs, memory_order_relaxed);
    uint8_t *is_used = calloc(machine->shape.cells, 1);
    int64_t *bytes = malloc(WEIR_MAX_KEY_LEN + sizeof *bytes);
    const bool has_memory = is_used && bytes;
    if (has_memory) {
        atomic_store_explicit(&stripe->repairs, repairs | 1, memory_order_release);
        atomic_store_explicit(&stripe->journal_len, 0, memory_order_release);
        repair_hold(machine, stripe, true);
        repair_all(machine, stripe, is_used, bytes);
        atomic_store_explicit(&stripe->known_soonest_us, 0, memory_order_relaxed);
        atomic_store_explicit(&stripe->repairs, (repairs | 1) + 1, memory_order_release);
        repair_hold(machine, stripe, false);
    }
    free(is_used);
    free(bytes);
    return has_memory ? WEIR_OK : WEIR_ENOMEM;
}

int stripe_repair(struct machine *machine, struct machine_stripe *stripe)
{
    book_renew(&machine->book); /* with copies of forgotten rules, keys of those that took their places look damaged */
    const int error = stripe_begin(machine, stripe);
    if (!error)
        atomic_fetch_add_explicit(&stripe->damages, 1, memory_order_relaxed);
    return error;
}

/* ---- Locks ---- */

int stripe_enter(struct machine *machine, struct machine_stripe *stripe)
{
    int64_t patience_us = machine->patience_us;
    return stripe_enter_within(machine, stripe, &patience_us);
}

int stripe_enter_within(struct machine *machine, struct machine_stripe *stripe, int64_t *patience_us)
{
    const enum lock_end end = lock_enter(&machine->file, &stripe->lock, patience_us);
    if (end == LOCK_TIMEOUT)
        return WEIR_ETIME;
    int error = machine_reach(machine);
    if (!error && end == LOCK_INHERITED && !journal_recover(stripe, &machine->shape))
        error = stripe_repair(machine, stripe);
    if (error)
        lock_leave(&stripe->lock);
    return error;
}

void stripe_leave(struct machine_stripe *stripe)
{
    lock_leave(&stripe->lock);
}
