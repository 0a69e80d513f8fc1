/* short.c - decides the short way for all algorithms; take.c does it for the commonest request alone. */
#include "backends/machine/short.h"

#include "backends/machine/bound.h"

struct ask {
    struct machine *machine;
    struct machine_stripe *stripe;
    const struct weir_backend_request *request;
    const struct page *page;
    uint32_t bucket;
    uint64_t what; /* the second word of the key's first cell */
    uint64_t turn; /* of the rules, for which that holds */
    bool is_away;  /* the key was found, has one cell, and is not at home */
};

/* How a look at a key ended. */
enum end {
    END_DONE,
    END_AGAIN, /* the key changed at the same time */
    END_OTHER, /* the stripe's lock decides */
};

/* True if a request asks for nothing but what state_decide() does. */
static inline bool is_plain(const struct weir_backend_request *request)
{
    return request->verb <= WEIR_PEEK && request->ahead == 0 && !request->reservation;
}

/* True if the stripe's lock need not decide for a key that was found. */
static inline bool ask_may_decide(const struct ask *ask, const struct sight *sight)
{
    return __builtin_expect(!pair_is_held(sight->pair) && book_file_turn(&ask->machine->book) == ask->turn, 1);
}

/* Write what was decided. The key is used, and nothing but its pair changed. */
static inline enum end ask_write(const struct ask *ask, const struct sight *sight, const int64_t *state)
{
    const size_t anchor_at = ask->page->anchor_at;
    const struct pair to = pair_of(state, anchor_at, sight->pair.time & ~PAIR_TIME);
    return pair_swap(ask->stripe, sight->at, sight->pair, to) ? END_DONE : END_AGAIN;
}

/* A decision changed nothing: it holds if the key was as it was read. */
static inline enum end ask_confirm(const struct ask *ask, const struct sight *sight)
{
    return pair_is(ask->stripe, sight->at, sight->pair) ? END_DONE : END_AGAIN;
}

/* ---- A state of two words ---- */

static enum end small_decide(const struct ask *ask, const struct sight *sight, struct weir_decision *out)
{
    const struct weir_backend_request *request = ask->request;
    const struct page *page = ask->page;
    int64_t state[PAIR_WORDS];
    pair_tell(sight->pair, page->anchor_at, state);
    if (__builtin_expect(!state_is_small(page->top, page->last_anchor, state), 0))
        return END_OTHER;
    if (!(__builtin_expect(is_plain(request), 1)
              ? state_decide(&page->text.plan, state, request->now_us, request->cost, request->verb, out)
              : state_decide_request(&page->text.plan, state, request->now_us, request->verb, request, out)))
        return ask_confirm(ask, sight);
    return __builtin_expect(out->reset_after_us == 0, 0) ? END_OTHER : ask_write(ask, sight, state);
}

/* ---- A sliding window, or a key of several cells ---- */

/* What is read of a key besides its pair. */
struct rest {
    int64_t state[STATE_MAX_WORDS]; /* from PAIR_WORDS on */
    uint64_t sum; /* of the counts there. Adding them up afterwards would be slow: wider loads than the
                                     * stores of the copy have to wait until these are done */
};

/* Copy the rest of a state. False: the key is another one, or its chain is damaged. */
static inline bool rest_read(const struct ask *ask, const struct sight *sight, uint32_t cell, struct rest *rest)
{
    const size_t words = ask->page->own_words;
    const size_t first = words < MACHINE_CELL_CONTENT ? words : MACHINE_CELL_CONTENT;
    size_t i = PAIR_WORDS;
    rest->sum = 0;
    for (; i < first; i++) {
        const uint64_t word = stripe_load(ask->stripe, sight->at + i);
        rest->state[i] = (int64_t)word;
        rest->sum += state_counts(word);
    }
    struct walk walk = walk_begin(ask->stripe, &ask->machine->shape, cell);
    walk.at = (unsigned)first;
    for (; i < words; i++) {
        const uint64_t at = walk_next(&walk);
        if (__builtin_expect(at == 0, 0))
            return false;
        const uint64_t word = stripe_load(ask->stripe, at);
        rest->state[i] = (int64_t)word;
        rest->sum += state_counts(word);
    }
    return walk_has_key(&walk, ask->request->key);
}

/* A window that goes on to another block changes more than its pair, and so may a refund. */
static enum end window_decide(const struct ask *ask, const struct sight *sight, struct rest *rest,
                              struct weir_decision *out)
{
    const struct weir_backend_request *request = ask->request;
    const struct page *page = ask->page;
    int64_t *state = rest->state;
    pair_tell(sight->pair, 0, state);
    const int64_t anchor = state[0];
    if (__builtin_expect(!is_plain(request) || !state_is_large(page->top, page->last_anchor, anchor,
                                                               rest->sum + state_counts((uint64_t)state[1])),
                         0))
        return END_OTHER;
    if (!sliding_window_decide(&page->text.plan, state, request->now_us, request->cost, request->verb, out))
        return ask_confirm(ask, sight);
    return out->reset_after_us == 0 || state[0] != anchor ? END_OTHER : ask_write(ask, sight, state);
}

/* Decide if the key is in a cell. False: it is not. */
static inline bool long_is(const struct ask *ask, uint32_t cell, enum end *end, struct weir_decision *out)
{
    const struct machine_shape *shape = &ask->machine->shape;
    const uint64_t at = pair_at(shape, cell);
    const struct sight sight = { .at = at, .pair = pair_load(ask->stripe, at), .is_away = false };
    struct rest rest;
    if (stripe_load(ask->stripe, cell_at(shape, cell) + 1) != ask->what || !rest_read(ask, &sight, cell, &rest))
        return false;
    if (!ask_may_decide(ask, &sight))
        *end = END_OTHER;
    else if (ask->page->anchor_at == 0)
        *end = window_decide(ask, &sight, &rest, out);
    else
        *end = small_decide(ask, &sight, out);
    return true;
}

static enum end long_once(const struct ask *ask, struct weir_decision *out)
{
    const struct machine_shape *shape = &ask->machine->shape;
    enum end end = END_OTHER;
    if (long_is(ask, bucket_home(ask->bucket), &end, out))
        return end;
    uint32_t cell = bucket_first(ask->stripe, shape, ask->bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        if (long_is(ask, cell, &end, out))
            return end;
        cell = word_low(stripe_load(ask->stripe, cell_at(shape, cell)));
    }
    return end;
}

/* ---- The way ---- */

static inline enum end ask_once(struct ask *ask, struct weir_decision *out)
{
    const struct weir_key key = ask->request->key;
    struct sight sight;
    if (ask->page->anchor_at == 0 || cells_for(PAIR_WORDS, key.len) != 1)
        return long_once(ask, out);
    if (!short_find(ask->stripe, &ask->machine->shape, key, ask->bucket, ask->what, &sight) ||
        !ask_may_decide(ask, &sight))
        return END_OTHER;
    ask->is_away = sight.is_away;
    return small_decide(ask, &sight, out);
}

static inline bool ask_inside(struct ask *ask, struct weir_decision *out)
{
    struct book *book = &ask->machine->book;
    const struct weir_backend_request *request = ask->request;
    uint32_t number;
    ask->page = book_known(book, request, &number, &ask->turn);
    if (__builtin_expect(!ask->page || request->verb == WEIR_RESET, 0))
        return false;
    ask->what = cell_of_key(request->hash, number, request->key.len);
    enum end end = END_AGAIN;
    for (int tries = 0; tries < SHORT_TRIES && end == END_AGAIN; tries++)
        end = ask_once(ask, out);
    return end == END_DONE;
}

bool machine_decide_short(struct machine *machine, const struct weir_backend_request *request,
                          struct weir_decision *out)
{
    struct ask ask = { .machine = machine,
                       .stripe = machine_stripe_of(machine, request->hash),
                       .request = request,
                       .bucket = bucket_of(&machine->shape, request->hash) };
    machine_fetch(machine, ask.stripe, ask.bucket);
    _Atomic uint64_t *reader = readers_enter(&machine->book.readers);
    if (!reader)
        return false;
    const bool is_done = ask_inside(&ask, out);
    const uint64_t reads = readers_leave(reader);
    if (__builtin_expect(ask.is_away && is_done && out->allowed, 0))
        machine_rehome_some(machine, request->limit, request->key, request->hash, reads);
    return is_done;
}
