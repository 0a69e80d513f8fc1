/* short.c - decides the short way for all algorithms; take.c does it for the commonest request alone. */
#include "backends/machine/short.h"

#include "backends/machine/bound.h"
#include "backends/machine/stored.h"

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

/* True if state_decide() does all that a request asks for. */
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
              : state_decide_request(&page->text.plan, state, NULL, request->now_us, request->verb, request, out)))
        return ask_confirm(ask, sight);
    return __builtin_expect(out->reset_after_us == 0, 0) ? END_OTHER : ask_write(ask, sight, state);
}

/* ---- A sliding window ---- */

/* Copy the rest of a state, behind the key. False: the key is another one, or its chain is damaged. */
static inline bool window_read(const struct ask *ask, const struct sight *sight, int64_t *stored)
{
    const struct machine_shape *shape = &ask->machine->shape;
    struct walk walk = walk_begin(ask->stripe, shape, cell_of_pair(shape, sight->at));
    return walk_skip(&walk, PAIR_WORDS + key_words(ask->request->key.len)) &&
           walk_read(&walk, stored + PAIR_WORDS, ask->page->rest_words);
}

/* Decide by the whole state. What changes more than the pair is left to the stripe's lock. */
__attribute__((noinline)) static enum end window_decide_whole(const struct ask *ask, const struct sight *sight,
                                                              struct weir_decision *out)
{
    const struct weir_backend_request *request = ask->request;
    const struct page *page = ask->page;
    int64_t stored[STORED_MAX_WORDS], state[STATE_MAX_WORDS];
    pair_tell(sight->pair, 0, stored);
    if (!is_plain(request) || !window_read(ask, sight, stored) || !stored_tell(page, stored, state))
        return END_OTHER;
    return sliding_window_decide(&page->text.plan, state, request->now_us, request->cost, request->verb, out)
               ? END_OTHER
               : ask_confirm(ask, sight);
}

static enum end window_decide(const struct ask *ask, const struct sight *sight, struct weir_decision *out)
{
    const struct weir_backend_request *request = ask->request;
    const struct page *page = ask->page;
    int64_t words[SLIDING_SUMMARY_WORDS];
    struct sliding_summary summary;
    pair_tell(sight->pair, 0, words);
    memcpy(&summary, words, sizeof summary);
    if (__builtin_expect(!summary_is_sound(page, &summary), 0))
        return END_OTHER;
    if (__builtin_expect(!sliding_summary_decide(&page->text.plan, words, request, out), 0))
        return window_decide_whole(ask, sight, out);
    const bool changes = out->allowed && request->verb != WEIR_PEEK;
    const enum end end = changes ? ask_write(ask, sight, words) : ask_confirm(ask, sight);
    if (end == END_DONE && out->allowed && request->reservation)
        request->reservation->at_us = state_noted_us(&page->text.plan, words, request->now_us);
    return end;
}

/* ---- A key that does not fit into its first cell ---- */

static inline bool long_is(const struct ask *ask, uint32_t cell, struct sight *sight)
{
    const struct machine_shape *shape = &ask->machine->shape;
    struct walk walk = walk_begin(ask->stripe, shape, cell);
    *sight = (struct sight){ .at = pair_at(shape, cell), .pair = pair_load(ask->stripe, pair_at(shape, cell)) };
    return stripe_load(ask->stripe, cell_at(shape, cell) + 1) == ask->what && walk_skip(&walk, PAIR_WORDS) &&
           walk_has_key(&walk, ask->request->key);
}

__attribute__((noinline)) static bool long_find(const struct ask *ask, struct sight *sight)
{
    const struct machine_shape *shape = &ask->machine->shape;
    if (long_is(ask, bucket_home(ask->bucket), sight))
        return true;
    uint32_t cell = bucket_first(ask->stripe, shape, ask->bucket);
    for (int steps = 0; steps < SHORT_STEPS && cell_exists(shape, cell); steps++) {
        if (long_is(ask, cell, sight))
            return true;
        cell = word_low(stripe_load(ask->stripe, cell_at(shape, cell)));
    }
    return false;
}

/* ---- The way ---- */

static inline enum end ask_once(struct ask *ask, struct weir_decision *out)
{
    const struct weir_key key = ask->request->key;
    struct sight sight;
    const bool is_found = key_is_short(key.len)
                              ? short_find(ask->stripe, &ask->machine->shape, key, ask->bucket, ask->what, &sight)
                              : long_find(ask, &sight);
    if (!is_found || !ask_may_decide(ask, &sight))
        return END_OTHER;
    ask->is_away = sight.is_away && cells_for(ask->page->words, key.len) == 1;
    if (ask->page->slides && !ask->page->has_summary)
        return END_OTHER;
    return ask->page->slides ? window_decide(ask, &sight, out) : small_decide(ask, &sight, out);
}

static inline bool ask_inside(struct ask *ask, struct weir_decision *out)
{
    struct book *book = &ask->machine->book;
    const struct weir_backend_request *request = ask->request;
    ask->page = book_bound(book, request->limit, request->plan_version, &ask->turn);
    if (__builtin_expect(!ask->page || request->verb == WEIR_RESET, 0))
        return false;
    ask->what = cell_of_key(request->hash, ask->page->number, request->key.len);
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
