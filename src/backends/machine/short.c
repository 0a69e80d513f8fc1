/* short.c - decides the short way for all algorithms; take.c does it for the commonest request alone. */
#include "backends/machine/short.h"

/* True if a request asks for nothing but what state_decide() does. */
static inline bool is_plain(const struct weir_backend_request *request)
{
    return request->verb <= WEIR_PEEK && request->ahead == 0 && !request->reservation;
}

/* ---- A state of two words ---- */

static bool small_decide(struct machine_stripe *stripe, struct machine_latch *latch, uint64_t at,
                         const struct page *page, const struct weir_backend_request *request, struct weir_decision *out)
{
    int64_t state[MACHINE_SMALL_WORDS] = { (int64_t)stripe_load(stripe, at), (int64_t)stripe_load(stripe, at + 1) };
    if (__builtin_expect(!state_is_small(page->top, page->last_anchor, state), 0))
        return false;
    if (!(__builtin_expect(is_plain(request), 1)
              ? state_decide(&page->text.plan, state, request->now_us, request->cost, request->verb, out)
              : state_decide_request(&page->text.plan, state, request->now_us, request->verb, request, out)))
        return true;
    if (__builtin_expect(out->reset_after_us == 0, 0))
        return false;
    latch_write(stripe, latch, at, state, MACHINE_SMALL_WORDS);
    return true;
}

/* ---- A sliding window in two cells ---- */

#define PAIR_FIRST MACHINE_CELL_CONTENT      /* words of the state in the first cell */
#define PAIR_MOST (2 * MACHINE_CELL_CONTENT) /* in both */

struct pair {
    uint64_t first_at, second_at; /* the contents of the cells */
};

/* Find a key whose state has `words`. False: as short_find(). */
static bool pair_find(const struct machine_stripe *stripe, const struct machine_shape *shape, struct weir_key key,
                      uint32_t bucket, uint64_t what, size_t words, struct pair *pair)
{
    uint32_t cell = bucket_first(stripe, shape, bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        const uint64_t at = cell_at(shape, cell);
        if (stripe_load(stripe, at + 1) == what) {
            const uint32_t second = cell_after(stripe, shape, cell, cell);
            if (second == 0)
                return false;
            pair->first_at = at + MACHINE_CELL_HEAD;
            pair->second_at = cell_at(shape, second) + MACHINE_CELL_HEAD;
            if (cell_has_key(stripe, pair->second_at + words - PAIR_FIRST, key))
                return true;
        }
        cell = word_low(stripe_load(stripe, at));
    }
    return false;
}

/* Copy words of counts from a place on, and return the sum of these. Adding them up afterwards would be slow: wider loads
 * than the stores of the copy have to wait until these are done. */
static inline uint64_t pair_copy(const struct machine_stripe *stripe, uint64_t at, int64_t *state, size_t words)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++) {
        const uint64_t word = stripe_load(stripe, at + i);
        state[i] = (int64_t)word;
        sum += state_counts(word);
    }
    return sum;
}

/* True if the words from a place on are those of a state. */
static inline bool pair_is(const struct machine_stripe *stripe, uint64_t at, const int64_t *state, size_t words)
{
    uint64_t differs = 0;
    for (size_t i = 0; i < words; i++)
        differs |= stripe_load(stripe, at + i) ^ (uint64_t)state[i];
    return differs == 0;
}

/* Write a state that has changed. False: it has in the second cell, which the latch's journal has no room for. */
static inline bool pair_write(struct machine_stripe *stripe, struct machine_latch *latch, const struct pair *pair,
                              const int64_t *state, size_t words)
{
    size_t from = 0, to = PAIR_FIRST;
    if (!pair_is(stripe, pair->second_at, state + PAIR_FIRST, words - PAIR_FIRST))
        return false;
    while (from < to && pair_is(stripe, pair->first_at + from, state + from, 1))
        from++;
    while (from < to && pair_is(stripe, pair->first_at + to - 1, state + to - 1, 1))
        to--;
    if (from < to)
        latch_write(stripe, latch, pair->first_at + from, state + from, to - from);
    return true;
}

static bool pair_decide(struct machine_stripe *stripe, struct machine_latch *latch, const struct pair *pair,
                        const struct page *page, const struct weir_backend_request *request, struct weir_decision *out)
{
    const size_t words = page->own_words;
    int64_t state[PAIR_MOST];
    assert(words >= PAIR_FIRST && words <= PAIR_MOST);
    state[0] = (int64_t)stripe_load(stripe, pair->first_at);
    uint64_t sum = pair_copy(stripe, pair->first_at + 1, state + 1, PAIR_FIRST - 1);
    sum += pair_copy(stripe, pair->second_at, state + PAIR_FIRST, words - PAIR_FIRST);
    if (!state_is_large(page->top, page->last_anchor, state[0], sum))
        return false;
    if (!sliding_window_decide(&page->text.plan, state, request->now_us, request->cost, request->verb, out))
        return true;
    return out->reset_after_us != 0 && pair_write(stripe, latch, pair, state, words);
}

/* ---- The way ---- */

static inline bool short_inside(struct machine_stripe *stripe, struct machine_latch *latch,
                                const struct machine_shape *shape, uint32_t bucket, uint32_t number,
                                const struct page *page, const struct weir_backend_request *request,
                                struct weir_decision *out)
{
    const uint64_t what = cell_of_key(request->hash, number, request->key.len);
    struct pair pair;
    if (page->own_words != MACHINE_SMALL_WORDS)
        return pair_find(stripe, shape, request->key, bucket, what, page->own_words, &pair) &&
               pair_decide(stripe, latch, &pair, page, request, out);
    const uint64_t at = short_find(stripe, shape, request->key, bucket, what);
    return at != 0 && small_decide(stripe, latch, at, page, request, out);
}

bool machine_decide_short(struct machine *machine, const struct weir_backend_request *request,
                          struct weir_decision *out)
{
    const struct machine_shape *shape = &machine->shape;
    struct machine_stripe *stripe = machine_stripe_of(machine, request->hash);
    const uint32_t bucket = bucket_of(shape, request->hash);
    struct machine_latch *latch = latch_of(stripe, bucket);
    uint64_t turn;
    machine_fetch(machine, stripe, bucket);
    const uint32_t number = book_number(&machine->book, request, &turn);
    const struct page *page = number ? book_page(&machine->book, number) : NULL;
    if (__builtin_expect(!page || request->verb == WEIR_RESET, 0))
        return false;
    const uint32_t cells = cells_for(page->own_words, request->key.len);
    const bool is_pair = page->own_words >= PAIR_FIRST;
    if (is_pair)
        machine_fetch_second(machine, stripe, bucket);
    if (__builtin_expect(
            is_pair ? cells != 2 || !is_plain(request) : cells != 1 || page->own_words != MACHINE_SMALL_WORDS, 0) ||
        !short_enter(&machine->file, latch))
        return false;
    const bool is_done = __builtin_expect(book_file_turn(&machine->book) == turn, 1) &&
                         short_inside(stripe, latch, shape, bucket, number, page, request, out);
    short_leave(latch);
    return is_done;
}
