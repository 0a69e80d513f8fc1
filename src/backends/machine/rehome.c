/* rehome.c - moves a key that is used often to its home, where decisions look first.
 *
 * A decision that finds a key elsewhere asks for the move now and then. The key in its home goes to another
 * cell, if one is free. Each move is one change of the journal, so a death leaves the key in one place or the other.
 * If the stripe's lock is not free, or the stripe is damaged, all stays as it is. */
#include "backends/machine/visit.h"
#include "core/limiter/limiter.h"

#define REHOME_RIVAL_BITS 8 /* a key takes the place of another key of that home in one of 2^this decisions */

/* Move the key of a visit, which has one cell and is held, to the best free cell. */
static int rehome_move(struct visit *visit)
{
    const struct machine_shape *shape = &visit->machine->shape;
    struct machine_stripe *stripe = visit->stripe;
    struct change change = change_begin(stripe);
    uint32_t second;
    const uint32_t to = cells_take(&change, shape, visit->bucket, 1, &second);
    if (to == 0)
        return WEIR_ESTATE;
    const uint64_t from_at = pair_at(shape, visit->first), to_at = pair_at(shape, to);
    const uint64_t bits = stripe_load(stripe, to_at + 1) & ~PAIR_TIME;
    const uint64_t what = stripe_load(stripe, cell_at(shape, visit->first) + 1);
    for (unsigned i = 0; i < MACHINE_CELL_CONTENT; i++) {
        const uint64_t word = stripe_load(stripe, from_at + i);
        stripe_store(stripe, to_at + i, i == 1 ? bits | (word & PAIR_TIME) : word);
    }
    if (!key_unlink(&change, shape, visit->first, visit->before, visit->bucket, 1))
        return WEIR_ESTATE;
    key_link(&change, shape, to, what, visit->bucket);
    change_commit(&change);
    visit->first = to;
    visit->before = 0;
    return WEIR_OK;
}

/* Find the key before that of the visit in its bucket. */
static int rehome_find_before(struct visit *visit)
{
    const struct machine_shape *shape = &visit->machine->shape;
    uint32_t cell = bucket_first(visit->stripe, shape, visit->bucket);
    visit->before = 0;
    for (uint32_t steps = 0; cell != visit->first; steps++) {
        if (!cell_exists(shape, cell) || steps > shape->cells)
            return WEIR_ESTATE;
        visit->before = cell;
        cell = word_low(stripe_load(visit->stripe, cell_at(shape, cell)));
    }
    return WEIR_OK;
}

/* Free the home of the visit's key. `of_rival`: even if the key there is at home, too. WEIR_ESTATE: it stays. */
static int rehome_clear(const struct visit *visit, uint32_t home, bool of_rival)
{
    const struct machine_shape *shape = &visit->machine->shape;
    struct visit other = { .machine = visit->machine, .stripe = visit->stripe };
    int64_t bytes[MACHINE_CELL_CONTENT];
    uint32_t cell = home;
    if (stripe_load(visit->stripe, cell_at(shape, home) + 1) == CELL_FREE)
        return WEIR_OK;
    if (cells_free(visit->stripe) == 0 || visit_step(&other, &cell, 0) != WEIR_OK ||
        cells_for(other.page->words, other.len) != 1)
        return WEIR_ESTATE;
    other.bucket = bucket_of(shape, visit_hash(&other, bytes));
    if ((bucket_home(other.bucket) == home && !of_rival) || rehome_find_before(&other) != WEIR_OK)
        return WEIR_ESTATE;
    pair_hold(visit->stripe, pair_at(shape, home));
    const int error = rehome_move(&other);
    visit_leave(&other);
    return error;
}

void machine_rehome(struct machine *machine, const struct weir_limit *limit, struct weir_key key, uint64_t hash,
                    bool of_rival)
{
    const struct weir_backend_request request = { .key = key, .hash = hash };
    struct visit visit = { .machine = machine,
                           .stripe = machine_stripe_of(machine, hash),
                           .len = key.len,
                           .limit = &limit->secret,
                           .request = &request };
    const uint32_t home = bucket_home(bucket_of(&machine->shape, hash));
    if (!lock_try(&machine->file, &visit.stripe->lock))
        return;
    book_renew(&machine->book);
    int error = machine_reach(machine);
    if (!error)
        error = visit_find(&visit);
    if (!error && visit.first != 0 && visit.first != home && cells_for(visit.page->words, visit.len) == 1 &&
        rehome_clear(&visit, home, of_rival) == WEIR_OK) {
        error = visit_find(&visit); /* the key before it may be another one now */
        if (!error && visit.first != 0)
            error = rehome_move(&visit);
    }
    if (!error)
        visit_leave(&visit);
    stripe_leave(visit.stripe);
}

void machine_rehome_some(struct machine *machine, const struct weir_limit *limit, struct weir_key key, uint64_t hash,
                         uint64_t reads)
{
    if (rehome_is_due(reads))
        machine_rehome(machine, limit, key, hash, rehome_chance(reads) >> (64 - REHOME_RIVAL_BITS) == 0);
}
