/* visit.c - finds, reads, writes, adds and removes a key, under its stripe's lock. */
#include "backends/machine/visit.h"

#include "backends/machine/stored.h"
#include "core/ground/key_hash.h"

#include <string.h>

static uint64_t visit_pair_at(const struct visit *visit)
{
    return pair_at(&visit->machine->shape, visit->first);
}

void visit_leave(struct visit *visit)
{
    if (visit->first != 0)
        pair_release(visit->stripe, visit_pair_at(visit));
}

static void stripe_damaged(struct machine_stripe *stripe)
{
    atomic_fetch_add_explicit(&stripe->damages, 1, memory_order_relaxed);
}

/* Begin to walk behind the key of a visit. */
static bool visit_rest(const struct visit *visit, struct walk *walk)
{
    *walk = walk_begin(visit->stripe, &visit->machine->shape, visit->first);
    return walk_skip(walk, PAIR_WORDS + key_words(visit->len));
}

/* True if the key in `first` is the request's; the rule that its cell names is then in *visit. */
static inline bool visit_is_at(struct visit *visit, uint32_t first, uint64_t what, int *error)
{
    const struct weir_backend_request *request = visit->request;
    const uint32_t number = cell_rule(what);
    const struct page *page = number == visit->number ? visit->plan : book_page(&visit->machine->book, number);
    const struct hash_secret *limit = visit->limit;
    if (!page) {
        *error = WEIR_ESTATE;
        return false;
    }
    if (page != visit->plan && (page->text.limit.k0 != limit->k0 || page->text.limit.k1 != limit->k1))
        return false;
    struct walk walk = walk_begin(visit->stripe, &visit->machine->shape, first);
    if (!walk_skip(&walk, PAIR_WORDS))
        return false; /* never: a first cell has more words */
    struct walk whole = walk;
    if (!walk_has_key(&walk, request->key)) {
        if (!walk_skip(&whole, key_words(visit->len)))
            *error = WEIR_ESTATE;
        return false;
    }
    visit->first = first;
    visit->rule = number;
    visit->page = page;
    return true;
}

int visit_find(struct visit *visit)
{
    const struct machine_shape *shape = &visit->machine->shape;
    const struct weir_backend_request *request = visit->request;
    const uint64_t same = cell_of_key(request->hash, 0, request->key.len);
    const uint64_t mask = ~((UINT64_C(1) << CELL_TAG_SHIFT) - (UINT64_C(1) << CELL_RULE_SHIFT));
    int error = WEIR_OK;
    visit->bucket = bucket_of(shape, request->hash);
    visit->first = visit->before = 0;
    if (stripe_load(visit->stripe, COUNTS_WORD) == 0) /* it has neither keys nor free cells: it was zeroed */
        return WEIR_ESTATE;
    uint32_t cell = bucket_first(visit->stripe, shape, visit->bucket), before = 0;
    for (uint32_t steps = 0; cell != 0 && steps <= shape->cells; steps++) {
        if (!cell_exists(shape, cell))
            return WEIR_ESTATE;
        const uint64_t at = cell_at(shape, cell), what = stripe_load(visit->stripe, at + 1);
        if (cell_kind(what) != CELL_KEY)
            return WEIR_ESTATE;
        if ((what & mask) == same && visit_is_at(visit, cell, what, &error)) {
            visit->before = before;
            pair_hold(visit->stripe, visit_pair_at(visit));
            return WEIR_OK;
        }
        if (error)
            return error;
        before = cell;
        cell = word_low(stripe_load(visit->stripe, at));
    }
    return cell == 0 ? WEIR_OK : WEIR_ESTATE;
}

int visit_step(struct visit *visit, uint32_t *cell, uint32_t steps)
{
    const struct machine_shape *shape = &visit->machine->shape;
    if (!cell_exists(shape, *cell) || steps > shape->cells)
        return WEIR_ESTATE;
    const uint64_t at = cell_at(shape, *cell), what = stripe_load(visit->stripe, at + 1);
    visit->page = cell_kind(what) == CELL_KEY ? book_page(&visit->machine->book, cell_rule(what)) : NULL;
    visit->first = *cell;
    visit->len = cell_len(what);
    *cell = word_low(stripe_load(visit->stripe, at));
    return visit->page ? WEIR_OK : WEIR_ESTATE;
}

uint64_t visit_hash(const struct visit *visit, int64_t *bytes)
{
    struct walk walk = walk_begin(visit->stripe, &visit->machine->shape, visit->first);
    if (!walk_skip(&walk, PAIR_WORDS) || !walk_read(&walk, bytes, key_words(visit->len)))
        return 0;
    return key_hash_by(&visit->page->text.limit, bytes, visit->len);
}

/* ---- States ---- */

/* Count a state that is not sound as damage, and make it a full one. */
static void visit_fill(const struct visit *visit, const struct weir_plan *plan, int64_t *state)
{
    stripe_damaged(visit->stripe);
    state_charge(plan, state, visit->now_us, plan->size);
}

int visit_read(const struct visit *visit, int64_t *state)
{
    const struct page *page = visit->page;
    int64_t stored[STORED_MAX_WORDS];
    struct walk walk;
    if (!visit_rest(visit, &walk) || !walk_read(&walk, stored + PAIR_WORDS, page->rest_words))
        return WEIR_ESTATE;
    pair_tell(pair_read(visit->stripe, visit_pair_at(visit)), page->anchor_at, stored);
    if (__builtin_expect(stored_tell(page, stored, state), 1))
        return WEIR_OK;
    pair_hold(visit->stripe, visit_pair_at(visit)); /* until the next visit, if the caller does not hold it */
    visit_fill(visit, &page->text.plan, state);
    return visit_write(visit, state, NULL);
}

int visit_read_former(const struct visit *visit, int64_t *state)
{
    const struct page *page = visit->page;
    const size_t words = page->words - STORED_WORDS(page);
    struct walk walk;
    if (!visit_rest(visit, &walk) || !walk_skip(&walk, page->rest_words))
        return WEIR_ESTATE;
    struct walk again = walk;
    if (!walk_read(&walk, state, words))
        return WEIR_ESTATE;
    int64_t *former = state + behind_former_at(page->former);
    const bool has_sound_origin = !behind_has_origin(page->former) || origin_is_sound(state);
    const bool has_sound_former = !behind_has_former(page->former) ||
                                  state_is_sound(page->former, page->former_top, page->former_last_anchor, former);
    if (__builtin_expect(has_sound_origin && has_sound_former, 1))
        return WEIR_OK;
    if (!has_sound_origin) { /* without it a return finds less */
        stripe_damaged(visit->stripe);
        memset(state, 0, ORIGIN_WORDS * sizeof *state);
    }
    if (!has_sound_former)
        visit_fill(visit, page->former, former);
    struct change change = change_begin(visit->stripe);
    if (!walk_change(&again, &change, state, words))
        return WEIR_ESTATE;
    change_commit(&change);
    return WEIR_OK;
}

int64_t visit_fresh_at_us(const struct visit *visit, int *error)
{
    int64_t state[BEHIND_MAX_WORDS];
    *error = visit_read(visit, state);
    if (*error)
        return 0;
    const int64_t fresh_at_us = state_fresh_at_us(&visit->page->text.plan, state);
    if (!visit->page->former || !behind_has_former(visit->page->former))
        return fresh_at_us;
    *error = visit_read_former(visit, state);
    return *error ? 0
                  : max_of(fresh_at_us,
                           state_fresh_at_us(visit->page->former, state + behind_former_at(visit->page->former)));
}

int visit_write(const struct visit *visit, const int64_t *state, const int64_t *former)
{
    const struct page *page = visit->page;
    const uint64_t at = visit_pair_at(visit);
    int64_t stored[STORED_MAX_WORDS];
    stored_of(page, state, stored);
    const struct pair pair = pair_of(stored, page->anchor_at, pair_next(stripe_load(visit->stripe, at + 1)));
    struct change change = change_begin(visit->stripe);
    struct walk walk;
    change_add(&change, at, pair.other);
    change_add(&change, at + 1, pair.time);
    if (!visit_rest(visit, &walk) || !walk_change(&walk, &change, stored + PAIR_WORDS, page->rest_words) ||
        (former && !walk_change(&walk, &change, former, page->words - STORED_WORDS(page))))
        return WEIR_ESTATE;
    change_commit(&change);
    return WEIR_OK;
}

/* ---- Keys ---- */

/* Take cells and write a key's words into them. Return the first one; 0: damaged. */
static uint32_t visit_make(struct visit *visit, struct change *change, const struct page *page, const int64_t *state,
                           const int64_t *former)
{
    const struct machine_shape *shape = &visit->machine->shape;
    const uint32_t n = cells_for(page->words, visit->request->key.len);
    uint32_t second;
    const uint32_t first = cells_take(change, shape, visit->bucket, n, &second);
    struct walk walk = walk_begin(visit->stripe, shape, first);
    walk.second = second;
    if (first == 0)
        return 0;
    const uint64_t at = pair_at(shape, first);
    int64_t stored[STORED_MAX_WORDS];
    stored_of(page, state, stored);
    const struct pair pair = pair_of(stored, page->anchor_at, stripe_load(visit->stripe, at + 1) & ~PAIR_TIME);
    stripe_store(visit->stripe, at, pair.other);
    stripe_store(visit->stripe, at + 1, pair.time);
    if (!walk_skip(&walk, PAIR_WORDS) || !walk_write_key(&walk, visit->request->key) ||
        !walk_write(&walk, stored + PAIR_WORDS, page->rest_words) ||
        (former && !walk_write(&walk, former, page->words - STORED_WORDS(page))))
        return 0;
    return first;
}

/* The key is now the first one of its bucket. */
static void visit_begins(struct visit *visit, uint32_t first, uint32_t number, const struct page *page)
{
    visit->first = first;
    visit->before = 0;
    visit->rule = number;
    visit->page = page;
}

int visit_add(struct visit *visit, uint32_t number, const struct page *page, const int64_t *state,
              const int64_t *former)
{
    struct change change = change_begin(visit->stripe);
    const uint32_t first = visit_make(visit, &change, page, state, former);
    if (first == 0)
        return WEIR_ESTATE;
    key_link(&change, &visit->machine->shape, first, cell_of_key(visit->request->hash, number, visit->request->key.len),
             visit->bucket);
    change_commit(&change);
    visit_begins(visit, first, number, page);
    return WEIR_OK;
}

int visit_replace(struct visit *visit, uint32_t number, const struct page *page, const int64_t *state,
                  const int64_t *former)
{
    const struct machine_shape *shape = &visit->machine->shape;
    const size_t len = visit->request->key.len;
    struct change change = change_begin(visit->stripe);
    const uint32_t first = visit_make(visit, &change, page, state, former);
    if (first == 0 ||
        !key_unlink(&change, shape, visit->first, visit->before, visit->bucket, cells_for(visit->page->words, len)))
        return WEIR_ESTATE;
    key_link(&change, shape, first, cell_of_key(visit->request->hash, number, len), visit->bucket);
    change_commit(&change);
    visit_begins(visit, first, number, page);
    return WEIR_OK;
}

int visit_remove(struct visit *visit)
{
    struct change change = change_begin(visit->stripe);
    if (!key_unlink(&change, &visit->machine->shape, visit->first, visit->before, visit->bucket,
                    cells_for(visit->page->words, visit->len)))
        return WEIR_ESTATE;
    change_commit(&change);
    visit->first = 0;
    return WEIR_OK;
}
