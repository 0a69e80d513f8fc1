/* take.c - decides the commonest requests: permits of a known key, by a token bucket with greedy refill.
 *
 * It takes the steps of short.c for this case alone: from arguments in registers instead of a request in memory, and
 * with nothing to choose. The plain way is for keys of 16 bytes, calls no function, and tries once. It leaves all else
 * to the other way, and that to machine_decide_one(). Each begins again.
 */
#include "core/limiter/take.h"
#include "backends/machine/bound.h"
#include "backends/machine/short.h"

/* How a way ended. */
enum take_end {
    TAKE_DONE,
    TAKE_AWAY,  /* done, and the key is due for a move to its home */
    TAKE_AGAIN, /* the key changed at the same time */
    TAKE_OTHER, /* another way decides */
};

/* What a way knows of a request once it has begun, and what it finds out. */
struct take {
    struct machine *machine;
    struct machine_stripe *stripe;
    uint32_t bucket;
    const struct page *page;
    struct level level;
    bool allowed, is_away; /* is_away: the key changed, and is not at home */
};

static inline struct take take_begin(const struct weir_limit *limit, uint64_t hash)
{
    struct machine *machine = (struct machine *)limit->limiter->backend;
    const struct take take = { .machine = machine,
                               .stripe = machine_stripe_of(machine, hash),
                               .bucket = bucket_of(&machine->shape, hash) };
    machine_fetch(machine, take.stripe, take.bucket); /* it arrives while the clock is read */
    return take;
}

/* Take from the key's pair, as one of the book's readers. */
__attribute__((always_inline)) static inline enum take_end
take_swap(struct take *take, struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us)
{
    struct machine *machine = take->machine;
    struct sight sight;
    uint64_t turn;
    int64_t state[PAIR_WORDS];
    const struct page *page = take->page = book_plain(&machine->book, limit, &turn);
    if (__builtin_expect(!page || machine->file.fd < 0 || !key_is_short(key.len) ||
                             !short_find(take->stripe, &machine->shape, key, take->bucket,
                                         cell_of_key(hash, page->number, key.len), &sight),
                         0))
        return TAKE_OTHER;
    const struct weir_plan *plan = page_plain_plan(page);
    pair_tell(sight.pair, 1, state);
    if (__builtin_expect(pair_is_held(sight.pair) || !state_is_small(page->top, page->last_anchor, state) ||
                             book_file_turn(&machine->book) != turn || (uint64_t)cost - 1 >= (uint64_t)plan->size,
                         0))
        return TAKE_OTHER;
    take->level = level_read(plan, state, now_us);
    take->is_away = false;
    take->allowed = take->level.used + cost * plan->q <= page->known.top;
    if (!take->allowed) {
        if (__builtin_expect(take->level.changed, 0)) /* the clock stepped back */
            return TAKE_OTHER;
        return __builtin_expect(pair_is(take->stripe, sight.at, sight.pair), 1) ? TAKE_DONE : TAKE_AGAIN;
    }
    take->level.used += cost * plan->q;
    take->is_away = sight.is_away;
    const struct pair to = { (uint64_t)take->level.used, pair_time_of(sight.pair, take->level.tick) };
    return __builtin_expect(pair_swap(take->stripe, sight.at, sight.pair, to), 1) ? TAKE_DONE : TAKE_AGAIN;
}

/* Tell a decision; `allowed` may be a constant. */
__attribute__((always_inline)) static inline void take_tell(const struct take *take, int64_t cost, int64_t now_us,
                                                            bool allowed, struct weir_decision *out)
{
    const struct page *page = take->page;
    const struct weir_plan *plan = page_plain_plan(page);
    assume(cost <= plan->size && (!allowed || (take->level.used > 0 && take->level.used <= page->known.top)));
    level_tell_by(plan, level_given(&page->known), &take->level, now_us, cost, allowed, out);
}

/* ---- The plain way ---- */

/* Count a decision in the thread's block; `allowed` is a constant. */
__attribute__((always_inline)) static inline void take_count(const struct take *take, struct figures *figures,
                                                             int64_t cost, bool allowed)
{
    figures_add(&figures->singles[WEIR_BY_MEMORY][allowed], 1);
    if (!allowed)
        return;
    figures_add(&figures->permits, (uint64_t)cost);
    if (__builtin_expect(take->level.used > take->page->near, 0))
        figures_add(&figures->near, 1);
}

/* Tell and count, as one of the book's readers. Admissions and denials have a way each, in which `allowed` is a
 * constant. */
__attribute__((always_inline)) static inline enum take_end take_end(const struct take *take, struct weir_limit *limit,
                                                                    struct figures *figures, int64_t cost,
                                                                    int64_t now_us, struct weir_decision *out)
{
    if (__builtin_expect(guard_is_lost(take->machine->file.guard), 0))
        return TAKE_OTHER;
    if (take->allowed) {
        take_tell(take, cost, now_us, true, out);
        take_count(take, figures, cost, true);
        return take->is_away ? TAKE_AWAY : TAKE_DONE;
    }
    if (limit->limiter->top_keys) /* counting it takes a call */
        return TAKE_OTHER;
    take_tell(take, cost, now_us, false, out);
    take_count(take, figures, cost, false);
    return TAKE_DONE;
}

/* Do all of weir_try_at() for a key of 16 bytes and a time that is known. */
__attribute__((always_inline)) static inline enum take_end take_plainly(struct take *take, struct weir_limit *limit,
                                                                        struct weir_key key, uint64_t hash,
                                                                        int64_t cost, int64_t now_us,
                                                                        struct weir_decision *out)
{
    const unsigned own_stripe = stats_own_stripe;
    struct figures *figures = figures_of(limit, own_stripe);
    if (__builtin_expect(!figures, 0)) /* the thread's first answer by this limit; or it cannot read */
        return TAKE_OTHER;
    _Atomic uint64_t *turn = readers_turn(&take->machine->book.readers, own_stripe);
    if (__builtin_expect(!readers_begin_plainly(&take->machine->book.readers, turn), 0))
        return TAKE_OTHER;
    enum take_end end = TAKE_OTHER;
    if (__builtin_expect(!limit_is_special(limit), 1))
        end = take_swap(take, limit, key, hash, cost, now_us);
    if (__builtin_expect(end == TAKE_DONE, 1))
        end = take_end(take, limit, figures, cost, now_us, out);
    const uint64_t reads = readers_leave(turn);
    return end == TAKE_AWAY && !rehome_is_due(reads) ? TAKE_DONE : end;
}

/* ---- The other way, which may call functions ---- */

/* Decide as machine_decide() does. */
__attribute__((noinline)) static int take_otherwise(struct weir_limit *limit, struct weir_key key, uint64_t hash,
                                                    int64_t cost, int64_t now_us, struct weir_decision *out)
{
    struct weir_backend_request request;
    struct weir_backend *backend = limit->limiter->backend;
    fill_request(&request, limit, key, hash, cost, now_us, WEIR_TAKE);
    const int error = backend->ops->decide(backend, &request, 1, false, INT64_MAX, out);
    return error ? error : own_taken(out);
}

/* Decide by `limit`, which may be an override. Return own_taken() or an error. */
static inline int take_decide(struct take *take, struct weir_limit *limit, struct weir_key key, uint64_t hash,
                              int64_t cost, int64_t now_us, struct weir_decision *out)
{
    struct machine *machine = take->machine;
    _Atomic uint64_t *reader = readers_enter(&machine->book.readers);
    enum take_end end = reader ? TAKE_AGAIN : TAKE_OTHER;
    for (int tries = 0; tries < SHORT_TRIES && end == TAKE_AGAIN; tries++)
        end = take_swap(take, limit, key, hash, cost, now_us);
    if (end == TAKE_DONE)
        take_tell(take, cost, now_us, take->allowed, out);
    const uint64_t reads = reader ? readers_leave(reader) : 0;
    if (end != TAKE_DONE)
        return take_otherwise(limit, key, hash, cost, now_us, out);
    if (__builtin_expect(take->is_away, 0))
        machine_rehome_some(machine, limit, key, hash, reads);
    return __builtin_expect(guard_is_lost(machine->file.guard), 0) ? machine_lost(machine) : own_taken(out);
}

static inline int take_any(struct weir_limit *limit, struct weir_key key, uint64_t hash, int64_t cost, int64_t now_us,
                           struct weir_decision *out)
{
    struct take take = take_begin(limit, hash);
    struct weir_limit *asked = limit;
    limit = limit_for_key(limit, key, hash);
    int error;
    if (limit_has_halves(limit))
        return take_halves(asked, key, hash, cost, now_us, NULL, out);
    if (take_fixed(limit, key, hash, cost, now_us, out, &error))
        return error;
    error = take_time(limit, &now_us);
    const int taken = error ? error : take_decide(&take, limit, key, hash, cost, now_us, out);
    return take_counted(limit, key, hash, cost, now_us, taken, out);
}

/* Have a key that was found elsewhere moved to its home, after a take by the plain way. */
static void take_rehome(struct weir_limit *limit, struct weir_key key, uint64_t hash)
{
    struct machine *machine = (struct machine *)limit->limiter->backend;
    const _Atomic uint64_t *turn = readers_turn(&machine->book.readers, stats_own_stripe);
    machine_rehome_some(machine, limit, key, hash, atomic_load_explicit(turn, memory_order_relaxed) / 2);
}

/* Do what the plain way leaves: hash the key again, because the hash would have to be kept in each take. What has been
 * decided had valid arguments. */
__attribute__((noinline)) static int try_otherwise(enum take_end end, struct weir_limit *limit, struct weir_key key,
                                                   int64_t cost, int64_t now_us, struct weir_decision *out)
{
    if (end == TAKE_AWAY) {
        take_rehome(limit, key, key_hash(limit, key));
        return WEIR_OK;
    }
    const int error = take_check_key(limit, key, cost, now_us, out);
    return error ? error : take_any(limit, key, key_hash(limit, key), cost, now_us, out);
}

__attribute__((noinline)) static int try_handle_otherwise(enum take_end end, weir_handle *handle, int64_t cost,
                                                          int64_t now_us, struct weir_decision *out)
{
    if (end == TAKE_AWAY) {
        take_rehome(handle->limit, handle->key, handle->hash);
        return WEIR_OK;
    }
    const int error = take_check(handle->limit->limiter, cost, now_us, out);
    return error ? error : take_any(handle->limit, handle->key, handle->hash, cost, now_us, out);
}

/* ---- The calls ---- */

/* Only what the plain way would not survive is checked first: NULL. It gives up at a cost that is out of range. */
int machine_try(struct weir_limit *limit, struct weir_key key, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    enum take_end end = TAKE_OTHER;
    if (__builtin_expect(key.len == 16 && key.data && out, 1)) {
        const struct weir_key known = weir_key(key.data, 16); /* its length is a constant */
        uint64_t hash = key_hash(limit, known);
        __asm__ volatile("" : "+r"(hash)); /* now, rather than keeping in registers all that it is made of */
        struct take take = take_begin(limit, hash);
        int64_t time_us = now_us;
        if (__builtin_expect(take_is_ready(limit, &time_us), 1))
            end = take_plainly(&take, limit, known, hash, cost, time_us, out);
    }
    return __builtin_expect(end, TAKE_DONE) != TAKE_DONE ? try_otherwise(end, limit, key, cost, now_us, out) : WEIR_OK;
}

int machine_try_handle(weir_handle *handle, int64_t cost, int64_t now_us, struct weir_decision *out)
{
    struct weir_limit *limit = handle->limit;
    enum take_end end = TAKE_OTHER;
    if (__builtin_expect(handle->key.len == 16 && out, 1)) {
        struct take take = take_begin(limit, handle->hash);
        int64_t time_us = now_us;
        if (__builtin_expect(take_is_ready(limit, &time_us), 1))
            end = take_plainly(&take, limit, weir_key(handle->bytes, 16), handle->hash, cost, time_us, out);
    }
    return __builtin_expect(end, TAKE_DONE) != TAKE_DONE ? try_handle_otherwise(end, handle, cost, now_us, out)
                                                         : WEIR_OK;
}
